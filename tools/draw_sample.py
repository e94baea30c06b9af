"""Draw the shipped Russian sample `examples/russian`: four writers with pens, one of them in the test split only.

    python tools/draw_sample.py [--out FOLDER]

Lines are drawn as `tools/draw_writers.py` draws them, on paper that is drawn too, so that nothing of anybody's scans is
in it. Two writers keep registers, households and accounts in the spelling before 1918, put together here from lists of
names, villages and things; the others write letters, diaries and recipes of `sample_texts` too. The same Pillow, NumPy
and SciPy give the same files.
"""

import argparse
import re
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, count
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from draw_writers import WRITERS, Penman, draw_page, lines_table
from dsocr.data.dataset import Card, read_card
from dsocr.data.prepare import prepare
from dsocr.document import Split
from dsocr.io.files import CARD_FILE
from hands import archive_texts
from hands.archive_texts import Choices, modern
from hands.cursive import can_write

TEXTS = Path(__file__).parent / "sample_texts"
SAMPLE = Path(__file__).parents[1] / "examples" / "russian"
SEED = 1861
JPEG_QUALITY = 72


@dataclass(frozen=True)
class Person:
    """A writer: number of the pen, writer of `sample_texts` whose pages are copied, if any, and lines of splits."""

    number: int
    texts: str
    lines: dict[Split, int]


KNOWN = {Split.TRAIN: 100, Split.VALIDATION: 16, Split.TEST: 24}
PEOPLE = {
    "agafya": Person(343, "", KNOWN),
    "demyan": Person(390, "boris", KNOWN),
    "lukerya": Person(346, "", KNOWN),
    "savva": Person(337, "gleb", {Split.TEST: 48}),
}
"""The writers by name."""

GOODS = [
    ("овса", "четверти"),
    ("ржи", "мѣры"),
    ("сѣна", "воза"),
    ("дегтю", "ведра"),
    ("соли", "пуда"),
    ("свѣчъ", "фунта"),
]
GOODS += [("муки", "куля"), ("гвоздей", "фунта"), ("холста", "аршина"), ("дровъ", "сажени"), ("желѣза", "пуда")]


class Clerk(Choices):
    """Makes pages as offices and parishes keep them; lines are spelled as before 1918."""

    def _man(self) -> str:
        return self.choice(archive_texts.MEN)

    def _woman(self) -> str:
        return self.choice(archive_texts.WOMEN)

    def _village(self) -> str:
        return f"{self.choice(['дер.', 'село', 'с.', 'хуторъ'])} {self.choice(archive_texts.VILLAGES)}"

    def page(self) -> list[str]:
        """The lines of a page of one kind."""
        kind = (self._births, self._deaths, self._households, self._accounts, self._roll)[self.number(0, 4)]
        lines: list[str] = []
        while len(lines) < 10:
            lines += kind()
        return lines[:10]

    def _births(self) -> list[str]:
        month, day = self.choice(archive_texts.MONTHS), self.number(1, 26)
        return [
            f"{self.number(1, 90)}. {month} {day} родился, {day + 2} крещенъ {self._man()}",
            f"{self._village()}, крест. {self._man()} {self.surname()}",
            f"жена его {self._woman()}, оба православные",
            f"воспр. {self.choice(['мѣщанинъ', 'солдатъ', 'купецъ', 'дьячокъ'])} {self._man()} {self.surname()}",
        ]

    def _deaths(self) -> list[str]:
        return [
            f"{self.choice(archive_texts.MONTHS)} {self.number(1, 28)} умеръ {self._man()}, {self.number(1, 88)} л.",
            f"{self._village()}, отъ {self.choice(['горячки', 'чахотки', 'кашля', 'оспы', 'старости'])}",
        ]

    def _households(self) -> list[str]:
        return [
            f"Дворъ {self.number(1, 60)}. {self._man()} {self.surname()}, {self.number(19, 80)} лѣтъ,",
            f"жена {self._woman()} {self.number(18, 70)}, сынъ {self._man()} {self.number(1, 17)},",
            f"дочь {self._woman()} {self.number(1, 17)}, мать вдова {self._woman()}",
        ]

    def _accounts(self) -> list[str]:
        goods, unit = GOODS[self.number(0, len(GOODS) - 1)]
        return [
            f"{goods} {self.number(2, 40)} {unit} — {self.number(1, 90)} р. {self.number(1, 99)} к.",
            f"{self.choice(['отъ', 'у'])} {self.choice(['купца', 'мѣщанина'])} {self.surname()[:-1]}а",
        ]

    def _roll(self) -> list[str]:
        return [f"{self.surname()} {self._man()}, {self.choice(['рядовой', 'писарь', 'ратникъ'])}, {self._village()}"]


