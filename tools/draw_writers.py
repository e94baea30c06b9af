"""Draw collections of Russian handwriting by writers that pretraining never drew, many lines by each.

    python tools/draw_writers.py OUT --writers 7 14 15 --lines 150 --sheets UNSEEN --words WORDS [--russkopis FOLDER]

OUT gets the lines as images and `lines.csv`, which `dsocr prepare OUT -o DATASET` reads. Pretraining draws each line by
a writer of its own from the seeds `(SEED, line)`, by now 1, 34, 35 and 1_000_004 (`tools/draw_hands.py`); writers here
come from `(WRITERS, number)`, so none is among those. SHEETS and WORDS are as in `tools/draw_hands.py --unseen`.
"""

import argparse
import csv
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
from PIL import Image

from hands.archive_texts import ArchiveTexts, modern
from hands.cursive import can_write, random_writer, write
from hands.hand_fonts import LEAN, Face, draw_text, load_file
from hands.own_letters import bend_picture
from hands.paper import Paper, Sheets, crop, degrade, put_on_paper
from hands.pens import Style, Written, deform, draw_strokes, middle_line, random_style, warp
from small_texts import load_words

WRITERS = 5_000_011
"""First part of the seed of a writer."""

LINES_ON_A_PAGE = 15


class Penman:
    """A writer with a pen, by number; letters are pen tracks, or those of a face if one is given."""

    def __init__(self, number: int, face: Face | None = None) -> None:
        self.number, self._seed = number, (WRITERS, number)
        rng = np.random.default_rng(self._seed)
        self.style, self.face = random_style(rng), face
        self._writer = random_writer(rng)
        self._draws_middle = rng.random() < 0.55

    def can_write(self, text: str) -> bool:
        """Whether the writer has all characters of a text."""
        return can_write(text) if self.face is None else self.face.can_draw(text)

    def write(self, text: str, style: Style, rng: np.random.Generator) -> Written:
        """Write a line."""
        self._writer.rng = self._writer.own.rng = rng
        if self.face is None:
            strokes = write(text, self._writer, style.space)
            return draw_strokes(deform(strokes, style, rng), style, rng)
        drawn, cells = draw_text(text, self.face)
        written = bend_picture(drawn, cells, LEAN.get(self.face.family or "", 0.0), self._writer.own)
        if self._draws_middle:
            pen = np.random.default_rng((*self._seed, 1))
            written = Written(middle_line(written.ink, pen), written.baseline, written.x_height)
        return warp(written, style, rng)


def draw_page(penman: Penman, lines: list[str], paper: Paper, seed: tuple[int, ...]) -> list[Image.Image]:
    """Draw the lines of a page: one sheet, one ink, one scan; the seed determines them."""
    rng = np.random.default_rng(seed)
    style = replace(
        penman.style,
        slant=penman.style.slant + float(rng.normal(0, 0.02)),
        pen=penman.style.pen * float(np.exp(rng.normal(0, 0.1))),
        space=penman.style.space * float(np.exp(rng.normal(0, 0.05))),
    )
    images = []
    for number, text in enumerate(lines):
        ink = crop(penman.write(text, style, np.random.default_rng((*seed, number, 1))), rng)
        sheet, scan = np.random.default_rng((*seed, 2)), np.random.default_rng((*seed, 3))
        images.append(degrade(put_on_paper(ink, paper, sheet), scan))
    return images


@contextmanager
def lines_table(out: Path, *columns: str, quality: int = 75) -> Iterator[Callable[..., None]]:
    """Open the table of a folder of line images; yield a function that saves an image and adds its row."""
    out.mkdir(parents=True)
    with (out / "lines.csv").open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file)
        table.writerow(["image", "text", "writer", "page", *columns])

        def write_line(image: Image.Image, name: str, *cells: str) -> None:
            (out / name).parent.mkdir(exist_ok=True)
            image.save(out / name, quality=quality)
            table.writerow([name, *cells])

        yield write_line


def write_collection(
    out: Path, penmen: list[Penman], lines: int, text: Callable[[np.random.Generator], str], paper: Paper
) -> None:
    """Write so many lines of each writer, and the table of their texts."""
    with lines_table(out) as write_line:
        for penman in penmen:
            number = penman.number
            rng = np.random.default_rng((WRITERS, number, 4))
            texts: list[str] = []
            while len(texts) < lines:
                if penman.can_write(drawn := text(rng)) and drawn not in texts:
                    texts.append(drawn)
            for page, start in enumerate(range(0, lines, LINES_ON_A_PAGE)):
                shown = texts[start : start + LINES_ON_A_PAGE]
                images = draw_page(penman, shown, paper, (WRITERS, number, page))
                for place, (line, image) in enumerate(zip(shown, images, strict=True)):
                    name = f"images/w{number:02d}-{page:02d}-{place:02d}.png"
                    write_line(image, name, line, f"w{number:02d}", f"w{number:02d}-{page:02d}")


def main() -> None:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--writers", type=int, nargs="+", required=True, help="their numbers")
    parser.add_argument("--lines", type=int, default=150, help="of each writer")
    parser.add_argument("--sheets", type=Path, required=True)
    parser.add_argument("--words", type=Path, required=True, help="tables of the package wordfreq")
    parser.add_argument("--lists", type=Path, default=Path("/usr/share/hunspell"), help="word lists of Hunspell")
    parser.add_argument("--russkopis", type=Path, help="every third writer's letters are Russkopis's")
    options = parser.parse_args()
    words = load_words(options.words / "large_ru.msgpack.gz", options.lists / "ru_RU.dic", unseen=True)
    font = options.russkopis and load_file("russkopis", options.russkopis / "Russkopis-Normalny.ttf")
    penmen = [Penman(number, font if number % 3 == 2 else None) for number in options.writers]
    texts = ArchiveTexts(words)

    def text(rng: np.random.Generator) -> str:
        line = texts.line(rng)
        return line if can_write(line) else modern(line)

    write_collection(options.out, penmen, options.lines, text, Sheets(options.sheets))


if __name__ == "__main__":
    main()
