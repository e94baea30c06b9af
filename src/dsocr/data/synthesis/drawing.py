"""Lines as image files, and the table that says what they are: a source that `prepare` reads."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from PIL import Image

from dsocr.data.augment import Augmentation, augment
from dsocr.data.file_names import UniqueStems
from dsocr.data.prepare import Progress
from dsocr.data.synthesis.faces import Face
from dsocr.data.synthesis.rendering import render_line
from dsocr.data.synthesis.sharing import LineToDraw
from dsocr.data.synthesis.style import random_style

_SIZE = 0.56
"""A font's size as a share of the height of lines: the rest are what sticks out, and the margins."""

_JPEG_QUALITY = 92


def draw_lines(
    lines: Sequence[LineToDraw],
    folder: Path,
    augmentation: Augmentation,
    height: int,
    seed: int,
    progress: Progress | None = None,
) -> None:
    """Draws each line into `folder`, and `lines.jsonl` beside them; style depends on the line's place and the seed."""
    (folder / "lines").mkdir(parents=True)
    stems = UniqueStems()
    with (folder / "lines.jsonl").open("w", encoding="utf-8", newline="\n") as table:
        for number, line in enumerate(lines):
            name = f"lines/{stems.take(f'{line.face.name}-{number + 1:05d}')}.jpg"
            image = draw_line(line.text, line.face, height, augmentation, np.random.default_rng((seed, number)))
            image.save(folder / name, quality=_JPEG_QUALITY)
            row = {"file_name": name, "text": line.text, "writer": line.face.family, "split": line.split}
            table.write(json.dumps(row, ensure_ascii=False) + "\n")
            if progress:
                progress(number + 1, len(lines))


def draw_line(text: str, face: Face, height: int, augmentation: Augmentation, rng: np.random.Generator) -> Image.Image:
    """One line about `height` pixels high, in a random pen on random paper; all of its letters are on the image."""
    style = random_style(rng)
    left, top, right, bottom = style.margins
    style = replace(
        style,
        size=max(8, round(_SIZE * height)),
        margins=(max(0.05, left), max(0.05, top), max(0.05, right), max(0.05, bottom)),
        tremble=float(rng.uniform(0, 0.035)),
        # Hairlines of thin fonts would vanish otherwise.
        stroke=max(0.15, style.stroke),
        pressure=float(rng.uniform(0, 0.25)),
        ink_fade=min(0.25, style.ink_fade),
    )
    return augment(render_line(text, face, style, rng).image, rng, augmentation)
