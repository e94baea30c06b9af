"""Which pages a user's files, folders and archives hold, known before any of them is read.

Images, PDF files page by page, and ALTO and PAGE files with the images they name; an image that such a file names is
no page of its own.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from dsocr.data.archives import is_archive
from dsocr.data.images import IMAGE_SUFFIXES, read_bytes, upright_size
from dsocr.data.opening import opened
from dsocr.data.paths import list_files, relative
from dsocr.data.pdf import PDF_SUFFIXES, count_pages, page_image
from dsocr.data.sources.alto import find_alto
from dsocr.data.sources.layout import LeftOut
from dsocr.data.sources.markup import parse_xml
from dsocr.data.sources.page import find_page
from dsocr.data.sources.pictures import Pictures
from dsocr.errors import DataError
from dsocr.inference.inputs.describing import describe
from dsocr.inference.inputs.names import UniqueNames

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
    held = stack.enter_context(opened(given, folder))
    found.refused += [f"{item.where}: {item.message}" for item in held.told if isinstance(item, LeftOut)]
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
