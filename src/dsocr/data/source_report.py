"""Collect skipped, changed and ambiguous items while a source is read."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from pydantic import BaseModel

from dsocr.document import Item, Note, Page, Skipped, SkipReason
from dsocr.errors import DataError
from dsocr.io.encodings import writable

SKIPPED_FILE = "skipped.jsonl"

MAX_EXAMPLES = 10
"""Examples of each kind in a card."""

MAX_CHARACTERS = 100_000
"""Of the text of a line or page; a megabyte of text costs its rules a minute."""


class CountCard(BaseModel):
    """A count and the first examples, as cards store them."""

    count: int
    examples: list[str]


def count_example(cards: dict[str, CountCard], kind: str, example: str) -> None:
    """Count one more of a kind; the first examples are kept."""
    card = cards.setdefault(kind, CountCard(count=0, examples=[]))
    card.count += 1
    if len(card.examples) < MAX_EXAMPLES:
        card.examples.append(example)


@dataclass
class SourceReport:
    """Events while a source was read: items skipped, names unmatched, texts changed, notes for the user.

    `names` counts the images of each writer, page and document that a pattern found, `text_changes` the texts that each
    rule of the text policy changed. `pages` counts the pages read, `reused` those whose crops of an earlier run were
    used again. With `strict` the first fault is raised as a DataError instead.
    """

    strict: bool = False
    skipped: list[Skipped] = field(default_factory=list)
    unmatched: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    notes: list[str] = field(default_factory=list)
    outlined_by_baselines: list[str] = field(default_factory=list)
    names: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    text_changes: dict[str, CountCard] = field(default_factory=dict)
    pages: int = 0
    reused: int = 0

    def skip(self, item: Skipped) -> None:
        """Record a skipped item."""
        if self.strict and item.reason.is_fault:
            code = item.reason.name.lower().replace("_", "-")
            raise DataError(f"{item.reason}: {item.message}", code=code, where=item.where)
        self.skipped.append(replace(item, where=writable(item.where), message=writable(item.message)))

    def note(self, message: str) -> None:
        """Record something that is no fault but worth knowing."""
        self.notes.append(message)

    def missing_images(self, total: int) -> str:
        """How many images were not found where `found` others were, as a sentence; empty if none."""
        missing = sum(item.reason is SkipReason.NO_IMAGE for item in self.skipped)
        return f"{missing} of {missing + total} images not found" if missing else ""

    def filter_pages(self, items: Iterable[Item]) -> Iterator[Page]:
        """The pages among a source's items; the rest is recorded."""
        for item in items:
            if isinstance(item, Skipped):
                self.skip(item)
            elif isinstance(item, Note):
                self.note(item.message)
            else:
                endless = [line for line in item.lines if len(line.text) > MAX_CHARACTERS]
                for line in endless:
                    message = f"the text has {len(line.text):,} characters, and the limit is {MAX_CHARACTERS:,}"
                    self.skip(Skipped(SkipReason.BAD_SOURCE, line.where, message))
                kept = tuple(line for line in item.lines if len(line.text) <= MAX_CHARACTERS)
                yield replace(item, lines=kept) if endless else item

    def skipped_card(self) -> dict[str, CountCard]:
        """Skipped items by reason, as cards store them."""
        cards: dict[str, CountCard] = {}
        for item in self.skipped:
            count_example(cards, str(item.reason), f"{item.where}: {item.message}")
        return cards

    def unmatched_card(self) -> dict[str, CountCard]:
        """Unmatched names by kind of pattern, as cards store them."""
        return {
            kind: CountCard(count=len(names), examples=names[:MAX_EXAMPLES]) for kind, names in self.unmatched.items()
        }

    def explain_empty(self) -> str:
        """The reasons why items were skipped, to follow a message that nothing is left."""
        if not self.skipped:
            return ": the source has none"
        counts = Counter(item.reason for item in self.skipped)
        reasons = "".join(f"\n  {count} x {reason}" for reason, count in counts.most_common())
        first = self.skipped[0]
        return f"; skipped:{reasons}\n  first: {first.where}: {first.message}"
