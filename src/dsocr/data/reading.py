"""A source's images as `prepare` wants them: named, and with texts as they are stored; read anew as often as asked.

Nothing is kept, so memory does not grow with the source.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from dsocr.data.notes import Notes
from dsocr.data.sources.layout import LeftOut, SourceImage
from dsocr.data.texts import with_text
from dsocr.data.writers import Names
from dsocr.text import TextPolicy


@dataclass(frozen=True, slots=True)
class Reading:
    """How a source is read: `read` begins anew each time."""

    read: Callable[[], Iterator[SourceImage | LeftOut]]
    names: Names
    text_policy: TextPolicy

    def images(self, notes: Notes) -> Iterator[SourceImage]:
        """The images that have lines with a text; all else is noted."""
        for item in self.read():
            if isinstance(item, LeftOut):
                notes.add(item)
                continue
            image = with_text(self.names.named(item, notes), notes, self.text_policy)
            if image.lines:
                yield image

    def count(self) -> int:
        """How many images there will be; settings that fit none of them are an error before any work is done."""
        count = sum(1 for _ in self.images(Notes(strict=False)))
        self.names.demand_matches()
        return count
