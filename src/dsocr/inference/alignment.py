"""Align the lines of a page with a text: the part of the text in each line, with its probability.

Each line is scored against every part of the text that it might hold. Lines and text are then aligned as two sequences
(forward, backward and Viterbi over the places where lines end), with gaps on both sides: text that is not on the page,
lines that are not in the text, and text between two halves of a line. The rest of both sides is aligned again, which
finds lines in another order than the text.
"""

import math
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from rapidfuzz.distance import Levenshtein

from dsocr.inference.line_fits import NEVER, Array, Indices, LineFit, StepFit, Text

_MID_WORD = 3.0
"""Cost of a line that begins in the middle of a word or, with two more, ends there; `_HYPHENATED` with a hyphen."""
_HYPHENATED = 1.5
_GAP = 3.0
"""Cost of a gap in the text beside its characters; `_NO_TEXT`: of a line without text."""
_NO_TEXT = 1.0
_SPLIT = 6.0
"""Cost of a gap inside a line."""
_WINDOW = 40
"""Characters before and after the place where a line is looked for at first."""
_REGION = 800
"""Characters between two sure lines among which a doubtful line is looked for everywhere."""
_BEAM = 30.0
"""Ends of the line before are followed if they are at most this much worse than the best."""
_ROUNDS = 3
"""How often the remaining parts are aligned again."""
_STRETCH = 8
"""Steps, or characters of a reading, in a row over which a bad fit counts: about a short word."""


@dataclass(frozen=True, slots=True)
class AlignedLine:
    """The part of the text that a line holds: `text` is empty if there is none.

    `start` and `end` are its place in the text, `gap` the part of it that is not in the line. `posterior` is the
    probability of these two ends among all alignments, `fit` the score of the text by character and `weakest` that of
    its worst stretch, both 0 if it equals the reading. `score` is the probability that the text is exactly right.
    """

    text: str = ""
    start: int = 0
    end: int = 0
    gap: tuple[int, int] | None = None
    posterior: float = 0.0
    fit: float = 0.0
    weakest: float = 0.0
    score: float = 0.0

    def moved(self, start: int) -> "AlignedLine":
        """Return it with its places shifted by the start of a part of the text."""
        gap = self.gap and (self.gap[0] + start, self.gap[1] + start)
        return replace(self, start=self.start + start, end=self.end + start, gap=gap)


def align_lines(fits: Sequence[LineFit], characters: str, classes: Mapping[str, int]) -> list[AlignedLine]:
    """Align the lines of a page, in reading order, with its text; `classes` are those of the reader's characters."""
    text = Text(characters, classes)
    aligned = [AlignedLine() for _ in fits]
    places = np.arange(len(characters) + 1)
    for _ in range(_ROUNDS):
        left = [number for number, line in enumerate(aligned) if not line.text]
        rest = Text("".join(characters[place] if place >= 0 else "\n" for place in places[:-1]), classes)
        if not left or not rest.characters.strip():
            break
        added = False
        for number, line in zip(left, _align([fits[number] for number in left], rest), strict=True):
            start, end = int(places[line.start]), int(places[max(line.end - 1, 0)]) + 1
            if line.text and start >= 0 and end - start == line.end - line.start:
                gap = line.gap and (int(places[line.gap[0]]), int(places[line.gap[1]]))
                aligned[number] = replace(line, start=start, end=end, gap=gap)
                added = True
            elif not line.text:
                aligned[number] = replace(aligned[number], posterior=line.posterior)
        if not added:
            break
        places = _left_places(aligned, len(characters))
    aligned = _with_punctuation(aligned, text)
    judged = []
    for line, fit in zip(aligned, fits, strict=True):
        if line.text:
            sums = np.concatenate([[0.0], fit.losses(line.text, text.classes).cumsum()])
            width = min(_STRETCH, len(sums) - 1)
            weakest = float((sums[width:] - sums[:-width]).min())
            line = replace(line, fit=float(sums[-1]) / len(line.text), weakest=weakest)
            line = replace(line, score=_likelihood(line, _BY_STEPS if isinstance(fit, StepFit) else _BY_READING))
        judged.append(line)
    return judged


