"""Errors of whole pages, independent of the order of their lines, and errors in graphemes.

A tool with its own layout analysis draws other lines than the reference and reads them in another order, so a CER of
lines cannot be counted, and a CER of the page's text counts every displaced line twice. Two published measures do not
depend on the order: the bag-of-words WER (Vidal, Toselli, Ríos-Vila and Calvo-Zaragoza 2023, End-to-End Page-Level
Assessment of Handwritten Text Recognition) and the flexible character accuracy (Clausner, Pletschacher and
Antonacopoulos 2020, Flexible Character Accuracy Measure for Reading-Order-Independent Evaluation).
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product

import numpy as np
import regex
from numpy.typing import NDArray
from rapidfuzz.distance import Indel, Levenshtein

from dsocr.errors import DataError, first_few, option
from dsocr.evaluation.metrics import ErrorRate, is_over_long
from dsocr.evaluation.scores import LineScore
from dsocr.text import comparable, is_blank

_GRAPHEME = regex.compile(r"\X")

_COEFFICIENTS: NDArray[np.float64] = np.array(
    list(product(range(15, 31, 5), range(0, 24, 3), range(4), range(6))), dtype=np.float64
) * [1, 1, 1, -1]
"""Weights of edits, difference in length, offset and common length in the penalty of a match, which all are tried."""


def grapheme_errors(reference: str, prediction: str) -> ErrorRate:
    """Count inserted, deleted and substituted grapheme clusters (Unicode Standard Annex 29).

    A letter with a combining accent that Unicode has no single code point for, such as а̀, is one error and not two.
    """
    read, written = (_GRAPHEME.findall(comparable(text)) for text in (prediction, reference))
    return ErrorRate(Levenshtein.distance(written, read), len(written))


def bag_of_words_errors(reference: str, prediction: str) -> ErrorRate:
    """Count the words that are missing or extra, in any order; a missing and an extra one are one error.

    It is never more than the edits of the WER, and how much less says how much of the WER is due to order.
    """
    written, read = Counter(comparable(reference).split()), Counter(comparable(prediction).split())
    missing, extra = (written - read).total(), (read - written).total()
    return ErrorRate(max(missing, extra), written.total())


def flexible_character_errors(reference: str, prediction: str) -> ErrorRate:
    """Count edits between lines of a page that are matched in any order, and split where they must be.

    The flexible character accuracy is 1 - rate. The longest lines of the reference are matched first, each with the
    line or part of a line that has the least penalty; the rests of both are matched in turn, and the last rests are
    missing or extra. Of 768 weightings of the penalty the one with the fewest errors counts. Line breaks do not.
    """
    written, read = (
        tuple(sorted((line for line in map(comparable, text.splitlines()) if line), key=len, reverse=True))
        for text in (reference, prediction)
    )
    length = sum(map(len, written))
    fewest = length + sum(map(len, read))
    # A weighting only matters where it chooses another match, so all that chose the same so far are followed together.
    open_states = [(written, read, 0, np.arange(len(_COEFFICIENTS)))]
    while open_states:
        written, read, errors, weightings = open_states.pop()
        if not written or not read:
            fewest = min(fewest, errors + sum(map(len, written)) + sum(map(len, read)))
            continue
        for choice, chosen_by in _choices(written, read, weightings):
            line, other, match = choice
            left = _without(written, line, match.written), _without(read, other, match.read)
            if errors + match.errors < fewest:
                open_states.append((*left, errors + match.errors, chosen_by))
    return ErrorRate(fewest, length)


@dataclass(frozen=True, slots=True)
class _Match:
    """The parts (start, end) of two lines that were matched.

    `errors` are the edits between them, `not_right` those but insertions; in the `cost` a substitution counts twice.
    """

    written: tuple[int, int]
    read: tuple[int, int]
    errors: int
    cost: int
    not_right: int

    @property
    def accuracy(self) -> float:
        length = self.written[1] - self.written[0]
        return 1 - self.errors / length if length else float(-self.errors)


_Choice = tuple[int, int, _Match]


def _choices(
    written: Sequence[str], read: Sequence[str], weightings: NDArray[np.intp]
) -> Iterator[tuple[_Choice, NDArray[np.intp]]]:
    """Yield the matches that some weightings choose next, each with these weightings.

    Of all lines of the reference that are as long as the shorter of the two longest lines, the one that is read best.
    """
    longest = min(len(written[0]), len(read[0]))
    candidates = [place for place, line in enumerate(written) if len(line) >= longest]
    others, accuracies = [], []
    table: list[list[_Match]] = []
    for place in candidates:
        matches = [_match(written[place], other) for other in read]
        features = []  # edits, difference in length, offset of a part, common length
        for other, match in zip(read, matches, strict=True):
            lengths = len(written[place]), len(other)
            difference, start = abs(lengths[0] - lengths[1]), max(match.written[0], match.read[0])
            offset = difference / 2 - abs(start - difference / 2) if difference > 1 else 0.0
            features.append((match.cost, difference, offset, min(lengths)))
        best = np.argmin(np.array(features) @ _COEFFICIENTS[weightings].T, axis=0)
        table.append(matches)
        others.append(best)
        accuracies.append(np.array([match.accuracy for match in matches])[best])
    winners = np.argmax(np.array(accuracies), axis=0)
    chosen = np.stack([winners, np.array(others)[winners, np.arange(len(weightings))]])
    for row, other in np.unique(chosen, axis=1).T.tolist():
        same = (chosen == np.array([[row], [other]])).all(axis=0)
        yield (candidates[row], other, table[row][other]), weightings[same]


@lru_cache(maxsize=50_000)
def _match(written: str, read: str) -> _Match:
    """Move the shorter line along the longer one, and return where it fits best.

    The match is made longer where that saves edits, and is nothing (all of the reference missing) if that is cheapest.
    """
    shorter = min(len(written), len(read))
    places = product(range(len(written) - shorter + 1), range(len(read) - shorter + 1))
    spans = [((start, start + shorter), (begin, begin + shorter)) for start, begin in places]
    best: _Match | None = None
    for written_span, read_span in [*spans, ((0, len(written)), (0, len(read)))]:
        best = _better(best, written, read, written_span, read_span)
    if best is not None:
        (start, end), (first, _) = best.written, best.read
        for length in range(end - start + 1, end - start + best.not_right + 1):
            best = _better(best, written, read, (start, start + length), (first, first + length)) or best
    if best is None or len(written) < best.cost:
        return _Match((0, len(written)), (0, 0), len(written), len(written), len(written))
    return best


def _better(
    best: _Match | None, written: str, read: str, written_span: tuple[int, int], read_span: tuple[int, int]
) -> _Match | None:
    """Return the match of two spans if it costs less than the best so far and is not all substitutions."""
    part, read_part = written[slice(*written_span)], read[slice(*read_span)]
    if best is not None and (not best.cost or Indel.distance(part, read_part, score_cutoff=best.cost - 1) >= best.cost):
        return best  # the cost is never less than this distance
    tags = Counter(edit.tag for edit in Levenshtein.editops(part, read_part))
    errors, replaced = tags.total(), tags["replace"]
    cost = errors + replaced
    if (best is not None and cost >= best.cost) or replaced >= min(len(written), len(read)):
        return best
    ends = (written_span[0], min(written_span[1], len(written))), (read_span[0], min(read_span[1], len(read)))
    return _Match(*ends, errors, cost, tags["delete"] + replaced)


def _without(lines: tuple[str, ...], place: int, span: tuple[int, int]) -> tuple[str, ...]:
    """Take a span out of a line, and put the parts before and after it among the others, the longest first."""
    line = lines[place]
    rest = [part for part in (line[: span[0]], line[span[1] :]) if part]
    left = [*lines[:place], *lines[place + 1 :], *rest]
    return tuple(sorted(left, key=len, reverse=True) if rest else left)


def score_pages(lines: Iterable[LineScore], texts: Mapping[str, str] | None = None) -> list[LineScore]:
    """Join scored lines into pages, and score each as a single unit: as its lines were read, or its text in `texts`.

    The `cer` of a page is 1 - the flexible character accuracy, its `wer` the bag-of-words WER, its writer None if it
    has several. Raises DataError for a line without a page, or a page without a text.
    """
    pages: dict[str, list[LineScore]] = {}
    for line in lines:
        if line.page is None:
            hint = "prepare the dataset from pages, or compare lines"
            raise DataError("a line belongs to no page", code="page-unknown", where=line.id, hint=hint)
        pages.setdefault(line.page, []).append(line)
    if texts is None:
        texts = {key: "\n".join(line.prediction for line in members) for key, members in pages.items()}
    if absent := [key for key in pages if key not in texts]:
        message = f"{len(absent)} of {len(pages)} pages have no text: {first_few(absent)}"
        raise DataError(message, code="prediction-missing", hint=f"{option('missing', 'empty')} counts them as empty")
    scores = []
    for key, members in pages.items():
        written, text = "\n".join(line.reference for line in members), texts[key]
        cer, wer = flexible_character_errors(written, text), bag_of_words_errors(written, text)
        page = LineScore(
            key,
            written,
            text,
            cer,
            wer,
            exact=not cer.errors,
            empty=is_blank(text),
            over_long=is_over_long(written, text),
            page=key,
        )
        if len({line.writer for line in members}) == 1:
            page = replace(page, writer=members[0].writer, writer_status=members[0].writer_status)
        scores.append(page)
    return scores
