"""What a terminal shows while a training gets ready and trains."""

from collections.abc import Iterator
from contextlib import contextmanager

from dsocr.console import Printer, ProgressCallback, training_progress
from dsocr.training.callbacks import TrainingProgress


class Bars(Printer):
    """Records what is shown, and checks that a bar is removed before the next one appears."""

    def __init__(self) -> None:
        super().__init__(quiet=True)
        self.shown: list[tuple[object, ...]] = []

    @contextmanager
    def progress(self, label: str, unit: str) -> Iterator[ProgressCallback]:
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