def _with_punctuation(aligned: Sequence[AlignedLine], text: Text) -> list[AlignedLine]:
    """Give each line the punctuation that touches its words in the text and that no other line has."""
    is_free = np.zeros(len(text.characters) + 1, bool)
    is_free[_left_places(aligned, len(text.characters))] = True
    is_free[-1] = False
    for place, character in enumerate(text.characters):
        is_free[place] &= not (character.isspace() or character.isalnum())
    extended = []
    for line in aligned:
        start, end = line.start, line.end
        while line.text and start > 0 and is_free[start - 1]:
            start -= 1
        while line.text and is_free[end]:
            end += 1
        is_free[start:end] = False
        whole = text.part(start, line.start) + line.text + text.part(line.end, end)
        extended.append(replace(line, text=whole, start=start, end=end))
    return extended


def _left_places(aligned: Sequence[AlignedLine], length: int) -> Indices:
    """Return the places of the text that no line has, with -1 between places that do not follow each other."""
    is_left = np.ones(length, bool)
    for line in aligned:
        is_left[line.start : line.end] = False
        if line.gap:
            is_left[slice(*line.gap)] = True
    places = np.flatnonzero(is_left)
    breaks = np.flatnonzero(np.diff(places) > 1) + 1
    return np.concatenate([np.insert(places, breaks, -1), [length]])


def _align(fits: Sequence[LineFit], text: Text) -> list[AlignedLine]:
    """Align lines and text in one order: at first around where the readings are, then between the lines that are sure.

    What divides right from wrong is measured on the page: the middle between the scores of sure lines and random parts.
    """
    random = _random_score(fits, text)
    sequence = _Sequence(fits, text, 0.6 * random)
    lines = sequence.align(_coarse_windows(fits, text))
    sure = [(number, line) for number, line in enumerate(lines) if line.text and line.posterior > 0.9]
    scores = [sequence.score(number, line) / len(line.text) for number, line in sure]
    if len(scores) >= 3:
        sequence = _Sequence(fits, text, 0.5 * random - 0.5 * float(np.median(scores)))
    lines = sequence.align(_narrow_windows(fits, lines, text))
    return [sequence.split(number, lines) for number in range(len(lines))]


def _random_score(fits: Sequence[LineFit], text: Text) -> float:
    """Return the median cost of a character where a line is given a random part of the text."""
    costs = []
    for fit in fits:
        length = min(max(len(fit.reading), 1), fit.most, len(text.characters))
        starts = np.linspace(0, len(text.characters) - length, 4).astype(np.int64)
        costs += list(-fit.score_parts(text, starts, length)[0][:, length] / length)
    return min(float(np.median(costs)), 12.0)


Windows = list[tuple[int, int]]
"""For each line the first place where it may begin, and the first where it may not."""


def aligned_places(text: str, other: str) -> NDArray[np.int64]:
    """Return where each character of a text, and its end, is in another text, by the edits between them."""
    places = np.full(len(text) + 1, len(other))
    for edit in Levenshtein.opcodes(text, other):
        count = edit.src_end - edit.src_start
        places[edit.src_start : edit.src_end] = np.minimum(edit.dest_start + np.arange(count), edit.dest_end)
    return places


def _coarse_windows(fits: Sequence[LineFit], text: Text) -> Windows:
    """Look for each line around where edits lead that turn the readings into the text."""
    readings = [fit.reading for fit in fits]
    places = aligned_places(" ".join(readings).lower(), text.characters.lower())
    begins = np.cumsum([0, *(len(reading) + 1 for reading in readings[:-1])])
    return [(int(place) - _WINDOW, int(place) + _WINDOW) for place in places[begins]]


