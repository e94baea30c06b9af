"""Render the shipped sample `examples/handwriting`: four writers, one of them in the test split only.

    python tools/render_sample.py --fonts FONTS

FONTS holds the npm packages `@fontsource/<name>` of the four writers, unpacked into folders of the same name. The texts
are `sample_texts/<split>.txt`: pages of lines, each under the name of its writer. The same fonts and texts give the
same files.
"""

import argparse
import csv
import shutil
import tempfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from dsocr.data.dataset import Card, read_card
from dsocr.data.prepare import prepare
from dsocr.document import Split
from dsocr.io.files import CARD_FILE
from fontsource import load_face
from render import Style, render_line

SEED = 2024
TEXTS = Path(__file__).parent / "sample_texts"
SAMPLE = Path(__file__).parents[1] / "examples" / "handwriting"
JPEG_QUALITY = 88

Colour = tuple[int, int, int]

BLUE, VIOLET, BLACK, BROWN = (38, 52, 128), (74, 40, 110), (38, 38, 44), (84, 58, 40)
GREEN, PENCIL, RED = (28, 86, 72), (96, 96, 100), (146, 38, 44)


@dataclass(frozen=True)
class Paper:
    """A sheet to write on."""

    colour: Colour
    rules: str = "none"
    grain: float = 3.0
    shade: float = 6.0


WHITE, CREAM, OLD = Paper((247, 246, 243)), Paper((244, 238, 222)), Paper((228, 214, 184), grain=5, shade=12)
LINED, SQUARED = Paper((246, 245, 240), rules="lines"), Paper((243, 245, 247), rules="squares")
GREY = Paper((222, 220, 214), grain=6, shade=9)


@dataclass(frozen=True)
class Hand:
    """How a writer writes: a font and its weights, the usual style, inks and papers."""

    font: str
    weights: tuple[int, ...]
    style: Style
    inks: tuple[Colour, ...]
    papers: tuple[Paper, ...]


HANDS = {
    "anna": Hand(
        "marck-script",
        (400,),
        Style(size=42, slant=0.03, drift=0.035, drift_period=16, wobble=0.03, stroke=0.1, tremble=0.028),
        (BLUE, VIOLET, BLUE, BROWN),
        (CREAM, WHITE, OLD, LINED),
    ),
    "boris": Hand(
        "bad-script",
        (400,),
        Style(
            size=32, slant=-0.1, drift=0.02, drift_period=22, wobble=0.025, stroke=0.55, tremble=0.035, run_space=0.07
        ),
        (BLACK, PENCIL, BLUE),
        (SQUARED, LINED, SQUARED, WHITE),
    ),
    "vera": Hand(
        "caveat",
        (400, 600),
        Style(size=41, slant=0.06, drift=0.05, drift_period=12, wobble=0.04, stroke=0.1, tremble=0.035),
        (GREEN, BLUE, RED, BLACK),
        (LINED, WHITE, CREAM, SQUARED),
    ),
    "gleb": Hand(
        "neucha",
        (400,),
        Style(size=38, slant=-0.16, drift=0.045, drift_period=10, wobble=0.035, stroke=-0.1, tremble=0.045),
        (PENCIL, BLACK, BROWN),
        (GREY, OLD, SQUARED),
    ),
}
"""The writers by name; the nano base was not pretrained on their fonts."""


@dataclass(frozen=True)
class Page:
    """Lines that one writer wrote on one sheet; another `drawing` of the same lines looks different."""

    name: str
    writer: str
    split: Split
    lines: tuple[str, ...]
    drawing: tuple[int, ...] = ()


def read_pages(folder: Path) -> Iterator[Page]:
    """The pages of the text files `<split>.txt`."""
    numbers = dict.fromkeys(HANDS, 0)
    for split in Split:
        for writer, lines in read_texts(folder / f"{split}.txt"):
            numbers[writer] += 1
            yield Page(f"{writer}-{numbers[writer]:02d}", writer, split, lines)


def read_texts(file: Path) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Writer and lines of each page of a text file: a heading `[writer] title`, then the lines, then a blank line."""
    for block in file.read_text(encoding="utf-8").strip().split("\n\n"):
        heading, *lines = block.split("\n")
        yield heading[1:].partition("]")[0], tuple(lines)


def page_style(hand: Hand, rng: np.random.Generator) -> Style:
    """The writer's style on one page, with a random pen and sheet and small variations."""
    paper = hand.papers[int(rng.integers(len(hand.papers)))]
    ink = np.array(hand.inks[int(rng.integers(len(hand.inks)))]) + rng.integers(-8, 9, 3)
    return replace(
        hand.style,
        size=hand.style.size + int(rng.integers(-2, 3)),
        slant=hand.style.slant + float(rng.normal(0, 0.03)),
        word_space=float(rng.uniform(0.9, 1.4)),
        stroke=hand.style.stroke + float(rng.normal(0, 0.12)),
        blur=float(rng.uniform(0.2, 0.75)),
        ink=_colour(ink),
        ink_fade=float(rng.uniform(0.1, 0.35) if rng.random() < 0.75 else rng.uniform(0.45, 0.7)),
        paper=_colour(np.array(paper.colour) + rng.integers(-4, 5)),
        paper_grain=paper.grain,
        paper_shade=paper.shade,
        rules=paper.rules,
        pressure=float(rng.uniform(0.2, 0.45)),
    )


