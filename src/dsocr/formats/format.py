"""Shared by all formats: the declaration of a format, the files and images of a source, and writing images."""

import re
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any, NoReturn
from urllib.parse import unquote

from dsocr.document import Item, Line, Page, Point, ProcessingStep, Skipped, SkipReason, Split, Unit
from dsocr.errors import DataError, require_package
from dsocr.images import (
    IMAGE_SUFFIXES,
    LineFile,
    crop_lines,
    cropped_outline,
    decode_image,
    read_bytes,
    scale_page,
)
from dsocr.io.files import UniqueStems, inside, list_files, relative, split_of_folder, split_of_name

Columns = Mapping[str, str]
"""Role (`image`, `text`, `writer`, ...) -> column name, for the roles that are not to be guessed."""

SURROGATES = "\ud800-\udfff"
"""Unpaired surrogates, which JSON can express and UTF-8 cannot, as part of a regular expression."""

NOT_UTF8 = re.compile(f"[{SURROGATES}]")

LARGEST_COORDINATE = 1_000_000
"""Pixels; larger coordinates are on no image, and more than a drawing can take."""

IMAGES = "images"
"""The folder of the images beside a table or a file of conversations."""

IMAGE_FOLDERS = ("images", "image", "img", "imgs", "jpg", "jpeg", "png", "tif", "tiff", "scans", "pages")
"""Names of folders that hold images, in lower case."""
_VARIANTS = ("", "raw", "nrm", "dew", "bin")
"""Endings of stems that OCRopus and Calamari give to images of the same line, the likest to the scan first."""


@dataclass(frozen=True, slots=True)
class Written:
    """The result of writing a page: the number of lines written, skipped items, and counts of changes."""

    lines: int
    skipped: Sequence[Skipped] = ()
    changes: Mapping[str, int] = field(default_factory=dict)


WritePage = Callable[[Page, str], Written]
"""Writes a page and its lines under a file stem that no other page has."""


def require_packages(use: str, names: Iterable[str]) -> None:
    """Raise RunError unless these packages of the extra `documents` are installed."""
    for name in names:
        require_package(use, name, "documents")


def unsupported(*_: object) -> NoReturn:
    """Stands for an ability that a format does not have."""
    raise NotImplementedError("the format does not support this")


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """A file format and its abilities: to be read, be converted to, and hold transcribed pages.

    `packages` are those of the extra `documents` that it needs.

    Reading: `find` lists the files of a source in this format, and `read` yields their samples; `takes_columns` says
    that columns can be named. `example` follows `dsocr prepare` in the help. `unit` is the subject of a transcription:
    lines can be joined to regions and pages, but a page cannot be split.

    Converting: `writing` takes a folder and the names of the source's own columns; in its context pages are written,
    and the folder is incomplete before its end. `forbidden` matches the characters a text cannot contain. With
    `keeps_pages` the format has whole images with outlines, and keeps lines without a text; the others have line
    images. With `keeps_regions` it has the regions and ids of the source; the others have the writers, and the names of
    pages and documents. `keeps_tables` says whether it has rows and columns. `columns` are the format's own column
    names, None if it has no place for other columns, and `origin_columns` the ones it takes over from a source of
    line images. `next_step` says how to use the result.

    Transcribing: `write_pages` writes transcribed pages to a file ending in `suffix`, and takes them one at a time.
    With `one_page_per_file` several pages need a folder. In a folder each page has a file of its own, but the pages of
    a PDF stay together in formats that are `multipage`, and all pages in those with `is_one_file`. After all pages of a
    folder, `write_index` gets the folder and pairs of an image and the file written for it. Formats that add texts to
    an original have `require_original`, which gets a file and, if that is XML, its image, and raises DataError if there
    is no original for it.
    """

    name: str
    title: str
    packages: tuple[str, ...] = ()

    find: Callable[[Path, Columns], list[Path]] = unsupported
    read: Callable[[Path, Columns], Iterator[Item]] = unsupported
    example: str = ""
    takes_columns: bool = False
    unit: Unit = "line"

    writing: Callable[[Path, Sequence[str]], AbstractContextManager[WritePage]] = unsupported
    forbidden: re.Pattern[str] = NOT_UTF8
    keeps_pages: bool = False
    keeps_regions: bool = False
    keeps_tables: bool = False
    columns: tuple[str, ...] | None = None
    origin_columns: frozenset[str] = frozenset()
    next_step: str = ""

    write_pages: Callable[[Iterable[Page], Path, ProcessingStep], None] = unsupported
    suffix: str = ""
    one_page_per_file: bool = False
    multipage: bool = False
    is_one_file: bool = False
    write_index: Callable[[Path, Sequence[tuple[Path, Path]]], None] | None = None
    require_original: Callable[[Path, Path | None], object] | None = None


