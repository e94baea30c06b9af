"""What TensorBoard is shown, read back from its event files, and what the same numbers are in metrics.jsonl."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from dsocr.evaluation.evaluate import GuardResult
from dsocr.evaluation.metrics import ErrorRate
from dsocr.runs import RunFolder
from dsocr.text import TextPolicy
from dsocr.training.distributed import Ranks
from dsocr.training.validation import LINES, Board, ReadLine, TextsRead, Validation, ValidationReading, lines_table
from tests.training.test_train import metrics

CURVES = {"loss", "learning_rate", "gradient_norm", "samples_per_second", "tokens_per_second", "memory_bytes"}


def events(folder: Path) -> Any:
    return EventAccumulator(str(folder), size_guidance={"images": 0, "tensors": 0, "scalars": 0}).Reload()


def line(prediction: str, identifier: str = "a") -> ReadLine:
    return ReadLine(identifier, "Милая Соня", prediction, np.full((3, 8, 8), 200, dtype=np.uint8))


def test_a_training_draws_its_curves_and_the_same_lines_at_every_reading(small_run: RunFolder) -> None:
    board = events(small_run.tensorboard)
    assert {f"train/{name}" for name in CURVES} <= set(board.Tags()["scalars"])
    assert {"validation/cer", "validation/loss", "validation/runaway_rate"} <= set(board.Tags()["scalars"])
    rows = metrics(small_run.path, "train")
    for name in CURVES:
        drawn = [event.value for event in board.Scalars(f"train/{name}")]
        assert drawn == pytest.approx([row[name] for row in rows], rel=1e-5)
        assert all(value > 0 for value in drawn[1:-1])
    texts = board.Tensors("validation/lines/text_summary")
    assert [text.step for text in texts] == [4, 8]
    assert "reference | prediction" in texts[0].tensor_proto.string_val[0].decode("utf-8")
    images = board.Images("validation_lines/01")
    assert [image.step for image in images] == [4, 8]
    assert Image.open(io.BytesIO(images[0].encoded_image_string)).size == (256, 256)


def test_no_more_lines_are_shown_than_ten(tmp_path: Path) -> None:
    board = Board(tmp_path, purge_step=0)
    board.lines([line("x")] * LINES, 3)
    board.close()
    assert len(events(tmp_path).Tags()["images"]) == LINES == 10


def test_a_table_marks_differences_and_lets_no_text_be_markup() -> None:
    table = lines_table([line("Милая | <b>воня</b>")])
    row = table.splitlines()[2]
    assert row.count(" | ") == 3
    assert "<b>" not in row
    assert "&#91;-Соня-&#93;" in row or "&#91;" in row
    assert "(5000 characters)" in lines_table([line("я" * 5000)])


def test_of_two_equal_readings_the_one_with_fewer_loops_is_the_best(tmp_path: Path) -> None:
    told: list[ValidationReading] = []
    rates = [(0.5, 0, 3), (0.5, 0, 1), (0.5, 0, 2), (0.4, 0, 2)]
    readings = iter(TextsRead(*counted, (), []) for counted in rates)

    class Read(Validation):
        def _read_texts(self, model: Any) -> Any:
            return next(readings)

        def _loss(self, model: Any) -> float:
            return 1.0

    saved: list[int] = []
    validation = object.__new__(Read)
    validation._samples = [None] * 10  # type: ignore[list-item]
    validation._folder, validation._report, validation._guard = tmp_path, told.append, None
    validation._ranks, validation._text_policy = Ranks(), TextPolicy()
    validation.best_cer, validation.best_runaway = float("inf"), 0
    validation.best_step = validation.readings_without_better = 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dsocr.training.validation.save_best", lambda *best: saved.append(1))
        for step in range(4):
            validation.read(None, step)
    assert [reading.best for reading in told] == [True, True, False, True]
    assert [reading.runaway_rate for reading in told] == [0.3, 0.1, 0.2, 0.2]
    assert validation.best_step == 3


def test_a_guard_set_is_a_curve_beside_the_bases_and_a_warning(tmp_path: Path) -> None:
    board = Board(tmp_path, purge_step=0)
    board.guard(GuardResult("print", 32, 2.0, ErrorRate(20, 1000), ErrorRate(30, 1000)), 1)
    board.guard(GuardResult("print", 32, 2.0, ErrorRate(20, 1000), ErrorRate(90, 1000)), 2)
    board.close()
    shown = events(tmp_path)
    assert [event.value for event in shown.Scalars("guard/cer")] == pytest.approx([0.03, 0.09])
    assert [event.value for event in shown.Scalars("guard/base_cer")] == pytest.approx([0.02, 0.02])
    warning = shown.Tensors("guard/warning/text_summary")
    assert [event.step for event in warning] == [2]
    assert "7.0 points worse" in warning[0].tensor_proto.string_val[0].decode()


def test_metrics_hold_what_is_drawn_and_no_images(small_run: RunFolder) -> None:
    last = metrics(small_run.path, "validation")[-1]
    assert "lines" not in last
    assert last["runaway_rate"] == last["runaway"] / last["samples"]
