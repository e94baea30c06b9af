"""Read joined Russian words, written with pens by people, that no base was trained on.

    git clone https://github.com/Skvayzer/russian_handwritings_tracked && git -C ... checkout c662902
    python benchmarks/pen_words.py draw russian_handwritings_tracked data/pen_words    # 37 lines, lines.tsv
    python benchmarks/pen_words.py read data/pen_words small                            # CER of a base or folder

The tracks (Yacenko and Smirnov, GPL-3.0, 12 writers in 37 sessions of the same nine words) are for measuring only:
nothing of them is in this repository or in any weights. A session becomes a line, drawn here with one plain pen on
white paper; nothing of this drawing is shared with what bases are pretrained on. Every reading is listed in
`lab/verdicts.md`, and there are at most five, so that no base is chosen by these words.
"""

import argparse
import csv
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from dsocr.evaluation.metrics import ErrorRate, character_errors, pool
from dsocr.models.ctc import prepare_line
from dsocr.models.ctc_network import collate_lines, compute_logits, load_network
from dsocr.models.language_model import LanguageModel, search

WORDS = ("съешь", "ещё", "этих", "мягких", "французских", "булок", "да", "выпей", "чаю")
FILES = {"съешь": "cъешь"}
"""The name of this file begins with a Latin letter."""

LIFT = 60
"""Milliseconds between two points above which the pen was lifted."""

SPACE, MARGIN, PEN = 40, 24, 5
"""In units of the tablet, in which a line of words is about 130 high."""

STRETCH = 1.4
BASES = Path(__file__).parents[1] / "src" / "dsocr" / "models" / "bases"


def read_numbers(file: Path) -> NDArray[np.float64]:
    """The numbers of a file, each between quotation marks."""
    return np.array(next(csv.reader([file.read_text(encoding="utf-8")])), dtype=np.float64)


def read_strokes(folder: Path, word: str) -> list[NDArray[np.float64]]:
    """The strokes of a word, each points `(n, 2)` with y downwards."""
    name = FILES.get(word, word)
    points = read_numbers(folder / name).reshape(-1, 2) * (1, -1)
    times = read_numbers(folder / f"{name}_times")
    return np.split(points, np.flatnonzero(times[1:] > LIFT) + 1)


def draw_line(words: list[list[NDArray[np.float64]]]) -> Image.Image:
    """Draw words beside each other, their middles at one height, at twice the size of the tablet's units."""
    placed: list[NDArray[np.float64]] = []
    left = 0.0
    for strokes in words:
        points = np.concatenate(strokes)
        offset = np.array([left - points[:, 0].min(), -np.median(points[:, 1])])
        placed += [stroke + offset for stroke in strokes]
        left += np.ptp(points[:, 0]) + SPACE
    points = np.concatenate(placed)
    low, high = points.min(0) - MARGIN, points.max(0) + MARGIN
    scale = 4
    image = Image.new("L", (round((high - low)[0] * scale), round((high - low)[1] * scale)), 255)
    pen, radius = ImageDraw.Draw(image), PEN * scale / 2
    for stroke in placed:
        corners = [(float(x), float(y)) for x, y in (stroke - low) * scale]
        pen.line(corners, fill=0, width=PEN * scale, joint="curve")
        for x, y in (corners[0], corners[-1]):
            pen.ellipse([x - radius, y - radius, x + radius, y + radius], fill=0)
    return image.resize((image.width // 2, image.height // 2), Image.Resampling.BOX)


def draw(source: Path, out: Path) -> None:
    """Write the line of each session, and a table of their texts."""
    out.mkdir(parents=True, exist_ok=True)
    rows = []
    for folder in sorted(source.glob("w_*/extra")):
        session = folder.parent.name
        draw_line([read_strokes(folder, word) for word in WORDS]).save(out / f"{session}.png")
        rows.append(f"{session}.png\t{' '.join(WORDS)}\n")
    (out / "lines.tsv").write_text("image\ttext\n" + "".join(rows), encoding="utf-8", newline="\n")
    print(f"{out}: {len(rows)} lines")


def is_latin(character: str) -> bool:
    """Whether a character is a letter of the Latin alphabet, with or without marks."""
    return character.isalpha() and not "\u0370" <= character <= "\u052f"


@torch.inference_mode()
def read(folder: Path, base: Path) -> None:
    """Print the CER greedily and with the language model, each with all letters and without the Latin ones."""
    network, characters = load_network(base)
    model = LanguageModel.load(base)
    latin = [place for place, character in enumerate(characters, start=1) if is_latin(character)]
    with (folder / "lines.tsv").open(encoding="utf-8", newline="") as table:
        lines = list(csv.DictReader(table, delimiter="\t"))
    errors: dict[str, list[ErrorRate]] = {}
    for line in lines:
        with Image.open(folder / line["image"]) as image:
            pixels, steps = collate_lines([prepare_line(image, STRETCH)])
        for script in ("any script", "Cyrillic"):
            logits = compute_logits(network, pixels, steps)[0, : int(steps[0])]
            if script == "Cyrillic":
                logits[:, latin] = -torch.inf
            probabilities = logits.softmax(-1).numpy()
            for decoding, beams, chosen in (("greedy", 1, None), ("language model", 8, model)):
                text = search(probabilities, characters, beams, chosen)
                errors.setdefault(f"{script}, {decoding}", []).append(character_errors(line["text"], text))
    for name, rates in errors.items():
        print(f"{base.name}: {len(lines)} lines, {name}: CER {pool(rates).rate:.2%}")


def main() -> None:
    """Draw the lines, or read them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    drawing = commands.add_parser("draw", help="draw the sessions as lines")
    drawing.add_argument("source", type=Path, help="folder of the repository")
    drawing.add_argument("out", type=Path)
    reading = commands.add_parser("read", help="read the lines; list every reading in lab/verdicts.md")
    reading.add_argument("lines", type=Path)
    reading.add_argument("base", help="name of a shipped base, or folder of a checkpoint")
    options = parser.parse_args()
    if options.command == "draw":
        draw(options.source, options.out)
    else:
        read(options.lines, BASES / options.base if (BASES / options.base).is_dir() else Path(options.base))


if __name__ == "__main__":
    main()
