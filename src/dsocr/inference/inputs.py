"""What can be transcribed: which pages there are, and what of each is shown to the model."""

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

from lxml import etree
from PIL import Image

from dsocr.data.segment import segment
from dsocr.data.sources import open_source
from dsocr.data.units import enclosing_outline, group_by_region
from dsocr.document import Line, Outline, Page, Skipped, Unit
from dsocr.errors import DataError
from dsocr.formats import alto, page
from dsocr.formats.alto import describe_page, find_alto
from dsocr.formats.page import find_page
from dsocr.formats.pdf import PDF_SUFFIXES, count_pages, page_image
from dsocr.formats.writing import Pictures
from dsocr.formats.xml import XmlPage, parse_xml
from dsocr.images import IMAGE_SUFFIXES, decode_image, read_bytes, upright_size
from dsocr.io.archives import is_archive
from dsocr.io.cropping import CropFailure, crop_lines, scale_line, scale_outline
from dsocr.io.files import is_reserved, list_files, relative
from dsocr.outlines import outline_by_baselines
from dsocr.text import is_blank

_DESCRIBE = {"alto": alto.describe_page, "PcGts": page.describe_page}


def describe(root: etree._Element) -> XmlPage:
    """The page of an ALTO or PAGE document, told apart by its outermost element."""
    name = etree.QName(root).localname
    if name not in _DESCRIBE:
        raise DataError(f"the XML is neither ALTO nor PAGE: its outermost element is {name!r}")
    return _DESCRIBE[name](root)


_FORBIDDEN = re.compile(r'[<>:"|?*\\\x00-\x1f]')


class UniqueNames:
    """Gives out relative paths without suffix, no two alike where upper and lower case are the same."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def take(self, name: str, suffix: str) -> str:
        """The name; where it is taken the one with the file's suffix (`scan_png`), else with a number."""
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
    """A part of a path that Windows takes."""
    fit = _FORBIDDEN.sub("_", part).rstrip(" .") or "_"
    return f"{fit}_" if is_reserved(fit) else fit


Kind = Literal["image", "pdf", "markup"]
Shows = Literal["line", "page"]
"""What an image file is a picture of."""

_EXPORTS = frozenset({"page", "alto"})
"""The folders that programs put XML files into, one level below the images."""

_LOWEST_PAGE = 400
"""Pixels; a line of writing scanned at 600 dpi is half as high."""
_WIDEST_PAGE = 2.5
"""Times its height; two pages that lie open are half as wide."""


@dataclass(frozen=True, slots=True)
class InputPage:
    """Something to read: an image file, a page of a PDF (`number`, the first is 1), or an ALTO or PAGE file.

    `id` is where it stands in what the user named, `name` what a file of its own is called, without suffix; no two
    pages have either alike. `image` is the image file, which `path` is not for ALTO and PAGE. `stamp` changes when the
    files do.
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
        """The name of a file for all pages of the same PDF; of anything else the page's own."""
        return re.sub(r"_\d{4,}$", "", self.name) if self.kind == "pdf" else self.name

    def content(self) -> bytes:
        """The image, as a file holds it. Raises DataError where it cannot be had."""
        return page_image(self.path, self.number) if self.kind == "pdf" else read_bytes(self.image or self.path)


@dataclass(slots=True)
class Found:
    """The pages, in the order of their names, and what cannot be read, each with its sentence."""

    pages: list[InputPage] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    _pictures: dict[Path, Pictures] = field(default_factory=dict)

    def pictures_of(self, source: Path) -> Pictures:
        """The images of a folder, listed once however many of its files were named."""
        if source not in self._pictures:
            self._pictures[source] = Pictures(source)
        return self._pictures[source]

    def refuse(self, where: str, error: DataError) -> None:
        """Notes a file that cannot be read."""
        self.refused.append(f"{where}: {error.message}")


