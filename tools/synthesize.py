"""Draw the lines of a text in fonts, as a dataset whose splits share no font family and no text.

    python tools/synthesize.py FONTS TEXT OUT [--count 1000] [--augmentation light] [--split 0.8/0.1/0.1]

Families are the writers. Running text is broken into lines of at most 60 characters. A line is drawn only in fonts that
have its letters; where there are fewer lines than `--count`, they are repeated in other fonts and styles. Paper and
strokes are those of pretraining (`hands`). Text is set from left to right, so Hebrew and Arabic come out wrong.
"""

import argparse
import json
import tempfile
import textwrap
from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from pathlib import Path

import numpy as np
from PIL import Image

from draw_sample import DrawnPaper
from dsocr.data.augment import Augmentation, augment
from dsocr.data.dataset import Dataset
from dsocr.data.prepare import prepare
from dsocr.data.splits import assign_groups, parse_fractions
from dsocr.document import Split
from dsocr.errors import DataError
from dsocr.io.files import list_files
from dsocr.text import comparable
from hands.hand_fonts import Face, load_file, load_font, write_in_font
from hands.paper import degrade, put_on_paper
from hands.pens import random_style

FONTS = frozenset({".ttf", ".otf", ".woff", ".woff2"})
LONGEST = 60


def synthesize(
    fonts: Path,
    text: Path,
    out: Path,
    *,
    count: int = 1000,
    seed: int = 17,
    augmentation: Augmentation = "light",
    split: str = "0.8/0.1/0.1",
) -> Dataset:
    """Draw `count` lines. Raises DataError if a split gets no font or no line."""
    faces = [load_file(load_font(path, 64).getname()[0] or path.stem, path) for path in list_files(fonts, FONTS)]
    paragraphs = map(comparable, text.read_text(encoding="utf-8-sig").splitlines())
    lines = sorted({line for paragraph in paragraphs for line in textwrap.wrap(paragraph, LONGEST)})
    np.random.default_rng(seed).shuffle(lines)
    with tempfile.TemporaryDirectory() as temporary:
        source = Path(temporary, "synthesized")
        (source / "lines").mkdir(parents=True)
        rows = []
        for number, (line, face, part) in enumerate(assign(faces, lines, parse_fractions(split), count, seed)):
            image = draw_line(line, face, augmentation, np.random.default_rng((seed, number)))
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


def draw_line(text: str, face: Face, augmentation: Augmentation, rng: np.random.Generator) -> Image.Image:
    """Draw a line in a random style on drawn paper, with room around it so that no letter is cut off."""
    written = write_in_font(text, face, random_style(rng), rng, middle=0.3)
    rows, columns = (np.flatnonzero(written.ink.max(axis) > 0.1) for axis in (1, 0))
    ink = np.pad(written.ink[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1], round(written.x_height / 3))
    return augment(degrade(put_on_paper(ink, DrawnPaper(), rng), rng), rng, augmentation)


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
