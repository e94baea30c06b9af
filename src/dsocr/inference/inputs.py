"""The pages to transcribe: finding them, and cutting out the images that the model is shown."""

import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Literal

from PIL import Image

from dsocr.data.sources import enclosing_outline, group_by_region, open_source, require_source
from dsocr.document import Line, Outline, Page, Skipped, Table, Unit
from dsocr.errors import DataError
from dsocr.formats import parse_xml_page
from dsocr.formats.alto import find_alto
from dsocr.formats.format import ImageFinder
from dsocr.formats.page import find_page
from dsocr.formats.pdf import PDF_SUFFIXES, count_pages, page_image
from dsocr.formats.xml import choose_files, image_of_page
from dsocr.images import (
    IMAGE_SUFFIXES,
    CropFailure,
    count_frames,
    crop_lines,
    decode_image,
    read_bytes,
    read_frame,
    scale_line,
    scale_outline,
    scale_page,
    upright_size,
)
from dsocr.io.budget import Budget
from dsocr.io.files import UniqueStems, is_reserved, list_files, natural_sort, relative
from dsocr.io.processes import ProgressCallback
from dsocr.io.web import FetchOptions
from dsocr.io.work import STREAM
from dsocr.layout import FindLines
from dsocr.layout.lines import reading_outlines
from dsocr.outlines import outline_by_baselines, reverse_baseline, turn_baselines
from dsocr.registers import FindTables
from dsocr.text import is_blank

Shows = Literal["line", "page"]
"""The subject of an image file: a line or a page."""

_EXPORT_FOLDERS = frozenset({"page", "alto"})
"""Folders that programs put XML files into, one level below the images."""

_MIN_PAGE_HEIGHT = 400
"""Pixels; a line of writing scanned at 600 dpi is half as high."""
_MAX_PAGE_ASPECT = 2.5
"""Width by height; an open double page has about half of it."""
_LARGE = 40_000_000
"""Pixels of a page that is opened while no other is, and nothing is read; decoding 100 million takes up to 0.7 GB."""

_FORBIDDEN = re.compile(r'[<>:"|?*\\\x00-\x1f]')
"""Characters that Windows does not allow in file names."""


def save_input(folder: Path) -> Path:
    """Save standard input, an image or a PDF, to a file in the folder."""
    budget = Budget()
    content = b"" if sys.stdin.isatty() else sys.stdin.buffer.read(budget.size + 1)
    budget.take(STREAM, size=len(content))
    if not content:
        hint = "pipe an image or a PDF into the command"
        raise DataError("standard input is empty or a terminal", code="image-empty", where=STREAM, hint=hint)
    path = folder / ("stdin.pdf" if content.startswith(b"%PDF") else "stdin.tif")  # which may be any image
    path.write_bytes(content)
    return path


def unique_name(taken: UniqueStems, name: str, suffix: str) -> str:
    """Return a relative path without suffix; if it is taken, with the file's suffix (`scan_png`), else a number."""
    fit = "/".join(map(_fit_windows, name.split("/")))
    return taken.take_stem(fit, f"{fit}_{_fit_windows(suffix.lstrip('.'))}" if suffix else None)


def _fit_windows(part: str) -> str:
    fit = _FORBIDDEN.sub("_", part).rstrip(" .") or "_"
    return f"{fit}_" if is_reserved(fit) else fit


@dataclass(frozen=True, slots=True)
class InputPage:
    """A page to transcribe: an image file, a page of a PDF or TIFF (`number`, from 1), or an ALTO or PAGE file.

    `id` is its place among the user's inputs, `name` the name of a file for it, without suffix; both are unique.
    `image` is the image file of an ALTO or PAGE file, None for the others, and `layers` those of all files with it, see
    `XmlPage`. `stamp` changes when the files change.
    `is_large` pages take so much memory that they are opened one at a time. `given` is the input that it was found in.
    """

    id: str
    name: str
    path: Path
    stamp: str
    number: int = 0
    image: Path | None = None
    layers: frozenset[str] = frozenset()
    shows: Shows = "page"
    is_large: bool = False
    given: str = ""

    @property
    def is_pdf(self) -> bool:
        """Whether it is a page of a PDF."""
        return self.path.suffix.lower() in PDF_SUFFIXES

    @property
    def document(self) -> str:
        """The name of a file for all pages of the same PDF or TIFF; for anything else the page's own."""
        return re.sub(r"_\d{4,}$", "", self.name) if self.number else self.name

    def content(self) -> bytes:
        """Return the content of the image file; DataError if it cannot be read."""
        if self.is_pdf:
            return page_image(self.path, self.number)
        return read_frame(self.path, self.number) if self.number else read_bytes(self.image or self.path)


