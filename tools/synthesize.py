"""Draw the lines of a text in fonts, as a dataset whose splits share no font family and no text.

    python tools/synthesize.py FONTS TEXT OUT [--count 1000] [--augmentation light] [--split 0.8/0.1/0.1]

Families are the writers. Running text is broken into lines of at most 60 characters. A line is drawn only in fonts that
have its letters; where there are fewer lines than `--count`, they are repeated in other fonts and styles. Text is
set from left to right, so Hebrew and Arabic come out wrong.
"""

import argparse
import json
import tempfile
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise
from pathlib import Path

import numpy as np
from PIL import Image

from dsocr.data.augment import Augmentation, augment
from dsocr.data.dataset import Dataset
from dsocr.data.prepare import prepare
from dsocr.data.splits import assign_groups, parse_fractions
from dsocr.document import Split
from dsocr.errors import DataError
from dsocr.io.files import list_files
from dsocr.text import comparable
from hands.hand_fonts import load_file
from render import Face, load_font, random_style, render_line

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
    return augment(render_line(text, face, style, rng).image, rng, augmentation)


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
