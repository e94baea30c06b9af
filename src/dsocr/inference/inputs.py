"""The pages to transcribe: finding them, and cutting out the images that the model is shown."""

import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Literal

from PIL import Image

from dsocr.data.segment import segment
from dsocr.data.sources import enclosing_outline, group_by_region, open_source
from dsocr.document import Line, Outline, Page, Skipped, Unit
from dsocr.errors import DataError
from dsocr.formats import parse_xml_page
from dsocr.formats.alto import find_alto, parse_alto
from dsocr.formats.format import ImageFinder
from dsocr.formats.page import find_page
from dsocr.formats.pdf import PDF_SUFFIXES, count_pages, page_image
from dsocr.formats.xml import parse_xml
from dsocr.images import IMAGE_SUFFIXES, count_frames, decode_image, read_bytes, read_frame, upright_size
from dsocr.io.archives import is_archive
from dsocr.io.cropping import CropFailure, crop_lines, scale_line, scale_outline
from dsocr.io.files import is_reserved, list_files, relative
from dsocr.outlines import outline_by_baselines
from dsocr.text import is_blank

Kind = Literal["image", "pdf", "markup"]
Shows = Literal["line", "page"]
"""What an image file shows."""

FindLines = Callable[[bytes, str], Sequence[Line]]
"""Finds the lines on the image in a file's content; the page's id begins their `where`."""

BUILT_IN = "builtin"
"""Name of the built-in segmenter."""
_KRAKEN_TIMEOUT = 900
"""Seconds for one page; kraken takes about ten on a CPU."""

_EXPORT_FOLDERS = frozenset({"page", "alto"})
"""Folders that programs put XML files into, one level below the images."""

_MIN_PAGE_HEIGHT = 400
"""Pixels; a line of writing scanned at 600 dpi is half as high."""
_MAX_PAGE_ASPECT = 2.5
"""Width by height; an open double page has about half of it."""

_FORBIDDEN = re.compile(r'[<>:"|?*\\\x00-\x1f]')
"""Characters that Windows does not allow in file names."""


class UniqueNames:
    """Makes relative paths without suffix unique, where upper and lower case are the same."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def take(self, name: str, suffix: str) -> str:
        """Return the name; if it is taken, with the file's suffix (`scan_png`), else with a number."""
        fit = "/".join(map(_fit, name.split("/")))
        free, number = fit, 1
        if free.casefold() in self._taken and suffix:
            free = fit = f"{fit}_{_fit(suffix.lstrip('.'))}"
        while free.casefold() in self._taken:
            number += 1
            free = f"{fit}-{number}"
        self._taken.add(free.casefold())
        return free


def _fit(part: str) -> str:
    """Return a part of a path that Windows accepts."""
    fit = _FORBIDDEN.sub("_", part).rstrip(" .") or "_"
    return f"{fit}_" if is_reserved(fit) else fit


@dataclass(frozen=True, slots=True)
class InputPage:
    """A page to transcribe: an image file, a page of a PDF or TIFF (`number`, from 1), or an ALTO or PAGE file.

    `id` is its place in what the user named, `name` the name of a file for it, without suffix; both are unique.
    `image` is the image file of an ALTO or PAGE file. `stamp` changes when the files change.
    """

    id: str
    name: str
    kind: Kind
    path: Path
    stamp: str
    number: int = 0
    image: Path | None = None
    shows: Shows = "page"

    @property
    def document(self) -> str:
        """The name of a file for all pages of the same PDF or TIFF; for anything else the page's own."""
        return re.sub(r"_\d{4,}$", "", self.name) if self.number else self.name

    def content(self) -> bytes:
        """Return the content of the image file; DataError if it cannot be read."""
        if self.kind == "pdf":
            return page_image(self.path, self.number)
        return read_frame(self.path, self.number) if self.number else read_bytes(self.image or self.path)


@dataclass(slots=True)
class FoundPages:
    """The pages in the order of their names, and a message for each file that cannot be read."""

    pages: list[InputPage] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    _images: dict[Path, ImageFinder] = field(default_factory=dict)

    def images_of(self, source: Path) -> ImageFinder:
        """Return the index of a folder's images, which is made only once."""
        if source not in self._images:
            self._images[source] = ImageFinder(source)
        return self._images[source]

    def add_failure(self, where: str, error: DataError) -> None:
        """Add a file that cannot be read."""
        self.failed.append(f"{where}: {error.message}")


