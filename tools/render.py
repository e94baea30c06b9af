"""Draw lines of text in fonts, with the irregularities of handwriting, on paper."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby, pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFilter, ImageFont

from dsocr.data.augment import smooth_noise, strip_mesh


@dataclass(frozen=True)
class Face:
    """One style of a font family: its files, and the characters that each of them has."""

    name: str
    files: tuple[Path, ...]
    characters: tuple[frozenset[str], ...]
    capitals_only: bool = False
    family: str = ""

    @property
    def alphabet(self) -> frozenset[str]:
        """All characters that the face can draw."""
        return frozenset().union(*self.characters)

    def can_draw(self, text: str) -> bool:
        """Whether every character except the space has a glyph."""
        return set(text) - {" "} <= self.alphabet

    def runs(self, word: str) -> Iterator[tuple[Path, str]]:
        """Split a word into runs, each with the file that draws it."""

        def file_index(character: str) -> int:
            return next(index for index, known in enumerate(self.characters) if character in known)

        for index, run in groupby(word, key=file_index):
            yield self.files[index], "".join(run)


@lru_cache(maxsize=4096)
def load_font(path: Path, size: int) -> ImageFont.FreeTypeFont:
    """Load a font at a size in pixels."""
    return ImageFont.truetype(path, size)


@dataclass(frozen=True)
class Style:
    """The style of a line. Lengths are in units of the font size; angles are slopes (1 = 45 degrees).

    `tremble` moves every point of the ink a little, so that no two letters are equal; `pressure` is how much the stroke
    width varies along the line, in units of `stroke`. `above_rule` is the distance of the writing above a printed rule;
    None puts rules anywhere. `run_space` is added after each run of a word, because some fonts set a Latin full stop
    too close to a Cyrillic letter.
    """

    size: int = 32
    slant: float = 0.0
    rise: float = 0.0
    drift: float = 0.0
    drift_period: float = 12.0
    wobble: float = 0.0
    word_space: float = 1.0
    word_jitter: float = 0.0
    stroke: float = 0.0
    blur: float = 0.0
    ink: tuple[int, int, int] = (40, 40, 60)
    ink_fade: float = 0.0
    paper: tuple[int, int, int] = (245, 243, 236)
    paper_grain: float = 2.0
    paper_shade: float = 4.0
    rules: str = "none"
    margins: tuple[float, float, float, float] = (0.3, 0.1, 0.3, 0.1)
    tremble: float = 0.0
    pressure: float = 0.0
    above_rule: float | None = None
    run_space: float = 0.0


def random_style(rng: np.random.Generator, strength: float = 1.0) -> Style:
    """Draw a plausible pen and paper; `strength` 0 is clean type, 1 lively handwriting."""
    grey = int(rng.integers(215, 256))
    tint = rng.integers(-14, 6, 3) if rng.random() < 0.5 else np.zeros(3, dtype=int)
    ink = rng.integers(0, 110) + (rng.integers(0, 50, 3) if rng.random() < 0.5 else np.zeros(3, dtype=int))
    if rng.random() < 0.3:
        ink = ink + np.array([0, 10, 70])
    return Style(
        size=int(rng.choice([26, 29, 32, 35])),
        slant=float(rng.normal(0, 0.13) * strength),
        rise=float(rng.normal(0, 0.008) * strength),
        drift=float(abs(rng.normal(0, 0.05)) * strength),
        drift_period=float(rng.uniform(6, 25)),
        wobble=float(abs(rng.normal(0, 0.035)) * strength),
        word_space=float(rng.uniform(0.75, 1.7)),
        word_jitter=float(abs(rng.normal(0, 0.04)) * strength),
        stroke=float(rng.uniform(-0.2, 0.8)),
        blur=float(abs(rng.normal(0, 0.5))),
        ink=tuple(int(value) for value in np.clip(ink, 0, 190)),  # type: ignore[arg-type]
        ink_fade=float(rng.uniform(0, 0.4) * strength),
        paper=tuple(int(value) for value in np.clip(grey + tint, 180, 255)),  # type: ignore[arg-type]
        paper_grain=float(rng.uniform(0, 6)),
        paper_shade=float(rng.uniform(0, 12)),
        rules=str(rng.choice(["none", "lines", "squares"], p=[0.7, 0.2, 0.1])),
        margins=tuple(float(value) for value in rng.uniform((0, -0.12, 0, -0.12), (0.8, 0.35, 0.8, 0.35))),  # type: ignore[arg-type]
    )


@dataclass
class RenderedLine:
    """A rendered line: RGB pixels (height, width, 3), and the x of each character's centre, spaces included."""

    pixels: NDArray[np.uint8]
    centres: NDArray[np.float64]

    @property
    def image(self) -> Image.Image:
        """The pixels as a Pillow image."""
        return Image.fromarray(self.pixels)