def line_style(page: Style, rng: np.random.Generator) -> Style:
    """The page's style on one line, and how its image was cut out."""
    return replace(
        page,
        slant=page.slant + float(rng.normal(0, 0.025)),
        rise=float(rng.normal(0, 0.008)),
        drift=page.drift * float(rng.uniform(0.5, 1.6)),
        drift_period=page.drift_period * float(rng.uniform(0.7, 1.5)),
        wobble=page.wobble * float(rng.uniform(0.5, 1.5)),
        word_space=page.word_space * float(rng.uniform(0.85, 1.2)),
        word_jitter=float(rng.uniform(0.01, 0.05)),
        stroke=page.stroke + float(rng.normal(0, 0.07)),
        above_rule=float(rng.uniform(-0.03, 0.12)),
        margins=(
            float(rng.uniform(0.1, 0.8)),
            float(rng.uniform(0.05, 0.25)),
            float(rng.uniform(0.1, 0.8)),
            float(rng.uniform(0.05, 0.25)),
        ),
    )


def _colour(values: np.ndarray) -> Colour:
    red, green, blue = (int(value) for value in np.clip(values, 0, 255))
    return red, green, blue


def write_source(fonts: Path, pages: list[Page], folder: Path) -> None:
    """Draw the lines of the pages as images, and write the table of their texts, writers and splits."""
    with (folder / "lines.csv").open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file)
        table.writerow(["file_name", "text", "writer", "split", "page"])
        for page in pages:
            for name, text in write_page(fonts, page, folder):
                table.writerow([name, text, page.writer, page.split, page.name])


def write_page(fonts: Path, page: Page, folder: Path) -> Iterator[tuple[str, str]]:
    """Draw the lines of a page and yield their file names and texts; a page does not depend on the others."""
    hand = HANDS[page.writer]
    rng = np.random.default_rng((SEED, zlib.crc32("\n".join(page.lines).encode()), *page.drawing))
    style = page_style(hand, rng)
    face = load_face(fonts / hand.font, int(rng.choice(hand.weights)))
    for number, text in enumerate(page.lines, start=1):
        name = f"{page.name}-{number:02d}.jpg"
        line = render_line(text, face, line_style(style, rng), rng)
        line.image.save(folder / name, quality=JPEG_QUALITY)
        yield name, text


def make_sample(fonts: Path, out: Path) -> Card:
    """Draw the sample and put it into `out`, beside other files there, such as the README."""
    with tempfile.TemporaryDirectory() as temporary:
        source, dataset = Path(temporary, "rendered"), Path(temporary, "dataset")
        source.mkdir()
        write_source(fonts, list(read_pages(TEXTS)), source)
        card = prepare(source, dataset, strict=True).card
        return lay_into(out, dataset, card)


def lay_into(out: Path, dataset: Path, card: Card) -> Card:
    """Move a prepared dataset to `out`; an unchanged dataset keeps its creation date."""
    if (out / CARD_FILE).is_file() and (former := read_card(out)).splits == card.splits:
        card = former
        card.write(dataset)
    for name in (CARD_FILE, *Split):
        if (dataset / name).exists():
            _replace(dataset / name, out / name)
    return card


def _replace(new: Path, old: Path) -> None:
    if old.is_dir():
        shutil.rmtree(old)
    old.parent.mkdir(parents=True, exist_ok=True)
    old.unlink(missing_ok=True)
    shutil.move(new, old)


def main() -> None:
    """Parse the command line, make the sample, and print its size."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--fonts", type=Path, required=True, help="folder with unpacked @fontsource packages")
    parser.add_argument("-o", "--out", type=Path, default=SAMPLE, help="dataset folder to write")
    options = parser.parse_args()
    card = make_sample(options.fonts, options.out)
    counts = ", ".join(f"{part.samples} {split}" for split, part in card.splits.items())
    print(f"made {options.out}: {counts} lines")
    print(f"next: dsocr check {options.out}")


if __name__ == "__main__":
    main()
