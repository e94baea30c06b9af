"""The recipe of a sweep: the adapter at several strengths, the target against what the base could read.

A strength is chosen by what is read here, so the lines are those of validation unless another split is asked for:
chosen on the test, its score there would flatter.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dsocr.config import load_config
from dsocr.data.images import open_image
from dsocr.errors import ConfigError
from dsocr.evaluation.datasets import dataset_of, samples_to_score
from dsocr.evaluation.guard import NO_GUARD, Guard, GuardReading
from dsocr.evaluation.metrics import ErrorRate, character_errors
from dsocr.inference.readable import demand_readable
from dsocr.pages.plotting import Line, Plot, render_picture
from dsocr.runs import RunFolder, to_json, write_atomically
from dsocr.samples import Sample, Split

if TYPE_CHECKING:
    from dsocr.inference.transcriber import Transcriber

STRENGTHS = (0.0, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
"""0 is the base."""

Progress = Callable[[int, int], None]
"""Told after each strength: how many are read, and how many there are."""


@dataclass(frozen=True, slots=True)
class Point:
    """One strength: the errors of each target line, and of the guard set beside the base's."""

    strength: float
    errors: tuple[int, ...]
    target: ErrorRate
    guard: GuardReading

    def as_dict(self) -> dict[str, Any]:
        """The point as JSON holds it; CERs are fractions."""
        return {
            "strength": self.strength,
            "target_cer": self.target.rate,
            "target_errors": self.target.errors,
            "guard_cer": self.guard.adapter.rate,
            "guard_errors": self.guard.adapter.errors,
            "guard_drop": self.guard.drop,
            "beyond_margin": self.guard.is_beyond,
        }


@dataclass(frozen=True, slots=True)
class Sweep:
    """All strengths in rising order, the first the base and the last the whole adapter."""

    split: str
    points: Sequence[Point]

    @property
    def chosen(self) -> Point:
        """The strength to use: of those within the margin the one that reads the target best.

        Those whose errors are above the fewest by no more than twice the standard error of that difference, line by
        line, count as equally good; of them the largest is chosen. The base where all others are beyond the margin.
        """
        kept = [point for point in self.points if not point.guard.is_beyond]
        best = min(kept, key=lambda point: (point.target.errors, -point.strength))
        return max((point for point in kept if not _clearly_worse(point, best)), key=lambda point: point.strength)

    @property
    def sentence(self) -> str:
        """Which strength to use, and why."""
        base, whole, chosen = self.points[0], self.points[-1], self.chosen
        if chosen is whole:
            return (
                f"1.0 is right: the target's CER goes from {base.target.rate:.2%} to {whole.target.rate:.2%}, the "
                f"guard set's from {base.guard.adapter.rate:.2%} to {whole.guard.adapter.rate:.2%}, within the margin "
                f"of {whole.guard.margin:g} points"
            )
        if chosen is base:
            return (
                f"no strength from {self.points[1].strength:g} on reads the target better and keeps the guard set "
                f"within {whole.guard.margin:g} points of the base: train with a lower learning_rate, fewer epochs or "
                "such lines mixed in, or use the adapter for this hand only"
            )
        return (
            f"{chosen.strength:g} is recommended: the target's CER is {chosen.target.rate:.2%} (whole adapter "
            f"{whole.target.rate:.2%}, base {base.target.rate:.2%}), the guard set's {chosen.guard.adapter.rate:.2%} "
            f"(whole adapter {whole.guard.adapter.rate:.2%}, base {base.guard.adapter.rate:.2%})"
        )

    def as_dict(self) -> dict[str, Any]:
        """The sweep as JSON holds it."""
        guard = self.points[0].guard
        return {
            "split": self.split,
            "lines": len(self.points[0].errors),
            "characters": self.points[0].target.length,
            "guard": {"dataset": guard.name, "lines": guard.lines, "margin": guard.margin},
            "points": [point.as_dict() for point in self.points],
            "recommended": self.chosen.strength,
            "sentence": self.sentence,
        }


