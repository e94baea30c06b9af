"""The forgetting guard: what it reads, when it warns, and that it disturbs nothing."""

import json
from pathlib import Path

import pytest
import torch

from dsocr.config import GuardSection, RunConfig
from dsocr.errors import DataError
from dsocr.evaluation.evaluate import Guard, GuardReading, evaluate
from dsocr.evaluation.metrics import ErrorRate
from dsocr.inference.generation import Generation
from dsocr.models.loading import BaseModel
from dsocr.runs import RunFolder
from dsocr.training.train import train


def reading(errors: int, *, base: int = 25, margin: float = 2.0) -> GuardReading:
    return GuardReading("print", 32, margin, ErrorRate(base, 1000), ErrorRate(errors, 1000))


@pytest.mark.parametrize(
    ("errors", "beyond"),
    [
        pytest.param(10, False, id="better than the base"),
        pytest.param(45, False, id="just at the margin"),
        pytest.param(46, True, id="a tenth of a point beyond"),
    ],
)
def test_a_drop_beyond_the_margin_is_told_with_what_to_do(errors: int, beyond: bool) -> None:
    guard = reading(errors)
    assert guard.is_beyond is beyond
    assert ("--scale" in guard.sentence) is beyond
    assert GuardReading.from_dict(json.loads(json.dumps(guard.as_dict()))) == guard


def test_nano_reads_the_print_that_ships_well(nano: BaseModel) -> None:
    guard = Guard.open(GuardSection(), "nano")
    assert guard is not None
    assert len(guard.samples) == 32
    drawn = torch.random.get_rng_state()
    read = guard.read(nano.network, nano.processor(None, "free_ocr"), Generation(max_new_tokens=96, batch_size=32))
    assert read.length > 1000
    assert read.rate < 0.04
    assert torch.equal(torch.random.get_rng_state(), drawn), "nothing random is drawn"


def test_lines_are_spread_over_the_set_and_zero_reads_none() -> None:
    few = Guard.open(GuardSection(lines=4), "nano")
    assert few is not None
    assert [sample.id[-6:-4] for sample in few.samples] == ["01", "09", "17", "25"]
    assert Guard.open(GuardSection(lines=0), "nano") is None


def test_another_base_has_the_set_that_is_named_or_none(small_dataset: Path) -> None:
    assert Guard.open(GuardSection(), "deepseek-ai/DeepSeek-OCR") is None
    section = GuardSection(dataset=small_dataset, split="test", lines=3)
    named = Guard.open(section, "deepseek-ai/DeepSeek-OCR")
    assert named is not None
    assert (named.name, len(named.samples)) == ("dataset", 3)
    with pytest.raises(DataError, match="not a dataset folder"):
        Guard.open(GuardSection(dataset=small_dataset.parent), "nano")


@pytest.fixture(scope="module")
def run(small_dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A run that has visibly forgotten; four lines guard it."""
    config = RunConfig.model_validate(
        {
            "dataset": small_dataset,
            "output": tmp_path_factory.mktemp("guarded") / "run",
            "training": {"max_steps": 4, "batch_size": 4, "micro_batch_size": 4, "learning_rate": 3e-2},
            "validation": {"every_steps": 2, "max_samples": 1},
            "guard": {"lines": 4},
            "generation": {"max_new_tokens": 40},
        }
    )
    result = train(config)
    assert result.guard is not None
    return result.run


def test_every_reading_of_a_training_has_the_guard_beside_it(run: RunFolder) -> None:
    rows = [json.loads(line) for line in run.metrics.read_text(encoding="utf-8").splitlines()]
    readings = [row for row in rows if row["kind"] == "validation"]
    assert len({row["guard_base_cer"] for row in readings}) == 1, "the base is what it was"
    last = readings[-1]
    assert last["guard_cer"] > last["guard_base_cer"] + 0.02
    assert "points worse" in last["guard_warning"]
    assert "points worse" in run.log.read_text(encoding="utf-8")


def test_the_card_has_the_guard(run: RunFolder) -> None:
    card = evaluate(run)
    assert card.guard is not None
    assert card.guard["lines"] == 4
    assert card.guard["base_cer"] < card.guard["adapter_cer"]
    assert evaluate(run, with_base=False).guard is None
