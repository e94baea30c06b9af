"""What `prepare` met on its way that is not in the dataset, or is there with something unknown."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from dsocr.data.sources.layout import Item, LeftOut, Remark, SourceImage
from dsocr.errors import DataError

EXAMPLES = 10
"""How many of a kind the card lists."""


@dataclass
class TextChanges:
    """How many texts a rule changed, and the first of them as sentences."""

    count: int = 0
    examples: list[str] = field(default_factory=list)


@dataclass
class Notes:
    """What was left out, which names a pattern did not match, and what else is worth knowing.

    With `strict` the first fault is raised instead.
    """

    strict: bool
    left_out: list[LeftOut] = field(default_factory=list)
    unmatched: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    remarks: list[str] = field(default_factory=list)
    text_changes: dict[str, TextChanges] = field(default_factory=lambda: defaultdict(TextChanges))

    def add(self, item: LeftOut) -> None:
        """Notes that something is left out."""
        if self.strict and item.reason.is_fault:
            raise DataError(f"{item.reason}: {item.message}", where=item.where)
        self.left_out.append(item)

    def add_unmatched(self, kind: str, pattern: str, name: str) -> None:
        """Notes that an image's writer or page stays unknown."""
        if self.strict:
            raise DataError(f"the {kind} pattern {pattern} does not match", where=name)
        self.unmatched[kind].append(name)

    def add_change(self, rule: str, where: str, told: str) -> None:
        """Notes that a rule of the text policy changed a text."""
        changes = self.text_changes[rule]
        changes.count += 1
        if len(changes.examples) < EXAMPLES:
            changes.examples.append(f"{where}: {told}")

    def remark(self, sentence: str) -> None:
        """Notes what is no fault and worth knowing."""
        self.remarks.append(sentence)

    def sifted(self, items: Iterable[Item]) -> Iterator[SourceImage]:
        """The images among what a source yields; the rest is noted."""
        for item in items:
            if isinstance(item, LeftOut):
                self.add(item)
            elif isinstance(item, Remark):
                self.remark(item.message)
            else:
                yield item

    def told(self) -> str:
        """The reasons, counted, and the first place, to follow a sentence that says nothing is left."""
        if not self.left_out:
            return ": the source holds none"
        counts = Counter(item.reason for item in self.left_out)
        reasons = "".join(f"\n  {count} x {reason}" for reason, count in counts.most_common())
        first = self.left_out[0]
        return f"; left out:{reasons}\n  first: {first.where}: {first.message}"
