"""The images of a target: a page copied as it is, with its outlines in its own pixels, or its lines cut out of it."""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from dsocr.data.cutting import Cut, CutLine, CutTask, Refusal, cut_image, scaled_line, stored_outline
from dsocr.data.file_names import UniqueStems
from dsocr.data.images import decode_image, read_bytes
from dsocr.data.sources.layout import LeftOut, Reason, SourceImage, SourceLine
from dsocr.errors import DataError

_SUFFIXES = {"JPEG": ".jpg", "PNG": ".png", "TIFF": ".tif", "WEBP": ".webp", "BMP": ".bmp", "GIF": ".gif"}


@dataclass(frozen=True, slots=True)
class WholeImage:
    """A copied image: its file name, its size in pixels when upright, and its lines, outlines in these pixels."""

    file: str
    size: tuple[int, int]
    lines: tuple[SourceLine, ...]


@dataclass(frozen=True, slots=True)
class LineImage:
    """A line image: its file name, and the line with the box that was cut out of its page, if it was cut."""

    file: str
    line: SourceLine


def copy_image(image: SourceImage, folder: Path, stem: str) -> WholeImage | LeftOut:
    """The image's bytes, unchanged, in a file of the folder; left out where it cannot be read whole."""
    try:
        data = _content(image)
        decoded = decode_image(data, name=image.image)
    except DataError as error:
        return LeftOut(Reason.BAD_IMAGE, image.where, error.message)
    size = decoded.image.size
    try:
        lines = tuple(scaled_line(line, image, size) for line in image.lines)
    except DataError as error:
        return LeftOut(Reason.OTHER_SIZE, image.where, error.message)
    suffix = _SUFFIXES[decoded.format] if image.content else image.image.suffix.lower()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{stem}{suffix}").write_bytes(data)
    return WholeImage(f"{stem}{suffix}", size, lines)


class LineCutter:
    """Cuts lines into a folder as `prepare` does, under names of which no two are alike."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stems = UniqueStems()

    def cut(self, image: SourceImage, stem: str) -> tuple[list[LineImage], list[LeftOut]]:
        """The image's lines, and what could not be cut."""
        draft = self._folder / ".cut"
        draft.mkdir(parents=True, exist_ok=True)
        try:
            cut = cut_image(CutTask(image, _content(image), draft, stem))
            if isinstance(cut, Refusal):
                return [], [LeftOut(cut.reason, image.where, cut.message)]
            found = [self._taken(image, line, cut.size, stored) for line, stored in _pairs(image, cut)]
        except DataError as error:
            return [], [LeftOut(Reason.BAD_IMAGE, image.where, error.message)]
        finally:
            shutil.rmtree(draft)
        left_out = [
            LeftOut(stored.reason, line.where, stored.message)
            for line, stored in _pairs(image, cut)
            if isinstance(stored, Refusal)
        ]
        return [line for line in found if line], left_out

    def _taken(
        self, image: SourceImage, line: SourceLine, size: tuple[int, int], stored: CutLine | Refusal
    ) -> LineImage | None:
        """A line image out of the draft, under the name it keeps."""
        if isinstance(stored, Refusal):
            return None
        file = Path(stored.file)
        name = self._stems.take_stem(file.stem) + file.suffix
        shutil.copyfile(self._folder / ".cut" / file, self._folder / name)
        return LineImage(name, replace(line, outline=stored_outline(line, image, size)))


def _pairs(image: SourceImage, cut: Cut) -> Iterator[tuple[SourceLine, CutLine | Refusal]]:
    return zip(image.lines, cut.lines, strict=True)


def _content(image: SourceImage) -> bytes:
    return image.content() if image.content else read_bytes(image.image)