class DrawnPaper:
    """Paper of an archive: its tone, clouds, fibres, specks and now and then a ruled line."""

    def draw(self, rng: np.random.Generator, height: int, width: int) -> tuple[NDArray[np.float32], float]:
        """A piece of paper, and how dark ink is on it."""
        tone = rng.uniform(178, 236)

        def clouds(cell: float, size: float) -> NDArray[np.float32]:
            coarse = rng.normal(0, size, (int(height / cell) + 2, int(width / cell) + 2)).astype(np.float32)
            return np.asarray(Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC))

        paper = tone + clouds(90, 5) + clouds(22, 2.5) + clouds(2.2, rng.uniform(1.5, 4))
        for _ in range(int(rng.poisson(width / 500))):
            row, column, radius = rng.integers(height), rng.integers(width), rng.uniform(1, 5)
            rows, columns = np.ogrid[:height, :width]
            paper = paper - rng.uniform(8, 40) * np.exp(-((rows - row) ** 2 + (columns - column) ** 2) / radius**2)
        return np.clip(paper, 0, 255).astype(np.float32), float(rng.uniform(0.2, 0.5))


def read_plain_texts(split: Split) -> Iterator[tuple[str, list[str]]]:
    """The writer and the lines of the pages in Russian that quote nobody."""
    for block in (TEXTS / f"{split}.txt").read_text(encoding="utf-8").strip().split("\n\n"):
        heading, *lines = block.split("\n")
        if not re.search("[A-Za-z]{2}|[А-ЯЁ]\\. [А-ЯЁ]", heading.partition("]")[2] + "".join(lines)):
            yield heading[1:].partition("]")[0], lines


def pages_of(name: str, split: Split, known: set[str]) -> list[list[str]]:
    """The pages that a writer writes in a split: letters and the like, if any, then those of offices; no known line."""
    person = PEOPLE[name]
    rng = np.random.default_rng((SEED, person.number, list(Split).index(split)))
    letters = (lines for writer, lines in read_plain_texts(split) if writer == person.texts)
    clerk = Clerk(rng)
    offices = ([line if not person.texts else modern(line) for line in clerk.page()] for _ in count())
    pages, missing = [], person.lines[split]
    for page in chain(letters, offices):
        written = [line for line in page if can_write(line) and line not in known][:missing]
        known.update(written)
        missing -= len(written)
        pages.append(written)
        if not missing:
            return pages
    return pages


def draw(out: Path) -> None:
    """Write the images and the table of the sample."""
    known: set[str] = set()
    with lines_table(out, "split", quality=JPEG_QUALITY) as write_line:
        for name, person in PEOPLE.items():
            penman, number = Penman(person.number), 0
            for split in person.lines:
                for page in pages_of(name, split, known):
                    number += 1
                    images = draw_page(penman, page, DrawnPaper(), (WRITERS, person.number, 1000 + number))
                    for place, (line, image) in enumerate(zip(page, images, strict=True), 1):
                        path = f"{name}-{number:02d}-{place:02d}.jpg"
                        write_line(image, path, line, name, f"{name}-{number:02d}", split)


def lay_into(out: Path, dataset: Path, card: Card) -> None:
    """Move a prepared dataset to `out`; an unchanged dataset keeps its creation date."""
    if (out / CARD_FILE).is_file() and (former := read_card(out)).splits == card.splits:
        former.write(dataset)
    for new in (path for name in (CARD_FILE, *Split) if (path := dataset / name).exists()):
        old = out / new.name
        if old.is_dir():
            shutil.rmtree(old)
        old.parent.mkdir(parents=True, exist_ok=True)
        old.unlink(missing_ok=True)
        shutil.move(new, old)


def main() -> None:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=SAMPLE)
    out = parser.parse_args().out
    with tempfile.TemporaryDirectory() as folder:
        source, dataset = Path(folder, "drawn"), Path(folder, "dataset")
        draw(source)
        lay_into(out, dataset, prepare(source, dataset, strict=True).card)


if __name__ == "__main__":
    main()
