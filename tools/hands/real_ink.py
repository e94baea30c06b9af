"""Real ink set anew: Latin lines cut into letters where a reader sees them, and Russian words made of the pieces.

In cursive many Russian letters look like a Latin one: n is п, u и, m т, g д. A page is a hand; a word takes the longest
pieces that the page's lines have, with their own joins, and letters that no Latin one resembles come from pen tracks
in the page's own thickness and are joined to their neighbours. The letters of a page stand upright, 24 pixels high,
on one baseline; how much they leaned is kept.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageDraw
from scipy import ndimage

from dsocr.data.dataset import Dataset
from dsocr.models.canvas import LineCanvas, steps_of
from dsocr.models.ctc import collate_lines
from dsocr.models.ctc_network import compute_logits
from hands.cursive import random_writer, write
from hands.pens import Floats, Mask, Style, Written, deform, draw_strokes

X_HEIGHT = 24
BASELINE = 84
HEIGHT = 132
"""The letters' x-height, and the row of the baseline in pieces of this height."""

LOOKALIKES = dict(
    zip(
        "авгдезикопрстухшіАВЕКМНОРСТХІ0123456789.,-():;№",
        "abrgezukonpcmyxwiABEKMHOPCTXI0123456789.,-():;№",
        strict=True,
    )
) | {"п": "n"}
"""Russian letters and signs, and what looks like them in cursive; the others are drawn."""

_PAGE = 24
"""Lines of a page that are cut: enough for its letters, and the more pages the more hands."""

_SURE = 0.6
"""Probability of a character below which it is not taken."""

_CORE = frozenset("aceimnorsuvxz")
"""Letters without heads and feet, which show the baseline and the x-height."""


def measure_slant(ink: Mask) -> float:
    """The slant, as a tangent, at which the strokes of a line stand upright: columns are then fullest and emptiest."""
    rows = np.arange(ink.shape[0], dtype=np.float64) - ink.shape[0] / 2
    places, amounts = np.nonzero(ink > 0.3), ink[ink > 0.3]

    def sharpness(slant: float) -> float:
        columns = places[1] + slant * rows[places[0]]
        profile = np.bincount((columns - columns.min()).astype(int), amounts)
        return float((profile**2).sum())

    slants: list[float] = np.linspace(-0.5, 1.2, 35).tolist()
    return max(slants, key=sharpness)


def extract_ink(grey: Mask) -> Mask:
    """How much ink, 0 to 1, each pixel of a line has."""
    level = ndimage.gaussian_filter(ndimage.percentile_filter(grey[::2, ::2], 75, size=(15, 15)), 3)
    height, width = grey.shape
    level = np.asarray(Image.fromarray(level).resize((width, height), Image.Resampling.BILINEAR))
    darker = (level - grey) / np.maximum(level, 1)
    full = float(np.percentile(darker, 97))
    ink: Mask = np.clip((darker - 0.25 * full) / max(0.05, 0.65 * full), 0, 1).astype(np.float32)
    return ink


@dataclass(frozen=True)
class CutLine:
    """A line set upright: its ink `(132, W)`, its text, where each character begins and ends, and how sure that is."""

    ink: NDArray[np.uint8]
    text: str
    cuts: list[float]
    sure: list[float]
    slant: float


