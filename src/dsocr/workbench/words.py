"""Words: found and replaced on all pages, known to be right, and alternatives for doubtful ones."""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from pathlib import Path

from rapidfuzz import process
from rapidfuzz.distance import OSA

from dsocr.errors import DataError
from dsocr.inference.alignment import aligned_places
from dsocr.io.encodings import read_text
from dsocr.text import comparable
from dsocr.workbench.store import CorrectionStore
from dsocr.workbench.stored_lines import State, StoredLine

Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Query:
    """What to look for: a text as it is written, upper and lower case alike unless `match_case`.

    With `whole_words` no letter or digit may stand beside it. `page` limits the search to one page.
    """

    text: str
    match_case: bool = False
    whole_words: bool = False
    page: int | None = None

    def pattern(self) -> re.Pattern[str]:
        """Raises DataError if there is nothing to look for."""
        sought = comparable(self.text)
        if not sought:
            raise DataError("there is nothing to look for", code="edit-invalid", hint="type a text to find")
        forms = {unicodedata.normalize(form, sought) for form in ("NFC", "NFD")}
        inner = "|".join(r"\s+".join(map(re.escape, form.split(" "))) for form in sorted(forms))
        around = (r"(?<!\w)", r"(?!\w)") if self.whole_words else ("", "")
        return re.compile(f"(?:{inner})".join(around), 0 if self.match_case else re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Hit:
    """A line with the places (start, end) of the matches in its text."""

    line: StoredLine
    spans: tuple[Span, ...]

    @property
    def pieces(self) -> list[str]:
        """The text cut at the matches, which are every second piece."""
        cuts = [0, *chain.from_iterable(self.spans), len(self.line.text)]
        return [self.line.text[start:end] for start, end in pairwise(cuts)]

    def replaced(self, replacement: str) -> str:
        """The text with the replacement in all places."""
        return replacement.join(self.pieces[::2])


def search(store: CorrectionStore, query: Query) -> Iterator[Hit]:
    """Yield the lines with a match, in their order. Raises DataError for an empty query."""
    pattern = query.pattern()
    for line in store.lines(query.page):
        if spans := tuple(match.span() for match in pattern.finditer(line.text)):
            yield Hit(line, spans)


def replace_all(store: CorrectionStore, hits: Sequence[Hit], replacement: str, *, who: str) -> int:
    """Replace all matches as one change that one undo takes back; returns the number of changed lines.

    Unreadable lines stay as they are. Raises StaleError, and changes nothing, if a line was changed since it was found.
    """
    changes = [(hit.line, hit.replaced(replacement)) for hit in hits if hit.line.state is not State.UNREADABLE]
    changes = [(line, text.strip()) for line, text in changes if text.strip() != line.text]
    if changes:
        store.replace_texts(changes, who=who)
    return len(changes)


_WORD = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*")
_MIN_WORDS = 300
"""With fewer words nearly every word would be unknown."""
_MAX_DISTANCE = 2
_DOUBTFUL = 0.95
_MAX_LETTERS = 60


class WordList:
    """Words with their frequency: those of accepted texts, and of a list without frequencies."""

    def __init__(self, texts: Iterable[str], listed: Iterable[str] = ()) -> None:
        self._words = Counter(word for text in texts for word in _WORD.findall(text))
        self._all = sorted({*self._words, *listed})
        self._folded = set(map(str.casefold, self._all))

    def unknown(self, text: str) -> list[Span]:
        """The places of words that are not in the list; none while the list is too short to tell."""
        if len(self._all) < _MIN_WORDS:
            return []
        return [match.span() for match in _WORD.finditer(text) if match[0].casefold() not in self._folded]

    def similar(self, word: str) -> list[str]:
        """Up to twelve words at most two edits away, the nearest and most frequent first."""
        most = min(_MAX_DISTANCE, max(1, len(word) // 3))
        near = process.extract(word, self._all, scorer=OSA.distance, score_cutoff=most, limit=48)
        ranked = sorted(near, key=lambda match: (match[1], -self._words[match[0]]))
        return [match for match, _, _ in ranked if match != word][:12]


def word_at(text: str, caret: int) -> Span | None:
    """Where the word at a cursor begins and ends, white space around it; None between two spaces."""
    words = (match.span() for match in re.finditer(r"\S+", text))
    return next(((start, end) for start, end in words if start <= caret <= end), None)


def variants(word: str, doubts: Sequence[float], words: WordList, letters: Sequence[str]) -> list[str]:
    """Alternatives for a word: similar words of the list, then other letters where the model doubts most.

    `doubts` are the probabilities of its characters, empty if unknown; `letters` the candidates, most frequent first.
    """
    core = re.fullmatch(r"(\W*)(.*?)(\W*)", word, re.DOTALL)
    assert core is not None
    before, inner, after = core.groups()
    forms = [before + other + after for other in words.similar(inner)] if inner else []
    if len(doubts) == len(word):
        weakest = sorted(range(len(word)), key=lambda place: doubts[place])[:2]
        for place in (place for place in weakest if doubts[place] < _DOUBTFUL):
            replacements = ["", *(letter for letter in letters[:_MAX_LETTERS] if letter != word[place])]
            forms += [word[:place] + letter + word[place + 1 :] for letter in replacements]
    return [other for other in dict.fromkeys(forms) if other and other != word]


def counterpart(text: str, other: str, start: int, end: int) -> Span:
    """Where the word between two places of a text is in another text of the same line, by their alignment."""
    begin, stop = aligned_places(text, other)[[start, end]].tolist()
    if begin >= stop:
        return 0, 0
    around = word_at(other, begin), word_at(other, stop)
    return (around[0] or (begin, stop))[0], max(stop, (around[1] or (0, stop))[1])


def read_words(work: Path) -> list[str]:
    """The words of `words.txt` in a work folder, one a line; none without the file."""
    path = work / "words.txt"
    return read_text(path).split() if path.is_file() else []
