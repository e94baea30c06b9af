"""Which lines are worth transcribing next: those a model is unsure of, by new writers, with rare characters.

Plain values in and out: knows nothing about images or files.
"""

import heapq
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

RARE = 20
"""Times a character stands in the training split below which a line that has it is worth more."""
_NEW_WRITER, _RARE_CHARACTERS = 0.5, 0.5
"""What a new writer, and rare characters at the most, are worth beside an uncertainty of 1."""
_UNREAD = 0.5
"""The uncertainty of a line in which nothing was read: it may hold no text at all."""
_SHOWN = 8
"""Rare characters that a reason names."""
_AGAIN = 0.7
"""What each line that was already taken from a page, or from a new writer, leaves of the worth of the next."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A line as a model reads it; `confidence` is the share of its text that is likely right, None if not known."""

    id: str
    text: str
    confidence: float | None
    page: str | None = None
    writer: str | None = None

    @property
    def uncertainty(self) -> float:
        """From 0 to 1."""
        return _UNREAD if self.confidence is None or not self.text else 1 - self.confidence


@dataclass(frozen=True, slots=True)
class Known:
    """What the training split holds: its writers, and how often each character stands there.

    Where no writer is known there, nobody is new; where no character is, none is rare.
    """

    writers: frozenset[str]
    characters: Mapping[str, int]

    @classmethod
    def of(cls, samples: Iterable[tuple[str | None, str]]) -> "Known":
        """Counted from pairs of a writer and a text."""
        writers: set[str] = set()
        characters: Counter[str] = Counter()
        for writer, text in samples:
            writers |= {writer} if writer else set()
            characters.update(text)
        return cls(frozenset(writers), characters)


@dataclass(frozen=True, slots=True)
class Choice:
    """A chosen line, what it was worth when it was chosen, and why, in words."""

    candidate: Candidate
    worth: float
    reason: str


def choose(candidates: Sequence[Candidate], known: Known, count: int) -> list[Choice]:
    """At most `count` lines, the one worth most first.

    After each choice, what it brings is worth less in the others: lines of its page, its new writer, its rare
    characters. So the list is spread over pages and hands, and its beginning is worth transcribing by itself.
    """
    taken = _Taken(known)
    # Worth only falls as lines are taken, so one that is still the largest when it is looked at again is the largest.
    heap = [(-taken.worth(candidate), place) for place, candidate in enumerate(candidates)]
    heapq.heapify(heap)
    chosen: list[Choice] = []
    while heap and len(chosen) < count:
        _, place = heapq.heappop(heap)
        candidate = candidates[place]
        worth = taken.worth(candidate)
        if heap and -heap[0][0] > worth:
            heapq.heappush(heap, (-worth, place))
            continue
        chosen.append(Choice(candidate, worth, taken.reason(candidate)))
        taken.add(candidate)
    return chosen


class _Taken:
    """What was chosen so far, and what a further line is worth beside it."""

    def __init__(self, known: Known) -> None:
        self._known = known
        self._pages: Counter[str] = Counter()
        self._writers: Counter[str] = Counter()
        self._characters: Counter[str] = Counter()

    def worth(self, candidate: Candidate) -> float:
        own = candidate.uncertainty
        if self._is_new(candidate):
            own += _NEW_WRITER * _AGAIN ** self._writers[candidate.writer or ""]
        rare = sum(self._rarity(character) for character in self._rare(candidate))
        own += _RARE_CHARACTERS * min(rare, 1.0)
        return own * (_AGAIN ** self._pages[candidate.page] if candidate.page else 1.0)

    def reason(self, candidate: Candidate) -> str:
        told = []
        if not candidate.text:
            told.append("nothing was read")
        elif candidate.confidence is not None:
            told.append(f"{candidate.confidence:.0%} of its text is likely right")
        if self._is_new(candidate):
            told.append("a new writer")
        if rare := self._rare(candidate):
            more = f" and {len(rare) - _SHOWN} more" if len(rare) > _SHOWN else ""
            told.append(f"rare in training: {' '.join(rare[:_SHOWN])}{more}")
        return "; ".join(told)

    def add(self, candidate: Candidate) -> None:
        if candidate.page:
            self._pages[candidate.page] += 1
        if candidate.writer:
            self._writers[candidate.writer] += 1
        self._characters.update(self._rare(candidate))

    def _is_new(self, candidate: Candidate) -> bool:
        known = self._known.writers
        return bool(known) and candidate.writer is not None and candidate.writer not in known

    def _rare(self, candidate: Candidate) -> list[str]:
        counts = self._known.characters
        if not counts:
            return []
        return sorted({letter for letter in candidate.text if not letter.isspace() and counts.get(letter, 0) < RARE})

    def _rarity(self, character: str) -> float:
        """From 1, for one that never stood in training, to 0; less with each line that was taken for it."""
        return (1 - self._known.characters.get(character, 0) / RARE) * _AGAIN ** self._characters[character]