def align(rows: Mask, classes: Sequence[int]) -> tuple[Floats, Floats]:
    """Where the likeliest path through probabilities `(T, classes)` reads each character, in 0..1, and how likely."""
    states = np.zeros(2 * len(classes) + 1, dtype=np.int64)
    states[1::2] = classes
    logs = np.log(np.maximum(rows[:, states].astype(np.float64), 1e-12))
    skips = np.zeros(len(states), dtype=bool)  # from a character to the next without a blank
    skips[3::2] = states[3::2] != states[1:-2:2]
    best = np.full(len(states), -np.inf)
    best[:2] = logs[0, :2]
    moves = np.zeros(logs.shape, dtype=np.int8)
    for step in range(1, len(logs)):
        after_one, after_two = np.full((2, len(states)), -np.inf)
        after_one[1:], after_two[2:] = best[:-1], best[:-2]
        options = np.stack([best, after_one, np.where(skips, after_two, -np.inf)])
        moves[step] = options.argmax(0)
        best = options.max(0) + logs[step]
    state = len(states) - 1 if best[-1] > best[-2] else len(states) - 2
    places, sure = np.zeros((2, len(classes)))
    for step in range(len(logs) - 1, -1, -1):
        probability = rows[step, states[state]]
        if state % 2 and probability > sure[state // 2]:
            sure[state // 2], places[state // 2] = probability, (step + 0.5) / len(logs)
        state -= int(moves[step, state])
    return places, sure


def cut_line(image: Image.Image, text: str, network: Any, classes: dict[str, int], stretch: float) -> CutLine | None:
    """Cut a line into characters, or return None if its letters cannot be measured."""
    canvas = LineCanvas(stretch=stretch, grey=True)
    pixels, columns = collate_lines([canvas.draw(image)], canvas)
    with torch.inference_mode():
        rows = compute_logits(network, pixels, columns)[0, : int(steps_of(columns)[0])].softmax(-1).numpy()
    places, sure = align(rows, [classes[character] for character in text])
    if np.mean(sure) < 0.75:
        return None
    height = 96
    width = round(image.width * height / image.height)
    grey = np.asarray(image.convert("L").resize((width, height), Image.Resampling.BICUBIC), dtype=np.float32)
    ink = extract_ink(grey)
    slant = measure_slant(ink)
    centres = places * width
    placed = _measure_letters(ink, text, centres, slant)
    if placed is None:
        return None
    baseline, x_height, tilt = placed
    # Where a character is seen is a place at half its height.
    scale = X_HEIGHT / x_height
    upright = _set_upright(ink, slant, tilt, baseline, scale)
    upright = _drop_neighbours(upright)
    return CutLine(
        (upright * 255).astype(np.uint8),
        text,
        _find_cuts(upright, centres * scale + _MARGIN_X),
        sure.tolist(),
        slant,
    )


_MARGIN_X = 60
"""Columns left and right of a line set upright."""


def _measure_letters(ink: Mask, text: str, centres: Floats, slant: float) -> tuple[float, float, float] | None:
    """The baseline at the line's left end, the x-height, and the tilt of the baseline, from letters without heads."""
    steps = np.diff(centres)
    typical = float(np.median(steps)) if len(steps) else 0.0
    if typical < 4:
        return None
    rows = np.arange(ink.shape[0])
    profiles, places = [], []
    for place, character in enumerate(text):
        if character in _CORE:
            columns = np.arange(int(centres[place] - 0.5 * typical), int(centres[place] + 0.5 * typical) + 1)
            shifted = (columns[None, :] - slant * (rows[:, None] - ink.shape[0] / 2)).round().astype(int)
            inside = (shifted >= 0) & (shifted < ink.shape[1])
            profiles.append(np.where(inside, ink[rows[:, None], np.clip(shifted, 0, ink.shape[1] - 1)], 0).sum(1))
            places.append(float(centres[place]))
    if len(places) < 4:
        return None
    x, band = np.array(places), np.array(profiles)
    top, bottom = _find_band(band.sum(0))
    # The line may climb: each letter's middle, of what is near the band.
    first, last = max(0, 2 * top - bottom), min(len(rows), 2 * bottom - top)
    near = band[:, first:last]
    middles = (near * rows[first:last]).sum(1) / np.maximum(near.sum(1), 1e-6)
    tilt = 0.0
    if np.ptp(x) > 300:
        half = len(x) // 2
        tilt = float(
            np.clip(
                np.median((middles[half : 2 * half] - middles[:half]) / (x[half : 2 * half] - x[:half])), -0.06, 0.06
            )
        )
        lowered = [np.roll(row, -round(tilt * (at - x.mean()))) for row, at in zip(band, x, strict=True)]
        top, bottom = _find_band(np.sum(lowered, axis=0))
    baseline, x_height = bottom - tilt * float(x.mean()), float(bottom - top)
    return (baseline, x_height, tilt) if 9 <= x_height <= 48 else None


def _find_band(profile: Floats) -> tuple[int, int]:
    """The first row and the row after the last of the densest band of a profile of rows."""
    smooth = ndimage.gaussian_filter1d(profile, 2.0)
    top = bottom = int(smooth.argmax())
    least = 0.28 * float(smooth.max())
    while top > 0 and smooth[top - 1] > least:
        top -= 1
    while bottom < len(smooth) - 1 and smooth[bottom + 1] > least:
        bottom += 1
    return top, bottom + 1


def _set_upright(ink: Mask, slant: float, tilt: float, baseline: float, scale: float) -> Mask:
    width = round(ink.shape[1] * scale) + 2 * _MARGIN_X
    rows, columns = np.mgrid[:HEIGHT, :width].astype(np.float64)
    up = (BASELINE - rows) / scale
    x = (columns - _MARGIN_X) / scale
    source_y = baseline + tilt * x - up
    # Middles of letters stay where they are.
    source_x = x + slant * (up - 0.5 * X_HEIGHT / scale)
    smooth = ndimage.gaussian_filter(ink, 0.4 / scale) if scale < 0.8 else ink
    moved: Mask = ndimage.map_coordinates(smooth, [source_y, source_x], order=1, mode="constant").astype(np.float32)
    return moved


def _drop_neighbours(ink: Mask) -> Mask:
    """Take away the strokes of other lines: what hangs in from above or stands up from below."""
    labels, count = ndimage.label(ink > 0.25, np.ones((3, 3)))
    if not count:
        return ink
    kept = np.ones(count + 1, dtype=np.float32)
    for number, box in enumerate(ndimage.find_objects(labels), start=1):
        top, bottom = box[0].start, box[0].stop
        high = bottom < BASELINE - 1.25 * X_HEIGHT and bottom - top > 0.5 * X_HEIGHT
        if high or top > BASELINE + 0.5 * X_HEIGHT or bottom < BASELINE - 2.4 * X_HEIGHT:
            kept[number] = 0
    grown = ndimage.grey_dilation(labels, size=(3, 3))
    cleaned: Mask = ink * kept[np.where(labels > 0, labels, grown)]
    return cleaned


def _find_cuts(ink: Mask, centres: Floats) -> list[float]:
    """Where characters begin and end: between two, the column with the least ink near the middle."""
    profile = ndimage.gaussian_filter1d(ink.sum(0), 1.0)
    cuts = [max(0.0, float(centres[0] - 0.7 * X_HEIGHT))]
    for left, right in pairwise(centres.tolist()):
        middle, half = (left + right) / 2, max(1.0, 0.32 * (right - left))
        columns = np.arange(max(0, int(middle - half)), min(ink.shape[1], int(middle + half) + 2))
        if not len(columns):
            cuts.append(middle)
            continue
        cost = profile[columns] + 1.5 * np.abs(columns - middle) / half
        cuts.append(float(columns[int(cost.argmin())]))
    cuts.append(min(float(ink.shape[1]), float(centres[-1] + 0.8 * X_HEIGHT)))
    ordered: list[float] = np.maximum.accumulate(cuts).tolist()
    return ordered


def write_letters(
    folders: Sequence[Path],
    out: Path,
    most: int,
    keep: Callable[[str], bool],
    cut: Callable[[Image.Image, str], CutLine | None],
) -> int:
    """Write the cut lines of whole pages of each dataset, about `most` lines of each; return their number."""
    out.parent.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = []
    with out.with_suffix(".pixels").open("wb") as pixels:
        for folder in folders:
            pages: dict[str, list[Any]] = defaultdict(list)
            for sample in Dataset.open(folder).samples("train"):
                if keep(sample.source or ""):
                    pages[sample.page or ""].append(sample)
            names = [name for name, samples in pages.items() if len(samples) > 8]
            written = 0
            for place in np.random.default_rng(1).permutation(len(names)).tolist():
                name = names[place]
                for sample in pages[name][:_PAGE] if written < most else []:
                    with Image.open(sample.image) as image:
                        line = cut(image, " ".join(sample.text.split()))
                    if line is None:
                        continue
                    pixels.write(line.ink.tobytes())
                    row = {"width": line.ink.shape[1], "text": line.text, "page": f"{folder.name}/{name}"}
                    row |= {"cuts": [round(x, 1) for x in line.cuts], "sure": [round(p, 2) for p in line.sure]}
                    rows.append(row | {"slant": round(line.slant, 3)})
                    written += 1
            print(f"{folder.name}: {written} lines", flush=True)
    lines = (json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    out.with_suffix(".jsonl").write_text("".join(lines), encoding="utf-8", newline="\n")
    return len(rows)


@dataclass
class Page:
    """The cut lines of a page; `places` are where each of its characters can be taken from."""

    lines: list[tuple[NDArray[np.uint8], str, list[float], list[float]]]
    slant: float
    pen: float
    places: dict[str, list[tuple[int, int]]] = field(default_factory=dict)


@dataclass(frozen=True)
class _Piece:
    """Ink `(132, W)` between two cuts, and whether it may be joined to its neighbours."""

    ink: Mask
    drawn: bool


class RealInk:
    """Writes Russian with the ink of the pages that `write_letters` wrote."""

    def __init__(self, file: Path) -> None:
        rows = [json.loads(row) for row in file.with_suffix(".jsonl").read_text(encoding="utf-8").splitlines()]
        self._rows = rows
        self._starts = np.cumsum([0, *[HEIGHT * row["width"] for row in rows]])
        self._pixels = np.memmap(file.with_suffix(".pixels"), dtype=np.uint8, mode="r")
        pages: dict[str, list[int]] = defaultdict(list)
        for place, row in enumerate(rows):
            pages[row["page"]].append(place)
        self._pages = [places for places in pages.values() if len(places) > 6]
        names = [rows[places[0]]["page"].split("/")[0] for places in self._pages]
        shares = np.array([1 / names.count(name) ** 0.5 for name in names])
        self._shares = shares / shares.sum()

    def page(self, rng: np.random.Generator) -> Page:
        """Open a random page."""
        places = self._pages[int(rng.choice(len(self._pages), p=self._shares))]
        lines = []
        for place in places:
            row = self._rows[place]
            ink = np.asarray(self._pixels[int(self._starts[place]) : int(self._starts[place + 1])])
            lines.append((ink.reshape(HEIGHT, -1), row["text"], row["cuts"], row["sure"]))
        page = Page(lines, float(np.median([self._rows[place]["slant"] for place in places])), _measure_pen(lines))
        for number, (_, text, _, sure) in enumerate(lines):
            for place, character in enumerate(text):
                if character == " " or sure[place] >= _SURE:
                    page.places.setdefault(character, []).append((number, place))
        return page

    def write(self, text: str, page: Page, style: Style, rng: np.random.Generator) -> Written:
        """Write a text with a page's letters."""
        twins = " " + "".join(LOOKALIKES.get(letter, "\0") if letter != " " else " " for letter in text) + " "
        original = f" {text} "
        line = np.zeros((HEIGHT, 8), dtype=np.float32)
        pieces: list[_Piece] = []
        gap = rng.uniform(0.55, 1.5) * X_HEIGHT
        writer = random_writer(rng)
        place = 1
        while place <= len(text):
            if original[place] == " ":
                line = _append(line, _join(pieces, page.pen, rng), gap * rng.uniform(0.8, 1.2))
                pieces = []
                place += 1
                continue
            found = self._take(twins, place, page, rng)
            if found is None:
                end = place + 1
                while end <= len(text) and original[end] != " " and not page.places.get(twins[end]):
                    end += 1
                pieces.append(_draw(original[place:end], writer, page.pen, style, rng))
                place = end
            else:
                pieces.append(_Piece(found[0], drawn=False))
                place += found[1]
        line = _append(line, _join(pieces, page.pen, rng), 8)
        return Written(line, BASELINE, X_HEIGHT)

    def _take(self, twins: str, place: int, page: Page, rng: np.random.Generator) -> tuple[Mask, int] | None:
        """The longest piece that the page has of what stands at a place, often; sometimes a shorter one."""
        candidates = page.places.get(twins[place], []) if twins[place] != "\0" else []
        if not candidates:
            return None
        limit = 6 if rng.random() < 0.75 else int(rng.integers(1, 3))
        best: list[tuple[int, int, int]] = []
        longest = 0.0
        for number, start in candidates:
            _, text, _, sure = page.lines[number]
            length = 1
            while (
                length < limit
                and place + length < len(twins) - 1
                and start + length < len(text)
                and twins[place + length] == text[start + length] != " "
                and sure[start + length] >= _SURE
            ):
                length += 1
            # The first and the last letters of words are written in their own way.
            first = (twins[place - 1] == " ") == (start == 0 or text[start - 1] == " ")
            after = text[start + length] if start + length < len(text) else " "
            last = (twins[place + length] == " ") == (after == " ")
            score = length + 0.4 * first + 0.4 * last
            if score > longest + 0.01:
                best, longest = [], score
            if score > longest - 0.01:
                best.append((number, start, length))
        number, start, length = best[int(rng.integers(len(best)))]
        ink, _, cuts, _ = page.lines[number]
        piece = ink[:, int(cuts[start]) : max(int(cuts[start]) + 2, int(cuts[start + length]))]
        return _tidy(piece.astype(np.float32) / np.float32(255)), length


def coverage(text: str, page: Page) -> float:
    """The share of a text's letters that a page has."""
    letters = text.replace(" ", "")
    return sum(bool(page.places.get(LOOKALIKES.get(letter, "\0"))) for letter in letters) / max(1, len(letters))


def _measure_pen(lines: Sequence[tuple[NDArray[np.uint8], str, list[float], list[float]]]) -> float:
    """The usual thickness of strokes in x-heights: area over length of the edge."""
    ink = np.concatenate([line[0] for line in lines[:6]], axis=1) > 110
    inner = ndimage.binary_erosion(ink)
    edge = max(1, int((ink & ~inner).sum()))
    return float(np.clip(2.2 * ink.sum() / edge / X_HEIGHT, 0.05, 0.3))


def _tidy(piece: Mask) -> Mask:
    """Take away bits of neighbouring letters: what touches a side and is not between baseline and x-height."""
    labels, count = ndimage.label(piece > 0.2, np.ones((3, 3)))
    if count < 2:
        return piece
    kept = np.ones(count + 1, dtype=np.float32)
    for number, box in enumerate(ndimage.find_objects(labels), start=1):
        touches = box[1].start == 0 or box[1].stop == piece.shape[1]
        outside = box[0].stop < BASELINE - 1.05 * X_HEIGHT or box[0].start > BASELINE + 0.15 * X_HEIGHT
        thin = box[1].stop - box[1].start <= max(3, 0.2 * piece.shape[1])
        if touches and (outside or thin):
            kept[number] = 0
    grown = ndimage.grey_dilation(labels, size=(3, 3))
    tidied: Mask = piece * kept[np.where(labels > 0, labels, grown)]
    return tidied


def _draw(text: str, writer: Any, pen: float, style: Style, rng: np.random.Generator) -> _Piece:
    """Letters from pen tracks, upright and as thick as the page's."""
    manner = replace(
        style,
        slant=0.0,
        width=1.0,
        drift=0.0,
        growth=0.02,
        tilt=0.0,
        pen=pen * float(rng.uniform(0.85, 1.15)),
        pressure=min(style.pressure, 0.5),  # `pen` is how thick strokes are on the whole
        flood=0,
        x_height=X_HEIGHT,
        smooth=min(style.smooth, 0.05),
        elastic=min(style.elastic, 0.04),
    )
    drawn = draw_strokes(deform(write(text, writer, style.space), manner, rng), manner, rng)
    piece = np.zeros((HEIGHT, drawn.ink.shape[1]), dtype=np.float32)
    top = BASELINE - drawn.baseline
    source = drawn.ink[max(0, -top) :]
    top = max(0, top)
    source = source[: HEIGHT - top]
    piece[top : top + len(source)] = source
    columns = np.flatnonzero(piece.max(0) > 0.2)
    piece = piece[:, columns[0] : columns[-1] + 1] if len(columns) else piece[:, :4]
    return _Piece(ndimage.gaussian_filter(piece, 0.5), drawn=True)


def _edge(ink: Mask, side: int) -> float | None:
    """The row where a piece's stroke meets its side, between baseline and x-height; None if none does."""
    columns = ink[:, -2:] if side else ink[:, :2]
    top = round(BASELINE - 1.1 * X_HEIGHT)
    rows = columns[top : BASELINE + 3].max(1)
    if rows.max() < 0.35:
        return None
    return top + float((rows * np.arange(len(rows))).sum() / rows.sum())


def _join(pieces: Sequence[_Piece], pen: float, rng: np.random.Generator) -> Mask:
    """Set pieces beside each other; strokes that end at their sides are led into each other."""
    if not pieces:
        return np.zeros((HEIGHT, 0), dtype=np.float32)
    word = pieces[0].ink
    for before, after in pairwise(pieces):
        left, right = _edge(before.ink, 1), _edge(after.ink, 0)
        seam = before.drawn or after.drawn
        if left is None or right is None or abs(left - right) > 0.8 * X_HEIGHT:
            space = rng.uniform(0.06, 0.2) * X_HEIGHT if seam else 0.0
            word = _append(word, after.ink, space)
            continue
        steep = abs(left - right)
        space = 0.45 * steep + (rng.uniform(1, 4) if seam else 0)
        start = word.shape[1]
        word = _append(word, after.ink, space)
        if space >= 1:
            _lead(word, (start - 1.5, left), (start + space + 0.5, right), pen)
    return word


def _lead(word: Mask, start: tuple[float, float], end: tuple[float, float], pen: float) -> None:
    """Draw a thin stroke between two points into a word."""
    zoom = 4
    low = int(start[0]) - 3
    width = int(end[0]) + 4 - low
    image = Image.new("L", (width * zoom, word.shape[0] * zoom), 0)
    points = [((x - low) * zoom, y * zoom) for x, y in (start, end)]
    thick = max(zoom, round(0.75 * pen * X_HEIGHT * zoom))
    ImageDraw.Draw(image).line([*points[0], *points[1]], fill=230, width=thick)
    stroke = np.asarray(image.resize((width, word.shape[0]), Image.Resampling.BOX), dtype=np.float32) / np.float32(255)
    first, last = max(0, low), min(word.shape[1], low + width)
    np.maximum(word[:, first:last], stroke[:, first - low : last - low], out=word[:, first:last])


def _append(line: Mask, word: Mask, space: float) -> Mask:
    return np.concatenate([line, np.zeros((HEIGHT, max(0, round(space))), dtype=np.float32), word], axis=1)