@contextmanager
def find_pages(
    inputs: Sequence[Path], unpacked: Path, *, shows: Shows | None = None, out: Path | None = None
) -> Iterator[FoundPages]:
    """Find the pages of all inputs; archives are unpacked into the folder `unpacked` until the block ends.

    `shows` says what image files show; None guesses it from their shape. Files in `out` are not inputs.
    """
    require_inputs(inputs)
    found = FoundPages()
    ids = _UniqueIds()
    with ExitStack() as stack:
        for number, given in enumerate(inputs):
            try:
                root = _root(stack, found, given, unpacked / str(number))
            except DataError as error:
                found.add_failure(given.name, error)
                continue
            stamp = _stamp(given) if root != given and given.is_file() else None
            found.pages += ids.assign(_list(found, given, root, stamp, out), given)
        taken = UniqueNames()
        theirs = {page.image.resolve() for page in found.pages if page.image}
        pages = [page for page in found.pages if page.kind != "image" or page.path.resolve() not in theirs]
        named = [replace(page, name=taken.take(page.name, page.path.suffix)) for page in pages]
        found.pages = [_guess_page_shows(page, shows) for page in named]
        yield found


def require_inputs(inputs: Sequence[Path]) -> None:
    """Raise DataError for the first input that does not exist."""
    together = Path(" ".join(map(str, inputs)))
    for given in inputs:
        if not given.exists():
            hint = f'put a path with spaces in quotes: "{together}"' if together.exists() else None
            raise DataError("no such file or folder", code="input-missing", where=given, hint=hint)


class _UniqueIds:
    """Makes ids unique: if two inputs have the same, the later gets the whole path that the user named."""

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._known: set[tuple[Path, int]] = set()

    def assign(self, pages: Sequence[InputPage], given: Path) -> Iterator[InputPage]:
        """Yield the pages of an input that no earlier input has."""
        for page in pages:
            if (page.path, page.number) in self._known:
                continue
            id_ = page.id
            if id_ in self._taken:
                prefix = given.parent if page.path == given else given
                id_ = free = (prefix / page.id).as_posix()
                number = 1
                while id_ in self._taken:
                    number += 1
                    id_ = f"{free}-{number}"
            self._known.add((page.path, page.number))
            self._taken.add(id_)
            yield replace(page, id=id_)


def _root(stack: ExitStack, found: FoundPages, given: Path, folder: Path) -> Path:
    if not (given.is_dir() or is_archive(given)):
        return given
    folder.parent.mkdir(parents=True, exist_ok=True)
    source = stack.enter_context(open_source(given, folder))
    found.failed += [f"{item.where}: {item.message}" for item in source.items if isinstance(item, Skipped)]
    return source.path


def _list(found: FoundPages, given: Path, root: Path, stamp: str | None, out: Path | None) -> list[InputPage]:
    """List the pages at `root`, which is `given`, or the folder that it was unpacked to."""
    if root.is_file():
        return _list_file(found, root)
    failed = len(found.failed)
    pages = _xml_pages(found, root, _without([*find_alto(root), *find_page(root)], root, out), root)
    for path in _without(list_files(root, IMAGE_SUFFIXES | PDF_SUFFIXES), root, out):
        where = relative(path, root)
        if path.suffix.lower() in PDF_SUFFIXES:
            pages += _pdf_pages(found, path, where)
        else:
            pages += _image_pages(path, where)
    pages = [replace(page, stamp=stamp) for page in pages] if stamp else pages
    if not pages and len(found.failed) == failed:
        hint = f"images end in {', '.join(sorted(IMAGE_SUFFIXES))}; PDF, PAGE and ALTO are read too"
        raise DataError("no image, PDF, PAGE or ALTO file is in it", code="input-empty", where=given, hint=hint)
    return sorted(pages, key=lambda page: (page.path.relative_to(root).as_posix(), page.number))


def _without(files: Sequence[Path], root: Path, out: Path | None) -> Sequence[Path]:
    """Return the files that are not in `out`, if that is below the folder."""
    if out is None or root.resolve() not in out.resolve().parents:
        return files
    return [path for path in files if not path.resolve().is_relative_to(out.resolve())]


def _list_file(found: FoundPages, path: Path) -> list[InputPage]:
    suffix = path.suffix.lower()
    if suffix in PDF_SUFFIXES:
        return _pdf_pages(found, path, path.name)
    if suffix == ".xml":
        # Its image may be one level up, where programs put it, and nowhere else outside its folder.
        source = path.parent.parent if path.parent.name.lower() in _EXPORT_FOLDERS else path.parent
        return _xml_pages(found, source, [path], path.parent)
    return _image_pages(path, path.name)