class ImageFinder:
    """Index of the images of a folder, to find them by name; never returns a file outside the folder."""

    def __init__(self, source: Path) -> None:
        self.source = source

    @cached_property
    def _by_stem(self) -> dict[str, list[Path]]:
        by_stem: dict[str, list[Path]] = defaultdict(list)
        for path in list_files(self.source, IMAGE_SUFFIXES):
            by_stem[fold_name(divide_variant(path.stem)[0])].append(path)
        return by_stem

    def find(self, name: str, *, near: Path, folder: str = "") -> Path:
        """Return the image called `name`, as seen from the folder `near`.

        Folders of another machine are ignored, and the name may be percent-encoded. Prefers a file of exactly this name
        over one that differs in case, suffix or variant (`x.nrm.png`), one beside `near` over one farther away, and one
        in `folder` or a folder with a usual name over any other. Raises DataError if there is none, or two alike.
        """
        spellings = list(dict.fromkeys((_without_foreign_folders(name), _without_foreign_folders(unquote(name)))))
        for spelling in spellings:
            with suppress(OSError):  # a name too long for the disk
                if (direct := inside(near, spelling)).is_file():
                    return direct
        for spelling in spellings:
            sought = PurePosixPath(spelling.replace("\\", "/"))
            ranked = sorted(self._rank(sought, near, folder), key=lambda pair: pair[0])
            if len(ranked) > 1 and ranked[0][0] == ranked[1][0]:
                both = " and ".join(relative(path, self.source) for _, path in ranked[:2])
                raise DataError(f"more than one image could be {name!r}: {both}", code="image-ambiguous")
            if ranked:
                return inside(self.source, relative(ranked[0][1], self.source))
        message = f"no image {name!r} beside it, one level up or in a folder like images/"
        raise DataError(message, code="image-not-found")

    def _rank(self, sought: PurePosixPath, near: Path, folder: str) -> Iterator[tuple[tuple[int, int, int], Path]]:
        stem = sought.stem if sought.suffix.lower() in IMAGE_SUFFIXES else sought.name
        # Beside `near`, one level up, or in a folder below or beside; no farther away.
        distances = {near: 0, near.parent: 1}
        for path in self._by_stem.get(fold_name(divide_variant(stem)[0]), ()):
            parent = path.parent
            distance = distances.get(parent, 2 if parent.parent in distances else None)
            if distance is not None and compose_name(sought.parent.name) in {"", compose_name(parent.name)}:
                name, given = compose_name(path.name), compose_name(sought.name)
                by_name = 0 if name == given else 1 if fold_name(name) == fold_name(given) else 2
                if fold_name(path.stem) != fold_name(stem):
                    by_name = 3 + divide_variant(path.stem)[1]
                below = parent.name.lower()
                by_folder = 0 if folder and below == folder.lower() else 1 if below in IMAGE_FOLDERS else 2
                yield (by_name, distance, by_folder), path


def _without_foreign_folders(name: str) -> str:
    """Return only the file name of an absolute path or a file address, which come from another machine."""
    path = name.replace("\\", "/")
    is_elsewhere = path.startswith(("/", "file:")) or re.match(r"[A-Za-z]:/", path)
    return path.rpartition("/")[2] if is_elsewhere else name


def compose_name(name: str) -> str:
    """A Mac writes й as two characters in file names, and other systems as one."""
    return unicodedata.normalize("NFC", name)


def fold_name(name: str) -> str:
    """Return a name without the differences that people do not see, or do not mean."""
    return compose_name(name).casefold()


