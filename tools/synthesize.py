"""Draw the lines of a text in fonts, as a dataset whose splits share no font family and no text.

    python tools/synthesize.py FONTS TEXT OUT [--count 1000] [--augmentation light] [--split 0.8/0.1/0.1]

Families are the writers. Running text is broken into lines of at most 60 characters. A line is drawn only in fonts that
have its letters; where there are fewer lines than `--count`, they are repeated in other fonts and styles. Text is
set from left to right, so Hebrew and Arabic come out wrong.
"""

import argparse
import json
import math
import tempfile
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFilter

from dsocr.data.augment import Augmentation, augment, grid_mesh, smooth_noise
from dsocr.data.dataset import Dataset
from dsocr.data.prepare import prepare
from dsocr.data.splits import assign_groups, parse_fractions
from dsocr.document import Split
from dsocr.errors import DataError
from dsocr.io.files import list_files
from dsocr.text import comparable
from hands.hand_fonts import Face, load_file, load_font

FONTS = frozenset({".ttf", ".otf", ".woff", ".woff2"})
LONGEST = 60
FONT_SIZE = 0.56
"""Font size by the height of a line; the rest is for ascenders, descenders and margins."""


def synthesize(
    fonts: Path,
    text: Path,
    out: Path,
    *,
    count: int = 1000,
    seed: int = 17,
    augmentation: Augmentation = "light",
    split: str = "0.8/0.1/0.1",
    height: int = 64,
) -> Dataset:
    """Draw `count` lines about `height` pixels high. Raises DataError if a split gets no font or no line."""
    faces = [load_file(load_font(path, height).getname()[0] or path.stem, path) for path in list_files(fonts, FONTS)]
    paragraphs = map(comparable, text.read_text(encoding="utf-8-sig").splitlines())
    lines = sorted({line for paragraph in paragraphs for line in textwrap.wrap(paragraph, LONGEST)})
    np.random.default_rng(seed).shuffle(lines)
    with tempfile.TemporaryDirectory() as temporary:
        source = Path(temporary, "synthesized")
        (source / "lines").mkdir(parents=True)
        rows = []
        for number, (line, face, part) in enumerate(assign(faces, lines, parse_fractions(split), count, seed)):
            image = draw_line(line, face, height, augmentation, np.random.default_rng((seed, number)))
            name = f"lines/{number + 1:05d}.jpg"
            image.save(source / name, quality=92)
            rows.append({"file_name": name, "text": line, "writer": face.family, "split": part})
        table = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        (source / "lines.jsonl").write_text(table, encoding="utf-8")
        return prepare(source, out, format="table", split=split)


def assign(
    faces: Sequence[Face], lines: Sequence[str], fractions: Mapping[Split, float], count: int, seed: int
) -> list[tuple[str, Face, Split]]:
    """Give every split lines and font families of its own, and every line of it a face that has its letters."""
    families = assign_groups(dict.fromkeys((face.family for face in faces), 1), fractions, seed)
    ends = [round(end * len(lines)) for end in accumulate(fractions.values(), initial=0.0)]
    assigned = []
    for (split, share), (start, end) in zip(fractions.items(), pairwise(ends), strict=True):
        able = [
            (line, [face for face in faces if families[face.family] == split and face.can_draw(line)])
            for line in lines[start:end]
        ]
        drawable = [(line, drawers) for line, drawers in able if drawers]
        if share and not drawable:
            raise DataError(f"No font of the {split} split can draw any of its lines", code="fonts-unusable")
        for number in range(max(1, round(count * share)) if share else 0):
            again, place = divmod(number, len(drawable))
            line, drawers = drawable[place]
            assigned.append((line, drawers[(again + place) % len(drawers)], split))
    return assigned


def draw_line(text: str, face: Face, height: int, augmentation: Augmentation, rng: np.random.Generator) -> Image.Image:
    """Draw a line with a random pen on random paper, wide enough that no letter is cut off."""
    style = random_style(rng)
    left, top, right, bottom = style.margins
    style = replace(
        style,
        size=max(8, round(FONT_SIZE * height)),
        margins=(max(0.05, left), max(0.05, top), max(0.05, right), max(0.05, bottom)),
        tremble=float(rng.uniform(0, 0.035)),
        stroke=max(0.15, style.stroke),  # otherwise hairlines of thin fonts would vanish
        pressure=float(rng.uniform(0, 0.25)),
        ink_fade=min(0.25, style.ink_fade),
    )
    return augment(render_line(text, face, style, rng), rng, augmentation)