@contextmanager
def find_pages(
    inputs: Sequence[Path], unpacked: Path, *, shows: Shows | None = None, out: Path | None = None
) -> Iterator[Found]:
    """The pages of all inputs; archives are unpacked below the folder `unpacked` until the block ends.

    `shows` says what image files show; None tells it from their shape. What lies at `out` inside an input is none.
    """
    demand_inputs(inputs)
    found = Found()
    ids = _UniqueIds()
    with ExitStack() as stack:
        for number, given in enumerate(inputs):
            try:
                root = _root(stack, found, given, unpacked / str(number))
            except DataError as error:
                found.refuse(given.name, error)
                continue
            stamp = _stamp(given) if root != given and given.is_file() else None
            found.pages += ids.given(_list(found, given, root, stamp, out), given)
        taken = UniqueNames()
        theirs = {page.image.resolve() for page in found.pages if page.image}
        pages = [page for page in found.pages if page.kind != "image" or page.path.resolve() not in theirs]
        named = [replace(page, name=taken.take(page.name, page.path.suffix)) for page in pages]
        found.pages = [_with_its_shape(page, shows) for page in named]
        yield found


def demand_inputs(inputs: Sequence[Path]) -> None:
    """Raises DataError for the first input that is not there."""
    together = Path(" ".join(map(str, inputs)))
    for given in inputs:
        if not given.exists():
            hint = f'a path with spaces stands in quotes: "{together}"' if together.exists() else None
            raise DataError("no such file or folder", where=given, hint=hint)


class _UniqueIds:
    """Ids that stay as they are, but where two inputs have one alike: then the later says all that the user named."""

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._known: set[tuple[Path, int]] = set()

    def given(self, pages: Sequence[InputPage], given: Path) -> Iterator[InputPage]:
        """The pages of an input; one that another input holds too is not given twice."""
        for page in pages:
            if (page.path, page.number) in self._known:
                continue
            id_ = page.id
            if id_ in self._taken:
                beginning = given.parent if page.path == given else given
                id_ = free = (beginning / page.id).as_posix()
                number = 1
                while id_ in self._taken:
                    number += 1
                    id_ = f"{free}-{number}"
            self._known.add((page.path, page.number))
            self._taken.add(id_)
            yield replace(page, id=id_)


def _root(stack: ExitStack, found: Found, given: Path, folder: Path) -> Path:
    if not (given.is_dir() or is_archive(given)):
        return given
    folder.parent.mkdir(parents=True, exist_ok=True)
    held = stack.enter_context(open_source(given, folder))
    found.refused += [f"{item.where}: {item.message}" for item in held.items if isinstance(item, Skipped)]
    return held.path


def _list(found: Found, given: Path, root: Path, stamp: str | None, out: Path | None) -> list[InputPage]:
    """What lies at `root`, which is `given`, or what it was unpacked to."""
    if root.is_file():
        return _list_file(found, root)
    refused = len(found.refused)
    pages = _markup_pages(found, root, _without([*find_alto(root), *find_page(root)], root, out), root)
    for path in _without(list_files(root, IMAGE_SUFFIXES | PDF_SUFFIXES), root, out):
        where = relative(path, root)
        if path.suffix.lower() in PDF_SUFFIXES:
            pages += _pdf_pages(found, path, where)
        else:
            pages.append(InputPage(where, _stem(where), "image", path, _stamp(path)))
    pages = [replace(page, stamp=stamp) for page in pages] if stamp else pages
    if not pages and len(found.refused) == refused:
        hint = f"images end in {', '.join(sorted(IMAGE_SUFFIXES))}; PDF, PAGE and ALTO are read too"
        raise DataError("no image, PDF, PAGE or ALTO file is in it", where=given, hint=hint)
    return sorted(pages, key=lambda page: (page.path.relative_to(root).as_posix(), page.number))


def _without(files: Sequence[Path], root: Path, out: Path | None) -> Sequence[Path]:
    """The files but those of a transcription that lies, or is to lie, at `out` below the folder."""
    if out is None or root.resolve() not in out.resolve().parents:
        return files
    return [path for path in files if not path.resolve().is_relative_to(out.resolve())]


