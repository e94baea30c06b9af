"""The source of a workbench: where its images are, how pages get into the store, and how lines are cut from them."""

import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from math import dist
from pathlib import Path
from typing import NamedTuple

from PIL import Image, ImageDraw

from dsocr.data.dataset import SourceReport
from dsocr.data.sources import NamePatterns, open_source
from dsocr.document import Line, Outline, Page, Region, Skipped, SkipReason
from dsocr.errors import DataError, option, typed
from dsocr.formats import SOURCE_FORMATS, detect_format
from dsocr.formats.format import source_files
from dsocr.formats.pdf import PDF_SUFFIXES, count_pages, page_image
from dsocr.formats.tables import read_spreadsheet
from dsocr.formats.xml import read_xml
from dsocr.images import (
    IMAGE_SUFFIXES,
    CropFailure,
    crop_box,
    crop_lines,
    decode_image,
    encode_image,
    paper_colour,
    read_bytes,
    scale_outline,
)
from dsocr.inference.inputs import guess_shows
from dsocr.io.encodings import text_encoding
from dsocr.io.files import inside, relative
from dsocr.io.web import FetchOptions
from dsocr.io.work import write_file
from dsocr.layout import FindLines, detect_lines
from dsocr.outlines import fill_polygon, quarter_turns
from dsocr.text import comparable
from dsocr.workbench.page_changes import search_tables
from dsocr.workbench.page_structure import read_regions
from dsocr.workbench.store import CorrectionStore
from dsocr.workbench.stored_lines import State, StoredLine, StoredPage, StoredRegion, center, region_id, tables_of

_SOURCE = "source"
_PDF_PAGE = re.compile(r"(.+\.pdf)#([1-9]\d*)", re.IGNORECASE)
_SUFFIXES = IMAGE_SUFFIXES | PDF_SUFFIXES


@dataclass(frozen=True, slots=True)
class Archive:
    """An open source below `root`: the folder or the one PDF to work on, unusable items, and what finds lines."""

    root: Path
    source: Path
    skipped: tuple[Skipped, ...]
    detect: FindLines

    def read(self, name: str) -> bytes:
        """An image file, or a page of a PDF (`scans.pdf#3`). Raises DataError if it is missing or damaged."""
        file, number = _split_name(name)
        path = inside(self.root, file)
        return _render_pdf_page(path, number) if number else read_bytes(path)

    def image_bytes(self, page: StoredPage) -> bytes:
        """The image file of a page. Raises DataError if it is missing."""
        return self.read(page.image.as_posix())

    def page_image(self, page: StoredPage) -> Image.Image:
        """The image of a page, upright."""
        return decode_image(self.image_bytes(page), name=page.name).image

    def source_image(
        self, page: StoredPage, lines: Sequence[StoredLine], regions: Mapping[int, StoredRegion] | None = None
    ) -> Page:
        """A page with lines in the form that formats write; unreadable lines have no text.

        With `regions`, by their numbers, lines of a region follow one another, as these formats have them.
        """
        ranks: dict[int | None, int] = {}
        ordered = sorted(lines, key=lambda line: ranks.setdefault(line.region, len(ranks))) if regions else lines
        known = {
            number: Region(region_id(region), region.outline, region.kind) for number, region in (regions or {}).items()
        }
        source_lines = tuple(
            Line(
                "" if line.state is State.UNREADABLE else line.text,
                f"{page.name}:{line.number}",
                line.outline,
                known.get(line.region or 0),
            )
            for line in ordered
        )
        file, number = _split_name(page.image.as_posix())
        return Page(
            inside(self.root, file),
            page.name,
            page.name,
            source_lines,
            (page.width, page.height),
            writer=page.writer,
            page=page.name,
            document=page.document,
            content=partial(self.image_bytes, page) if number else None,
            tables=tuple(tables_of((regions or {}).values(), region_id)),
        )

    def cut(self, page: StoredPage, lines: list[StoredLine]) -> list[Image.Image | CropFailure]:
        """Line images as `prepare` cuts them, or why there is none. Raises DataError if the page cannot be read."""
        crops = crop_lines(self.source_image(page, lines), self.image_bytes(page))
        if isinstance(crops, CropFailure):
            raise DataError(crops.message, code="page-not-cut", where=page.name)
        return [
            file if isinstance(file, CropFailure) else decode_image(file.content, name=page.name).image
            for file in crops[1]
        ]


