"""Text drawn as handwriting or print: fonts, ink, paper and the unsteadiness of a hand.

Fonts come from npm packages `@fontsource/<name>` unpacked side by side in one folder; none is shipped. Their Cyrillic
files hold letters only, so a word is drawn in runs, each from the file that has its characters.
"""

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from itertools import groupby, pairwise
from pathlib import Path

import numpy as np
from fontTools.ttLib import TTFont
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFilter, ImageFont

from dsocr.data.augment import strip_mesh


@dataclass(frozen=True)
class Face:
    """One weight of one font family: the files to try, and the characters each of them has."""

    name: str
    files: tuple[Path, ...]
    characters: tuple[frozenset[str], ...]
    capitals_only: bool = False

    @property
    def alphabet(self) -> frozenset[str]:
        """Every character the face can draw."""
        return frozenset().union(*self.characters)

    def can_draw(self, text: str) -> bool:
        """True where every character but the space has a glyph."""
        return set(text) - {" "} <= self.alphabet

    def runs(self, word: str) -> Iterator[tuple[Path, str]]:
        """The word in pieces, each with the file that draws it."""

        def home(character: str) -> int:
            return next(index for index, known in enumerate(self.characters) if character in known)

        for index, run in groupby(word, key=home):
            yield self.files[index], "".join(run)


def load_face(folder: Path, weight: int = 400, *, capitals_only: bool = False) -> Face:
    """A face of an unpacked @fontsource package, e.g. `fonts/caveat`."""
    files = [
        path
        for subset in ("latin", "cyrillic", "latin-ext", "cyrillic-ext")
        if (path := folder / "files" / f"{folder.name}-{subset}-{weight}-normal.woff2").is_file()
    ]
    if not files:
        raise FileNotFoundError(f"{folder} holds no @fontsource files of weight {weight}")
    characters = [frozenset(map(chr, _character_map(path))) for path in files]
    return Face(f"{folder.name}-{weight}", tuple(files), tuple(characters), capitals_only)


@cache
def _character_map(path: Path) -> frozenset[int]:
    cache = path.with_suffix(".cmap.json")
    if not cache.is_file():
        cache.write_text(json.dumps(sorted(TTFont(path, lazy=True).getBestCmap())), encoding="utf-8")
    return frozenset(json.loads(cache.read_text(encoding="utf-8")))


@lru_cache(maxsize=4096)
def _font(path: Path, size: int) -> ImageFont.FreeTypeFont:
    return ImageFont.truetype(path, size)


@dataclass(frozen=True)
class Style:
    """How a line is written. Lengths are in units of the font size; angles are slopes (1 = 45 degrees).

    `tremble` moves every point of the ink a little, so that no two letters are alike; `pressure` is how much the stroke
    grows and shrinks along the line, in units of `stroke`. `above_rule` is how far above a printed rule the writing
    stands; None lets rules fall anywhere. `run_space` is added after each run of a word, where fonts set a Latin full
    stop too close to a Cyrillic letter.
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
    """A plausible pen on plausible paper; `strength` 0 is clean type, 1 a lively hand."""
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
    """A drawn line: RGB pixels (height, width, 3), and the x of each character's centre (spaces included)."""

    pixels: NDArray[np.uint8]
    text: str
    centres: NDArray[np.float64]
    style: Style = field(default_factory=Style)

    @property
    def image(self) -> Image.Image:
        """The line as a Pillow image."""
        return Image.fromarray(self.pixels)


def render_line(text: str, face: Face, style: Style, rng: np.random.Generator) -> RenderedLine:
    """One line of text in one hand; every character must be in the face's alphabet."""
    mask, centres = _draw(text, face, style, rng)
    mask, centres = _unsteady(mask, centres, style, rng)
    if style.tremble:
        mask = _tremble(mask, style, rng)
    mask, centres, baseline = _crop(mask, centres, style)
    coverage = _stroke(mask, style, rng)
    return RenderedLine(_compose(coverage, baseline, style, rng), text, centres, replace(style))


def _draw(text: str, face: Face, style: Style, rng: np.random.Generator) -> tuple[Image.Image, NDArray[np.float64]]:
    """Ink coverage (mode L) of the text on a straight baseline, with room around it."""
    size = style.size
    room = size
    words = text.split(" ")
    space = 0.3 * size * style.word_space
    widths = [sum(_font(path, size).getlength(run) for path, run in face.runs(word)) for word in words]
    image = Image.new("L", (math.ceil(sum(widths) + space * 1.5 * len(words)) + 2 * room, 3 * size))
    draw = ImageDraw.Draw(image)
    x, centres = float(room), []
    for word in words:
        y = 1.9 * size + rng.normal(0, style.word_jitter) * size
        for path, run in face.runs(word):
            font = _font(path, size)
            draw.text((x, y), run, fill=255, font=font, anchor="ls")
            ends = [0.0, *(font.getlength(run[: end + 1]) for end in range(len(run)))]
            centres += [x + (left + right) / 2 for left, right in pairwise(ends)]
            x += ends[-1] + style.run_space * size
        gap = space * float(rng.uniform(0.8, 1.4))
        centres.append(x + gap / 2)
        x += gap
    return image, np.array(centres[: len(text)])


