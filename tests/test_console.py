"""What the command line prints, and how progress looks where no bar can be drawn."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from dsocr.console import NotedProgress, Printer, format_duration, training_progress
from dsocr.training.callbacks import TrainingProgress


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (59.4, "59 s"), (61, "1 min 01 s"), (3 * 3600 + 300, "3 h 05 min"), (-2, "0 s")],
)
def test_durations_are_formatted_for_people(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


def test_progress_without_a_terminal_is_a_line_now_and_then(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rates count neither the loading before the first report nor what was done before it."""
    clock = iter([600.0, 605.0, 610.0, 620.0])
    monkeypatch.setattr("dsocr.console.time.monotonic", lambda: next(clock))
    with Printer(command_line=True).progress("reading", "lines") as progress:
        progress(1001, 1100)  # after ten minutes of loading; a thousand lines were read yesterday
        progress(1004, 1100)
        progress(1021, 1100, "CER 5.0%")
        progress(1031, 1100)
    out, err = capsys.readouterr()
    assert out.splitlines() == [
        "reading: 1021 of 1100, 2.0 lines/s, 40 s left  CER 5.0%",
        "reading: 1031 of 1100, 1.5 lines/s, 46 s left",
    ]
    assert err == ""


def test_quiet_leaves_results_and_complaints(capsys: pytest.CaptureFixture[str]) -> None:
    printer = Printer(quiet=True)
    printer.message("on the way")
    printer.result("dataset: [bold]письма[/bold]")
    printer.complain("error: nothing there")
    with printer.progress("reading", "lines") as progress:
        progress(1, 2)
    out, err = capsys.readouterr()
    assert out == "dataset: [bold]письма[/bold]\n"
    assert err == "error: nothing there\n"


class Bars(Printer):
    """Records what is shown, and checks that a bar is removed before the next one appears."""

    def __init__(self) -> None:
        super().__init__(quiet=True)
        self.shown: list[tuple[object, ...]] = []

    @contextmanager
    def progress(self, label: str, unit: str) -> Iterator[NotedProgress]:
        self.shown.append(("begins", label, unit))
        yield lambda done, total, note="": self.shown.append((label, done, total))
        self.shown.append(("ends", label))


def test_each_stage_before_the_first_step_has_its_own_bar() -> None:
    bars = Bars()
    with training_progress(bars) as (report, stage):
        stage("looking for kept images", "images", 300, 300)
        stage("looking at images", "images", 8, 300)
        stage("looking at images", "images", 300, 300)
        report(TrainingProgress(1, 50, 0.5, 1e-4, None, 20.0, 60.0))
    assert bars.shown == [
        ("begins", "looking for kept images", "images"),
        ("looking for kept images", 300, 300),
        ("ends", "looking for kept images"),
        ("begins", "looking at images", "images"),
        ("looking at images", 8, 300),
        ("looking at images", 300, 300),
        ("ends", "looking at images"),
        ("begins", "training", "steps"),
        ("training", 1, 50),
        ("ends", "training"),
    ]
