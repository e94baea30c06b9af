"""Render `examples/print`: clean print that the base `nano` reads, to see whether training makes it forget that.

    python tools/render_print.py --fonts FONTS

FONTS holds the npm packages `@fontsource/<name>` of the four fonts, unpacked into folders of the same name. The texts
are `print_texts.txt`. The same fonts and texts give the same files.
"""

import argparse
import csv
import tempfile
from itertools import cycle
from pathlib import Path

import numpy as np

from dsocr.data.dataset import Card
from dsocr.data.prepare import prepare
from dsocr.document import Split
from fontsource import load_face
from render import random_style, render_line
from render_sample import lay_into

SEED = 2026
JPEG_QUALITY = 75
WEAR = 0.3
"""Strength of the random style; pretraining used 0 to 0.7 for print."""
TEXTS = Path(__file__).parent / "print_texts.txt"
PRINT = Path(__file__).parents[1] / "examples" / "print"
FONTS = ("pt-serif", "roboto", "tinos", "open-sans")


def write_source(fonts: Path, folder: Path) -> None:
    """Draw the lines, with the fonts in rotation, and write the table of their texts."""
    faces = cycle([load_face(fonts / name) for name in FONTS])
    with (folder / "lines.csv").open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file)
        table.writerow(["file_name", "text"])
        for number, text in enumerate(TEXTS.read_text(encoding="utf-8").splitlines(), start=1):
            rng, face, name = np.random.default_rng((SEED, number)), next(faces), f"print-{number:02d}.jpg"
            line = render_line(text, face, random_style(rng, WEAR), rng)
            line.image.save(folder / name, quality=JPEG_QUALITY, optimize=True)
            table.writerow([name, text])


def make_print(fonts: Path, out: Path) -> Card:
    """Draw the set and put it into `out`, beside other files there, such as the README."""
    with tempfile.TemporaryDirectory() as temporary:
        source, dataset = Path(temporary, "rendered"), Path(temporary, "dataset")
        source.mkdir()
        write_source(fonts, source)
        card = prepare(source, dataset, split="0/0/1", strict=True).card
        return lay_into(out, dataset, card)


def main() -> None:
    """Parse the command line, make the set, and print its size."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--fonts", type=Path, required=True, help="folder with unpacked @fontsource packages")
    parser.add_argument("-o", "--out", type=Path, default=PRINT, help="dataset folder to write")
    options = parser.parse_args()
    card = make_print(options.fonts, options.out)
    print(f"made {options.out}: {card.splits[Split.TEST].samples} lines")


if __name__ == "__main__":
    main()