def _unsteady(
    mask: Image.Image, centres: NDArray[np.float64], style: Style, rng: np.random.Generator
) -> tuple[Image.Image, NDArray[np.float64]]:
    """Slant, rise, drift and wobble, as one mesh of narrow strips whose corners move smoothly."""
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
    """Every point moved by smooth noise about as coarse as a letter; what an unsteady hand does to equal letters."""
    width, height = mask.size
    cell, reach = max(4, round(0.45 * style.size)), style.tremble * style.size
    rows, columns = np.mgrid[0:height, 0:width].astype(np.float32)
    y = np.clip(rows + reach * _smooth_noise(rng, height, width, cell), 0, height - 1.001)
    x = np.clip(columns + reach * _smooth_noise(rng, height, width, cell), 0, width - 1.001)
    top, left = y.astype(int), x.astype(int)
    down, right = y - top, x - left
    ink = np.asarray(mask, dtype=np.float32)
    upper = ink[top, left] * (1 - right) + ink[top, left + 1] * right
    lower = ink[top + 1, left] * (1 - right) + ink[top + 1, left + 1] * right
    return Image.fromarray((upper * (1 - down) + lower * down).round().astype(np.uint8))


def _crop(
    mask: Image.Image, centres: NDArray[np.float64], style: Style
) -> tuple[Image.Image, NDArray[np.float64], float]:
    """The ink with its margins, and where the centres and the baseline now are."""
    left, top, right, bottom = mask.getbbox() or (0, 0, *mask.size)
    margin = [round(value * style.size) for value in style.margins]
    box = (left - margin[0], top - margin[1], right + margin[2], bottom + margin[3])
    return mask.crop(box), centres - box[0], 1.9 * style.size - box[1]


def _stroke(mask: Image.Image, style: Style, rng: np.random.Generator) -> NDArray[np.float32]:
    """Coverage 0..1 with the stroke made thicker (positive) or thinner, and the edge as soft as the pen."""
    if abs(style.stroke) > 0.05 or style.pressure:
        soft = np.asarray(mask.filter(ImageFilter.GaussianBlur(0.7)), dtype=np.float32) / 255
        stroke: float | NDArray[np.float32] = style.stroke
        if style.pressure:
            # More than 0.75 would darken the paper itself; much less than -0.4 would lose full stops.
            varied = stroke + style.pressure * _smooth_noise(rng, mask.height, mask.width, style.size)
            stroke = np.clip(varied, min(-0.4, stroke), max(0.75, stroke))
        coverage = np.clip((soft - 0.5 + 0.35 * np.clip(stroke, -1, 1)) * 2.2 + 0.5, 0, 1)
        mask = Image.fromarray((coverage * 255).astype(np.uint8))
    if style.blur > 0.2:
        mask = mask.filter(ImageFilter.GaussianBlur(min(style.blur, 1.3)))
    return np.asarray(mask, dtype=np.float32) / np.float32(255)


def _smooth_noise(rng: np.random.Generator, height: int, width: int, cell: int) -> NDArray[np.float32]:
    """Noise in -1..1 that changes over about `cell` pixels."""
    small = rng.uniform(-1, 1, (max(2, height // cell + 2), max(2, width // cell + 2))).astype(np.float32)
    return np.asarray(Image.fromarray(small).resize((width, height), Image.Resampling.BICUBIC))


def _compose(
    coverage: NDArray[np.float32], baseline: float, style: Style, rng: np.random.Generator
) -> NDArray[np.uint8]:
    height, width = coverage.shape
    shade = style.paper_shade * _smooth_noise(rng, height, width, 40)
    if style.paper_grain > 0.5:
        shade = shade + rng.normal(0, style.paper_grain, (height, width)).astype(np.float32)
    if style.rules != "none":
        shade = shade - _rules(height, width, baseline, style, rng)
    pressure = 1 - style.ink_fade * (0.5 + 0.5 * _smooth_noise(rng, height, width, 12))
    alpha = (coverage * pressure)[..., None]
    paper = np.asarray(style.paper, dtype=np.float32) + shade[..., None]
    ink = np.asarray(style.ink, dtype=np.float32)
    pixels: NDArray[np.uint8] = np.clip(paper * (1 - alpha) + ink * alpha, 0, 255).astype(np.uint8)
    return pixels


def _rules(height: int, width: int, baseline: float, style: Style, rng: np.random.Generator) -> NDArray[np.float32]:
    """Darkness of printed rules: horizontal lines, or squares."""
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