@contextmanager
def open_archive(
    store: CorrectionStore,
    source: Path,
    folder: Path,
    fetch: FetchOptions | None = None,
    progress: Callable[[int, int], None] | None = None,
    detect: FindLines = detect_lines,
) -> Iterator[Archive]:
    """The files of a source until the block ends; archive files are unpacked into `folder`, pages of manifests fetched.

    Raises DataError if the store belongs to another source, or the source is a single file other than a PDF or archive.
    """
    known = store.setting(_SOURCE)
    if known is not None and known != source.resolve().name:
        hint = f"name another folder with {option('work', ...)}"
        message = f"holds the corrections of {known}, not of {source.name}"
        raise DataError(message, code="other-source", where=folder.parent, hint=hint)
    store.set_setting(_SOURCE, source.resolve().name)
    with open_source(source, folder, fetch, progress) as held:
        skipped = tuple(item for item in held.items if isinstance(item, Skipped))
        if not held.path.is_dir() and held.path.suffix.lower() not in PDF_SUFFIXES:
            hint = f"open its folder: dsocr workbench {typed(source.parent.as_posix())}"
            message = "a single file must be a PDF or an archive"
            raise DataError(message, code="source-not-supported", where=source, hint=hint)
        root = held.path if held.path.is_dir() else held.path.parent
        yield Archive(root, held.path, skipped, detect)


def _split_name(name: str) -> tuple[str, int]:
    """The file of an image and its page, counted from 1; 0 if it is not one of a PDF."""
    page = _PDF_PAGE.fullmatch(name)
    return (page[1], int(page[2])) if page else (name, 0)


_render_pdf_page = lru_cache(maxsize=2)(page_image)
"""A page as an image file; cached because its lines are requested one after another."""


