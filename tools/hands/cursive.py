"""Joined Russian writing from an alphabet of pen tracks: writers with habits, and how their letters join.

A writer is a draw of variants, proportions of every letter, joins and lifts; each letter that is written adds a little
noise to the writer's track. Rules of joining: letters leave upwards from the baseline, о в ю high; the stroke to an
oval comes to its top and goes back over it, crosses it or is lifted before; л м я keep their hook.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hands.own_letters import Letters, random_letters
from hands.pens import Floats

Track = NDArray[np.float64]
"""Points `(n, 3)`: x, y, and 1 for a cusp."""


@dataclass(frozen=True)
class Glyph:
    """A variant of a character: its advance, what is special about joining it, and its strokes; the first joins."""

    advance: float
    flags: str
    strokes: tuple[Track, ...]


@cache
def load_alphabet() -> dict[str, list[Glyph]]:
    """Load the glyphs of `alphabet.txt`."""
    alphabet: dict[str, list[Glyph]] = {}
    for row in (Path(__file__).parent / "alphabet.txt").read_text(encoding="utf-8").splitlines():
        if not row.startswith("# "):
            character, advance, flags, tracks = row.split(" ", 3)
            strokes = tuple(_parse(track) for track in tracks.split(";"))
            alphabet.setdefault(character, []).append(Glyph(float(advance), flags, strokes))
    return alphabet


def _parse(track: str) -> Track:
    points = [(*point.removesuffix("c").split(","), "1" if point.endswith("c") else "0") for point in track.split()]
    return np.array(points, dtype=np.float64)


@dataclass
class Writer:
    """A writer's habits; those of a letter are drawn when the writer first writes it."""

    rng: np.random.Generator
    own: Letters
    """What the writer makes of each letter."""
    noise: float
    """How far single points of the writer's letters are from the alphabet's, besides."""
    unsteady: float
    """How far they are from each other."""
    oval: str
    """How ovals are entered: `cross`, `retrace` or `lift`."""
    lift: float
    """How often the pen is lifted between letters that join."""
    rounds: bool
    """Whether cusps become curves."""
    gap: float
    width: float
    entry: bool
    """Whether words begin with a stroke up to the first letter."""
    tail: float
    hook: float
    """How often the pen is lifted between a high exit and the hook of л, м and я."""
    habits: dict[str, int] = field(default_factory=dict)
    offsets: dict[tuple[str, int], list[Floats]] = field(default_factory=dict)


def random_writer(rng: np.random.Generator) -> Writer:
    """Draw a writer."""
    return Writer(
        rng,
        own=random_letters(rng),
        noise=float(rng.uniform(0.01, 0.06)),
        unsteady=float(rng.uniform(0.005, 0.045)),
        oval=str(rng.choice(["cross", "retrace", "lift"], p=[0.2, 0.4, 0.4])),
        lift=float(rng.choice([0, 0.06, 0.2, 0.5], p=[0.4, 0.3, 0.2, 0.1])),
        rounds=bool(rng.random() < 0.35),
        gap=float(rng.uniform(-0.08, 0.34)),
        width=math.exp(rng.normal(0, 0.1)),
        entry=bool(rng.random() < 0.4),
        tail=float(rng.uniform(0, 0.35)),
        hook=float(rng.uniform(0.2, 1)),
    )


def _choose_glyph(character: str, writer: Writer) -> tuple[int, Glyph]:
    rng, glyphs = writer.rng, load_alphabet()[character]
    # A variant is a habit, which is sometimes broken.
    if character not in writer.habits or rng.random() < 0.08:
        usable = [place for place, glyph in enumerate(glyphs) if "R" not in glyph.flags or rng.random() < 0.3]
        chances = np.array([0.6 if place == 0 else 0.4 for place in usable])
        writer.habits[character] = int(rng.choice(usable, p=chances / chances.sum()))
    return writer.habits[character], glyphs[writer.habits[character]]


def _shape(character: str, writer: Writer) -> Glyph:
    """The letter as this writer writes it this time."""
    rng = writer.rng
    place, glyph = _choose_glyph(character, writer)
    if (character, place) not in writer.offsets:
        offsets = [rng.normal(0, writer.noise, (len(stroke), 2)) for stroke in glyph.strokes]
        writer.offsets[character, place] = offsets
    shape = writer.own.shape((character, place))
    middle = 0.5 * glyph.advance
    strokes = []
    for stroke, offset in zip(glyph.strokes, writer.offsets[character, place], strict=True):
        moved = stroke.copy()
        moved[:, :2] += offset + rng.normal(0, writer.unsteady, offset.shape)
        moved[:, :2] = shape.bend(moved[:, :2], middle)
        moved[:, 0] *= writer.width
        strokes.append(moved)
    return Glyph(glyph.advance * shape.width * writer.width, glyph.flags, tuple(strokes))


