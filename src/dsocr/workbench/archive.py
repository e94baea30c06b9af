"""Where the pictures of a workbench's pages lie as long as it is open."""

import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Self

from PIL import Image

from dsocr import document
from dsocr.data.convert import Conversion, PageFitter, check_conversion_folder, converted_files
from dsocr.data.dataset import Dataset
from dsocr.data.prepare import prepare
from dsocr.data.source_report import SourceReport
from dsocr.data.sources import NamePatterns, open_source
from dsocr.document import Outline, Skipped, SkipReason
from dsocr.errors import DataError, typed
from dsocr.formats import FORMATS, choose_format, choose_target
from dsocr.formats.pdf import PDF_SUFFIXES, count_pages, page_image
from dsocr.images import IMAGE_SUFFIXES, decode_image, read_bytes
from dsocr.inference.inputs import choose_segmenter, shown_by
from dsocr.io.atomic import writing_folder
from dsocr.io.cropping import CropFailure, LineFile, crop_lines, scale_outline
from dsocr.io.encodings import text_encoding
from dsocr.io.files import UniqueStems, inside, list_files, relative
from dsocr.workbench.store import Line, Page, State, Store

_SOURCE = "source"
_PAGE_OF_PDF = re.compile(r"(.+\.pdf)#([1-9]\d*)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Picture:
    """An image file of a source, or the page of a PDF with a `number`, the first being 1."""

    file: str
    number: int | None = None

    @classmethod
    def named(cls, name: Path) -> Self:
        """The picture that a page of a store names."""
        page = _PAGE_OF_PDF.fullmatch(name.as_posix())
        return cls(page[1], int(page[2])) if page else cls(name.as_posix())

    @property
    def name(self) -> str:
        """`scan.png`, `scans.pdf#3`."""
        return self.file if self.number is None else f"{self.file}#{self.number}"

    @property
    def stem(self) -> str:
        """What a page is called by it, as when pages are transcribed: `scan`, `scans_0003`."""
        stem = Path(self.file).with_suffix("").as_posix()
        return stem if self.number is None else f"{stem}_{self.number:04d}"

    @property
    def document(self) -> str | None:
        """The PDF's name without suffix."""
        return None if self.number is None else Path(self.file).with_suffix("").as_posix()


@dataclass(frozen=True, slots=True)
class Shelf:
    """Where the pictures lie: below `root`; `source` is that folder, or the one PDF in it that is worked on."""

    root: Path
    source: Path

    def content(self, page: Page) -> bytes:
        """The image file of a page. Raises DataError where it is gone."""
        return self.stored(Picture.named(page.image))

    def stored(self, picture: Picture) -> bytes:
        """A picture as an image file. Raises DataError where it is gone, or cannot be had."""
        path = inside(self.root, picture.file)
        return read_bytes(path) if picture.number is None else _page_of_pdf(path, picture.number)

    def whole(self, page: Page) -> Image.Image:
        """The picture of a page, upright."""
        return decode_image(self.content(page), name=page.name).image

    def image(self, page: Page, lines: list[Line]) -> document.Page:
        """A page of the store with its lines, as sources yield it."""
        found = tuple(
            document.Line(
                "" if line.state is State.UNREADABLE else line.text, f"{page.name}:{line.number}", line.outline
            )
            for line in lines
        )
        picture = Picture.named(page.image)
        return document.Page(
            inside(self.root, picture.file),
            page.name,
            page.name,
            found,
            (page.width, page.height),
            writer=page.writer,
            page=page.name,
            document=page.document,
            content=None if picture.number is None else partial(self.content, page),
        )

    def cut(self, page: Page, lines: list[Line]) -> list[Image.Image | CropFailure]:
        """The pictures of lines, with the pixels that `prepare` would cut and training would see, or why there is none.

        Raises DataError where the page has no picture.
        """
        found = crop_lines(self.image(page, lines), self.content(page))
        if isinstance(found, CropFailure):
            raise DataError(found.message, where=page.name)
        return [_picture(file, page) for file in found[1]]


@contextmanager
def opened_shelf(store: Store, source: Path, folder: Path) -> Iterator[Shelf]:
    """The images of a source until the block ends; archives are unpacked into `folder` for as long.

    Raises DataError where the store is of another source, or the source is a single file and no PDF.
    """
    known = store.setting(_SOURCE)
    if known is not None and known != source.resolve().name:
        hint = "give it a folder of its own with --work"
        raise DataError(f"holds corrections of {known}, not of {source.name}", where=folder.parent, hint=hint)
    store.set_setting(_SOURCE, source.resolve().name)
    with open_source(source, folder) as held:
        if held.path.is_dir():
            yield Shelf(held.path, held.path)
        elif held.path.suffix.lower() in PDF_SUFFIXES:
            yield Shelf(held.path.parent, held.path)
        else:
            hint = f"open the folder it lies in: dsocr workbench {typed(source.parent.as_posix())}"
            raise DataError("is a single file, and no PDF and no archive", where=source, hint=hint)


@lru_cache(maxsize=2)
def _page_of_pdf(path: Path, number: int) -> bytes:
    """A page as an image file; the last ones are kept, since a page's lines are asked for one after another."""
    return page_image(path, number)


def _picture(file: LineFile | CropFailure, page: Page) -> Image.Image | CropFailure:
    return file if isinstance(file, CropFailure) else decode_image(file.content, name=page.name).image


_FIND_LINES = choose_segmenter("builtin")


def fill(
    store: Store,
    shelf: Shelf,
    notes: SourceReport,
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
    names = NamePatterns({"writer": writer, "page": None, "document": None})
    new = 0
    known = {Picture.named(page.image) for page in store.pages()}
    with text_encoding(encoding):
        for one, picture in _told(shelf, format, notes):
            image = names.apply(one, notes)
            if picture not in known and (size := _size(shelf, picture, notes)) is not None:
                new += store.add_page(*_page(_laid_out(image, shelf, picture, size, notes), picture, size))
    known |= {Picture.named(page.image) for page in store.pages()}
    wanted = [picture for picture in _pictures(shelf, notes) if picture not in known]
    for done, picture in enumerate(wanted, start=1):
        if (size := _size(shelf, picture, notes)) is not None:
            image = names.apply(_untold(shelf, picture, size), notes)
            if image.lines:
                new += store.add_page(*_page(image, picture, size))
            else:
                notes.skip(Skipped(SkipReason.NO_TRANSCRIPTION, picture.name, "no line was found on the image"))
        tell(done, len(wanted))
    names.require_matches()
    return new


def _told(shelf: Shelf, format: str | None, notes: SourceReport) -> Iterator[tuple[document.Page, Picture]]:
    """The pages of the format that a source holds, if it holds any."""
    source = shelf.source
    pictures = [source] if source.is_file() else list_files(source, IMAGE_SUFFIXES | PDF_SUFFIXES)
    held = [name for name, one in FORMATS.items() if one.find(source, {})]
    if format is None and pictures and (not held or (source.is_file() and not _has_texts(source))):
        return
    chosen = choose_format(source, format, {})
    for image in notes.filter_pages(chosen.read(source, {})):
        if image.content is not None and image.image.suffix.lower() not in PDF_SUFFIXES:
            raise DataError(f"the images of {chosen.name} are not files, so no page can be shown", where=source)
        # pages of a PDF are called by their number
        number = int(image.name.rpartition("_")[2]) if image.content else None
        if image.lines:
            yield image, Picture(relative(image.image, shelf.root), number)


def _has_texts(pdf: Path) -> bool:
    """True where texts lie beside a PDF that are called as it is."""
    return any(path.suffix.lower() == ".txt" and path.stem.startswith(pdf.stem) for path in pdf.parent.iterdir())


def _laid_out(
    image: document.Page, shelf: Shelf, picture: Picture, size: tuple[int, int], notes: SourceReport
) -> document.Page:
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
    notes.skip(Skipped(SkipReason.NO_OUTLINE, image.where, told))
    return replace(image, lines=tuple(lines)) if lines else image


def _untold(shelf: Shelf, picture: Picture, size: tuple[int, int]) -> document.Page:
    """A picture of which nothing is told, with the lines found on it."""
    is_line = picture.number is None and shown_by(size) == "line"
    name = picture.name
    lines = [document.Line("", name)] if is_line else _FIND_LINES(shelf.stored(picture), name)
    return document.Page(shelf.root / picture.file, picture.stem, name, tuple(lines), document=picture.document)


def _pictures(shelf: Shelf, notes: SourceReport) -> Iterator[Picture]:
    source = shelf.source
    for path in [source] if source.is_file() else list_files(source, IMAGE_SUFFIXES | PDF_SUFFIXES):
        file = relative(path, shelf.root)
        if path.suffix.lower() not in PDF_SUFFIXES:
            yield Picture(file)
            continue
        try:
            numbers = range(1, count_pages(path) + 1)
        except DataError as error:
            notes.skip(Skipped(SkipReason.BAD_SOURCE, file, error.message))
            continue
        yield from (Picture(file, number) for number in numbers)


def _size(shelf: Shelf, picture: Picture, notes: SourceReport) -> tuple[int, int] | None:
    """Pixels across and down; None where there is no picture, which is noted."""
    try:
        return decode_image(shelf.stored(picture), name=picture.name).image.size
    except DataError as error:
        notes.skip(Skipped(SkipReason.BAD_IMAGE, picture.name, error.message))
        return None


def _page(image: document.Page, picture: Picture, size: tuple[int, int]) -> tuple[Page, list[Line]]:
    page = Page(0, image.name, Path(picture.name), *size, image.writer, image.document)
    return page, [_line(place, line, image, size) for place, line in enumerate(image.lines)]


def _line(place: int, line: document.Line, image: document.Page, size: tuple[int, int]) -> Line:
    text = line.text.strip()
    outline = scale_outline(line, image, size) or Outline((0, 0, *size))
    return Line(0, 0, place, outline, text, State.READ if text else State.UNREAD)


EXPORT_FORMATS = ("page", "page-2013", "alto", "tsv")
"""The formats that keep lines on their pages."""

_SPLIT = "0.85/0.15/0"
"""Train and validation: what a model is worth is seen in the next lines that are corrected."""
_PAGES_TO_SPLIT = 10


@dataclass(frozen=True, slots=True)
class Exported:
    """What was written: pages, lines with a text, and what had no place in the format."""

    out: Path
    pages: int
    texts: int
    skipped: list[Skipped]


def export(store: Store, shelf: Shelf, out: Path, *, to: str, accepted_only: bool, overwrite: bool = False) -> Exported:
    """Write every page with its lines to the folder `out`; lines without an (accepted) text keep their place.

    Raises DataError where `out` holds something else than an earlier export.
    """
    target = choose_target(to)
    check_conversion_folder(out, shelf.root, overwrite=overwrite)
    notes, stems, texts = SourceReport(strict=False), UniqueStems(), Counter[str]()
    fitting = PageFitter(lambda: _images(store, shelf, accepted_only=accepted_only), NamePatterns({}), target)
    with writing_folder(out) as folder:
        with closing(target.open(folder, ())) as writing:
            for image in fitting.pages(notes):
                for left in writing.add(image, stems.take(image.name)).skipped:
                    notes.skip(left)
                texts[image.name] += sum(bool(line.text) for line in image.lines)
        card = Conversion(
            source=store.setting("source") or shelf.root.name,
            source_format="workbench",
            target=target.name,
            images=len(texts),
            lines=sum(texts.values()),
            splits={},
            left_behind=[],
            skipped={},
            unmatched={},
            notes=[f"{item.where}: {item.message}" for item in notes.skipped],
            files=converted_files(folder),
        )
        card.write(folder)
    return Exported(out, len(texts), sum(texts.values()), notes.skipped)


def export_dataset(store: Store, shelf: Shelf, out: Path, *, overwrite: bool = False) -> Dataset:
    """Make a dataset folder of the accepted lines. DataError where there are none, or `out` is something else.

    Writers, else pages, stand in one split each, but from few pages lines are split: one page of three for validation
    would leave too little to learn from.
    """
    accepted = [line for line in store.lines() if line.state is State.ACCEPTED]
    if not accepted:
        raise DataError("no line is accepted yet, so there is nothing to train on", where=out)
    split_by = "text" if len({line.page for line in accepted}) < _PAGES_TO_SPLIT else None
    out.resolve().parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=".corrections-", dir=out.resolve().parent) as folder:
        pages = Path(folder) / (store.setting("source") or shelf.root.name)
        export(store, shelf, pages, to="tsv", accepted_only=True)
        return prepare(pages, out, split=_SPLIT, split_by=split_by, overwrite=overwrite, workers=1)


def _images(store: Store, shelf: Shelf, *, accepted_only: bool) -> Iterator[document.Page]:
    for page in store.pages():
        lines = store.lines(page.number)
        yield shelf.image(page, [_export_summary(line) for line in lines] if accepted_only else lines)


def _export_summary(line: Line) -> Line:
    return line if line.state is State.ACCEPTED else replace(line, text="")
