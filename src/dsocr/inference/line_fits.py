"""How well parts of a text fit a line: by the CTC probability over all paths, or by edit distance to its reading.

A part that fits as well as the best reading scores 0.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from rapidfuzz.distance import Levenshtein

Array = NDArray[np.float64]
Indices = NDArray[np.int64]

NEVER = -1e30
"""The score of what cannot be, in nats as all costs and scores."""
_FLOOR = 1e-5
"""Added to each probability, so that no step rules out a text alone."""
_EDIT = 2.0
"""Cost of an edit where only the best reading is known."""
_HYPHENS = "-¬⸗"


@dataclass(frozen=True, eq=False)
class Text:
    """A text and the classes of its characters; -1 for characters that the reader cannot write."""

    characters: str
    classes: Mapping[str, int]

    @cached_property
    def codes(self) -> Indices:
        """The class of each character; white space is the space."""
        written = ("" if character.isspace() else character for character in self.characters)
        return np.array([self.classes.get(character or " ", -1) for character in written], np.int64)

    @cached_property
    def points(self) -> Indices:
        """The code point of each character, without case."""
        return _points(self.characters)

    @cached_property
    def spaces(self) -> NDArray[np.bool_]:
        """Whether each character is white space, and True for the end."""
        return np.array([*map(str.isspace, self.characters), True])

    @cached_property
    def word_starts(self) -> NDArray[np.bool_]:
        """Whether a word may begin at each place, the end included."""
        return np.concatenate([[True], self.spaces[:-1]])

    def part(self, start: int, end: int) -> str:
        """Return a part of the text as one line."""
        return " ".join(self.characters[start:end].split())


@dataclass(frozen=True, eq=False)
class StepFit:
    """The fit of a line from the probabilities of every class at each step of a CTC head: `(T, C)`."""

    reading: str
    probabilities: NDArray[np.float32]

    @property
    def most(self) -> int:
        """The most characters that the line may hold; each needs a step."""
        return min(_most_characters(self.reading), len(self.probabilities))

    @cached_property
    def _steps(self) -> Array:
        """The probabilities with the floor, and a last class for what cannot be written: `(T, C + 1)`."""
        steps = self.probabilities.astype(np.float64) + _FLOOR
        return np.concatenate([steps, np.full((len(steps), 1), 100 * _FLOOR)], axis=1)

    @cached_property
    def _best(self) -> float:
        return float(np.log(self._steps.max(1)).sum())

    def score_parts(self, text: Text, starts: Indices, most: int) -> tuple[Array, Array]:
        """Return the scores of `text[start : start + k]` for each start and k in 0..most, without and with a hyphen.

        Sums the paths of all parts by CTC's forward algorithm (Graves et al. 2006), all starts at once.
        `blank` and `label` are the probabilities of the paths that end in the blank after, or in, the k-th character;
        `hyphen` and `after` of the paths that end in a hyphen after it, and in the blank after that.
        """
        places = starts[:, None] + np.arange(most)
        classes = np.where(places < len(text.codes), text.codes[np.minimum(places, len(text.codes) - 1)], -1)
        is_new = np.ones(classes.shape)
        is_new[:, 1:] = classes[:, 1:] != classes[:, :-1]
        blank, label, hyphen, after = np.zeros((4, len(starts), most + 1))
        blank[:, 0] = 1.0
        scale = np.zeros(len(starts))
        signs = [text.classes[sign] for sign in _HYPHENS if sign in text.classes]
        for place, step in enumerate(self._steps, 1):
            ended = blank + label
            after = (after + hyphen) * step[0]
            hyphen = (hyphen + ended) * step[signs].max(initial=0.0)
            label[:, 1:] = (label[:, 1:] + blank[:, :-1] + label[:, :-1] * is_new) * step[classes]
            label[:, 0] = 0.0
            blank = ended * step[0]
            if place % 4 == 0:
                largest = np.maximum(blank.max(1), label.max(1))[:, None]
                scale += np.log(largest[:, 0])
                blank, label, hyphen, after = blank / largest, label / largest, hyphen / largest, after / largest
        shift = (scale - self._best)[:, None]
        return _logs(blank + label) + shift, _logs(hyphen + after) + shift

    def score_halves(self, text: Text, start: int, end: int, lefts: Indices, rights: Indices) -> Array:
        """Return the scores (L, R) of the first `left` and the last `right` characters of a part of a text together.

        Sums, over the step where the second half begins, the paths before it times those from it on.
        """
        codes = text.codes[start:end]
        begun, begun_scales = self._prefixes(codes[: self.most], self._steps, in_label=False)
        ended, ended_scales = self._prefixes(codes[::-1][: self.most], self._steps[::-1], in_label=True)
        scales = begun_scales + ended_scales[::-1]
        weights = np.exp(scales - scales.max())[:, None]
        joint = (begun[:, lefts] * weights).T @ ended[::-1][:, rights]
        return _logs(joint) + (float(scales.max()) - self._best)

    @staticmethod
    def _prefixes(codes: Indices, steps: Array, *, in_label: bool) -> tuple[Array, Array]:
        """Return the probability of each prefix of a text after 0..T steps `(T + 1, K + 1)`, and each row's scale.

        With `in_label` of paths that end in its last character, and not in the blank after it.
        """
        is_new = np.ones(len(codes))
        is_new[1:] = codes[1:] != codes[:-1]
        blank, label = np.zeros((2, len(codes) + 1))
        blank[0], scale = 1.0, 0.0
        rows, scales = [label if in_label else blank], [scale]
        for step in steps:
            moved = (label[1:] + blank[:-1] + label[:-1] * is_new) * step[codes]
            blank, label = (blank + label) * step[0], np.concatenate([[0.0], moved])
            largest = max(blank.max(), label.max())
            blank, label, scale = blank / largest, label / largest, scale + float(np.log(largest))
            rows.append(label if in_label else blank + label)
            scales.append(scale)
        return np.array(rows), np.array(scales)

    def losses(self, text: str, classes: Mapping[str, int]) -> Array:
        """Compare the likeliest path of a text with the likeliest of all, as the difference of scores at each step."""
        path = trace(self._steps, [classes.get(character, -1) for character in text])
        lost: Array = np.log(self._steps[np.arange(len(path)), path]) - np.log(self._steps.max(1))
        return lost


@dataclass(frozen=True, eq=False)
class ReadingFit:
    """The fit of a line from its best reading alone: each edit costs."""

    reading: str

    @property
    def most(self) -> int:
        """The most characters that the line may hold."""
        return _most_characters(self.reading)

    def score_parts(self, text: Text, starts: Indices, most: int) -> tuple[Array, Array]:
        """Return the scores by edit distance, all starts at once."""
        places = starts[:, None] + np.arange(most)
        points = np.where(places < len(text.points), text.points[np.minimum(places, len(text.points) - 1)], 0)
        plain = self.reading.rstrip(_HYPHENS)
        distances = _distances(_points(plain), points)[-1]
        has_hyphen = plain != self.reading
        return -_EDIT * (distances + has_hyphen), -_EDIT * (distances + (not has_hyphen))

    def score_halves(self, text: Text, start: int, end: int, lefts: Indices, rights: Indices) -> Array:
        """Try each place of the reading as the end of the first half."""
        points, reading = text.points[None, start:end], _points(self.reading)
        begun = _distances(reading, points[:, : self.most])[:, 0, lefts]
        ended = _distances(reading[::-1], points[:, ::-1][:, : self.most])[::-1, 0, rights]
        joint = np.min([first[:, None] + second for first, second in zip(begun, ended, strict=True)], axis=0)
        return np.asarray(-_EDIT * joint)

    def losses(self, text: str, classes: Mapping[str, int]) -> Array:
        """Return the score of the edits at each character."""
        marks = np.zeros(len(text) + 1)
        for edit in Levenshtein.editops(text.lower(), self.reading.lower()):
            marks[min(edit.src_pos, len(text))] -= _EDIT
        return marks


LineFit: TypeAlias = StepFit | ReadingFit


def trace(probabilities: Array, classes: Sequence[int]) -> list[int]:
    """Return the class of each step on the likeliest path of a text through `(T, C)` probabilities."""
    states = np.zeros(2 * len(classes) + 1, np.int64)
    states[1::2] = classes
    logs = np.log(probabilities[:, states])
    skips = np.zeros(len(states), bool)  # from one character to the next without a blank
    skips[3::2] = states[3::2] != states[1:-2:2]
    best = np.where(np.arange(len(states)) < 2, logs[0], -np.inf)
    steps = np.zeros(logs.shape, np.int8)
    for place in range(1, len(logs)):
        after, beyond = np.full((2, len(states)), -np.inf)
        after[1:], beyond[2:] = best[:-1], best[:-2]
        options = np.stack([best, after, np.where(skips, beyond, -np.inf)])
        steps[place] = options.argmax(0)
        best = options.max(0) + logs[place]
    state = len(states) - 1 - int(len(states) > 1 and best[-2] > best[-1])
    path = []
    for row in steps[::-1]:
        path.append(int(states[state]))
        state -= int(row[state])
    return path[::-1]


def _most_characters(reading: str) -> int:
    return int(1.5 * len(reading) + 12)


def _points(text: str) -> Indices:
    return np.array([ord(character.lower()[0]) for character in text], np.int64)


def _logs(values: Array) -> Array:
    with np.errstate(divide="ignore"):
        return np.maximum(np.log(values), NEVER)


def _distances(reading: Indices, points: Indices) -> Array:
    """Return the distance of each prefix of the reading from each prefix of each row: (R + 1, S, K + 1)."""
    count = np.arange(points.shape[1] + 1)
    rows = [np.tile(count.astype(np.float64), (len(points), 1))]
    for point in reading:
        row = rows[-1] + 1
        row[:, 1:] = np.minimum(row[:, 1:], rows[-1][:, :-1] + (points != point))
        rows.append(np.minimum.accumulate(row - count, axis=1) + count)
    return np.array(rows)