def render_line(text: str, face: Face, style: Style, rng: np.random.Generator) -> RenderedLine:
    """Render a line of text; every character must be in the face's alphabet."""
    mask, centres = _draw(text, face, style, rng)
    mask, centres = _distort(mask, centres, style, rng)
    if style.tremble:
        mask = _tremble(mask, style, rng)
    mask, centres, baseline = _crop(mask, centres, style)
    coverage = _stroke(mask, style, rng)
    return RenderedLine(_compose(coverage, baseline, style, rng), centres)


def _draw(text: str, face: Face, style: Style, rng: np.random.Generator) -> tuple[Image.Image, NDArray[np.float64]]:
    """Draw the ink coverage (mode L) of the text on a straight baseline, with room around it."""
    size = style.size
    words = text.split(" ")
    space = 0.3 * size * style.word_space
    widths = [sum(load_font(path, size).getlength(run) for path, run in face.runs(word)) for word in words]
    image = Image.new("L", (math.ceil(sum(widths) + space * 1.5 * len(words)) + 2 * size, 3 * size))
    draw = ImageDraw.Draw(image)
    x, centres = float(size), []
    for word in words:
        y = 1.9 * size + rng.normal(0, style.word_jitter) * size
        for path, run in face.runs(word):
            font = load_font(path, size)
            draw.text((x, y), run, fill=255, font=font, anchor="ls")
            ends = [0.0, *(font.getlength(run[: end + 1]) for end in range(len(run)))]
            centres += [x + (left + right) / 2 for left, right in pairwise(ends)]
            x += ends[-1] + style.run_space * size
        gap = space * float(rng.uniform(0.8, 1.4))
        centres.append(x + gap / 2)
        x += gap
    return image, np.array(centres[: len(text)])


def _distort(
    mask: Image.Image, centres: NDArray[np.float64], style: Style, rng: np.random.Generator
) -> tuple[Image.Image, NDArray[np.float64]]:
    """Apply slant, rise, drift and wobble as one mesh of narrow strips whose corners move smoothly."""
    width, height = mask.size
    baseline = 1.9 * style.size
    edges = np.append(np.arange(0, width, 14), width).astype(float)
    phase = rng.uniform(0, 2 * math.pi, 3)
    turn = 2 * math.pi * edges / (style.drift_period * style.size)
    rise = style.rise * (edges - width / 2) + style.drift * style.size * np.sin(turn + phase[0])
    sway = style.wobble * style.size * np.sin(3.1 * turn + phase[1])
    lean = style.slant + style.wobble * np.sin(2.3 * turn + phase[2])
    top, bottom = edges + sway + lean * baseline, edges + sway - lean * (height - baseline)
    mesh = strip_mesh(edges, height, top, bottom, rise, height)
    moved = np.interp(centres, edges + sway, edges)
    return mask.transform(mask.size, Image.Transform.MESH, mesh, Image.Resampling.BILINEAR), moved


