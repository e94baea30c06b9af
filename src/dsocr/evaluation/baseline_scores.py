"""How well baselines are found, as the competition cBAD scores them.

Grüning, Labahn, Diem, Kleber and Fiel: READ-BAD: A New Dataset and Evaluation Scheme for Baseline Detection in Archival
Documents (2017), arXiv 1705.03311. Where the paper leaves a choice, this follows version 0.1.3 of its authors'
TranskribusBaseLineEvaluationScheme with the tolerances it computes itself; their scores by region are left out.

A baseline is points about 5 pixels apart. What is found at a point within the tolerance `t` of a line covers it, and at
a distance `d` of up to three tolerances a part of it, `(3 t - d) / 2 t`; distances are those along rows and columns
together. Recall is the mean coverage of the drawn lines, each by all found lines. Precision is the mean coverage of the
found lines, each by the drawn line it belongs to: pairs are made by coverage, best first, and each line belongs to at
most one. So parts of a line that is found in pieces count fully for recall, and one of the pieces for precision.

The tolerance of a drawn line is a quarter of the distance, across its direction, to the nearest other drawn line, but
of at most the mean of the page's lines. A line beside which no other is within 250 pixels has the mean.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import KDTree

from dsocr.document import Outline, Point

_SPACING = 5
"""Pixels between the points of a baseline."""
_MIN_POINTS = 20
"""Points of a baseline that has as many pixels."""
_MAX_DISTANCE = 250.0
"""Pixels from which another line is not near."""
_TOLERANCE = 0.25
"""Tolerance by the distance to the nearest line."""
_REACH = 3.0
"""Tolerances from which a point is not covered."""

Points = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class BaselineRates:
    """Precision and recall of the baselines of a page, or their means over pages."""

    precision: float
    recall: float

    @property
    def f1(self) -> float:
        """The harmonic mean of both; 0 if both are."""
        together = self.precision + self.recall
        return 2 * self.precision * self.recall / together if together else 0.0

    def to_dict(self) -> dict[str, float]:
        """Return all rates."""
        return {"precision": self.precision, "recall": self.recall, "f1": self.f1}


def average_rates(pages: Iterable[BaselineRates | None]) -> BaselineRates | None:
    """Return the means over pages, each of the same weight, as cBAD has them; None if no page has rates."""
    known = [(rates.precision, rates.recall) for rates in pages if rates is not None]
    if not known:
        return None
    precision, recall = np.mean(known, axis=0).tolist()
    return BaselineRates(precision, recall)


def score_baselines(drawn: Sequence[Outline], detected: Sequence[Outline]) -> BaselineRates | None:
    """Score the baselines of a page; lines without one are left out. None if lines are drawn, but no baseline is.

    Without drawn baselines recall is 1, and without found ones precision is.
    """
    expected, others = ([_resample(line.baseline) for line in lines if line.baseline] for lines in (drawn, detected))
    if drawn and not expected:
        return None
    if not expected or not others:
        return BaselineRates(0.0 if others else 1.0, 0.0 if expected else 1.0)
    tolerances = _tolerances(expected)
    anywhere = KDTree(np.concatenate(others))
    recall = [_coverage(line, anywhere, tolerance) for line, tolerance in zip(expected, tolerances, strict=True)]
    trees = [KDTree(line) for line in expected]
    covered = np.array(
        [
            [_coverage(line, tree, tolerance) for tree, tolerance in zip(trees, tolerances, strict=True)]
            for line in others
        ]
    )
    return BaselineRates(sum(_align(covered)) / len(others), float(np.mean(recall)))


def _align(covered: Floats) -> list[float]:
    """Coverages (found, drawn) of the pairs that belong together, best first, each line once."""
    left, pairs = covered.copy(), []
    while (best := float(left.max())) > 0:
        row, column = np.unravel_index(int(left.argmax()), left.shape)
        left[row] = left[:, column] = 0
        pairs.append(best)
    return pairs


def _coverage(line: Points, others: KDTree, tolerance: float) -> float:
    """The mean coverage of the points of a line by others."""
    distances, _ = others.query(line, p=1, distance_upper_bound=_REACH * tolerance)
    scores = (_REACH * tolerance - distances) / ((_REACH - 1) * tolerance)
    return float(np.clip(scores, 0, 1).mean())


def _resample(baseline: Sequence[Point]) -> Points:
    """The pixels of a baseline, thinned out."""
    corners = np.array(baseline, dtype=np.int64)
    pieces = [corners[:1]]
    for start, end in pairwise(corners):
        if steps := int(np.abs(end - start).max()):
            pieces.append(np.floor(start + np.arange(1, steps + 1)[:, None] * (end - start) / steps + 0.5).astype(int))
    pixels = np.concatenate(pieces)
    if len(pixels) <= _MIN_POINTS:
        return pixels
    last = len(pixels) - 1
    kept: Points = np.linspace(0, last, max(_MIN_POINTS, last // _SPACING + 1)).astype(np.int64)
    return pixels[kept]


def _tolerances(lines: Sequence[Points]) -> Floats:
    distances = np.array([_distance_to_next(number, lines) for number in range(len(lines))])
    is_known = (distances > 0) & (distances < _MAX_DISTANCE)
    usual = float(distances[is_known].mean()) if is_known.any() else _MAX_DISTANCE
    tolerances: Floats = _TOLERANCE * np.minimum(np.where(is_known, distances, usual), usual)
    return tolerances


def _distance_to_next(number: int, lines: Sequence[Points]) -> float:
    """The distance of a line to the nearest other across its direction, where they are beside each other."""
    (across, up) = _direction(lines[number])
    turned = [line @ np.array([[across, -up], [up, across]]) for line in lines]
    line = turned[number]
    nearest = _MAX_DISTANCE
    for place, other in enumerate(turned):
        ends, others = line[[0, -1], 0], other[[0, -1], 0]
        gap = max(other[:, 1].min() - line[:, 1].max(), line[:, 1].min() - other[:, 1].max())
        if place == number or gap >= nearest or ends.max() < others.min() or ends.min() > others.max():
            continue
        is_beside = np.abs(line[:, None, 0] - other[:, 0]) <= 2 * _SPACING
        away = np.abs(line[:, None, 1] - other[:, 1])[is_beside]
        nearest = min(nearest, float(away.min(initial=nearest)))
    return nearest


def _direction(line: Points) -> tuple[float, float]:
    """The unit vector along a line, by least squares of its rows on its columns."""
    columns, rows = (line - line.mean(axis=0)).T
    if not columns.any():
        return 0.0, 1.0
    angle = np.arctan2((columns * rows).sum(), (columns * columns).sum())
    return float(np.cos(angle)), float(np.sin(angle))
