"""What every target format is written through: an image at a time, and what became of it."""

import re
import shutil
import unicodedata
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Protocol

from dsocr.document import Box, Line, Page, Skipped, SkipReason
from dsocr.errors import DataError
from dsocr.images import IMAGE_SUFFIXES, decode_image, read_bytes
from dsocr.io.cropping import CropFailure, CroppedLine, CroppedPage, crop_page, cropped_outline, scale_line
from dsocr.io.files import UniqueStems, inside, list_files, relative

HALF = "\ud800-\udfff"
"""What JSON can write and UTF-8 cannot, as a part of a pattern."""

NOT_UTF8 = re.compile(f"[{HALF}]")

IMAGES = "images"


@dataclass(frozen=True, slots=True)
class Added:
    """What became of an image: how many of its lines were written, what was left out, how many outlines were moved."""

    lines: int
    skipped: Sequence[Skipped] = ()
    moved: int = 0


class Writer(Protocol):
    """Writes one target format into one folder."""

    def add(self, image: Page, stem: str) -> Added:
        """Writes the image and its lines under the file stem, which no other image has."""
        ...

    def close(self) -> None:
        """Ends what is written; without it the folder is not whole."""
        ...


_SUFFIXES = {"JPEG": ".jpg", "PNG": ".png", "TIFF": ".tif", "WEBP": ".webp", "BMP": ".bmp", "GIF": ".gif"}


@dataclass(frozen=True, slots=True)
class WholeImage:
    """A copied image: its file name, its size in pixels when upright, and its lines, outlines in these pixels."""

    file: str
    size: tuple[int, int]
    lines: tuple[Line, ...]


@dataclass(frozen=True, slots=True)
class LineImage:
    """A line image: its file name, and the line with the box that was cut out of its page, if it was cut."""

    file: str
    line: Line


def copy_image(image: Page, folder: Path, stem: str) -> WholeImage | Skipped:
    """The image's bytes, unchanged, in a file of the folder; left out where it cannot be read whole."""
    try:
        data = _content(image)
        decoded = decode_image(data, name=image.image)
    except DataError as error:
        return Skipped(SkipReason.BAD_IMAGE, image.where, error.message)
    size = decoded.image.size
    try:
        lines = tuple(scale_line(line, image, size) for line in image.lines)
    except DataError as error:
        return Skipped(SkipReason.OTHER_SIZE, image.where, error.message)
    suffix = _SUFFIXES[decoded.format] if image.content else image.image.suffix.lower()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{stem}{suffix}").write_bytes(data)
    return WholeImage(f"{stem}{suffix}", size, lines)


class LineCutter:
    """Cuts lines into a folder as `prepare` does, under names of which no two are alike."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stems = UniqueStems()

    def cut(self, image: Page, stem: str) -> tuple[list[LineImage], list[Skipped]]:
        """The image's lines, and what could not be cut."""
        draft = self._folder / ".cut"
        draft.mkdir(parents=True, exist_ok=True)
        try:
            cut = crop_page(image, _content(image), draft, stem)
            if isinstance(cut, CropFailure):
                return [], [Skipped(cut.reason, image.where, cut.message)]
            found = [self._taken(image, line, cut.size, stored) for line, stored in _pairs(image, cut)]
        except DataError as error:
            return [], [Skipped(SkipReason.BAD_IMAGE, image.where, error.message)]
        finally:
            shutil.rmtree(draft)
        left_out = [
            Skipped(stored.reason, line.where, stored.message)
            for line, stored in _pairs(image, cut)
            if isinstance(stored, CropFailure)
        ]
        return [line for line in found if line], left_out

    def _taken(
        self, image: Page, line: Line, size: tuple[int, int], stored: CroppedLine | CropFailure
    ) -> LineImage | None:
        """A line image out of the draft, under the name it keeps."""
        if isinstance(stored, CropFailure):
            return None
        file = Path(stored.file)
        name = self._stems.take_stem(file.stem) + file.suffix
        shutil.copyfile(self._folder / ".cut" / file, self._folder / name)
        return LineImage(name, replace(line, outline=cropped_outline(line, image, size)))