def _xml_pages(found: FoundPages, source: Path, files: Sequence[Path], root: Path) -> list[InputPage]:
    """Return the pages that XML files describe."""
    pages: list[InputPage] = []
    for file in files:
        where = relative(file, root)
        try:
            image = found.images_of(source).find(parse_xml_page(file).image or file.stem, near=file.parent)
        except DataError as error:
            found.add_failure(where, error)
            continue
        stamp = f"{_stamp(file)} {_stamp(image)}"
        pages.append(InputPage(where, _stem(where), "markup", file, stamp, image=image))
    return pages


def _image_pages(path: Path, where: str) -> list[InputPage]:
    stamp, stem = _stamp(path), _stem(where)
    count = count_frames(path) if path.suffix.lower() in {".tif", ".tiff"} else 1
    if count == 1:
        return [InputPage(where, stem, "image", path, stamp)]
    return [
        InputPage(f"{where}#{number}", f"{stem}_{number:04d}", "image", path, stamp, number)
        for number in range(1, count + 1)
    ]


def _pdf_pages(found: FoundPages, path: Path, where: str) -> list[InputPage]:
    try:
        count, stamp, stem = count_pages(path), _stamp(path), _stem(where)
        if not count:
            raise DataError("the PDF has no pages", code="pdf-damaged")
    except DataError as error:
        found.add_failure(where, error)
        return []
    return [
        InputPage(f"{where}#{number}", f"{stem}_{number:04d}", "pdf", path, stamp, number)
        for number in range(1, count + 1)
    ]


def _guess_page_shows(page: InputPage, shows: Shows | None) -> InputPage:
    if page.kind != "image":
        return page
    if shows is None:
        try:
            shows = guess_shows(upright_size(page.path))
        except DataError:
            # An image that cannot be opened is reported when it is read.
            return page
    return replace(page, shows=shows)


def guess_shows(size: tuple[int, int]) -> Shows:
    """Guess from the width and height of an image in pixels whether it shows a line or a page."""
    width, height = size
    return "page" if height >= _MIN_PAGE_HEIGHT and width <= _MAX_PAGE_ASPECT * height else "line"


def _stem(where: str) -> str:
    return Path(where).with_suffix("").as_posix()


def _stamp(path: Path) -> str:
    try:
        status = path.stat()
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror or error}", code="input-unreadable", where=path) from error
    return f"{status.st_size} {status.st_mtime_ns}"


@dataclass(frozen=True, slots=True)
class Crop:
    """An image that the model is shown: its file content, its place on the page, and the lines known on it."""

    id: str
    content: bytes
    outline: Outline | None
    lines: tuple[Line, ...]

    def image(self) -> Image.Image:
        """Decode the image as training does."""
        return decode_image(self.content, name=self.id).image


@dataclass(frozen=True, slots=True)
class PreparedPage:
    """A page ready to be read: its size, all lines known on it, its crops, and messages about what cannot be cut."""

    source: InputPage
    size: tuple[int, int]
    lines: tuple[Line, ...]
    crops: tuple[Crop, ...]
    failed: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PagePreparer:
    """Cuts pages into lines, regions or not at all; texts that they have are kept unless `replace_texts`."""

    unit: Unit
    find_lines: FindLines
    replace_texts: bool = False

    def prepare(self, page: InputPage) -> PreparedPage:
        """Cut out the parts of a page to read. Raises DataError if nothing of it can be read."""
        data = page.content()
        document, failed = self._with_lines(page, data)
        document, _ = outline_by_baselines(document)
        parts = [part for part in self._parts(page, document) if self.replace_texts or _lacks_text(part)]
        cropped = crop_lines(replace(document, lines=tuple(part.line for part in parts)), data)
        if isinstance(cropped, CropFailure):
            raise DataError(cropped.message, code="page-not-cropped")
        size, files = cropped
        crops = []
        for part, file in zip(parts, files, strict=True):
            if isinstance(file, CropFailure):
                failed.append(f"{part.line.where}: {file.message}")
            else:
                lines = tuple(scale_line(line, document, size) for line in part.lines)
                crops.append(Crop(part.line.where, file.content, scale_outline(part.line, document, size), lines))
        lines = tuple(scale_line(line, document, size) for line in document.lines)
        return PreparedPage(page, size, lines, tuple(crops), tuple(failed))

    def try_prepare(self, page: InputPage) -> tuple[InputPage, "PreparedPage | str"]:
        """Return the page with its crops, or with a message why there are none; for worker processes."""
        try:
            return page, self.prepare(page)
        except DataError as error:
            return page, error.message

    def _with_lines(self, page: InputPage, data: bytes) -> tuple[Page, list[str]]:
        """Return the page with the lines known on it, and messages about lines without a place."""
        if page.kind == "markup":
            return _read_xml(page)
        lines: Sequence[Line] = ()
        if page.shows == "line":
            lines = (Line("", page.id, index=0),)
        elif self.unit != "page":
            lines = self.find_lines(data, page.id)
        return Page(page.path, page.name, page.id, tuple(lines)), []

    def _parts(self, page: InputPage, document: Page) -> list["_Part"]:
        if page.shows == "line" or self.unit == "page":
            return [_Part(Line("", page.id), document.lines)]
        if self.unit == "region":
            regions = group_by_region(document)
            return [_Part(Line("", where, enclosing_outline(lines)), tuple(lines)) for where, lines in regions]
        return [_Part(Line("", line.where, line.outline), (line,)) for line in document.lines]