class FoundPages:
    """The pages, a message for each unreadable file, and skipped items; those of a folder `are_sorted` by their names.

    Left out are files that describe a scan which another file describes.
    """

    def __init__(self, out: Path | None) -> None:
        self.pages: list[InputPage] = []
        self.failed: list[str] = []
        self.omitted: list[str] = []
        self.are_sorted = False
        self._out = out and out.resolve()
        self._images = cache(ImageFinder)
        self._layers: set[str] = set()
        self._ids = UniqueStems()

    def add(self, given: Path, root: Path) -> None:
        """Add the pages at `root`, which is `given`, or the folder that it was unpacked to."""
        known_failures = len(self.failed)
        if root.is_file():
            # The image of an XML file may be one level up, where programs put it, and nowhere else outside its folder.
            is_exported = root.parent.name.lower() in _EXPORT_FOLDERS
            source = root.parent.parent if is_exported and root.suffix.lower() == ".xml" else root.parent
            pages = self._list([root], root.parent, source)
        else:
            xml = [*find_page(root), *find_alto(root)]
            described, others = choose_files(xml, self._images(root), parse_xml_page)
            self.omitted += [f"{item.where}: {item.message}" for item in others]
            files = [*described, *list_files(root, IMAGE_SUFFIXES | PDF_SUFFIXES)]
            if self._out is not None and root.resolve() in self._out.parents:
                files = [path for path in files if not path.resolve().is_relative_to(self._out)]
            self.are_sorted = True
            pages = natural_sort(self._list(files, root, root), lambda page: relative(page.path, root))
        if not pages and len(self.failed) == known_failures:
            hint = f"images end in {', '.join(sorted(IMAGE_SUFFIXES))}; PDF, PAGE and ALTO are read too"
            raise DataError("no image, PDF, PAGE or ALTO file is in it", code="input-empty", where=given, hint=hint)
        if root != given and given.is_file():  # an archive, whose unpacked files are new
            pages = [replace(page, stamp=_stamp(given)) for page in pages]
        pages = [replace(page, layers=frozenset(self._layers)) for page in pages]
        known = {(page.path, page.number) for page in self.pages}
        for page in pages:
            if (page.path, page.number) not in known:
                # If an earlier input has the id: the whole path that the user named.
                whole = ((given.parent if page.path == given else given) / page.id).as_posix()
                self.pages.append(replace(page, id=self._ids.take_stem(page.id, whole), given=str(given)))

    def finish(self, shows: Shows | None) -> None:
        """Drop images that an XML file describes, make names unique, and find the subjects of images."""
        described = {page.image.resolve() for page in self.pages if page.image}
        pages = [page for page in self.pages if page.image or page.is_pdf or page.path.resolve() not in described]
        taken = UniqueStems()
        named = [replace(page, name=unique_name(taken, page.name, page.path.suffix)) for page in pages]
        self.pages = [_with_shape(page, shows) for page in named]

    def _list(self, files: Iterable[Path], root: Path, source: Path) -> list[InputPage]:
        """Return the pages of files below `root`, whose images are in the folder `source`."""
        pages: list[InputPage] = []
        for path in files:
            where = relative(path, root)
            try:
                pages += self._pages_of_file(path, where, source)
            except DataError as error:
                self.failed.append(f"{where}: {error.message}")
        return pages

    def _pages_of_file(self, path: Path, where: str, source: Path) -> list[InputPage]:
        stem, suffix = Path(where).with_suffix("").as_posix(), path.suffix.lower()
        if suffix == ".xml":
            page = parse_xml_page(path)
            self._layers |= page.layers
            image = image_of_page(page, self._images(source), path)
            return [InputPage(where, stem, path, f"{_stamp(path)} {_stamp(image)}", image=image)]
        is_pdf = suffix in PDF_SUFFIXES
        count = count_pages(path) if is_pdf else count_frames(path) if suffix in {".tif", ".tiff"} else 1
        if is_pdf and not count:
            raise DataError("the PDF has no pages", code="pdf-damaged")
        if count == 1 and not is_pdf:
            return [InputPage(where, stem, path, _stamp(path))]
        numbers = range(1, count + 1)
        return [InputPage(f"{where}#{n}", f"{stem}_{n:04d}", path, _stamp(path), n) for n in numbers]