def sweep(
    run: RunFolder,
    *,
    dataset: Path | None = None,
    split: Split = Split.VALIDATION,
    limit: int | None = None,
    progress: Progress | None = None,
) -> Sweep:
    """Read a split and the guard set with a finished run's adapter at each of `STRENGTHS`; writes nothing.

    Raises DataError where there is nothing to read, ConfigError where there is no guard set or the adapter is DoRA.
    """
    config = load_config(run.config)
    guard = Guard.open(config.guard, config.base)
    if guard is None:
        raise ConfigError(NO_GUARD if config.guard.lines else "guard.lines: is 0, so no guard set is read")
    opened = dataset_of(run, dataset)
    samples = samples_to_score(opened, split, limit)
    demand_readable(run.adapter)
    # Slow, and not needed to say what is not there.
    from dsocr.inference.transcriber import Transcriber
    from dsocr.model.adapters import read_adapter_config
    from dsocr.model.strength import at_strength, demand_strength

    for strength in STRENGTHS:  # before anything is loaded
        demand_strength(strength, read_adapter_config(run.adapter))
    transcriber = Transcriber.of_run(run)
    points: list[Point] = []
    for strength in STRENGTHS:
        with at_strength(transcriber.network, strength):
            errors = _line_errors(transcriber, samples)
            read = guard.read(transcriber.network, transcriber.encoder, transcriber.generation)
        base = points[0].guard.base if points else read
        target = sum(errors, ErrorRate())
        points.append(Point(strength, tuple(line.errors for line in errors), target, guard.compared(base, read)))
        if progress is not None:
            progress(len(points), len(STRENGTHS))
    return Sweep(split.value, points)


def write_sweep(read: Sweep, run: RunFolder) -> tuple[Path, Path]:
    """Lay the sweep into the run folder, `strength.json` for programs and `strength.png` to look at; their paths."""
    data, picture = run.strength, run.strength.with_suffix(".png")
    write_atomically(data, to_json(read.as_dict()))
    render_picture(_plots(read), [_TARGET, _GUARD, _BOTH]).save(picture)
    return data, picture


_TARGET, _GUARD, _BOTH = "target", "guard set", "target against guard set, from the base (0) to the adapter (1)"


def _plots(read: Sweep) -> list[Plot]:
    """Both CERs over the strength, and one over the other; the chosen strength is marked."""
    chosen = read.chosen
    mark = f"at {chosen.strength:g}:"
    target = [(point.strength, 100 * point.target.rate) for point in read.points]
    guard = [(point.strength, 100 * point.guard.adapter.rate) for point in read.points]
    both = [(x, y) for (_, x), (_, y) in zip(guard, target, strict=True)]
    place = read.points.index(chosen)
    lines = [Line(_TARGET, target, target[place], mark), Line(_GUARD, guard, guard[place], mark)]
    return [
        Plot("CER, %", "the adapter's strength", lines),
        Plot("CER of the target, %", "the guard set's CER, %", [Line(_BOTH, both, both[place], mark)]),
    ]


def _line_errors(transcriber: "Transcriber", samples: Sequence[Sample]) -> list[ErrorRate]:
    """The errors of each sample."""
    texts = {sample.id: sample.text for sample in samples}
    images = ((sample.id, open_image(sample.image)) for sample in samples)
    return [character_errors(texts[read.id], read.text) for read in transcriber.read(images)]


def _clearly_worse(point: Point, best: Point) -> bool:
    """True where the point has more errors than the best, by over twice the standard error of the difference."""
    differences = [ours - theirs for ours, theirs in zip(point.errors, best.errors, strict=True)]
    count, total = len(differences), sum(differences)
    if total <= 0:
        return False
    if count < 2:
        return True
    spread = sum((difference - total / count) ** 2 for difference in differences) / (count - 1)
    return total > 2 * math.sqrt(count * spread)