def _list_file(found: Found, path: Path) -> list[InputPage]:
    suffix = path.suffix.lower()
    if suffix in PDF_SUFFIXES:
        return _pdf_pages(found, path, path.name)
    if suffix == ".xml":
        # Its image may lie one level up, where programs put it, and nowhere else outside its folder.
        source = path.parent.parent if path.parent.name.lower() in _EXPORTS else path.parent
        return _markup_pages(found, source, [path], path.parent)
    return [InputPage(path.name, path.stem, "image", path, _stamp(path))]


def _markup_pages(found: Found, source: Path, files: Sequence[Path], root: Path) -> list[InputPage]:
    """The pages that XML files describe."""
    pages: list[InputPage] = []
    for file in files:
        where = relative(file, root)
        try:
            page = describe(parse_xml(file))
            image = found.pictures_of(source).find(page.image or file.stem, near=file.parent)
        except DataError as error:
            found.refuse(where, error)
            continue
        stamp = f"{_stamp(file)} {_stamp(image)}"
        pages.append(InputPage(where, _stem(where), "markup", file, stamp, image=image))
    return pages


def _pdf_pages(found: Found, path: Path, where: str) -> list[InputPage]:
    try:
        count, stamp, stem = count_pages(path), _stamp(path), _stem(where)
        if not count:
            raise DataError("the PDF has no pages")
    except DataError as error:
        found.refuse(where, error)
        return []
    return [
        InputPage(f"{where}#{number}", f"{stem}_{number:04d}", "pdf", path, stamp, number)
        for number in range(1, count + 1)
    ]


def _with_its_shape(page: InputPage, shows: Shows | None) -> InputPage:
    if page.kind != "image":
        return page
    if shows is None:
        try:
            shows = shown_by(upright_size(page.path))
        except DataError:
            # What cannot be opened is told of when its turn comes.
            return page
    return replace(page, shows=shows)


def shown_by(size: tuple[int, int]) -> Shows:
    """Whether a picture of so many pixels across and down is taken to be of a line or of a page."""
    width, height = size
    return "page" if height >= _LOWEST_PAGE and width <= _WIDEST_PAGE * height else "line"


def _stem(where: str) -> str:
    return Path(where).with_suffix("").as_posix()


def _stamp(path: Path) -> str:
    try:
        told = path.stat()
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror or error}", where=path) from error
    return f"{told.st_size} {told.st_mtime_ns}"


FindLines = Callable[[bytes, str], Sequence[Line]]
"""Finds the lines on the image in a file's content; the page's id begins their `where`."""


@dataclass(frozen=True, slots=True)
class Shown:
    """One image that the model is shown, as a file holds it, where it stands on its page, and the lines known on it."""

    id: str
    content: bytes
    outline: Outline | None
    lines: tuple[Line, ...]

    def image(self) -> Image.Image:
        """The picture, as training sees it."""
        return decode_image(self.content, name=self.id).image


@dataclass(frozen=True, slots=True)
class OpenPage:
    """A page ready to be read: its size, all lines known on it, what is shown, and what could not be cut."""

    page: InputPage
    size: tuple[int, int]
    lines: tuple[Line, ...]
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
        image, _ = outline_by_baselines(image)
        parts = [part for part in self._parts(page, image) if self.replace_texts or _lacks_text(part)]
        found = crop_lines(replace(image, lines=tuple(parts)), data)
        if isinstance(found, CropFailure):
            raise DataError(found.message)
        size, files = found
        shown = []
        for part, file in zip(parts, files, strict=True):
            if isinstance(file, CropFailure):
                refused.append(f"{part.where}: {file.message}")
            else:
                lines = tuple(scale_line(line, image, size) for line in part.lines)
                shown.append(Shown(part.where, file.content, scale_outline(part, image, size), lines))
        return OpenPage(
            page, size, tuple(scale_line(line, image, size) for line in image.lines), tuple(shown), tuple(refused)
        )

    def attempt(self, page: InputPage) -> tuple[InputPage, "OpenPage | str"]:
        """The page with what of it is shown, or with the sentence why nothing is; for another process to call."""
        try:
            return page, self.open(page)
        except DataError as error:
            return page, error.message

    def _with_lines(self, page: InputPage, data: bytes) -> tuple[Page, list[str]]:
        """The page with the lines known on it, and the lines that have no place."""
        if page.kind == "markup":
            return _described(page)
        lines: Sequence[Line] = ()
        if page.shows == "line":
            lines = (Line("", page.id, place=0),)
        elif self.unit != "page":
            lines = self.find_lines(data, page.id)
        return Page(page.path, page.name, page.id, tuple(lines)), []

    def _parts(self, page: InputPage, image: Page) -> list["_Part"]:
        if page.shows == "line" or self.unit == "page":
            return [_Part("", page.id, lines=image.lines)]
        if self.unit == "region":
            return [
                _Part("", where, enclosing_outline(lines), lines=tuple(lines))
                for where, lines in group_by_region(image)
            ]
        return [_Part("", line.where, line.outline, lines=(line,)) for line in image.lines]


