"""Searching the texts of all pages, and replacing what was found."""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dsocr.errors import DataError
from dsocr.text import comparable
from dsocr.workbench.store import CorrectionStore
from dsocr.workbench.stored_lines import State, StoredLine

Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Query:
    """What to look for: a text as it is written, upper and lower case alike unless `match_case`.

    With `whole_words` no letter or digit may stand beside it. `pages` limits the search; all pages if empty.
    """

    text: str
    match_case: bool = False
    whole_words: bool = False
    pages: frozenset[int] = frozenset()

    def pattern(self) -> re.Pattern[str]:
        """Raises DataError if there is nothing to look for."""
        sought = comparable(self.text)
        if not sought:
            raise DataError("there is nothing to look for", code="search-empty", hint="type a text to find")
        forms = {unicodedata.normalize(form, sought) for form in ("NFC", "NFD")}
        inner = "|".join(r"\s+".join(map(re.escape, form.split(" "))) for form in sorted(forms))
        around = (r"(?<!\w)", r"(?!\w)") if self.whole_words else ("", "")
        return re.compile(f"(?:{inner})".join(around), 0 if self.match_case else re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Hit:
    """A line with the places (start, end) of what was looked for in its text."""

    line: StoredLine
    spans: tuple[Span, ...]

    def replaced(self, replacement: str, only: Sequence[int] | None = None) -> str:
        """The text with the replacement in all places, or in those of these indexes."""
        parts, end = [], 0
        for place, (start, stop) in enumerate(self.spans):
            if only is None or place in only:
                parts += [self.line.text[end:start], replacement]
                end = stop
        return "".join([*parts, self.line.text[end:]])


def search(store: CorrectionStore, query: Query) -> Iterator[Hit]:
    """Yield the lines whose text has what is looked for, in their order. Raises DataError for an empty query."""
    pattern = query.pattern()
    for line in store.lines():
        if query.pages and line.page not in query.pages:
            continue
        if spans := tuple(match.span() for match in pattern.finditer(line.text)):
            yield Hit(line, spans)


def replace_all(store: CorrectionStore, hits: Sequence[Hit], replacement: str, *, who: str) -> int:
    """Replace what was found, as one change that one undo takes back; returns the number of changed lines.

    Unreadable lines stay as they are. Raises StaleError, and changes nothing, if a line was changed since it was found.
    """
    changes = [(hit.line, hit.replaced(replacement)) for hit in hits if hit.line.state is not State.UNREADABLE]
    changes = [(line, text.strip()) for line, text in changes if text.strip() != line.text]
    if changes:
        store.replace_texts(changes, who=who)
    return len(changes)
