"""Pages to transcribe, and a reader that needs no network and gives the same text for the same pixels."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from PIL import Image, ImageDraw

import dsocr
from dsocr import layout
from dsocr.document import Line, Outline, Region
from dsocr.errors import DataError
from dsocr.images import decode_image
from dsocr.inference.confidence import Prediction
from dsocr.inference.pages import ImageReader
from dsocr.inference.transcribe import Reader, TranscribeReport
from dsocr.io import work
from dsocr.io.work import write_manifest
from dsocr.runs import ReadingSettings, RunFolder
from dsocr.text import TextPolicy


class Hashes:
    """Reads of each image the hash of its pixels, in Cyrillic; `lines` of them under each other."""

    def __init__(self, lines: int = 1) -> None:
        self.lines = lines
        self.read_ids: list[str] = []

    def read(self, images: Iterable[tuple[str, Image.Image]]) -> Iterator[Prediction]:
        for name, image in images:
            self.read_ids.append(name)
            text = text_of(image)
            yield Prediction(
                name, "\n".join([text] + [f"строка {number}" for number in range(1, self.lines)]), 8, False
            )


class Fails(Hashes):
    """Reads like Hashes for a number of images, then fails."""

    def __init__(self, after: int, error: BaseException) -> None:
        super().__init__()
        self.after, self.error = after, error

    def read(self, images: Iterable[tuple[str, Image.Image]]) -> Iterator[Prediction]:
        for prediction in super().read(images):
            if len(self.read_ids) > self.after:
                raise self.error
            yield prediction


def text_of(image: Image.Image) -> str:
    """What `Hashes` reads of an image."""
    digest = hashlib.sha256(np.asarray(image.convert("RGB")).tobytes()).hexdigest()
    return "слово " + "".join(chr(ord("а") + int(digit, 16)) for digit in digest[:12])


def fake_run(folder: Path, unit: str = "line", most: int | None = None) -> RunFolder:
    """A run folder that is finished as far as anybody can tell without reading its weights."""
    run = RunFolder(folder)
    run.adapter.mkdir(parents=True)
    run.config.write_text("dataset: nowhere\noutput: here\n", encoding="utf-8")
    settings = ReadingSettings(
        "nano", None, "<image>\nFree OCR.", "wrap", TextPolicy(), {}, unit=cast("Any", unit), lines_per_region=most
    )
    settings.save(run.adapter)
    write_manifest(run.adapter)
    return run


def transcribe(
    run: RunFolder, inputs: Sequence[Path], out: Path, *, reader: ImageReader | None = None, **options: Any
) -> TranscribeReport:
    """`dsocr.transcribe` with the run's own network, or with a stand-in for it."""
    return dsocr.transcribe(run.path if reader is None else Reader(reader, run), inputs, out, **options)  # type: ignore[arg-type]


def draw_job(folder: Path, monkeypatch: pytest.MonkeyPatch, pages: int) -> RunFolder:
    """A run, and pages in `in/`, p05 broken; all readings are kept, and the date is fixed."""
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "0")
    monkeypatch.setattr(work, "MIN_SECONDS_KEPT", 0.0)
    monkeypatch.setattr(layout, "detect_lines", find_bars)
    for number in range(pages):
        draw_page(folder / "in" / f"p{number:02d}.png", lines=1 + number % 3, shade=30 + number)
    (folder / "in" / "p05.png").write_bytes(b"broken")
    return fake_run(folder / "run")


def find_bars(content: bytes, where: str, *, detector: object = None) -> Sequence[Line]:
    """The bars of `draw_page`, in no time: rows with ink between rows without."""
    ink = np.asarray(decode_image(content, name=where).image.convert("L")) < 200
    edges = np.flatnonzero(np.diff(ink.any(axis=1).astype(int)))
    lines = []
    for number, (top, bottom) in enumerate(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True)):
        columns = np.flatnonzero(ink[top : bottom + 1].any(axis=0))
        left, right = int(columns[0]) - 5, int(columns[-1]) + 5
        polygon = ((left, top - 5), (right, top - 5), (right, bottom + 5), (left, bottom + 5))
        outline = Outline.of_polygon(polygon, ((left, bottom), (right, bottom)))
        lines.append(Line("", f"{where}#{number + 1}", outline, Region("r1", Outline((0, 0, 600, 800))), number))
    if not lines:
        raise DataError("page has no lines that can be found", code="no-lines-found")
    return lines


def files(folder: Path) -> dict[str, bytes]:
    """What lies in a folder, by name."""
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def draw_page(path: Path, lines: int = 3, shade: int = 30) -> list[tuple[int, int, int, int]]:
    """A page of 600 x 800 pixels with bars for lines; their boxes."""
    image = Image.new("L", (600, 800), 245)
    boxes = []
    for number in range(lines):
        top = 60 + 90 * number
        ImageDraw.Draw(image).rectangle((50, top + 12, 300 + 40 * number, top + 30), fill=shade + number)
        boxes.append((40, top, 560, top + 50))
    path.parent.mkdir(parents=True, exist_ok=True)
    image.save(path)
    return boxes


def rows_of(path: Path) -> list[dict[str, Any]]:
    """The rows of a file of JSON lines."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