@contextmanager
def find_pages(
    inputs: Sequence[Path],
    unpacked: Path,
    *,
    shows: Shows | None = None,
    out: Path | None = None,
    fetch: FetchOptions | None = None,
    progress: ProgressCallback | None = None,
) -> Iterator[FoundPages]:
    """Find the pages of all inputs; archives are unpacked into the folder `unpacked` until the block ends.

    The pages of manifests are fetched as `fetch` says, with `progress`. `shows` is the subject of image files; None
    guesses it from their shape. Files in `out` are not inputs. Raises DataError for a missing input.
    """
    together = Path(" ".join(map(str, inputs)))
    for given in inputs:
        require_source(given, f'put a path with spaces in quotes: "{together}"' if together.exists() else None)
    pages = FoundPages(out)
    with ExitStack() as stack:
        for number, given in enumerate(inputs):
            try:
                source = stack.enter_context(open_source(given, unpacked / str(number), fetch, progress))
            except DataError as error:
                pages.failed.append(f"{given.name}: {error.message}")
                continue
            pages.failed += [f"{item.where}: {item.message}" for item in source.items if isinstance(item, Skipped)]
            pages.add(given, source.path)
        pages.finish(shows)
        yield pages


def _with_shape(page: InputPage, shows: Shows | None) -> InputPage:
    """Return the page with the subject of its image, and whether it is large, both from the image's header."""
    if page.is_pdf:
        return page
    try:
        width, height = size = upright_size(page.image or page.path)
    except DataError:  # an image that cannot be opened is reported when it is read
        return page if page.image else replace(page, shows=shows or "page")
    shown = "page" if page.image else shows or guess_shows(size)
    return replace(page, shows=shown, is_large=width * height > _LARGE)


def guess_shows(size: tuple[int, int]) -> Shows:
    """Guess from the width and height of an image in pixels whether it shows a line or a page."""
    width, height = size
    return "page" if height >= _MIN_PAGE_HEIGHT and width <= _MAX_PAGE_ASPECT * height else "line"


def _stamp(path: Path) -> str:
    try:
        status = path.stat()
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror or error}", code="file-unreadable", where=path) from error
    return f"{status.st_size} {status.st_mtime_ns}"


@dataclass(frozen=True, slots=True)
class Crop:
    """An image that the model is shown: its file content, its place on the page, and the lines known on it.

    The image in the file may be `upside_down`.
    """

    id: str
    content: bytes
    outline: Outline | None
    lines: tuple[Line, ...]
    upside_down: bool = False

    def image(self) -> Image.Image:
        """Decode the image as training does."""
        image = decode_image(self.content, name=self.id).image
        return image.transpose(Image.Transpose.ROTATE_180) if self.upside_down else image

    def turn_over(self) -> "Crop":
        """Return the same part of the page, whose lines are read in the other direction."""
        lines = tuple(map(_read_back, reversed(self.lines)))
        outline = self.outline and reverse_baseline(self.outline)
        return replace(self, outline=outline, lines=lines, upside_down=not self.upside_down)


def _read_back(line: Line) -> Line:
    return replace(line, outline=line.outline and reverse_baseline(line.outline))


@dataclass(frozen=True, slots=True)
class PreparedPage:
    """A page ready to be read: its size, all lines known on it, its crops, and messages about parts without a crop."""

    source: InputPage
    size: tuple[int, int]
    lines: tuple[Line, ...]
    crops: tuple[Crop, ...]
    failed: tuple[str, ...]
    tables: tuple[Table, ...] = ()

    def turn_over(self) -> "PreparedPage":
        """Return the page as it is when it is turned by 180 degrees: other directions of lines, another order."""
        lines, crops = map(_read_back, reversed(self.lines)), (crop.turn_over() for crop in reversed(self.crops))
        return replace(self, lines=tuple(lines), crops=tuple(crops))