@dataclass(frozen=True)
class Style:
    """The style of a line. Lengths are in units of the font size; angles are slopes (1 = 45 degrees).

    `tremble` moves every point of the ink a little, so that no two letters are equal; `pressure` is how much the stroke
    width varies along the line, in units of `stroke`.
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


def random_style(rng: np.random.Generator) -> Style:
    """Draw a plausible pen and paper."""
    grey = int(rng.integers(215, 256))
    tint = rng.integers(-14, 6, 3) if rng.random() < 0.5 else np.zeros(3, dtype=int)
    ink = rng.integers(0, 110) + (rng.integers(0, 50, 3) if rng.random() < 0.5 else np.zeros(3, dtype=int))
    if rng.random() < 0.3:
        ink = ink + np.array([0, 10, 70])
    return Style(
        size=int(rng.choice([26, 29, 32, 35])),
        slant=float(rng.normal(0, 0.13)),
        rise=float(rng.normal(0, 0.008)),
        drift=float(abs(rng.normal(0, 0.05))),
        drift_period=float(rng.uniform(6, 25)),
        wobble=float(abs(rng.normal(0, 0.035))),
        word_space=float(rng.uniform(0.75, 1.7)),
        word_jitter=float(abs(rng.normal(0, 0.04))),
        stroke=float(rng.uniform(-0.2, 0.8)),
        blur=float(abs(rng.normal(0, 0.5))),
        ink=tuple(int(value) for value in np.clip(ink, 0, 190)),  # type: ignore[arg-type]
        ink_fade=float(rng.uniform(0, 0.4)),
        paper=tuple(int(value) for value in np.clip(grey + tint, 180, 255)),  # type: ignore[arg-type]
        paper_grain=float(rng.uniform(0, 6)),
        paper_shade=float(rng.uniform(0, 12)),
        rules=str(rng.choice(["none", "lines", "squares"], p=[0.7, 0.2, 0.1])),
        margins=tuple(float(value) for value in rng.uniform((0, -0.12, 0, -0.12), (0.8, 0.35, 0.8, 0.35))),  # type: ignore[arg-type]
    )


def render_line(text: str, face: Face, style: Style, rng: np.random.Generator) -> Image.Image:
    """Render a line of text; every character must be in the face's alphabet."""
    mask = _distort(_draw(text, face, style, rng), style, rng)
    if style.tremble:
        mask = _tremble(mask, style, rng)
    left, top, right, bottom = mask.getbbox() or (0, 0, *mask.size)
    margin = [round(value * style.size) for value in style.margins]
    mask = mask.crop((left - margin[0], top - margin[1], right + margin[2], bottom + margin[3]))
    return Image.fromarray(_compose(_stroke(mask, style, rng), style, rng))


def _draw(text: str, face: Face, style: Style, rng: np.random.Generator) -> Image.Image:
    """Draw the ink coverage (mode L) of the text on a straight baseline, with room around it."""
    size = style.size
    words = text.split(" ")
    space = 0.3 * size * style.word_space
    widths = [sum(load_font(path, size).getlength(run) for path, run in face.runs(word)) for word in words]
    image = Image.new("L", (math.ceil(sum(widths) + space * 1.5 * len(words)) + 2 * size, 3 * size))
    draw = ImageDraw.Draw(image)
    x = float(size)
    for word in words:
        y = 1.9 * size + rng.normal(0, style.word_jitter) * size
        for path, run in face.runs(word):
            font = load_font(path, size)
            draw.text((x, y), run, fill=255, font=font, anchor="ls")
            x += font.getlength(run)
        x += space * float(rng.uniform(0.8, 1.4))
    return image


def _distort(mask: Image.Image, style: Style, rng: np.random.Generator) -> Image.Image:
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
    mesh = grid_mesh(edges, (0, height), np.stack([top, bottom]), np.stack([rise, rise + height]))
    return mask.transform(mask.size, Image.Transform.MESH, mesh, Image.Resampling.BILINEAR)


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


def _compose(coverage: NDArray[np.float32], style: Style, rng: np.random.Generator) -> NDArray[np.uint8]:
    """Put ink on shaded, grainy, ruled paper."""
    height, width = coverage.shape
    shade = style.paper_shade * smooth_noise(rng, height, width, 40)
    if style.paper_grain > 0.5:
        shade = shade + rng.normal(0, style.paper_grain, (height, width)).astype(np.float32)
    if style.rules != "none":
        shade = shade - _rules(height, width, style, rng)
    pressure = 1 - style.ink_fade * (0.5 + 0.5 * smooth_noise(rng, height, width, 12))
    alpha = (coverage * pressure)[..., None]
    paper = np.asarray(style.paper, dtype=np.float32) + shade[..., None]
    ink = np.asarray(style.ink, dtype=np.float32)
    pixels: NDArray[np.uint8] = np.clip(paper * (1 - alpha) + ink * alpha, 0, 255).astype(np.uint8)
    return pixels


def _rules(height: int, width: int, style: Style, rng: np.random.Generator) -> NDArray[np.float32]:
    """Darkness of printed rules: horizontal lines or squares."""
    step = int(style.size * rng.uniform(0.9, 1.6))
    strength = float(rng.uniform(15, 70))
    shade = np.zeros((height, width), dtype=np.float32)
    first, between = int(rng.integers(0, step)), step if style.rules == "squares" else 2 * step
    shade[first::between] = strength
    if style.rules == "squares":
        shade[:, int(rng.integers(0, step)) :: step] = strength
    return shade


def main() -> None:
    """Draw a dataset."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("fonts", "text", "out"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--augmentation", default="light")
    parser.add_argument("--split", default="0.8/0.1/0.1")
    print(synthesize(**vars(parser.parse_args())).folder)


if __name__ == "__main__":
    main()