@dataclass(frozen=True, slots=True)
class _Part(Line):
    """What is shown together, as the cutter takes it."""

    lines: tuple[Line, ...] = ()


def _lacks_text(part: _Part) -> bool:
    return not part.lines or any(is_blank(line.text) for line in part.lines)


def _described(page: InputPage) -> tuple[Page, list[str]]:
    """The page of an ALTO or PAGE file, and its lines that have no outline."""
    described = describe(parse_xml(page.path))
    lines, refused = [], []
    for line in described.lines:
        where = f"{page.id}#{line.id or line.place + 1}"
        read = Line(line.text, where, line.outline, line.region, line.place, line.id)
        if line.is_whole and len(described.lines) == 1:
            lines.append(replace(read, outline=None, region=None))
        elif line.outline is None:
            refused.append(f"{where}: the line has neither a polygon nor a box")
        else:
            lines.append(read)
    assert page.image is not None  # ALTO and PAGE files without one are not among the pages
    return Page(page.image, page.name, page.id, tuple(lines), size=described.size), refused


BUILT_IN = "builtin"
_PATIENCE = 900
"""Seconds for one page; kraken takes about ten on a processor."""


def choose_segmenter(name: str) -> FindLines:
    """The built-in segmenter, or kraken: by the name of its command, or the path to it."""
    if name == BUILT_IN:
        return _built_in
    if Path(name).name.removesuffix(".exe") != "kraken":
        message = f"unknown segmenter {name!r}; there are {BUILT_IN} and kraken, or a path to a kraken command"
        raise DataError(message)
    command = shutil.which(name)
    if command is None:
        hint = "install it in an environment of its own (pipx install kraken), or give the path to its command"
        raise DataError("the command kraken is not installed", where=name, hint=hint)
    return partial(_kraken, command)  # which can be sent to another process


def _built_in(content: bytes, where: str) -> Sequence[Line]:
    page = decode_image(content, name=where).image
    return [
        Line("", f"{where}#{number + 1}", line.outline, line.region, number)
        for number, line in enumerate(segment(page))
    ]


def _kraken(command: str, content: bytes, where: str) -> Sequence[Line]:
    """The lines in the ALTO file that kraken writes of a page; it is given the upright picture, as we see it."""
    with tempfile.TemporaryDirectory(prefix="dsocr-kraken-") as folder:
        image, found = Path(folder, "page.png"), Path(folder, "page.xml")
        decode_image(content, name=where).image.save(image)
        arguments = [command, "-a", "-i", str(image), str(found), "segment", "-bl"]
        try:
            done = subprocess.run(arguments, capture_output=True, timeout=_PATIENCE, check=False)  # noqa: S603
        except (OSError, subprocess.TimeoutExpired) as error:
            raise DataError(f"kraken could not find its lines: {error}") from error
        if done.returncode or not found.is_file():
            last = done.stderr.decode("utf-8", "replace").strip().splitlines()[-1:] or ["it says nothing"]
            raise DataError(f"kraken could not find its lines: {last[0]}")
        described = describe_page(parse_xml(found))
    lines = [line for line in described.lines if line.outline]
    if not lines:
        raise DataError("kraken finds no lines on the page")
    return [Line("", f"{where}#{number + 1}", line.outline, line.region, number) for number, line in enumerate(lines)]
