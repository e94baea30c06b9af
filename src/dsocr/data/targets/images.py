"""The images of a target: a page copied as it is, with its outlines in its own pixels, or its lines cut out of it."""

from dataclasses import dataclass, replace
from pathlib import Path

from dsocr.data.cutting import CutTask, cut_image, scaled_outline
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
        data = image.content() if image.content else read_bytes(image.image)
        decoded = decode_image(data, name=image.image)
    except DataError as error:
        return LeftOut(Reason.BAD_IMAGE, image.where, error.message)
    size = decoded.image.size
    try:
        lines = tuple(replace(line, outline=scaled_outline(line, image, size)) for line in image.lines)
    except DataError as error:
        return LeftOut(Reason.OTHER_SIZE, image.where, error.message)
    suffix = _SUFFIXES[decoded.format] if image.content else image.image.suffix.lower()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{stem}{suffix}").write_bytes(data)
    return WholeImage(f"{stem}{suffix}", size, lines)


def cut_lines(image: SourceImage, folder: Path, stem: str) -> tuple[list[LineImage], list[LeftOut]]:
    """The image's lines as `prepare` cuts and stores them, and what could not be cut."""
    folder.mkdir(parents=True, exist_ok=True)
    samples, left_out = cut_image(CutTask(image, folder, stem))
    return [LineImage(sample.file, sample.line) for sample in samples], left_out