def import_pages(
    store: CorrectionStore,
    archive: Archive,
    notes: SourceReport,
    *,
    format: str | None = None,
    writer: str | None = None,
    encoding: str | None = None,
    tables: bool = False,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> int:
    """Add the pages that the store does not have yet, with the texts of the source; returns the number added.

    Lines are detected on images and PDF pages without any. `progress` is called after each page of several lines, with
    a total of 0 for those that the source describes; it ends the import by raising. Images of lines decide a script
    together, so that nobody starts to read some of them. `writer` is a column or a pattern and `encoding` that of
    other texts than UTF-8, as in `prepare`. `tables` finds them where the source has none. What cannot be shown goes to
    `notes`.
    """
    patterns = NamePatterns({"writer": writer, "page": None, "document": None})
    added = 0
    for item in archive.skipped:
        notes.skip(item)
    known = {page.image.as_posix() for page in store.pages()}
    with text_encoding(encoding):
        for image, name, markup in _described_images(archive, format, notes):
            named = patterns.apply(image, notes)
            if name not in known and (size := _image_size(archive, name, notes)) is not None:
                laid_out = _assign_text_to_lines(named, archive, name, size, notes)
                described = markup if laid_out is named else None
                added += _add_page(store, archive, laid_out, name, size, described, tables=tables)
                if len(laid_out.lines) > 1:
                    progress(added, 0)
    known = {page.image.as_posix() for page in store.pages()}
    bare = {name: _bare_page(archive, name) for name in _image_names(archive, notes) if name not in known}
    missing = {name: patterns.apply(page, notes) for name, page in bare.items()}
    patterns.require_matches()
    for done, (name, page) in enumerate(missing.items(), start=1):
        size = _image_size(archive, name, notes)
        is_line = size is not None and not _split_name(name)[1] and guess_shows(size) == "line"
        if size is not None:
            try:
                lines = [Line("", name)] if is_line else archive.detect(archive.read(name), name)
            except DataError as error:  # such as a blank page
                notes.skip(Skipped(SkipReason.NO_TRANSCRIPTION, name, error.message))
            else:
                added += _add_page(store, archive, replace(page, lines=tuple(lines)), name, size, None, tables=tables)
            if not is_line:
                progress(done, len(missing))
    return added


class ListedText(NamedTuple):
    """A line of a table: its place in the source, its text, and its rank in an audit, 0 if it has none."""

    source: str
    text: str
    rank: int = 0


def read_sources(path: Path) -> list[ListedText]:
    """Read the lines of a table such as `audit.csv`, those to judge first. Raises DataError without their places."""
    _, rows = read_spreadsheet(path)
    places = []
    for _, cells in sorted(rows, key=lambda row: row[1].get("judge") != "yes"):
        if cells.get("source") and "text" in cells:
            rank = cells.get("rank", "")
            places.append(ListedText(cells["source"], cells["text"], int(rank) if rank.isdecimal() else 0))
    if not places:
        hint = "give a table with the columns source and text, as dsocr audit writes it"
        raise DataError("names no places in a source", code="column-missing", where=path, hint=hint)
    return places


def find_lines(
    store: CorrectionStore, archive: Archive, places: Sequence[ListedText], *, format: str | None = None
) -> dict[int, ListedText]:
    """Return the stored lines at places of the source, such as `alto/page.xml:37`, by number, with their places.

    Without a text, the first line at the place is found: a place alone does not tell the lines of a file without line
    breaks apart. A stored line is found by its position on the page. Raises DataError if none is found.
    """
    pages = {page.image.as_posix(): page for page in store.pages()}
    keys = {(place.source, comparable(place.text)): place for place in places}
    searched, numbers = set(keys), dict[tuple[str, str], int]()
    for image, name, _ in _described_images(archive, format, SourceReport(strict=False)):
        listed = [line for line in image.lines if searched & {(line.where, comparable(line.text)), (line.where, "")}]
        if not listed or name not in pages:
            continue
        page = pages[name]
        stored = store.lines(page.number)
        for line in listed:
            outline = scale_outline(line.outline, image, (page.width, page.height))
            middle = center(outline) if outline else (page.width / 2, page.height / 2)
            if stored:
                nearest = min(stored, key=lambda other: dist(center(other.outline), middle)).number
                numbers[line.where, comparable(line.text)] = nearest
                numbers.setdefault((line.where, ""), nearest)
    if not numbers:
        message = f"none of the {len(places)} listed lines is in {archive.source.name}"
        raise DataError(message, code="nothing-matches", hint="open the source that the dataset was prepared from")
    return {numbers[key]: place for key, place in keys.items() if key in numbers}


def _described_images(
    archive: Archive, format: str | None, notes: SourceReport
) -> Iterator[tuple[Page, str, str | None]]:
    """The images with lines that the source's format describes, if it has one, and the ALTO or PAGE file of each."""
    source = archive.source
    is_held = any(source_format.find(source, {}) for source_format in SOURCE_FORMATS.values())
    is_bare = source.is_file() and not any(
        path.suffix.lower() == ".txt" and path.stem.startswith(source.stem) for path in source.parent.iterdir()
    )
    if format is None and source_files(source, _SUFFIXES) and (is_bare or not is_held):
        return
    chosen = detect_format(source, format, {})
    for image in notes.filter_pages(chosen.read(source, {})):
        if image.content is not None and image.image.suffix.lower() not in PDF_SUFFIXES:
            message = f"{chosen.name} sources without image files cannot be shown"
            raise DataError(message, code="source-not-supported", where=source)
        if image.lines:
            name = relative(image.image, archive.root) + (f"#{image.number}" if image.content else "")
            yield image, name, image.where if chosen.name in {"alto", "page"} else None


def _assign_text_to_lines(image: Page, archive: Archive, name: str, size: tuple[int, int], notes: SourceReport) -> Page:
    """The image with detected lines if it is a page with one text of several lines; each gets its own if they match."""
    texts = [text for text in image.lines[0].text.splitlines() if text.strip()]
    if len(image.lines) > 1 or image.lines[0].outline or len(texts) < 2 or guess_shows(size) == "line":
        return image
    try:
        lines = archive.detect(archive.read(name), image.name)
    except DataError as error:
        notes.skip(Skipped(SkipReason.NO_OUTLINE, image.where, error.message))
        return image
    if len(lines) == len(texts):
        return replace(image, lines=tuple(replace(line, text=text) for line, text in zip(lines, texts, strict=True)))
    message = f"its text has {len(texts)} lines but {len(lines)} were found on the page; they are shown without text"
    notes.skip(Skipped(SkipReason.NO_OUTLINE, image.where, message))
    return replace(image, lines=tuple(lines)) if lines else image


def _image_names(archive: Archive, notes: SourceReport) -> Iterator[str]:
    for path in source_files(archive.source, _SUFFIXES):
        file = relative(path, archive.root)
        if path.suffix.lower() not in PDF_SUFFIXES:
            yield file
            continue
        try:
            yield from [f"{file}#{number}" for number in range(1, count_pages(path) + 1)]
        except DataError as error:
            notes.skip(Skipped(SkipReason.BAD_SOURCE, file, error.message))


def _bare_page(archive: Archive, name: str) -> Page:
    """A page without lines, named as `transcribe` names it."""
    file, number = _split_name(name)
    stem = Path(file).with_suffix("").as_posix()
    page = f"{stem}_{number:04d}" if number else stem
    return Page(archive.root / file, page, name, (), document=stem if number else None)


def _image_size(archive: Archive, name: str, notes: SourceReport) -> tuple[int, int] | None:
    """Width and height; None, with a note, if the image cannot be read."""
    try:
        return decode_image(archive.read(name), name=name).image.size
    except DataError as error:
        notes.skip(Skipped(SkipReason.BAD_IMAGE, name, error.message))
        return None


def _add_page(
    store: CorrectionStore,
    archive: Archive,
    image: Page,
    name: str,
    size: tuple[int, int],
    markup: str | None,
    *,
    tables: bool,
) -> bool:
    regions: list[StoredRegion] = []
    region_of: dict[int, int] = {}
    for region, elements in read_regions(read_xml(inside(archive.root, markup))) if markup else ():
        if outline := scale_outline(region.outline, image, size):
            regions.append(replace(region, number=-1 - len(regions), outline=outline))
            region_of |= dict.fromkeys(elements, regions[-1].number)
    imported = tuple(region.element or 0 for region in regions)
    page = StoredPage(0, image.name, Path(name), *size, image.writer, image.document, markup, regions=imported)
    lines = []
    for place, line in enumerate(image.lines):
        text = line.text.strip()
        outline = scale_outline(line.outline, image, size) or Outline((0, 0, *size))
        elements = (line.index,) if markup is not None and line.index is not None else ()
        state = State.READ if text else State.UNREAD
        home = region_of.get(elements[0]) if elements else None
        score = line.alignment and line.alignment.score  # an aligned text in doubt is reviewed first
        lines.append(StoredLine(0, 0, place, outline, text, state, confidence=score, elements=elements, region=home))
    if tables and not any(region.cell for region in regions):
        numbered = [replace(line, number=number) for number, line in enumerate(lines, start=1)]
        scan = archive.page_image(page)
        with suppress(DataError):  # there is none; a file to fill in keeps its lines
            search = search_tables(scan, numbered, split=markup is None)
            lines, replaced, cells = search.fill(0, regions)
            regions = [region for region in regions if region not in replaced] + cells
    return store.add_page(page, lines, regions)


def detect_outlines(archive: Archive, page: StoredPage) -> list[Outline]:
    """The outlines of the lines that are found on a page, in reading order. Raises DataError if it cannot be read."""
    return [line.outline for line in archive.detect(archive.image_bytes(page), page.name) if line.outline]


_CACHED_IMAGES = 24
_DECODED_PAGES = 2
_THUMBNAIL = (240, 300)
_NEIGHBOURS = 0.8
"""Share of a line's height that is shown above and below it."""
_SIDES = 0.4
"""Share of a line's height that is shown left and right of it."""
_FADED = 0.55
"""Opacity of the paper's colour over the line's surroundings."""


class Pictures:
    """JPEG files of pages and lines; those requested lately are kept, small images of pages in the `folder`."""

    def __init__(self, archive: Archive, pages: Mapping[int, StoredPage], folder: Path) -> None:
        self._archive = archive
        self._pages = pages
        self._folder = folder
        self._decode = lru_cache(_DECODED_PAGES)(archive.page_image)
        self._page_file = lru_cache(_CACHED_IMAGES)(self._draw_page)
        self._line_file = lru_cache(_CACHED_IMAGES)(self._draw_line)
        self._lock = threading.Lock()
        self._thumbnails_lock = threading.Lock()

    def page(self, number: int, width: int = 0) -> bytes:
        """A page, upright, at a width at most; at its own with 0. Raises DataError if there is none."""
        page = self._page(number)
        with self._lock:
            return self._page_file(page, width if 0 < width < page.width else 0)

    def line(self, line: StoredLine) -> bytes:
        """A line with its neighbours faded, turned if it is sideways. Raises DataError if it is not on its page."""
        with self._lock:
            return self._line_file(self._page(line.page), line.outline)

    def thumbnail(self, number: int) -> bytes:
        """A small image of a page, from its file if it was made before. Raises DataError if there is none."""
        page = self._page(number)
        path = self._folder / f"{page.number}.jpg"
        if path.is_file():
            return path.read_bytes()
        with self._thumbnails_lock:  # one at a time, so that the page being worked on is not kept waiting
            image = self._archive.page_image(page)
            image.thumbnail(_THUMBNAIL, reducing_gap=2.0)
            content = _jpeg(image)
            path.parent.mkdir(exist_ok=True)
            write_file(path, content)
        return content

    def _page(self, number: int) -> StoredPage:
        if number not in self._pages:
            raise DataError(f"there is no page {number}", code="no-such-place")
        return self._pages[number]

    def _draw_page(self, page: StoredPage, width: int) -> bytes:
        if width:
            size = (width, max(1, round(page.height * width / page.width)))
            return _jpeg(self._decode(page).resize(size, Image.Resampling.LANCZOS, reducing_gap=2.0))
        data = self._archive.image_bytes(page)
        decoded = decode_image(data, name=page.name)
        return data if decoded.as_stored and decoded.format == "JPEG" else _jpeg(decoded.image)

    def _draw_line(self, page: StoredPage, outline: Outline) -> bytes:
        image = self._decode(page)
        left, top, right, bottom = crop_box(outline, image.size)
        if min(right - left, bottom - top) <= 0:
            raise DataError("the line is outside the image", code="page-not-cut", where=page.name)
        turns = quarter_turns(outline)
        height = right - left if turns else bottom - top
        across, down = round(_SIDES * height), round(_NEIGHBOURS * height)
        if turns:
            across, down = down, across
        right_end, bottom_end = min(right + across, image.width), min(bottom + down, image.height)
        box = (max(left - across, 0), max(top - down, 0), right_end, bottom_end)
        around = image.crop(box).convert("RGB")
        paper = Image.new("RGB", around.size, paper_colour(around))
        margin = left - outline.box[0]
        drawn = [(x - box[0], y - box[1]) for x, y in outline.border]
        mask = fill_polygon(drawn, around.size)
        ImageDraw.Draw(mask).polygon(drawn, outline=1, width=max(1, 2 * abs(margin)))
        strip = Image.composite(around, Image.blend(around, paper, _FADED), mask)
        return _jpeg(strip.rotate(90 * turns, expand=True) if turns else strip)


def _jpeg(image: Image.Image) -> bytes:
    return encode_image(image.convert("RGB"), "JPEG").content
