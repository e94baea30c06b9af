"""Pages and lines of a source put into a store, and where their images lie as long as the workbench is open."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from PIL import Image

from dsocr.data.cutting import LineFile, Refusal, cut_lines, scaled_outline
from dsocr.data.images import IMAGE_SUFFIXES, decode_image, read_bytes
from dsocr.data.notes import Notes
from dsocr.data.opening import opened
from dsocr.data.paths import inside, list_files, relative
from dsocr.data.sources import FORMATS, choose_format
from dsocr.data.sources.layout import LeftOut, Outline, Reason, SourceImage, SourceLine
from dsocr.data.writers import Names
from dsocr.errors import DataError
from dsocr.inference.inputs.finding import shown_by
from dsocr.inference.inputs.segmenters import choose_segmenter
from dsocr.workbench.lines import Line, Page, State
from dsocr.workbench.store import Store

_SOURCE = "source"


@dataclass(frozen=True, slots=True)
class Shelf:
    """Where the images of a workbench's pages lie."""

    root: Path

    def content(self, page: Page) -> bytes:
        """The image file of a page. Raises DataError where it is gone."""
        return read_bytes(inside(self.root, page.image.as_posix()))

    def whole(self, page: Page) -> Image.Image:
        """The picture of a page, upright."""
        return decode_image(self.content(page), name=page.name).image

    def cut(self, page: Page, lines: list[Line]) -> list[Image.Image | Refusal]:
        """The pictures of lines, with the pixels that `prepare` would cut and training would see, or why there is none.

        Raises DataError where the page has no picture.
        """
        found = cut_lines(source_image(page, lines, self.root), self.content(page))
        if isinstance(found, Refusal):
            raise DataError(found.message, where=page.name)
        return [_picture(file, page) for file in found[1]]


@contextmanager
def opened_shelf(store: Store, source: Path, folder: Path) -> Iterator[Shelf]:
    """The images of a source until the block ends; archives are unpacked into `folder` for as long.

    Raises DataError where the store is of another source, or the source is a single file.
    """
    known = store.setting(_SOURCE)
    if known is not None and known != source.resolve().name:
        hint = "give it a folder of its own with --work"
        raise DataError(f"holds corrections of {known}, not of {source.name}", where=folder.parent, hint=hint)
    store.set_setting(_SOURCE, source.resolve().name)
    with opened(source, folder) as held:
        if not held.path.is_dir():
            hint = f"open the folder it lies in: dsocr workbench {source.parent.as_posix()}"
            raise DataError("is a single file, and a workbench opens folders and archives", where=source, hint=hint)
        yield Shelf(held.path)


def fill(store: Store, shelf: Shelf, notes: Notes, *, format: str | None = None, writer: str | None = None) -> int:
    """Put the pages that a store does not have into it, with the texts they bring; how many were new.

    Images that nothing is told of come with the lines found on them. `writer` is a column or a pattern, as in
    `prepare`. What cannot be shown goes to `notes`.
    """
    names = Names({"writer": writer, "page": None, "document": None})
    new = 0
    for item in chain(_told(shelf.root, format, notes), _untold(store, shelf.root, notes)):
        image = names.named(item, notes)
        try:
            page, lines = _page(image, shelf.root)
        except DataError as error:
            notes.add(LeftOut(Reason.BAD_IMAGE, image.where, error.message))
            continue
        new += store.add_page(page, lines)
    names.demand_matches()
    return new


def _told(root: Path, format: str | None, notes: Notes) -> Iterator[SourceImage]:
    """The pages of the format that a folder holds, if it holds any."""
    images = list_files(root, IMAGE_SUFFIXES)
    held = [name for name, one in FORMATS.items() if one.find(root, {})]
    if format is None and not held and images:
        return
    chosen = choose_format(root, format, {})
    for image in notes.sifted(chosen.read(root, {})):
        if image.content is not None:
            raise DataError(f"the images of {chosen.name} are not files, so no page can be shown", where=root)
        if image.lines:
            yield image


def _untold(store: Store, root: Path, notes: Notes) -> Iterator[SourceImage]:
    """The images that no page is of, with the lines found on them."""
    find_lines = choose_segmenter("builtin")
    known = {page.image.as_posix() for page in store.pages()}
    for path in list_files(root, IMAGE_SUFFIXES):
        name = relative(path, root)
        if name in known:
            continue
        try:
            data = read_bytes(path)
            line = shown_by(decode_image(data, name=path).image.size) == "line"
            lines = (SourceLine("", name),) if line else tuple(find_lines(data, name))
        except DataError as error:
            notes.add(LeftOut(Reason.BAD_IMAGE, name, error.message))
            continue
        if lines:
            yield SourceImage(path, Path(name).with_suffix("").as_posix(), name, lines)
        else:
            notes.add(LeftOut(Reason.NO_TRANSCRIPTION, name, "no line was found on the image"))


def source_image(page: Page, lines: list[Line], root: Path) -> SourceImage:
    """A page of the store as sources yield it."""
    path = inside(root, page.image.as_posix())
    found = tuple(
        SourceLine("" if line.state is State.UNREADABLE else line.text, f"{page.name}:{line.number}", line.outline)
        for line in lines
    )
    size = (page.width, page.height)
    return SourceImage(
        path, page.name, page.name, found, size, writer=page.writer, page=page.name, document=page.document
    )


def _page(image: SourceImage, root: Path) -> tuple[Page, list[Line]]:
    size = decode_image(read_bytes(image.image), name=image.image).image.size
    page = Page(0, image.name, Path(relative(image.image, root)), *size, image.writer, image.document)
    return page, [_line(place, line, image, size) for place, line in enumerate(image.lines)]


def _line(place: int, line: SourceLine, image: SourceImage, size: tuple[int, int]) -> Line:
    text = line.text.strip()
    outline = scaled_outline(line, image, size) or Outline((0, 0, *size))
    return Line(0, 0, place, outline, text, State.READ if text else State.UNREAD)


def _picture(file: LineFile | Refusal, page: Page) -> Image.Image | Refusal:
    return file if isinstance(file, Refusal) else decode_image(file.content, name=page.name).image
