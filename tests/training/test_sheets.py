"""Training on sheets: what is learnt from, how it is counted, that it learns, resumes, and is read alike."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

from dsocr.config import RunConfig
from dsocr.data.dataset import Dataset
from dsocr.data.images import open_image
from dsocr.errors import ConfigError
from dsocr.evaluation.evaluate import evaluate
from dsocr.inference.sheets import encode_sheet
from dsocr.inference.transcriber import Transcriber
from dsocr.model.adapters import WEIGHTS
from dsocr.model.loading import BaseModel
from dsocr.model.resolution import find_resolution
from dsocr.model.tokenizing import load_encoder
from dsocr.runs import ReadingSettings, RunFolder
from dsocr.samples import Sample, Split
from dsocr.training.callbacks import TrainingProgress
from dsocr.training.collator import EncodedSamples
from dsocr.training.lengths import measure_lengths
from dsocr.training.plan import make_plan
from dsocr.training.setup import encoded_samples, sample_order
from dsocr.training.sheets import SheetSamples, counted_in_sheets, lengths_on_sheets
from dsocr.training.train import train
from tests.training.test_plan import changed

Make = Callable[..., SheetSamples]


@pytest.fixture
def lines(small_dataset: Path) -> list[Sample]:
    return Dataset.open(small_dataset).samples(Split.TRAIN)


@pytest.fixture
def on_sheets(nano: BaseModel) -> Make:
    """Makes the sheets of some samples, varied."""

    def make(samples: list[Sample], augmentation: float = 1.0) -> SheetSamples:
        encoder = nano.encoder(None, "free_ocr")
        alone = EncodedSamples(samples, encoder, augmentation=augmentation, seed=3)
        return SheetSamples(alone, samples, encoder, 3, max_text_tokens=512, seed=3)

    return make


@pytest.fixture
def sheet_config(small_config: RunConfig) -> RunConfig:
    return changed(small_config, {"input.lines_per_sheet": 2})


def test_a_sheet_is_learnt_as_the_texts_of_its_lines(on_sheets: Make, lines: list[Sample], nano: BaseModel) -> None:
    sheets = on_sheets(lines)
    for index, sheet in enumerate(sheets.sheets()):
        answer = nano.tokenizer.decode(sheets[index].answer_ids[:-1])
        assert answer.split("\n") == [lines[line].text for line in sheet]
        assert len({lines[line].writer for line in sheet}) == 1


def test_sheets_and_images_are_drawn_anew_each_epoch_and_come_back(on_sheets: Make, lines: list[Sample]) -> None:
    sheets, others = on_sheets(lines), on_sheets(lines)
    first, grouped = sheets[0], sheets.sheets()
    sheets.set_epoch(1)
    assert sheets.sheets() != grouped
    assert not np.array_equal(sheets[0].views.whole, first.views.whole)
    sheets.set_epoch(0)
    assert np.array_equal(sheets[0].views.whole, first.views.whole)
    assert np.array_equal(others[0].views.whole, first.views.whole)


def test_training_and_reading_see_the_same_sheet(on_sheets: Make, lines: list[Sample], nano: BaseModel) -> None:
    sheets, encoder = on_sheets(lines, augmentation=0.0), nano.encoder(None, "free_ocr")
    read = encode_sheet(encoder, [open_image(lines[line].image) for line in sheets.sheets()[0]])
    assert len(sheets.sheets()[0]) > 1
    assert np.array_equal(sheets[0].views.whole, read.views.whole)
    assert sheets[0].prompt_ids == read.prompt_ids


def test_samples_of_several_lines_or_of_unknown_hands_stand_alone(on_sheets: Make, lines: list[Sample]) -> None:
    assert len(on_sheets([replace(line, text=f"{line.text}\nb") for line in lines])) == len(lines)
    assert len(on_sheets([replace(line, writer=None, page=None) for line in lines])) == len(lines)
    assert len(on_sheets([replace(line, writer=None, page="p") for line in lines])) < len(lines)


@pytest.mark.parametrize(
    ("per_step", "per_forward", "lines", "sheets", "expected"),
    [
        pytest.param(16, 16, 330, 165, (8, 8), id="half as many sheets as lines"),
        pytest.param(32, 8, 1000, 100, (3, 3), id="a step of a few sheets is one forward"),
        pytest.param(96, 8, 100, 10, (10, 5), id="what is at once divides a step"),
        pytest.param(32, 8, 224, 74, (12, 6), id="no prime number of sheets, which could only be shown one by one"),
        pytest.param(32, 8, 224, 152, (21, 7), id="full batches rather than the exact number"),
        pytest.param(4, 2, 100, 10, (1, 1), id="never less than a sheet"),
        pytest.param(32, 8, 100, 100, (32, 8), id="single lines are counted as they are"),
    ],
)
def test_a_step_is_counted_in_lines(
    per_step: int, per_forward: int, lines: int, sheets: int, expected: tuple[int, int], small_config: RunConfig
) -> None:
    sizes = {"training.samples_per_step": per_step, "training.samples_per_forward": per_forward}
    training = counted_in_sheets(changed(small_config, sizes), lines, sheets).training
    assert (training.samples_per_step, training.samples_per_forward) == expected


def test_lengths_of_sheets_are_those_of_the_encoder(on_sheets: Make, lines: list[Sample], nano: BaseModel) -> None:
    sheets = on_sheets(lines)
    lengths = lengths_on_sheets(measure_lengths(lines, nano.encoder(None, "free_ocr")), sheets.sheets())
    for index, length in enumerate(lengths):
        encoded = sheets[index]
        assert length.text == len(encoded.answer_ids)
        assert length.sequence == len(encoded.prompt_ids) + len(encoded.answer_ids)


def test_a_plan_counts_sheets(sheet_config: RunConfig) -> None:
    plan = make_plan(sheet_config, probe=True)
    alone = make_plan(changed(sheet_config, {"input.lines_per_sheet": 1}), probe=False)
    assert (plan.schedule.samples, alone.schedule.samples) == (8, 16)
    assert plan.schedule.epochs == alone.schedule.epochs == 2
    assert plan.tokens.text.max > alone.tokens.text.max
    assert plan.probe is not None


def test_training_on_sheets_learns_and_the_run_reads_sheets(sheet_config: RunConfig) -> None:
    config = changed(sheet_config, {"training.steps": 30, "validation.every_steps": 30})
    run = train(config).run
    rows = [json.loads(line) for line in run.metrics.read_text(encoding="utf-8").splitlines()]
    losses = [row["loss"] for row in rows if row["kind"] == "train"]
    assert sum(losses[-5:]) < 0.8 * sum(losses[:5])
    assert [row["samples"] for row in rows if row["kind"] == "validation"] == [2]
    assert ReadingSettings.load(run.adapter).lines_per_sheet == 2
    assert Transcriber.of_run(run).lines_per_sheet == 2
    card = evaluate(run, with_base=False)
    assert card.settings["lines_per_sheet"] == 2
    assert isinstance(card.settings["lines_read_again"], dict)
    assert card.adapter is not None
    assert card.adapter.lines == 4
    assert "laid out on 8 sheets an epoch" in run.log.read_text(encoding="utf-8")


def test_single_lines_are_mixed_in_as_they_are_without_sheets_and_each_epoch_sorts_by_its_own_lengths(
    sheet_config: RunConfig, lines: list[Sample], nano: BaseModel
) -> None:
    config = changed(sheet_config, {"input.single_lines": 0.5, "training.samples_per_forward": 1})
    mixed = encoded_samples(config, lines, nano.encoder(None, "free_ocr"))
    assert isinstance(mixed, SheetSamples)
    alone = [place for place, sheet in enumerate(mixed.sheets()) if len(sheet) == 1]
    assert len(lines) // 2 <= len(alone) < len(mixed)
    same = mixed.lines[mixed.sheets()[alone[0]][0]]
    assert np.array_equal(mixed[alone[0]].views.whole, same.views.whole)
    for epoch in (0, 1):
        mixed.set_epoch(epoch)
        assert list(mixed.lengths) == [len(mixed[place].answer_ids) for place in range(len(mixed))]
        assert sorted(sample_order(config, mixed)) == list(range(len(mixed)))


def test_a_run_on_sheets_may_read_single_lines(sheet_config: RunConfig) -> None:
    config = changed(sheet_config, {"input.single_lines": 0.5, "input.read_sheets": False, "training.steps": 2})
    run = train(config).run
    rows = [json.loads(line) for line in run.metrics.read_text(encoding="utf-8").splitlines()]
    # What has not learnt sheets answers one with a single line, so all lines of a sheet would be read again.
    assert [row["read_again"] for row in rows if row["kind"] == "validation"] == [0]
    assert ReadingSettings.load(run.adapter).lines_per_sheet == 1


def test_a_killed_training_on_sheets_resumes_as_if_nothing_had_happened(
    sheet_config: RunConfig, tmp_path: Path
) -> None:
    config = changed(sheet_config, {"training.augmentation": 1.0, "training.steps": 6, "input.single_lines": 0.2})
    undisturbed = config.model_copy(update={"run": tmp_path / "undisturbed"})
    train(undisturbed)

    def stop(progress: TrainingProgress) -> None:
        if progress.step == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(config, report=stop)
    assert train(config).resumed_from == 4
    ours, theirs = (load_file(RunFolder(one.run).adapter / WEIGHTS) for one in (config, undisturbed))
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_a_line_that_grows_when_it_is_varied_is_still_drawn_whole(
    on_sheets: Make, lines: list[Sample], monkeypatch: pytest.MonkeyPatch
) -> None:
    sheets = on_sheets(lines)
    monkeypatch.setattr(sheets.lines, "varied", lambda index: Image.new("L", (2600, 50), 30))
    whole = sheets[0].views.whole
    assert (whole[:, -1] != 30).all(), "the last row of the canvas is not cut through"


def test_sheets_that_no_two_lines_would_share_are_refused(sheet_config: RunConfig, lines: list[Sample]) -> None:
    nobodys = [replace(line, writer=None, page=None) for line in lines]
    with pytest.raises(ConfigError, match="no two lines share a sheet"):
        encoded_samples(sheet_config, nobodys, load_encoder("nano", None, "free_ocr"))


def test_sheets_at_a_resolution_with_tiles_are_refused(on_sheets: Make, lines: list[Sample], nano: BaseModel) -> None:
    encoder = replace(nano.encoder(None, "free_ocr"), resolution=find_resolution("deepseek_ocr", "gundam"))
    with pytest.raises(ConfigError, match="lines_per_sheet"):
        SheetSamples(EncodedSamples(lines, encoder), lines, encoder, 2)
