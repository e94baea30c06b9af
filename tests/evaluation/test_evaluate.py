"""Scoring a run: both models on the same lines, hands apart, nothing dropped."""

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import yaml

from dsocr.config import RunConfig
from dsocr.data.dataset import Dataset
from dsocr.data.prepare import prepare
from dsocr.document import Split
from dsocr.errors import DataError
from dsocr.evaluation.evaluate import evaluate
from dsocr.evaluation.scorecard import Scorecard, render_table, schema
from dsocr.evaluation.scores import load_lines
from dsocr.images import open_image
from dsocr.inference.reader import Transcriber
from dsocr.runs import RunFolder
from dsocr.training.plan import make_plan
from dsocr.training.train import train


@pytest.fixture(scope="module")
def run(small_dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A run whose adapter has visibly changed what the base reads."""
    config = RunConfig.model_validate(
        {
            "dataset": small_dataset,
            "output": tmp_path_factory.mktemp("evaluated") / "run",
            "adapter": {"target_modules": "decoder+vision"},
            "training": {"max_steps": 6, "batch_size": 4, "micro_batch_size": 4, "learning_rate": 1e-2},
            "validation": {"every_steps": 6, "max_samples": 1},
            "guard": {"lines": 2},
            "generation": {"max_new_tokens": 24, "batch_size": 3},
        }
    )
    return train(config).run


def test_base_and_adapter_read_the_same_lines(run: RunFolder) -> None:
    told: list[tuple[int, int]] = []
    card = evaluate(run, progress=lambda done, total: told.append((done, total)))
    assert card.base is not None
    assert card.adapter is not None
    assert card.base.lines == card.adapter.lines == 4
    assert told == [(done, 8) for done in range(1, 9)]
    assert Scorecard.load(run.scorecard) == card
    assert load_lines(run.lines)["adapter"][0].source == "lines.jsonl:21"
    assert [group.name for group in card.groups["source"].shown] == ["lines.jsonl"]
    jsonschema_rs.Draft202012Validator(schema()).validate(json.loads(run.scorecard.read_text(encoding="utf-8")))
    rows = [json.loads(line) for line in run.lines.read_text(encoding="utf-8").splitlines()]
    assert [row["model"] for row in rows] == ["base"] * 4 + ["adapter"] * 4
    assert [row["id"] for row in rows[:4]] == [row["id"] for row in rows[4:]]
    assert [row["prediction"] for row in rows[:4]] != [row["prediction"] for row in rows[4:]]


def test_a_run_on_a_fold_is_trained_and_scored_on_that_fold(small_dataset: Path, tmp_path: Path) -> None:
    folds = prepare(small_dataset.parent / "source", tmp_path / "folds", split_by="text", folds=4).folder
    config = RunConfig.model_validate(
        {
            "dataset": folds,
            "output": tmp_path / "run",
            "fold": 3,
            "training": {"max_steps": 1, "batch_size": 2, "micro_batch_size": 2},
            "validation": {"every_steps": 1, "max_samples": 1},
            "guard": {"lines": 0},
            "generation": {"max_new_tokens": 4},
        }
    )
    assert make_plan(config, probe=False).schedule.samples == 12
    run = train(config).run
    assert json.loads(run.provenance.read_text(encoding="utf-8"))["fold"] == 3
    card = evaluate(run, with_base=False)
    scored = {json.loads(line)["id"] for line in run.lines.read_text(encoding="utf-8").splitlines()}
    assert scored == {sample.id for sample in Dataset.open(folds, fold=3).samples(Split.TEST)}
    assert scored.isdisjoint(sample.id for sample in Dataset.open(folds).samples(Split.TEST))
    assert (card.settings["fold"], card.settings["split_by"]) == (3, "text")


def test_a_configuration_with_a_fold_of_a_dataset_without_is_refused(small_config: RunConfig) -> None:
    with pytest.raises(DataError, match="has no folds, so none is fold 1"):
        train(small_config.model_copy(update={"fold": 1}))


def test_new_hands_are_told_from_known_ones(run: RunFolder) -> None:
    card = evaluate(run, with_base=False)
    assert {hand: scores.adapter.lines for hand, scores in card.by_hands.items() if scores.adapter} == {
        "known": 2,
        "new": 2,
    }
    assert card.base is None


def test_the_base_beside_the_adapter_is_the_base_alone(run: RunFolder, small_dataset: Path) -> None:
    evaluate(run)
    rows = [json.loads(line) for line in run.lines.read_text(encoding="utf-8").splitlines()]
    transcriber = Transcriber.of_run(run)
    samples = Dataset.open(small_dataset).samples(Split.TEST)
    plain = transcriber.network.unload()
    alone = Transcriber(plain, transcriber.encoder, transcriber.generation, transcriber.text_policy)
    texts = [prediction.text for prediction in alone.read((s.id, open_image(s.image)) for s in samples)]
    assert texts == [row["prediction"] for row in rows if row["model"] == "base"]


def test_a_limit_is_told_on_the_card(run: RunFolder) -> None:
    card = evaluate(run, limit=1, with_base=False)
    assert card.settings["limit"] == card.settings["lines"] == 1


def test_another_dataset_and_split_can_be_scored(run: RunFolder, small_dataset: Path) -> None:
    card = evaluate(run, dataset=small_dataset, split=Split.VALIDATION, limit=2)
    assert card.split == "validation"
    assert card.remarks == ("Only the first lines of the split were read, at most 2.",)
    assert card.settings["dataset"] == small_dataset.as_posix()


def test_a_guard_set_that_cannot_be_read_is_told_before_any_line_is(run: RunFolder, tmp_path: Path) -> None:
    copy = RunFolder(Path(shutil.copytree(run.path, tmp_path / "copy")))
    settings = yaml.safe_load(copy.config.read_text(encoding="utf-8"))
    settings["guard"]["dataset"] = (tmp_path / "nowhere").as_posix()
    copy.config.write_text(yaml.safe_dump(settings), encoding="utf-8")
    told: list[int] = []
    with pytest.raises(DataError, match="nowhere"):
        evaluate(copy, progress=lambda done, _: told.append(done))
    assert told == []


def test_the_card_says_what_it_was_made_with(run: RunFolder, small_dataset: Path) -> None:
    card = evaluate(run, limit=1)
    settings = card.settings
    weights = (run.adapter / "adapter_model.safetensors").read_bytes()
    assert settings["adapter_sha256"] == hashlib.sha256(weights).hexdigest()
    assert (settings["base"], settings["base_revision"]) == ("nano", None)
    assert settings["generation"]["max_new_tokens"] == 24
    assert settings["text_policy"]["unicode"] == "NFC"
    hashes = Dataset.open(small_dataset).card.splits
    assert card.dataset == {split.value: part.sha256 for split, part in hashes.items()}
    assert set(card.versions) == {"python", "torch", "transformers", "peft", "numpy", "rapidfuzz"}


def copied(dataset: Path, place: Path) -> Path:
    return Path(shutil.copytree(dataset, place))


def with_card(dataset: Path, changed: Callable[[dict[str, Any]], object]) -> Path:
    card = json.loads((dataset / "dataset.json").read_text(encoding="utf-8"))
    changed(card)
    (dataset / "dataset.json").write_text(json.dumps(card), encoding="utf-8")
    return dataset


def test_a_dataset_that_the_run_was_not_trained_on_is_said(run: RunFolder, small_dataset: Path, tmp_path: Path) -> None:
    other = with_card(
        copied(small_dataset, tmp_path / "other"), lambda card: card["splits"]["train"].update(sha256="0")
    )
    card = evaluate(run, dataset=other, limit=1, with_base=False)
    assert card.remarks[0].startswith("The run was not trained on it")
    assert card.remarks[0] in render_table(card).replace("\n", " ")
    assert evaluate(run, limit=1, with_base=False).remarks[0].startswith("Only the first lines")


def test_scoring_what_was_trained_on_is_said(run: RunFolder) -> None:
    card = evaluate(run, split=Split.TRAIN, limit=1, with_base=False)
    assert "These lines were trained on" in card.remarks[0]


def test_two_samples_of_one_id_are_refused(run: RunFolder, small_dataset: Path, tmp_path: Path) -> None:
    twice = copied(small_dataset, tmp_path / "twice")
    metadata = twice / "test" / "metadata.jsonl"
    first, *rest = metadata.read_text(encoding="utf-8").splitlines()
    metadata.write_text("\n".join([first, first, *rest]) + "\n", encoding="utf-8")
    with pytest.raises(DataError, match="two references have the same id: test/"):
        evaluate(run, dataset=twice, with_base=False)


def test_an_empty_split_is_refused(run: RunFolder, small_dataset: Path, tmp_path: Path) -> None:
    empty = copied(small_dataset, tmp_path / "empty")
    (empty / "test" / "metadata.jsonl").write_text("", encoding="utf-8")
    with pytest.raises(DataError, match="has no test split to score"):
        evaluate(run, dataset=empty)


def test_a_split_that_is_not_there_is_said(run: RunFolder, small_dataset: Path, tmp_path: Path) -> None:
    part = with_card(copied(small_dataset, tmp_path / "part"), lambda card: card["splits"].pop("test"))
    shutil.rmtree(part / "test")
    with pytest.raises(DataError, match="has no test split"):
        evaluate(run, dataset=part)
