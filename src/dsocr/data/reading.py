"""A source's images as `prepare` wants them: named, in samples, with texts as they are stored; read anew when asked.

Nothing is kept, so memory does not grow with the source.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from dsocr.data.notes import Notes
from dsocr.data.sources.layout import Item, SourceImage
from dsocr.data.texts import with_text
from dsocr.data.units import Units
from dsocr.data.writers import Names
from dsocr.text import TextPolicy


@dataclass(frozen=True, slots=True)
class Reading:
    """How a source is read: `read` begins anew each time."""

    read: Callable[[], Iterator[Item]]
    names: Names
    units: Units
    text_policy: TextPolicy

    def images(self, notes: Notes) -> Iterator[SourceImage]:
        """The images that have samples with a text; all else is noted."""
        for image in notes.sifted(self.read()):
            # Before the texts, as those without one are left out there, and a page must not lose a line unnoticed.
            samples = self.units.of(self.names.named(image, notes), notes)
            if (stored := with_text(samples, notes, self.text_policy)).lines:
                yield stored

    def count(self) -> int:
        """How many images there will be; settings that fit none of them are an error before any work is done."""
        count = sum(1 for _ in self.images(Notes(strict=False)))
        self.names.demand_matches()
        self.units.demand_regions()
        return count
