"""Scoring a run: both models on the same lines, hands apart, nothing dropped."""

import json
from pathlib import Path

import pytest

from dsocr.config import RunConfig
from dsocr.data.dataset import Dataset
from dsocr.data.images import open_image
from dsocr.data.prepare import prepare
from dsocr.errors import DataError
from dsocr.evaluation.evaluate import evaluate
from dsocr.evaluation.scorecard import Scorecard
from dsocr.inference.transcriber import Transcriber
from dsocr.runs import RunFolder
from dsocr.samples import Split
from dsocr.training.plan import make_plan
from dsocr.training.train import train


@pytest.fixture(scope="module")
def run(small_dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A run whose adapter has visibly changed what the base reads."""
    config = RunConfig.model_validate(
        {
            "dataset": small_dataset,
            "run": tmp_path_factory.mktemp("evaluated") / "run",
            "adapter": {"scope": "decoder+vision"},
            "training": {"steps": 6, "samples_per_step": 4, "samples_per_forward": 4, "learning_rate": 1e-2},
            "validation": {"every_steps": 6, "samples": 1},
            "generation": {"max_new_tokens": 24, "samples_per_batch": 3},
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
    rows = [json.loads(line) for line in run.lines.read_text(encoding="utf-8").splitlines()]
    assert [row["model"] for row in rows] == ["base"] * 4 + ["adapter"] * 4
    assert [row["id"] for row in rows[:4]] == [row["id"] for row in rows[4:]]
    assert [row["prediction"] for row in rows[:4]] != [row["prediction"] for row in rows[4:]]


def test_a_run_on_a_fold_is_trained_and_scored_on_that_fold(small_dataset: Path, tmp_path: Path) -> None:
    folds = prepare(small_dataset.parent / "source", tmp_path / "folds", split_by="text", folds=4).dataset
    config = RunConfig.model_validate(
        {
            "dataset": folds,
            "run": tmp_path / "run",
            "fold": 3,
            "training": {"steps": 1, "samples_per_step": 2, "samples_per_forward": 2},
            "validation": {"every_steps": 1, "samples": 1},
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


def test_a_split_that_is_not_there_is_said(run: RunFolder, small_dataset: Path, tmp_path: Path) -> None:
    import shutil

    part = Path(shutil.copytree(small_dataset, tmp_path / "part"))
    shutil.rmtree(part / "test")
    card = json.loads((part / "dataset.json").read_text(encoding="utf-8"))
    del card["splits"]["test"]
    (part / "dataset.json").write_text(json.dumps(card), encoding="utf-8")
    with pytest.raises(DataError, match="has no test split"):
        evaluate(run, dataset=part)
