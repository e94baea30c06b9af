"""What of a page is shown to the model: its lines, its regions or all of it, cut out as `prepare` cuts samples."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from PIL import Image

from dsocr.data.cutting import Refusal, cut_lines, scaled_line, scaled_outline
from dsocr.data.images import decode_image
from dsocr.data.sources.layout import Outline, SourceImage, SourceLine, Unit
from dsocr.data.sources.markup import parse_xml
from dsocr.data.units import around, regions_of
from dsocr.errors import DataError
from dsocr.inference.inputs.describing import describe
from dsocr.inference.inputs.finding import InputPage
from dsocr.text import is_blank

FindLines = Callable[[bytes, str], Sequence[SourceLine]]
"""Finds the lines on the image in a file's content; the page's id begins their `where`."""


@dataclass(frozen=True, slots=True)
class Shown:
    """One image that the model is shown, as a file holds it, where it stands on its page, and the lines known on it."""

    id: str
    content: bytes
    outline: Outline | None
    lines: tuple[SourceLine, ...]

    def image(self) -> Image.Image:
        """The picture, as training sees it."""
        return decode_image(self.content, name=self.id).image


@dataclass(frozen=True, slots=True)
class OpenPage:
    """A page ready to be read: its size, all lines known on it, what is shown, and what could not be cut."""

    page: InputPage
    size: tuple[int, int]
    lines: tuple[SourceLine, ...]
    shown: tuple[Shown, ...]
    refused: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Opening:
    """How pages are opened: by lines, regions or whole, with texts that are there read again or kept."""

    unit: Unit
    find_lines: FindLines
    replace_texts: bool = False

    def open(self, page: InputPage) -> OpenPage:
        """What of a page is shown. Raises DataError where nothing of it can be read."""
        data = page.content()
        image, refused = self._with_lines(page, data)
        parts = [part for part in self._parts(page, image) if self.replace_texts or _lacks_text(part)]
        found = cut_lines(replace(image, lines=tuple(parts)), data)
        if isinstance(found, Refusal):
            raise DataError(found.message)
        size, files = found
        shown = []
        for part, file in zip(parts, files, strict=True):
            if isinstance(file, Refusal):
                refused.append(f"{part.where}: {file.message}")
            else:
                lines = tuple(scaled_line(line, image, size) for line in part.lines)
                shown.append(Shown(part.where, file.content, scaled_outline(part, image, size), lines))
        return OpenPage(
            page, size, tuple(scaled_line(line, image, size) for line in image.lines), tuple(shown), tuple(refused)
        )

    def attempt(self, page: InputPage) -> tuple[InputPage, "OpenPage | str"]:
        """The page with what of it is shown, or with the sentence why nothing is; for another process to call."""
        try:
            return page, self.open(page)
        except DataError as error:
            return page, error.message

    def _with_lines(self, page: InputPage, data: bytes) -> tuple[SourceImage, list[str]]:
        """The page with the lines known on it, and the lines that have no place."""
        if page.kind == "markup":
            return _described(page)
        lines: Sequence[SourceLine] = ()
        if page.shows == "line":
            lines = (SourceLine("", page.id, place=0),)
        elif self.unit != "page":
            lines = self.find_lines(data, page.id)
        return SourceImage(page.path, page.name, page.id, tuple(lines)), []

    def _parts(self, page: InputPage, image: SourceImage) -> list["_Part"]:
        if page.shows == "line" or self.unit == "page":
            return [_Part("", page.id, lines=image.lines)]
        if self.unit == "region":
            return [_Part("", where, around(lines), lines=tuple(lines)) for where, lines in regions_of(image)]
        return [_Part("", line.where, line.outline, lines=(line,)) for line in image.lines]


@dataclass(frozen=True, slots=True)
class _Part(SourceLine):
    """What is shown together, as the cutter takes it."""

    lines: tuple[SourceLine, ...] = ()


def _lacks_text(part: _Part) -> bool:
    return not part.lines or any(is_blank(line.text) for line in part.lines)


def _described(page: InputPage) -> tuple[SourceImage, list[str]]:
    """The page of an ALTO or PAGE file, and its lines that have no outline."""
    described = describe(parse_xml(page.path))
    lines, refused = [], []
    for line in described.lines:
        where = f"{page.id}#{line.id or line.place + 1}"
        read = SourceLine(line.text, where, line.outline, line.region, line.place, line.id)
        if line.is_whole and len(described.lines) == 1:
            lines.append(replace(read, outline=None, region=None))
        elif line.outline is None:
            refused.append(f"{where}: the line has neither a polygon nor a box")
        else:
            lines.append(read)
    assert page.image is not None  # ALTO and PAGE files without one are not among the pages
    return SourceImage(page.image, page.name, page.id, tuple(lines), size=described.size), refused