@dataclass(frozen=True, slots=True)
class PagePreparer:
    """Cuts pages into lines, regions or not at all; texts that they have are kept unless `replace_texts`.

    With `most` a region is cut into parts of at most so many neighbouring lines, as in the training samples. `tables`
    finds them where the source has none. With `regions`, types in lower case, lines in others are not read.
    """

    unit: Unit
    find_lines: FindLines
    replace_texts: bool = False
    most: int | None = None
    tables: FindTables | None = None
    regions: frozenset[str] = frozenset()

    def prepare(self, page: InputPage) -> PreparedPage:
        """Cut out the parts of a page to read. Raises DataError if nothing of it can be read."""
        data = page.content()
        document, failed = self._with_lines(page, data)
        document, _ = outline_by_baselines(turn_baselines(document)[0])
        if self.tables and self.unit == "line" and page.shows == "page" and not document.tables:
            document = _with_tables(document, data, self.tables, split=page.image is None)
        parts = [
            (part, lines)
            for part, lines in self._parts(page, document)
            if (self.replace_texts or not lines or any(is_blank(line.text) for line in lines))
            and all(map(self.wants, lines))
        ]
        cut = [part for part, _ in parts]
        if not page.image and self.unit == "line":
            outlines = reading_outlines([part.outline for part in cut if part.outline])
            if len(outlines) == len(cut):
                cut = [replace(part, outline=outline) for part, outline in zip(cut, outlines, strict=True)]
        cropped = crop_lines(replace(document, lines=tuple(cut)), data)
        if isinstance(cropped, CropFailure):
            raise DataError(cropped.message, code="page-not-readable")
        size, files = cropped
        crops = []
        for (part, lines), file in zip(parts, files, strict=True):
            if isinstance(file, CropFailure):
                failed.append(f"{part.where}: {file.message}")
            else:
                scaled = tuple(scale_line(line, document, size) for line in lines)
                crops.append(Crop(part.where, file.content, scale_outline(part.outline, document, size), scaled))
        scaled_page = scale_page(document, size)
        return PreparedPage(page, size, scaled_page.lines, tuple(crops), tuple(failed), scaled_page.tables)

    def wants(self, line: Line) -> bool:
        """Whether to read the region of a line."""
        return not self.regions or line.is_in(self.regions)

    def try_prepare(self, page: InputPage) -> tuple[InputPage, PreparedPage | str]:
        """Return the page with its crops, or with a message why there are none; for worker processes."""
        try:
            return page, self.prepare(page)
        except DataError as error:
            return page, error.message

    def _with_lines(self, page: InputPage, data: bytes) -> tuple[Page, list[str]]:
        """Return the page with the lines known on it, and messages about lines without a place."""
        if page.image:
            return _read_xml(page, page.image)
        lines: Sequence[Line] = ()
        if page.shows == "line":
            lines = (Line("", page.id, index=0),)
        elif self.unit != "page":
            lines = self.find_lines(data, page.id)
        return Page(page.path, page.name, page.id, tuple(lines)), []

    def _parts(self, page: InputPage, document: Page) -> list[tuple[Line, tuple[Line, ...]]]:
        """Return the lines that are read together, after a line that stands for them when the image is cut."""
        if page.shows == "line" or self.unit == "page":
            return [(Line("", page.id), document.lines)]
        if self.unit == "region":
            return [
                (Line("", where, enclosing_outline(lines, is_part=self.most is not None)), tuple(lines))
                for where, lines in group_by_region(document, self.most)
            ]
        return [(Line("", line.where, line.outline), (line,)) for line in document.lines]


def _read_xml(page: InputPage, image: Path) -> tuple[Page, list[str]]:
    xml_page = parse_xml_page(page.path).without_readings(page.layers)
    lines, failed = [], []
    for line in xml_page.placed_lines():
        where = f"{page.id}#{line.id or (line.index or 0) + 1}"
        if line.outline is None and not xml_page.is_line_image:
            failed.append(f"{where}: the line has no polygon and no box with valid coordinates")
        else:
            lines.append(replace(line, where=where))
    tables = tuple(xml_page.tables)
    return Page(image, page.name, page.id, tuple(lines), size=xml_page.size, tables=tables), failed


def _with_tables(document: Page, data: bytes, find_tables: FindTables, *, split: bool) -> Page:
    """Return a page with its tables; `split` cuts lines where the column ends, which files to fill in do not allow."""
    image = decode_image(data, name=document.where).image
    page = scale_page(document, image.size)
    lines, tables = find_tables(image, page.lines, split=split)
    return replace(page, lines=tuple(lines), tables=tuple(tables))
