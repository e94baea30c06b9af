"""Pages and lines of a source put into a store: those a format tells of, then images and PDF pages that none does."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from dsocr.data.cutting import scaled_outline
from dsocr.data.images import IMAGE_SUFFIXES, decode_image
from dsocr.data.notes import Notes
from dsocr.data.paths import list_files, relative
from dsocr.data.pdf import PDF_SUFFIXES, count_pages
from dsocr.data.sources import FORMATS, choose_format
from dsocr.data.sources.layout import LeftOut, Outline, Reason, SourceImage, SourceLine
from dsocr.data.sources.texts import text_encoding
from dsocr.data.writers import Names
from dsocr.errors import DataError
from dsocr.inference.inputs.finding import shown_by
from dsocr.inference.inputs.segmenters import choose_segmenter
from dsocr.workbench.lines import Line, Page, State
from dsocr.workbench.opening import Picture, Shelf
from dsocr.workbench.store import Store

_FIND_LINES = choose_segmenter("builtin")


def fill(
    store: Store,
    shelf: Shelf,
    notes: Notes,
    *,
    format: str | None = None,
    writer: str | None = None,
    encoding: str | None = None,
    tell: Callable[[int, int], None] = lambda done, total: None,
) -> int:
    """Put the pages that a store does not have into it, with the texts they bring; how many were new.

    Images and PDF pages that nothing is told of come with the lines found on them; `tell` hears how many of them are
    done. `writer` is a column or a pattern, `encoding` that of texts that are not UTF-8, as in `prepare`. What cannot
    be shown goes to `notes`.
    """
    names = Names({"writer": writer, "page": None, "document": None})
    new = 0
    known = {Picture.named(page.image) for page in store.pages()}
    with text_encoding(encoding):
        for one, picture in _told(shelf, format, notes):
            image = names.named(one, notes)
            if picture not in known and (size := _size(shelf, picture, notes)) is not None:
                new += store.add_page(*_page(_laid_out(image, shelf, picture, size, notes), picture, size))
    known |= {Picture.named(page.image) for page in store.pages()}
    wanted = [picture for picture in _pictures(shelf, notes) if picture not in known]
    for done, picture in enumerate(wanted, start=1):
        if (size := _size(shelf, picture, notes)) is not None:
            image = names.named(_untold(shelf, picture, size), notes)
            if image.lines:
                new += store.add_page(*_page(image, picture, size))
            else:
                notes.add(LeftOut(Reason.NO_TRANSCRIPTION, picture.name, "no line was found on the image"))
        tell(done, len(wanted))
    names.demand_matches()
    return new


def _told(shelf: Shelf, format: str | None, notes: Notes) -> Iterator[tuple[SourceImage, Picture]]:
    """The pages of the format that a source holds, if it holds any."""
    source = shelf.source
    pictures = [source] if source.is_file() else list_files(source, IMAGE_SUFFIXES | PDF_SUFFIXES)
    held = [name for name, one in FORMATS.items() if one.find(source, {})]
    if format is None and pictures and (not held or (source.is_file() and not _has_texts(source))):
        return
    chosen = choose_format(source, format, {})
    for image in notes.sifted(chosen.read(source, {})):
        if image.content is not None and image.image.suffix.lower() not in PDF_SUFFIXES:
            raise DataError(f"the images of {chosen.name} are not files, so no page can be shown", where=source)
        # pages of a PDF are called by their number
        number = int(image.name.rpartition("_")[2]) if image.content else None
        if image.lines:
            yield image, Picture(relative(image.image, shelf.root), number)


def _has_texts(pdf: Path) -> bool:
    """True where texts lie beside a PDF that are called as it is."""
    return any(path.suffix.lower() == ".txt" and path.stem.startswith(pdf.stem) for path in pdf.parent.iterdir())


def _laid_out(image: SourceImage, shelf: Shelf, picture: Picture, size: tuple[int, int], notes: Notes) -> SourceImage:
    """An image; where it is a page with one text of several lines, with the lines found on it.

    The text's lines are theirs, in their order, where there are as many; a text that does not fit is told of.
    """
    texts = [text for text in image.lines[0].text.splitlines() if text.strip()]
    if len(image.lines) > 1 or image.lines[0].outline or len(texts) < 2 or shown_by(size) == "line":
        return image
    lines = _FIND_LINES(shelf.stored(picture), image.name)
    if len(lines) == len(texts):
        return replace(image, lines=tuple(replace(line, text=text) for line, text in zip(lines, texts, strict=True)))
    told = f"its text has {len(texts)} lines, and {len(lines)} were found on the page, which come without it"
    notes.add(LeftOut(Reason.NO_OUTLINE, image.where, told))
    return replace(image, lines=tuple(lines)) if lines else image


def _untold(shelf: Shelf, picture: Picture, size: tuple[int, int]) -> SourceImage:
    """A picture of which nothing is told, with the lines found on it."""
    is_line = picture.number is None and shown_by(size) == "line"
    name = picture.name
    lines = [SourceLine("", name)] if is_line else _FIND_LINES(shelf.stored(picture), name)
    return SourceImage(shelf.root / picture.file, picture.stem, name, tuple(lines), document=picture.document)


def _pictures(shelf: Shelf, notes: Notes) -> Iterator[Picture]:
    source = shelf.source
    for path in [source] if source.is_file() else list_files(source, IMAGE_SUFFIXES | PDF_SUFFIXES):
        file = relative(path, shelf.root)
        if path.suffix.lower() not in PDF_SUFFIXES:
            yield Picture(file)
            continue
        try:
            numbers = range(1, count_pages(path) + 1)
        except DataError as error:
            notes.add(LeftOut(Reason.BAD_SOURCE, file, error.message))
            continue
        yield from (Picture(file, number) for number in numbers)


def _size(shelf: Shelf, picture: Picture, notes: Notes) -> tuple[int, int] | None:
    """Pixels across and down; None where there is no picture, which is noted."""
    try:
        return decode_image(shelf.stored(picture), name=picture.name).image.size
    except DataError as error:
        notes.add(LeftOut(Reason.BAD_IMAGE, picture.name, error.message))
        return None


def _page(image: SourceImage, picture: Picture, size: tuple[int, int]) -> tuple[Page, list[Line]]:
    page = Page(0, image.name, Path(picture.name), *size, image.writer, image.document)
    return page, [_line(place, line, image, size) for place, line in enumerate(image.lines)]


def _line(place: int, line: SourceLine, image: SourceImage, size: tuple[int, int]) -> Line:
    text = line.text.strip()
    outline = scaled_outline(line, image, size) or Outline((0, 0, *size))
    return Line(0, 0, place, outline, text, State.READ if text else State.UNREAD)