def _narrow_windows(fits: Sequence[LineFit], lines: Sequence[AlignedLine], text: Text) -> Windows:
    """Look for sure lines where they are, and for the others everywhere between those."""
    is_sure = [line.posterior > 0.95 and bool(line.text) for line in lines]
    windows: Windows = []
    before = 0
    for number, line in enumerate(lines):
        if is_sure[number]:
            windows.append((line.start - 3, line.start + 4))
            before = line.end
            continue
        after = next(
            (lines[other].start for other in range(number, len(lines)) if is_sure[other]), len(text.characters)
        )
        if after - before > _REGION:
            middle = line.start if line.text else before + _REGION // 2
            windows.append((max(before - _WINDOW, middle - _REGION // 2), min(after, middle + _REGION // 2)))
        else:
            windows.append((before - _WINDOW, after))
    return windows


class _Sequence:
    """The alignment of lines with a text; `middle` is the cost of a character that divides right from wrong."""

    def __init__(self, fits: Sequence[LineFit], text: Text, middle: float) -> None:
        self.fits, self.text = fits, text
        self.skip = middle / 2  # half of it falls on skipped text, half on the line
        self.places = np.arange(len(text.characters) + 1)
        self.no_text = [-_NO_TEXT - self.skip * max(len(fit.reading), 3) for fit in fits]

    def align(self, windows: Windows) -> list[AlignedLine]:
        """Return the best part for each line, with its probability among all alignments."""
        length = len(self.text.characters)
        best = total = np.where(self.places == 0, 0.0, NEVER)
        totals, tables, begins, sources = [total], [], [], []
        for number, window in enumerate(windows):
            starts, scores = self._score(number, window, best)
            jumped, origin = self._jump_best(best)
            ends = np.minimum(starts[:, None] + np.arange(scores.shape[1]), length)
            values = jumped[starts][:, None] + scores
            reached = np.full(length + 1, NEVER)
            np.maximum.at(reached, ends.ravel(), values.ravel())
            best = best + self.no_text[number]
            is_reached = reached > best
            first = np.full(length + 1, -1)
            rows, columns = np.nonzero((values == reached[ends]) & (values > NEVER / 2))
            first[ends[rows, columns]] = starts[rows]
            begins.append(np.where(is_reached, first, -1))
            sources.append(origin)
            best = np.maximum(best, reached)
            ending = np.full(length + 1, NEVER)
            np.logaddexp.at(ending, ends, self._jump(total)[starts][:, None] + scores)
            total = np.logaddexp(total + self.no_text[number], ending)
            totals.append(total)
            tables.append((starts, scores, ends))
        is_blank_after = np.logical_and.accumulate(self.text.spaces[::-1])[::-1]
        rest = np.asarray(-self.skip * (length - self.places) - np.where(is_blank_after, 0.0, _GAP), np.float64)
        spans = self._trace_back(int((best + rest).argmax()), begins, sources)
        return self._with_posteriors(spans, totals, tables, rest)

    def _trace_back(self, end: int, begins: Sequence[Indices], sources: Sequence[Indices]) -> list[tuple[int, int]]:
        """Return the part of each line; an empty one for none."""
        spans = []
        for first, origin in zip(reversed(begins), reversed(sources), strict=True):
            start = int(first[end])
            spans.append((start, end) if start >= 0 else (end, end))
            end = int(origin[start]) if start >= 0 else end
        return spans[::-1]

    def _with_posteriors(
        self,
        spans: Sequence[tuple[int, int]],
        totals: Sequence[Array],
        tables: Sequence[tuple[Indices, Array, Indices]],
        rest: Array,
    ) -> list[AlignedLine]:
        whole = float(np.logaddexp.reduce(totals[-1] + rest))
        lines = []
        for number in range(len(spans) - 1, -1, -1):
            (start, end), (starts, scores, ends) = spans[number], tables[number]
            without = rest + self.no_text[number]
            following = scores + rest[ends]
            if end > start:
                row = int(np.searchsorted(starts, start))
                posterior = self._jump(totals[number])[start] + following[row, end - start] - whole
            else:
                posterior = float(np.logaddexp.reduce(totals[number] + without)) - whole
            lines.append(AlignedLine(self.text.part(start, end), start, end, None, float(np.exp(min(posterior, 0.0)))))
            onwards: Array = np.full(len(rest), NEVER)
            onwards[starts] = np.logaddexp.reduce(following, axis=1)
            rest = np.logaddexp(without, self._jump(onwards, back=True))
        return lines[::-1]

    def _score(self, number: int, window: tuple[int, int], best: Array) -> tuple[Indices, Array]:
        """Return where the line may begin, and the scores of the parts from there by their length."""
        fit, text = self.fits[number], self.text
        allowed = np.zeros(len(self.places), bool)
        allowed[max(window[0], 0) : max(window[1], 0)] = True
        likely = np.flatnonzero(best > best.max() - _BEAM)
        for step in range(3):
            allowed[np.minimum(likely + step, len(self.places) - 1)] = True
        starts = np.flatnonzero(allowed & ~text.spaces)
        scores, hyphenated = fit.score_parts(text, starts, fit.most)
        ends = starts[:, None] + np.arange(fit.most + 1)
        clipped = np.minimum(ends, len(self.places) - 1)
        broken = np.logaddexp(scores - _MID_WORD - 2, hyphenated - _HYPHENATED)
        scores = (
            np.where(text.spaces[clipped], scores, broken) - np.where(text.word_starts[starts], 0.0, _MID_WORD)[:, None]
        )
        scores[(ends >= len(self.places)) | text.word_starts[clipped]] = NEVER
        return starts, scores

    def score(self, number: int, line: AlignedLine) -> float:
        """Return the score of the text of a line."""
        scores, _ = self.fits[number].score_parts(self.text, np.array([line.start]), line.end - line.start)
        return float(scores[0, -1])

    def split(self, number: int, lines: Sequence[AlignedLine]) -> AlignedLine:
        """Return the line with two parts of the text around it that no line has, if they fit better than one."""
        line = lines[number]
        start = max((other.end for other in lines[:number] if other.text), default=0)
        end = min((other.start for other in lines[number + 1 :] if other.text), default=len(self.text.characters))
        part = self.text.characters[start:end]
        start, end = start + len(part) - len(part.lstrip()), end - len(part) + len(part.rstrip())
        fit, skipped = self.fits[number], end - start - (line.end - line.start)
        if not _STRETCH <= skipped <= _REGION:
            return line
        most = min(fit.most, end - start)
        lefts = np.flatnonzero(self.text.spaces[start : start + most + 1])
        rights = np.flatnonzero(self.text.spaces[end - most : end][::-1]) + 1  # the second half begins with a space
        if not len(lefts) or not len(rights):
            return line
        between = (end - rights) - (start + lefts[:, None])
        scores = fit.score_halves(self.text, start, end, lefts, rights) - self.skip * between
        scores[between <= 0] = NEVER
        row, column = np.unravel_index(int(scores.argmax()), scores.shape)
        left, right = start + int(lefts[row]), end - int(rights[column])
        now = self.score(number, line) if line.text else self.no_text[number]
        gain = float(scores[row, column]) - _SPLIT - (now - self.skip * skipped - _GAP)
        if gain < 0:
            return line
        text = f"{self.text.part(start, left)} {self.text.part(right, end)}".strip()
        return AlignedLine(text, start, end, (left, right), float(1 / (1 + np.exp(-gain))))

    def _jump(self, values: Array, *, back: bool = False) -> Array:
        """Return for each place the sum over all earlier ones, or all later ones, with the cost of the text between."""
        order = slice(None, None, -1) if back else slice(None)
        values, slope = values[order], self.skip * self.places
        skipped = np.logaddexp.accumulate(values + slope) - slope - _GAP
        over_space = _over_space(values, self.text.spaces[:-1][order])
        total: Array = np.logaddexp(np.logaddexp(values, skipped), over_space)
        return total[order]

    def _jump_best(self, values: Array) -> tuple[Array, Indices]:
        """Return for each place the best of all earlier ones, and where that is."""
        sloped = values + self.skip * self.places
        highest = np.maximum.accumulate(sloped)
        origin = np.maximum.accumulate(np.where(sloped >= highest, self.places, 0))
        choices = np.stack(
            [values, _over_space(values, self.text.spaces[:-1]), highest - self.skip * self.places - _GAP]
        )
        chosen = choices.argmax(0)
        return choices.max(0), np.choose(chosen, [self.places, np.maximum(self.places - 1, 0), origin])


def _over_space(values: Array, spaces: NDArray[np.bool_]) -> Array:
    """Return for each place the value of the one before it if a space is between them."""
    after = np.full(len(values), NEVER)
    after[1:] = np.where(spaces, values[:-1], NEVER)
    return after


class Anchors:
    """Finds where in a long text the reading of a page is, by groups of letters that both have.

    Case, spaces and punctuation do not count. Takes time and memory in proportion to the text and to the reading.
    """

    def __init__(self, text: str) -> None:
        self.length = len(text)
        letters, self._places = _letters(text)
        grams = _grams(letters)
        self._order = np.argsort(grams, kind="stable")
        self._sorted = grams[self._order]

    def find(self, reading: str) -> tuple[int, int, float] | None:
        """Return where the text of a reading begins and ends, with a margin, and how much clearer than elsewhere.

        Rare groups count more. None if nothing of it is in the text.
        """
        letters, _ = _letters(reading)
        grams = _grams(letters)
        first = np.searchsorted(self._sorted, grams)
        counts = np.minimum(np.searchsorted(self._sorted, grams, side="right") - first, _MOST_PLACES + 1)
        used = np.flatnonzero((counts > 0) & (counts <= _MOST_PLACES))
        if not len(used):
            return None
        repeated = np.repeat(used, counts[used])
        within = np.arange(len(repeated)) - np.repeat(np.cumsum(counts[used]) - counts[used], counts[used])
        hits = self._order[first[repeated] + within]
        shifts = (hits - repeated + len(letters)) // _BIN
        votes = np.bincount(shifts, 1 / counts[repeated])
        width = 3 + len(letters) // (4 * _BIN)
        sums = np.convolve(votes, np.ones(width))
        best = int(sums.argmax())
        reach = width + 2 * len(letters) // _BIN
        rest = np.concatenate([sums[: max(best - reach, 0)], sums[best + reach + 1 :]])
        is_near = (shifts <= best) & (shifts > best - width)
        margin = 120 + len(letters) // 5
        usual = int(np.median(hits[is_near] - repeated[is_near]))
        start, end = np.quantile(hits[is_near], [0.02, 0.98])
        low = max(min(int(start), usual) - margin, 0)
        high = min(max(int(end), usual + len(letters)) + margin, len(self._places) - 1)
        clear = float(sums[best]) / max(float(rest.max(initial=0.0)), 1.0)
        return int(self._places[low]), int(self._places[high]) + 1, clear


_GRAM = 4
"""Letters of a group, and `_BIN` letters by which two places of it may differ and still count together."""
_BIN = 64
_MOST_PLACES = 64
"""Groups that are in the text more often say nothing."""


def _letters(text: str) -> tuple[Indices, Indices]:
    """Return the code points of a text's letters and digits, without case and accents, and their places."""
    folded = [(unicodedata.normalize("NFD", character.lower())[0], place) for place, character in enumerate(text)]
    kept = [(ord(character), place) for character, place in folded if character.isalnum()]
    points, places = np.array(kept, np.int64).reshape(-1, 2).T
    return points, places


def _grams(points: Indices) -> Indices:
    """Return a number for each group of letters that follow each other; Unicode's points have 21 bits."""
    count = max(len(points) - _GRAM + 1, 0)
    grams = np.zeros(count, np.int64)
    for place in range(_GRAM):
        grams = grams * 1_000_003 + points[place : place + count]
    return grams


_BY_STEPS = (1.129, 0.495, -0.157, -0.399, 0.774, -1.563, -0.290)
_BY_READING = (0.952, 0.652, 0.0, -0.507, 0.0, -2.797, 0.045)
"""Logistic regressions on lines of four collections each whose true text is known (lab/verdicts.md)."""


def _likelihood(line: AlignedLine, weights: Sequence[float]) -> float:
    posterior = min(max(line.posterior, 1e-4), 1 - 1e-4)
    weakest = max(line.weakest, -30.0) / 10
    features = (
        1.0,
        math.log(posterior / (1 - posterior)),
        weakest,
        weakest**2,
        max(line.fit, -4.0),
        float(line.gap is not None),
        math.log(len(line.text)),
    )
    return 1 / (1 + math.exp(-sum(weight * value for weight, value in zip(weights, features, strict=True))))
