"""Text drawn as handwriting or print: ink on paper, in the unsteadiness of a hand.

The same text, face, style and draws give the same pixels.
"""

import math
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFilter

from dsocr.data.augment.mesh import strip_mesh
from dsocr.data.augment.scale import smooth_noise
from dsocr.data.synthesis.faces import Face, load_font
from dsocr.data.synthesis.style import Style


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
    widths = [sum(load_font(path, size).getlength(run) for path, run in face.runs(word)) for word in words]
    image = Image.new("L", (math.ceil(sum(widths) + space * 1.5 * len(words)) + 2 * room, 3 * size))
    draw = ImageDraw.Draw(image)
    x, centres = float(room), []
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
