"""Paper and ink of real lines, put under and into everything that is drawn, whatever its script.

A sheet is a real line whose strokes were taken away, with the darkness its ink had. Lines are cropped as lines are cut
from pages, with strokes of neighbours at their edges, and lose resolution as scans do.
"""

import io
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from scipy import ndimage

from dsocr.data.dataset import Dataset
from hands.pens import Mask, Written

HEIGHT = 96
"""Height of stored sheets in pixels."""

_MIN_WIDTH = 200


@dataclass(frozen=True)
class Sheet:
    """An empty sheet, grey 0 to 255, `(96, width)`; how dark the ink was on it, as a share of the paper's grey."""

    paper: NDArray[np.uint8]
    ink: float


def clean_sheet(image: Image.Image, rng: np.random.Generator) -> Sheet | None:
    """Take the strokes away from a line; None if it is short or has no ink to measure."""
    width = round(image.width * HEIGHT / image.height)
    if not _MIN_WIDTH <= width <= 4000:
        return None
    grey = np.asarray(image.convert("L").resize((width, HEIGHT), Image.Resampling.BICUBIC), dtype=np.float32)
    half = ndimage.percentile_filter(grey[::2, ::2], 70, size=(15, 15))
    level = np.asarray(Image.fromarray(half).resize((width, HEIGHT), Image.Resampling.BILINEAR))
    darker = level - grey
    ink = darker > max(12.0, 0.35 * float(np.percentile(darker, 97)))
    if not 0.01 < ink.mean() < 0.4:
        return None
    core = ndimage.binary_erosion(ink)
    core = core if core.sum() > 50 else ink
    share = float(np.median(grey[core] / np.maximum(1, level[core])))
    hole = ndimage.binary_dilation(ink, iterations=2)
    rows, columns = ndimage.distance_transform_edt(hole, return_distances=False, return_indices=True)
    nearest = ndimage.gaussian_filter(grey[rows, columns], 2)
    grain = rng.choice((grey - level)[~hole], grey.shape)
    filled = np.where(hole, 0.5 * nearest + 0.5 * level + 0.8 * grain, grey)
    return Sheet(np.clip(filled, 0, 255).astype(np.uint8), share)


def write_sheets(folders: Sequence[Path], out: Path, most: int, keep: Callable[[str], bool]) -> int:
    """Write sheets of at most `most` lines of each dataset, those whose source `keep` admits; return their number."""
    out.parent.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = []
    with out.with_suffix(".pixels").open("wb") as pixels:
        for folder in folders:
            samples = [sample for sample in Dataset.open(folder).samples("train") if keep(sample.source or "")]
            for place in np.linspace(0, len(samples) - 1, min(most, len(samples))).astype(int):
                sample = samples[place]
                assert isinstance(sample.image, Path), "prepare the dataset with --store files"
                with Image.open(sample.image) as image:
                    sheet = clean_sheet(image, np.random.default_rng(len(rows)))
                if sheet:
                    pixels.write(sheet.paper.tobytes())
                    rows.append({"width": sheet.paper.shape[1], "ink": round(sheet.ink, 4), "source": folder.name})
    lines = (json.dumps(row) + "\n" for row in rows)
    out.with_suffix(".jsonl").write_text("".join(lines), encoding="utf-8", newline="\n")
    return len(rows)


class Paper(Protocol):
    """Something to write on."""

    def draw(self, rng: np.random.Generator, height: int, width: int) -> tuple[Mask, float]:
        """A random piece of paper of a size in pixels, and the darkness of its ink."""


