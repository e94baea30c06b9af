"""Evaluating a run: both models on the same lines, calibration, and what is unusual."""

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import torch

import dsocr
from dsocr.config import RunConfig
from dsocr.data.dataset import Dataset
from dsocr.data.prepare import prepare
from dsocr.document import Split
from dsocr.evaluation.metrics import character_errors, pool
from dsocr.evaluation.scorecard import Scorecard, schema
from dsocr.evaluation.scores import load_lines
from dsocr.images import open_image
from dsocr.inference.confidence import UNCALIBRATED, Calibration, Scale
from dsocr.inference.reader import LocalReader
from dsocr.runs import RunFolder
from tests.evaluation.making_runs import change_card
from tests.raising import raises_code
from tests.training.running import train


@pytest.fixture(scope="module")
def run(small_dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """Train a run that reads differently from the base."""
    config = RunConfig.model_validate(
        {
            "base": "nano",
            "dataset": small_dataset,
            "output": tmp_path_factory.mktemp("evaluated") / "run",
            "adapter": {"target_modules": "decoder+vision"},
            "training": {
                "max_steps": 1,
                "batch_size": 4,
                "micro_batch_size": 4,
                "learning_rate": 3e-2,
                "warmup_ratio": 0.0,
            },
            "validation": {"every_steps": 1, "max_samples": 1},
            "generation": {"max_new_tokens": 12, "batch_size": 3},
        }
    )
    return train(config).run


@pytest.fixture(scope="module")
def card(run: RunFolder) -> Scorecard:
    """Evaluate the run with its base, which reads eight lines."""
    progress: list[tuple[int, int]] = []
    kept = Calibration.load(run.adapter)
    card = dsocr.evaluate(run.path, report=False, progress=lambda done, total: progress.append((done, total)))
    assert progress == [(done, 8) for done in range(1, 9)]
    assert Calibration.load(run.adapter) == kept
    return card


@pytest.fixture
def copy(run: RunFolder, tmp_path: Path) -> RunFolder:
    """Copy the run, so that a test can change it."""
    return RunFolder(Path(shutil.copytree(run.path, tmp_path / "copy")))


def test_base_and_adapter_read_the_same_lines(run: RunFolder, card: Scorecard, small_dataset: Path) -> None:
    lines = load_lines(run.lines)
    assert [line.id for line in lines["base"]] == [line.id for line in lines["adapter"]]
    assert [line.prediction for line in lines["base"]] != [line.prediction for line in lines["adapter"]]
    reader = LocalReader.of_run(run, merged=False)
    alone = LocalReader(reader.network.unload(), reader.processor, reader.generation, reader.text_policy)
    samples = Dataset.open(small_dataset).samples(Split.TEST)
    read = [prediction.text for prediction in alone.read((s.id, open_image(s.image)) for s in samples)]
    assert read == [line.prediction for line in lines["base"]], "the base without the adapter is the base alone"


def test_the_card_is_written_with_its_settings(run: RunFolder, card: Scorecard, small_dataset: Path) -> None:
    assert Scorecard.load(run.scorecard) == card
    jsonschema_rs.Draft202012Validator(schema()).validate(json.loads(run.scorecard.read_text(encoding="utf-8")))
    lines = {status: scores.final.lines for status, scores in card.by_writer_status.items()}
    assert lines == {"known": 2, "new": 2}
    assert [group.name for group in card.groups["source"].top] == ["lines.jsonl"]
    settings, weights = card.settings, (run.adapter / "adapter_model.safetensors").read_bytes()
    assert settings["adapter_sha256"] == hashlib.sha256(weights).hexdigest()
    assert (settings["base"], settings["base_revision"]) == ("nano", None)
    assert settings["generation"]["max_new_tokens"] == 12
    assert settings["text_policy"]["unicode"] == "NFC"
    hashes = Dataset.open(small_dataset).card.splits
    assert card.dataset == {split.value: part.sha256 for split, part in hashes.items()}
    assert set(card.versions) == {"python", "torch", "transformers", "peft", "numpy", "rapidfuzz"}


def test_a_run_on_a_fold_is_trained_and_scored_on_that_fold(
    small_config: RunConfig, small_dataset: Path, tmp_path: Path
) -> None:
    folds = prepare(small_dataset.parent / "source", tmp_path / "folds", split_by="text", folds=4).folder
    training = small_config.training.model_copy(update={"max_steps": 1})
    generation = small_config.generation.model_copy(update={"max_new_tokens": 4})
    changes = {"dataset": folds, "fold": 3, "training": training, "generation": generation}
    run = train(small_config.model_copy(update=changes)).run
    assert json.loads(run.provenance.read_text(encoding="utf-8"))["fold"] == 3
    card = dsocr.evaluate(run.path, base=False, report=False)
    scored = {json.loads(line)["id"] for line in run.lines.read_text(encoding="utf-8").splitlines()}
    assert scored == {sample.id for sample in Dataset.open(folds, fold=3).samples(Split.TEST)}
    assert scored.isdisjoint(sample.id for sample in Dataset.open(folds).samples(Split.TEST))
    assert (card.settings["fold"], card.settings["split_by"]) == (3, "text")


def test_another_split_a_limit_and_another_dataset_are_noted(
    copy: RunFolder, small_dataset: Path, tmp_path: Path
) -> None:
    old, new = (copy.path / f".scorecard.json.0000000{number}.tmp" for number in range(2))
    for path in (old, new):
        path.touch()
    os.utime(old, (0, 0))
    card = dsocr.evaluate(copy.path, dataset=small_dataset, split="validation", limit=2, base=False, report=False)
    assert (old.exists(), new.exists()) == (False, True), "a killed evaluation's, and perhaps that of another process"
    new.unlink()
    assert (card.split, card.base) == ("validation", None)
    assert card.settings["dataset"] == small_dataset.as_posix()
    assert card.settings["limit"] == card.settings["lines"] == 2
    assert len(card.notes) == 1
    other = change_card(small_dataset, tmp_path / "other", lambda card: card["splits"]["train"].update(sha256="0"))
    card = dsocr.evaluate(copy.path, dataset=other, split="train", limit=1, base=False, report=False)
    assert len(card.notes) == 3, "these lines were trained on"
    assert card.notes[1] in str(card).replace("\n", " ")


def test_datasets_that_cannot_be_scored_are_rejected(run: RunFolder, small_dataset: Path, tmp_path: Path) -> None:
    twice = Path(shutil.copytree(small_dataset, tmp_path / "twice"))
    metadata = twice / "test" / "metadata.jsonl"
    metadata.write_text(metadata.read_text(encoding="utf-8").splitlines(keepends=True)[0] * 4, encoding="utf-8")
    empty = Path(shutil.copytree(small_dataset, tmp_path / "empty"))
    (empty / "test" / "metadata.jsonl").write_text("", encoding="utf-8")
    missing = change_card(small_dataset, tmp_path / "missing", lambda card: card["splits"].pop("test"))
    shutil.rmtree(missing / "test")
    for folder, code in ((twice, "duplicate-id"), (empty, "metadata-short"), (missing, "split-missing")):
        with raises_code(code):
            dsocr.evaluate(run.path, dataset=folder, base=False, report=False)


def test_the_calibration_is_measured(run: RunFolder, card: Scorecard) -> None:
    report = json.loads(run.confidence.read_text(encoding="utf-8"))
    assert report["calibration"]["lines"] == Calibration.load(run.adapter).lines
    assert (report["lines"], len(report["budget"]), report["split"]) == (card.scores.final.lines, 5, "test")
    assert report["kinds"].keys() == {"character", "word", "line"}


def test_the_calibration_is_fitted_on_request(copy: RunFolder, small_dataset: Path, tmp_path: Path) -> None:
    other_fit = Calibration(Scale(1.5, -0.1), Scale(0.9, 0.2), Scale(1.0, 0.5), lines=12)
    progress: list[tuple[int, int]] = []
    options: dict[str, Any] = {"limit": 2, "base": False, "report": False, "calibrate": True}
    fitted = []
    for previous in (other_fit, UNCALIBRATED):
        previous.save(copy.adapter)
        dsocr.evaluate(copy.path, **options, progress=lambda *counts: progress.append(counts))
        fitted.append(Calibration.load(copy.adapter))
    assert progress == [(done, 4) for done in range(1, 5)] * 2
    assert other_fit != fitted[0] == fitted[1] != UNCALIBRATED, "the previous fit does not matter"
    assert json.loads(copy.confidence.read_text(encoding="utf-8"))["calibration"]["lines"] == 2

    other = change_card(small_dataset, tmp_path / "other", lambda card: card["splits"].pop("validation"))
    shutil.rmtree(other / "validation")
    with raises_code("split-missing"):
        dsocr.evaluate(copy.path, dataset=other, calibrate=True)
    assert Calibration.load(copy.adapter) == fitted[1]


def test_confidences_that_do_not_hold_are_named_first(copy: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dsocr.evaluation.calibration._LEAST_LINES", 2)
    Calibration(line=Scale(1.0, 9.0)).save(copy.adapter)
    card = dsocr.evaluate(copy.path, limit=2, base=False, report=False)
    assert card.notes[0].startswith("Confidences promise 0 % of the real errors here")


def test_nano_reads_print_well_without_drawing_random_numbers() -> None:
    samples = Dataset.open("examples/print").samples(Split.TEST)[::3]
    reader = LocalReader.of_run(RunFolder.to_read_with(Path("nano")))
    state = torch.random.get_rng_state()
    read = {prediction.id: prediction.text for prediction in reader.read((s.id, open_image(s.image)) for s in samples)}
    errors = pool(character_errors(sample.text, read[sample.id]) for sample in samples)
    assert errors.length > 300
    assert errors.rate < 0.04
    assert torch.equal(torch.random.get_rng_state(), state)