def write(text: str, writer: Writer, space: float) -> list[Floats]:
    """Write a text: strokes as polylines. Raises KeyError for a character that the alphabet lacks."""
    rng = writer.rng
    strokes: list[Floats] = []
    joined: list[Track] = []
    x = 0.0
    before: Glyph | None = None

    def lift_pen() -> None:
        if joined:
            strokes.append(curve(np.concatenate(joined), rounds=writer.rounds))
            joined.clear()

    for character in text:
        if character == " ":
            if before is not None and joined and writer.tail > 0.1:
                last = joined[-1][-1]
                joined.append(np.array([[last[0] + 0.14 + 0.2 * writer.tail, last[1] + writer.tail, 0]]))
            lift_pen()
            x += space + rng.normal(0, 0.08)
            before = None
            continue
        glyph = _shape(character, writer)
        high = before is not None and "H" in before.flags
        joins = before is not None and bool(joined) and rng.random() >= writer.lift
        if high and character in "аодбсеёфвзэг":
            x += rng.uniform(0.04, 0.24)  # a high stroke needs room to come down
        if joins and high and character in "лмя":
            joins = rng.random() >= writer.hook
            x += 0.0 if joins else 0.05
        if joins and "O" in glyph.flags:
            if writer.oval == "lift":
                if not high:
                    joined.append(np.array([[x + 0.04, 0.38 + rng.normal(0, 0.08), 0]]))
                joins = False
            elif writer.oval == "retrace" and not high:
                joined.append(np.array([[x + 0.03, 0.42, 0], [x + 0.14, 0.85, 0], [x + 0.46, 0.96, 1]]))
        if not joins:
            lift_pen()
        first = glyph.strokes[0] + np.array([x, 0, 0])
        if before is None and writer.entry and character.islower() and "O" not in glyph.flags and first[0, 1] > 0.6:
            joined.append(np.array([[first[0, 0] - 0.3, 0.35, 0]]))
        joined.append(first)
        strokes += [curve(stroke + np.array([x, 0, 0]), rounds=writer.rounds) for stroke in glyph.strokes[1:]]
        if "L" in glyph.flags:
            lift_pen()
        x += glyph.advance + writer.gap * (0.5 if "L" in glyph.flags else 1) + rng.normal(0, 0.03)
        before = glyph
    lift_pen()
    return strokes


def curve(points: Track, *, rounds: bool) -> Floats:
    """A smooth line through points; at cusps it turns sharply, unless the writer rounds them."""
    if len(points) == 1:
        return points[:, :2]
    cusps = [place for place in range(1, len(points) - 1) if points[place, 2] and not rounds]
    ends = [0, *cusps, len(points) - 1]
    return np.concatenate([_spline(points[start : end + 1, :2]) for start, end in pairwise(ends)])


def _spline(points: Floats) -> Floats:
    """Centripetal Catmull-Rom curve through points."""
    far = np.hypot(*np.diff(points, axis=0).T) > 1e-3
    points = points[np.concatenate([[True], far])]
    if len(points) < 3:
        return points
    around = np.concatenate([[2 * points[0] - points[1]], points, [2 * points[-1] - points[-2]]])
    knots = np.cumsum([0.0, *np.maximum(np.hypot(*np.diff(around, axis=0).T), 1e-3) ** 0.5])
    pieces = [_segment(around[place : place + 4], knots[place : place + 4]) for place in range(len(points) - 1)]
    return np.concatenate([*pieces, points[-1:]])


def _segment(points: Floats, knots: Floats) -> Floats:
    """Eight points of the curve between the second and the third of four points, by Barry and Goldman."""
    at = np.linspace(knots[1], knots[2], 9)[:-1, None]

    def between(first: Floats, second: Floats, start: float, end: float) -> Floats:
        mixed: Floats = ((end - at) * first + (at - start) * second) / (end - start)
        return mixed

    one, two, three = (between(points[i], points[i + 1], knots[i], knots[i + 1]) for i in range(3))
    left, right = between(one, two, knots[0], knots[2]), between(two, three, knots[1], knots[3])
    return between(left, right, knots[1], knots[2])


def can_write(text: str | Sequence[str]) -> bool:
    """Whether the alphabet has all characters of a text."""
    return set(text) - {" "} <= load_alphabet().keys()