def _pairs(image: Page, cut: CroppedPage) -> Iterator[tuple[Line, CroppedLine | CropFailure]]:
    return zip(image.lines, cut.lines, strict=True)


def _content(image: Page) -> bytes:
    return image.content() if image.content else read_bytes(image.image)


@dataclass(frozen=True, slots=True)
class PlacedWord:
    """A word, its first character's place in the text, and its box, None where that of the line is not known."""

    text: str
    start: int
    box: Box | None

    @property
    def end(self) -> int:
        """The place after its last character."""
        return self.start + len(self.text)


def placed_words(text: str, box: Box | None) -> Iterator[PlacedWord]:
    """The words of a line, which white space divides."""
    at = 0
    for word in text.split():
        at = text.index(word, at)
        end = at + len(word)
        yield PlacedWord(word, at, None if box is None else _between(box, at / len(text), end / len(text)))
        at = end


def _between(box: Box, begin: float, end: float) -> Box:
    """The part of a box between two shares of its width."""
    left, top, right, bottom = box
    width = right - left
    return left + round(begin * width), top, left + round(end * width), bottom


_USUAL_FOLDERS = ("images", "image", "img", "imgs", "jpg", "jpeg", "png", "tif", "tiff", "scans", "pages")


class Pictures:
    """The images of a source folder, listed once and found by name; never one from outside the folder."""

    def __init__(self, source: Path) -> None:
        self.source = source
        self._by_stem: dict[str, list[Path]] = defaultdict(list)
        for path in list_files(source, IMAGE_SUFFIXES):
            self._by_stem[_folded(path.stem)].append(path)

    def find(self, name: str, *, near: Path, folder: str = "") -> Path:
        """The image called `name`, as seen from the folder `near`.

        A file of exactly this name is taken before one that differs in case or suffix, one beside `near` before one
        farther off, and one in `folder` or a folder with a usual name before one in any other.
        """
        direct = inside(near, name)
        if direct.is_file():
            return direct
        wanted = PurePosixPath(name.replace("\\", "/"))
        ranked = sorted(self._ranked(wanted, near, folder), key=lambda pair: pair[0])
        if not ranked:
            raise DataError(f"no image {name!r} beside it, one level up or in a folder like images/")
        if len(ranked) > 1 and ranked[0][0] == ranked[1][0]:
            both = " and ".join(relative(path, self.source) for _, path in ranked[:2])
            raise DataError(f"more than one image could be {name!r}: {both}")
        return inside(self.source, relative(ranked[0][1], self.source))

    def _ranked(self, wanted: PurePosixPath, near: Path, folder: str) -> list[tuple[tuple[int, int, int], Path]]:
        stem = wanted.stem if wanted.suffix.lower() in IMAGE_SUFFIXES else wanted.name
        ranked = []
        for path in self._by_stem.get(_folded(stem), ()):
            if _composed(wanted.parent.name) not in {"", _composed(path.parent.name)}:
                continue
            distance = _distance(path.parent, near)
            if distance is not None:
                ranked.append(((_name_rank(path.name, wanted.name), distance, _folder_rank(path, folder)), path))
        return ranked


def _distance(folder: Path, near: Path) -> int | None:
    """0 beside, 1 one level up, 2 in a folder below or beside; None farther off."""
    if folder == near:
        return 0
    if folder == near.parent:
        return 1
    return 2 if folder.parent in {near, near.parent} else None


def _name_rank(found: str, wanted: str) -> int:
    return 0 if _composed(found) == _composed(wanted) else 1 if _folded(found) == _folded(wanted) else 2


def _composed(name: str) -> str:
    """A Mac writes й as two characters in names, and an archive or a table from elsewhere as one."""
    return unicodedata.normalize("NFC", name)


def _folded(name: str) -> str:
    return _composed(name).casefold()


def _folder_rank(path: Path, folder: str) -> int:
    name = path.parent.name.lower()
    if folder and name == folder.lower():
        return 0
    return 1 if name in _USUAL_FOLDERS else 2
