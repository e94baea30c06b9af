"""Whether a text ends in a loop, as a model writes that does not find its end; knows nothing but the text.

A repetition is a unit that stands at least five times in a row and so adds 30 characters or more to its first time.
One of signs and digits alone, or with the marks of tables and lines (`|`, `<`, tab, line break), has to add 200: rows
of dots and dashes, columns of zeros, cells and refrains are written by people too. A text loops where it ends in
repetitions; between them and after them may stand 30 characters of something else, because a guard against loops
interrupts them.
"""

import re
from collections import Counter
from collections.abc import Iterator
from operator import eq

_TIMES = 5
_ADDED = 30
_ADDED_LAID_OUT = 200
_OTHER = 30
_LAYOUT = frozenset("|<\t\n")

_GRAM = 8
"""So many characters are seldom the same twice in a line of prose."""
_PERIODS = 8
"""So many periods are looked at, those first that most of the text repeats at; it bounds the time."""

_ALIKE = re.compile(rb"\x01{%d,}" % _ADDED)


def is_looping(text: str) -> bool:
    """True where the text ends in a loop."""
    return loop_start(text) is not None


def loop_start(text: str) -> int | None:
    """Where the repeated tail begins, as an index into the text; None where there is none.

    The unit stands there for the first time, so `text[:start]` is what was written before the loop.
    """
    edge = len(text.rstrip())
    start = None
    for begin, end in sorted(_repetitions(text), key=lambda stretch: -stretch[1]):
        if end + _OTHER < edge:
            break
        start = edge = min(edge, begin)
    return start


def _repetitions(text: str) -> Iterator[tuple[int, int]]:
    """Each repetition's begin and end, the unit's first time included."""
    for period in _periods(text):
        # A one where a character is the same as the one a period before it.
        for alike in _ALIKE.finditer(bytes(map(eq, text, text[period:]))):
            begin, added = alike.start(), alike.end() - alike.start()
            unit = text[begin : begin + period]
            if added >= max(_added(unit), (_TIMES - 1) * period):
                yield begin, begin + period + added


def _periods(text: str) -> list[int]:
    """The distances at which most of the text repeats, from the last time that the same few characters stood there."""
    grams = [text[place : place + _GRAM] for place in range(len(text) - _GRAM + 1)]
    if len(grams) - len(set(grams)) <= _ADDED - _GRAM:
        return []
    last: dict[str, int] = {}
    distances: Counter[int] = Counter()
    for place, gram in enumerate(grams):
        if gram in last:
            distances[place - last[gram]] += 1
        last[gram] = place
    return [period for period, _ in distances.most_common(_PERIODS)]


def _added(unit: str) -> int:
    """How many characters repetitions of such a unit have to add."""
    spoken = any(character.isalpha() for character in unit)
    return _ADDED if spoken and _LAYOUT.isdisjoint(unit) else _ADDED_LAID_OUT