def divide_variant(stem: str) -> tuple[str, int]:
    """Return the name of a line without the variant of its image, and the variant's rank."""
    name, _, ending = stem.rpartition(".")
    return (name, _VARIANTS.index(ending.lower())) if name and ending.lower() in _VARIANTS else (stem, 0)


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file of a source with the images that it can name.

    `root` is the folder that the user named, `where` the file's place in it, and `split` the one in the file's name,
    else in its folders'.
    """

    path: Path
    root: Path
    images: ImageFinder
    where: str
    split: Split | None

    def find_page(
        self, image: str, where: str, lines: Sequence[Line] = (), *, folder: str = "", **details: Any
    ) -> Page | Skipped:
        """Return the page of an image that the file names, as `ImageFinder` does; it is skipped if there is none."""
        try:
            path = self.images.find(image, near=self.path.parent, folder=folder)
        except DataError as error:
            return Skipped(SkipReason.NO_IMAGE, where, error.message)
        return Page(path, relative(path.with_suffix(""), self.root), where, tuple(lines), **details)


def outlined_page(page: Page | Skipped, items: Iterable[Line | Skipped]) -> Iterator[Item]:
    """Yield a page with its lines, after the skipped ones, which those with a text and without an outline are, too."""
    if isinstance(page, Skipped):
        yield page
        return
    lines, skipped = [], list(page.skipped)
    for item in items:
        if isinstance(item, Line) and (item.outline or not item.text):
            lines.append(item)
        elif isinstance(item, Line):
            message = "the text has no polygon and no box with valid coordinates"
            yield Skipped(SkipReason.NO_OUTLINE, item.where, message)
            skipped.append(item)
        else:
            yield item
            skipped.append(Line("", item.where))
    yield replace(page, lines=tuple(lines), page=page.name, skipped=tuple(skipped))


def round_points(points: Iterable[tuple[float, float]]) -> tuple[Point, ...]:
    """Round points of JSON; an iterator's errors are caught, too. Raises DataError for what can be on no image."""
    rounded: list[Point] = []
    try:
        for x, y in points:
            point = round(x), round(y)
            if max(map(abs, point)) > LARGEST_COORDINATE:
                raise OverflowError
            rounded.append(point)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        message = f"point {len(rounded) + 1} of its outline is no pair of numbers on an image"
        raise DataError(message, code="coordinates-invalid") from error
    return tuple(rounded)


def source_files(source: Path, suffixes: Collection[str]) -> list[Path]:
    """List the files with these suffixes in a folder, or the one file named."""
    if source.is_file():
        return [source] if source.suffix.lower() in suffixes else []
    return list_files(source, suffixes)


def read_files(source: Path, files: Iterable[Path], read: Callable[[SourceFile], Iterable[Item]]) -> Iterator[Item]:
    """Read the files of a source; one that cannot be read is skipped."""
    root = source.parent if source.is_file() else source
    images = ImageFinder(root)
    for path in files:
        split = split_of_name(path.stem) or split_of_folder(path.relative_to(root).parent)
        file = SourceFile(path, root, images, relative(path, root), split)
        try:
            yield from read(file)
        except DataError as error:
            yield Skipped(SkipReason.BAD_SOURCE, file.where, error.message)


def stated_size(width: object, height: object) -> tuple[int, int] | None:
    """Return the image size that a source states; None if it is missing or impossible."""
    sides = range(1, LARGEST_COORDINATE + 1)
    if isinstance(width, int) and isinstance(height, int) and width in sides and height in sides:
        return width, height
    return None


def image_bytes(page: Page) -> bytes:
    """Return the content of a page's image file."""
    return page.content() if page.content else read_bytes(page.image)


def usual_suffix(format_: str) -> str:
    """Return the ending of names of image files in a format of Pillow."""
    return {"JPEG": ".jpg", "TIFF": ".tif", "JPEG2000": ".jp2"}.get(format_, f".{format_.lower()}")


def copy_page_image(page: Page, folder: Path, stem: str) -> Page | Skipped:
    """Copy a page's image file unchanged and return the page with the copy, outlines in its pixels.

    An image that cannot be read completely, or does not fit the outlines, is skipped.
    """
    try:
        data = image_bytes(page)
        decoded = decode_image(data, name=page.image)
    except DataError as error:
        return Skipped(SkipReason.BAD_IMAGE, page.where, error.message)
    try:
        scaled = scale_page(page, decoded.image.size)
    except DataError as error:
        return Skipped(SkipReason.OTHER_SIZE, page.where, error.message)
    copy = folder / (stem + (usual_suffix(decoded.format) if page.content else page.image.suffix.lower()))
    folder.mkdir(parents=True, exist_ok=True)
    copy.write_bytes(data)
    return replace(scaled, image=copy)


def cut_lines(page: Page, stem: str, stems: UniqueStems) -> tuple[list[tuple[str, bytes, Line]], list[Skipped]]:
    """Cut the lines out of a page as `prepare` does, under file names unique among `stems`.

    Returns the name, content and line, with the box that was cut, of each image, and the lines that could not be cut.
    """
    try:
        cropped = crop_lines(page, image_bytes(page))
    except DataError as error:
        return [], [Skipped(SkipReason.BAD_IMAGE, page.where, error.message)]
    if not isinstance(cropped, tuple):
        return [], [Skipped(cropped.reason, page.where, cropped.message)]
    size, files = cropped
    images, skipped = [], []
    for number, (line, file) in enumerate(zip(page.lines, files, strict=True), start=1):
        if isinstance(file, LineFile):
            name = stems.take_stem(f"{stem}_{number:04d}" if line.outline else stem) + file.suffix
            images.append((name, file.content, replace(line, outline=cropped_outline(line, page, size))))
        else:
            skipped.append(Skipped(file.reason, line.where, file.message))
    return images, skipped