class Sheets:
    """The sheets that `write_sheets` wrote."""

    def __init__(self, file: Path) -> None:
        rows = list(_read_rows(file.with_suffix(".jsonl")))
        self._widths, self._inks = [row[0] for row in rows], [row[1] for row in rows]
        self._starts = np.cumsum([0, *[HEIGHT * width for width in self._widths]])
        self._pixels = np.memmap(file.with_suffix(".pixels"), dtype=np.uint8, mode="r")
        sources = [row[2] for row in rows]
        counts = {source: sources.count(source) for source in set(sources)}
        # Each collection as often, whatever its size.
        shares = np.array([1 / counts[source] for source in sources])
        self._cumulated = np.cumsum(shares / shares.sum())

    def draw(self, rng: np.random.Generator, height: int, width: int) -> tuple[Mask, float]:
        """A random piece of paper of a size in pixels, and the darkness of its ink."""
        place = min(int(np.searchsorted(self._cumulated, rng.random())), len(self._widths) - 1)
        start = int(self._starts[place])
        paper = np.asarray(self._pixels[start : int(self._starts[place + 1])]).reshape(HEIGHT, -1)
        paper = paper[:, ::-1] if rng.random() < 0.5 else paper
        scaled = round(width * HEIGHT / height)
        if paper.shape[1] < scaled:
            pair = np.concatenate([paper, paper[:, ::-1]], axis=1)
            paper = np.tile(pair, (1, -(-scaled // pair.shape[1])))
        left = int(rng.integers(0, paper.shape[1] - scaled + 1))
        piece = Image.fromarray(np.ascontiguousarray(paper[:, left : left + scaled]))
        resized = piece.resize((width, height), Image.Resampling.BILINEAR)
        return np.asarray(resized, dtype=np.float32), self._inks[place]


def _read_rows(file: Path) -> Iterator[tuple[int, float, str]]:
    for line in file.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        yield row["width"], row["ink"], row["source"]


def _smooth_noise(rng: np.random.Generator, height: int, width: int, cell: float) -> Mask:
    coarse = rng.normal(size=(max(2, int(height / cell) + 2), max(2, int(width / cell) + 2))).astype(np.float32)
    return np.asarray(Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC))


def put_on_paper(ink: Mask, sheets: Paper, rng: np.random.Generator) -> NDArray[np.uint8]:
    """Put ink on a real sheet, as dark as on that sheet and unevenly flowing; then let it age."""
    height, width = ink.shape
    paper, darkness = sheets.draw(rng, height, width)
    level = float(np.clip(darkness + rng.normal(0, 0.06), 0.12, 0.85))
    flow = _smooth_noise(rng, height, width, rng.uniform(6, 40)) * rng.uniform(0, 0.16)
    flow = flow + rng.normal(0, rng.uniform(0, 0.08), ink.shape).astype(np.float32)
    left_over = np.clip(level + flow * (1 - level), 0.03, 1)
    blur = rng.uniform(0, 0.9)
    soft = ndimage.gaussian_filter(ink, blur) if blur > 0.25 else ink
    grey = paper * (1 - soft * (1 - left_over))
    if rng.random() < 0.15:  # the other side of the sheet shows through
        through = np.roll(ink[:, ::-1], int(rng.integers(-height // 2, height // 2)), axis=0)
        grey = grey * (1 - rng.uniform(0.03, 0.15) * ndimage.gaussian_filter(through, rng.uniform(1, 2.5)))
    if rng.random() < 0.45:
        grey = (
            grey
            * rng.uniform(0.65, 1.0)
            * (1 + _smooth_noise(rng, height, width, rng.uniform(25, 90)) * rng.uniform(0, 0.07))
        )
    if rng.random() < 0.2:  # a ruled line
        row = int(rng.uniform(0.6, 0.9) * height)
        grey[row : row + int(rng.integers(1, 3))] *= rng.uniform(0.7, 0.95)
    if rng.random() < 0.3:
        middle = float(np.median(grey))
        grey = (grey - middle) * rng.uniform(0.6, 1.3) + middle
    if rng.random() < 0.4:
        grey = grey + rng.normal(0, rng.uniform(1, 7), grey.shape)
    finished: NDArray[np.uint8] = np.clip(grey, 0, 255).astype(np.uint8)
    return finished


def crop(written: Written, rng: np.random.Generator) -> Mask:
    """Cut a line as pages are cut: tight about its ink, or with a margin above and below the baseline."""
    ink, x_height = written.ink, written.x_height
    rows, columns = np.flatnonzero(ink.max(1) > 0.2), np.flatnonzero(ink.max(0) > 0.2)
    top, bottom = int(rows[0]), int(rows[-1]) + 1
    if rng.random() < 0.4:
        upper, lower = top - rng.uniform(0, 0.25) * x_height, bottom + rng.uniform(0, 0.25) * x_height
    else:
        upper = min(written.baseline - rng.uniform(1.7, 2.9) * x_height, top + 0.4 * x_height * rng.random())
        lower = max(written.baseline + rng.uniform(0.7, 1.7) * x_height, bottom - 0.3 * x_height * rng.random())
    left, right = columns[0] - rng.uniform(0, 1) * x_height, columns[-1] + 1 + rng.uniform(0, 1) * x_height
    return _cut(ink, int(upper), int(lower), int(left), int(right))


def _cut(ink: Mask, top: int, bottom: int, left: int, right: int) -> Mask:
    """A part of a mask, which may reach beyond it."""
    cut = np.zeros((bottom - top, right - left), dtype=np.float32)
    inside = ink[max(top, 0) : bottom, max(left, 0) : right]
    down, along = max(-top, 0), max(-left, 0)
    cut[down : down + inside.shape[0], along : along + inside.shape[1]] = inside
    return cut


def add_neighbour(ink: Mask, other: Written, rng: np.random.Generator) -> Mask:
    """Let the feet of a line above or the heads of a line below reach into a mask."""
    shown = int(rng.uniform(0.1, 0.3) * ink.shape[0])
    below = rng.random() < 0.5
    start = other.baseline + int(0.1 * other.x_height) if not below else other.baseline - int(2.2 * other.x_height)
    strokes = other.ink[max(0, start) : max(0, start) + shown]
    strokes = np.tile(strokes, (1, -(-ink.shape[1] // strokes.shape[1])))[:, : ink.shape[1]]
    joined = ink.copy()
    part = joined[-len(strokes) :] if below else joined[: len(strokes)]
    if len(strokes):
        np.maximum(part, strokes, out=part)
    return joined


def degrade(grey: NDArray[np.uint8], rng: np.random.Generator) -> Image.Image:
    """Low resolution and JPEG, as of scans."""
    image = Image.fromarray(grey)
    if rng.random() < 0.5:
        height = int(rng.uniform(22, 60))
        way = Image.Resampling.BILINEAR if rng.random() < 0.5 else Image.Resampling.BOX
        image = image.resize((max(8, round(image.width * height / image.height)), height), way)
    if rng.random() < 0.5:
        content = io.BytesIO()
        image.save(content, "JPEG", quality=int(rng.integers(35, 92)))
        image = Image.open(content).convert("L")
    return image


def finish_line(written: Written, other: Written | None, sheets: Sheets, rng: np.random.Generator) -> Image.Image:
    """The image of a written line, on paper, cropped, with a neighbour if `other` is given, and degraded."""
    ink = crop(written, rng)
    if other is not None:
        ink = add_neighbour(ink, other, rng)
    return degrade(put_on_paper(ink, sheets, rng), rng)