@dataclass(frozen=True, slots=True)
class _Part:
    """Lines that are read together, and the line that stands for them when the image is cut."""

    line: Line
    lines: tuple[Line, ...]


def _lacks_text(part: _Part) -> bool:
    return not part.lines or any(is_blank(line.text) for line in part.lines)


def _read_xml(page: InputPage) -> tuple[Page, list[str]]:
    """Return the page of an ALTO or PAGE file, and messages about its lines without an outline."""
    xml_page = parse_xml_page(page.path)
    lines, failed = [], []
    for line in xml_page.placed_lines():
        where = f"{page.id}#{line.id or (line.index or 0) + 1}"
        if line.outline is None and not xml_page.is_line_image:
            failed.append(f"{where}: the line has neither a polygon nor a box")
        else:
            lines.append(replace(line, where=where))
    assert page.image is not None  # ALTO and PAGE files without one are not among the pages
    return Page(page.image, page.name, page.id, tuple(lines), size=xml_page.size), failed


def choose_segmenter(name: str) -> FindLines:
    """Return the built-in segmenter, or kraken by the name of its command or the path to it."""
    if name == BUILT_IN:
        return _find_lines
    if Path(name).name.removesuffix(".exe") != "kraken":
        message = f"unknown segmenter {name!r}; there are {BUILT_IN} and kraken, or a path to a kraken command"
        raise DataError(message, code="segmenter-unknown")
    command = shutil.which(name)
    if command is None:
        hint = "install it in an environment of its own (pipx install kraken), or give the path to its command"
        raise DataError("the command kraken is not installed", code="kraken-missing", where=name, hint=hint)
    return partial(_find_lines_with_kraken, command)  # unlike a closure, it can be sent to another process


def _find_lines(content: bytes, where: str) -> Sequence[Line]:
    page = decode_image(content, name=where).image
    return [
        Line("", f"{where}#{number + 1}", line.outline, line.region, number)
        for number, line in enumerate(segment(page))
    ]


def _find_lines_with_kraken(command: str, content: bytes, where: str) -> Sequence[Line]:
    """Return the lines of the ALTO file that kraken writes for a page; it is given the upright image."""
    with tempfile.TemporaryDirectory(prefix="dsocr-kraken-") as folder:
        image, found = Path(folder, "page.png"), Path(folder, "page.xml")
        decode_image(content, name=where).image.save(image)
        arguments = [command, "-a", "-i", str(image), str(found), "segment", "-bl"]
        try:
            done = subprocess.run(arguments, capture_output=True, timeout=_KRAKEN_TIMEOUT, check=False)  # noqa: S603
        except (OSError, subprocess.TimeoutExpired) as error:
            raise DataError(f"kraken could not find its lines: {error}", code="kraken-failed") from error
        if done.returncode or not found.is_file():
            last = done.stderr.decode("utf-8", "replace").strip().splitlines()[-1:] or ["no message"]
            raise DataError(f"kraken could not find its lines: {last[0]}", code="kraken-failed")
        described = parse_alto(parse_xml(found))
    lines = [line for line in described.lines if line.outline]
    if not lines:
        raise DataError("kraken finds no lines on the page", code="kraken-failed")
    return [Line("", f"{where}#{number + 1}", line.outline, line.region, number) for number, line in enumerate(lines)]
