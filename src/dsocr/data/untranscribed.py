"""The lines of a source that are not transcribed yet, and images that have no transcription at all."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from dsocr.data.placement import Notes
from dsocr.data.prepare import Names
from dsocr.document import Line, Note, Page, Skipped, SkipReason
from dsocr.errors import DataError
from dsocr.formats import SourceFormat, choose_format
from dsocr.images import IMAGE_SUFFIXES
from dsocr.io.files import inside, list_files, relative
from dsocr.text import is_blank


@dataclass(frozen=True, slots=True)
class Untranscribed:
    """What waits for a transcription in a source; read anew each time, so nothing of it is held.

    Without a `format` the source is a folder of images, or one, each of which is a line.
    """

    source: Path
    format: SourceFormat | None
    names: Names
    columns: Mapping[str, str]

    @classmethod
    def of(cls, source: Path, format_: str | None, names: Mapping[str, str | None]) -> "Untranscribed":
        """The source in the format that it is in; line images without any transcription are no format."""
        found = None
        if format_ is not None or not _is_images_alone(source):
            found = choose_format(source, format_, {})
        return cls(source, found, Names(names), {})

    @property
    def format_name(self) -> str:
        """The name of the format, for a card."""
        return self.format.name if self.format else "images"

    def images(self, notes: Notes) -> Iterator[Page]:
        """The images that have such lines, with these alone; all else that a reader tells is noted."""
        for image in notes.sifted(self._items(notes)):
            lines = tuple(line for line in image.lines if is_blank(line.text))
            if lines:
                yield self.names.named(replace(image, lines=lines), notes)

    def _items(self, notes: Notes) -> Iterator[Page | Skipped | Note]:
        if self.format is None:
            folder = self.source if self.source.is_dir() else self.source.parent
            files = list_files(folder, IMAGE_SUFFIXES) if self.source.is_dir() else [self.source]
            for path in files:
                yield _whole_image(path, relative(path, folder))
            return
        for item in self.format.read(self.source, self.columns):
            if isinstance(item, Skipped) and item.reason is SkipReason.NO_TRANSCRIPTION and self.source.is_dir():
                try:
                    yield _whole_image(inside(self.source, item.where), item.where)
                except DataError:
                    yield item
            else:
                yield item


def _is_images_alone(source: Path) -> bool:
    """True of a single image, and of a folder with images that no format of ours is found in."""
    if source.is_file():
        return source.suffix.lower() in IMAGE_SUFFIXES
    if not source.is_dir() or not list_files(source, IMAGE_SUFFIXES):
        return False
    try:
        choose_format(source, None, {})
    except DataError as error:
        return "nothing in this folder can be read" in error.message
    return False


def _whole_image(path: Path, where: str) -> Page:
    name = where.rpartition(".")[0] or where
    return Page(path, name, where, (Line("", where),))