def _tremble(mask: Image.Image, style: Style, rng: np.random.Generator) -> Image.Image:
    """Move every point by smooth noise as coarse as a letter, as an unsteady hand does."""
    width, height = mask.size
    cell, reach = max(4, round(0.45 * style.size)), style.tremble * style.size
    rows, columns = np.mgrid[0:height, 0:width].astype(np.float32)
    y = np.clip(rows + reach * smooth_noise(rng, height, width, cell), 0, height - 1.001)
    x = np.clip(columns + reach * smooth_noise(rng, height, width, cell), 0, width - 1.001)
    top, left = y.astype(int), x.astype(int)
    down, right = y - top, x - left
    ink = np.asarray(mask, dtype=np.float32)
    upper = ink[top, left] * (1 - right) + ink[top, left + 1] * right
    lower = ink[top + 1, left] * (1 - right) + ink[top + 1, left + 1] * right
    return Image.fromarray((upper * (1 - down) + lower * down).round().astype(np.uint8))


def _crop(
    mask: Image.Image, centres: NDArray[np.float64], style: Style
) -> tuple[Image.Image, NDArray[np.float64], float]:
    """Crop to the ink with its margins; also return the centres and the baseline in the crop."""
    left, top, right, bottom = mask.getbbox() or (0, 0, *mask.size)
    margin = [round(value * style.size) for value in style.margins]
    box = (left - margin[0], top - margin[1], right + margin[2], bottom + margin[3])
    return mask.crop(box), centres - box[0], 1.9 * style.size - box[1]


def _stroke(mask: Image.Image, style: Style, rng: np.random.Generator) -> NDArray[np.float32]:
    """Coverage 0..1 with the stroke thicker (positive) or thinner, and its edge as soft as the pen's."""
    if abs(style.stroke) > 0.05 or style.pressure:
        soft = np.asarray(mask.filter(ImageFilter.GaussianBlur(0.7)), dtype=np.float32) / 255
        stroke: float | NDArray[np.float32] = style.stroke
        if style.pressure:
            # Above 0.75 the paper itself would darken; far below -0.4 full stops would vanish.
            varied = stroke + style.pressure * smooth_noise(rng, mask.height, mask.width, style.size)
            stroke = np.clip(varied, min(-0.4, stroke), max(0.75, stroke))
        coverage = np.clip((soft - 0.5 + 0.35 * np.clip(stroke, -1, 1)) * 2.2 + 0.5, 0, 1)
        mask = Image.fromarray((coverage * 255).astype(np.uint8))
    if style.blur > 0.2:
        mask = mask.filter(ImageFilter.GaussianBlur(min(style.blur, 1.3)))
    return np.asarray(mask, dtype=np.float32) / np.float32(255)


def _compose(
    coverage: NDArray[np.float32], baseline: float, style: Style, rng: np.random.Generator
) -> NDArray[np.uint8]:
    """Put ink on shaded, grainy, ruled paper."""
    height, width = coverage.shape
    shade = style.paper_shade * smooth_noise(rng, height, width, 40)
    if style.paper_grain > 0.5:
        shade = shade + rng.normal(0, style.paper_grain, (height, width)).astype(np.float32)
    if style.rules != "none":
        shade = shade - _rules(height, width, baseline, style, rng)
    pressure = 1 - style.ink_fade * (0.5 + 0.5 * smooth_noise(rng, height, width, 12))
    alpha = (coverage * pressure)[..., None]
    paper = np.asarray(style.paper, dtype=np.float32) + shade[..., None]
    ink = np.asarray(style.ink, dtype=np.float32)
    pixels: NDArray[np.uint8] = np.clip(paper * (1 - alpha) + ink * alpha, 0, 255).astype(np.uint8)
    return pixels


def _rules(height: int, width: int, baseline: float, style: Style, rng: np.random.Generator) -> NDArray[np.float32]:
    """Darkness of printed rules: horizontal lines or squares."""
    step = int(style.size * rng.uniform(0.9, 1.6))
    strength = float(rng.uniform(15, 70))
    shade = np.zeros((height, width), dtype=np.float32)
    first, between = int(rng.integers(0, step)), step if style.rules == "squares" else 2 * step
    if style.above_rule is not None:
        first = round(baseline + style.above_rule * style.size) % between
    shade[first::between] = strength
    if style.rules == "squares":
        shade[:, int(rng.integers(0, step)) :: step] = strength
    return shade
