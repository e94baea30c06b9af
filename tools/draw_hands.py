"""Draw handwriting for the pretraining of `small`, on the paper and with the ink of real lines.

    python tools/draw_hands.py sheets DATASET... --out SHEETS                 # empty paper of real lines, once
    python tools/draw_hands.py sheets DATASET... --held-out --out UNSEEN      # of documents that only validate
    python tools/draw_hands.py lines tracks --sheets SHEETS --words WORDS --cache CACHE --count 10000
    python tools/draw_hands.py lines joined --russkopis FOLDER ...            # Russkopis as TTF, made by fontforge
    python tools/draw_hands.py lines fonts --fonts FONTS ...                  # npm packages @fontsource/<name>
    python tools/draw_hands.py lines latin --fonts FONTS ...                  # Latin hands, same paper and ink
    python tools/draw_hands.py letters DATASET... --base small --out LETTERS  # real lines cut into letters, once
    python tools/draw_hands.py lines ink --letters LETTERS --reader small ...  # Russian set from them
    python tools/draw_hands.py lines tracks --unseen --sheets UNSEEN ...      # validation: other words and writers

A cache is that of `pretrain_small.py`. WORDS is a folder with the tables of the package wordfreq. Each line has its own
writer; line and seed determine it. DATASET folders are those of `dsocr prepare --split 1/0/0 --store files` on the
repositories that the card of `small` names.
"""

import argparse
import multiprocessing
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from dsocr.models.canvas import LINE_HEIGHT
from hands.archive_texts import ArchiveTexts, is_decent, modern
from hands.cursive import can_write, random_writer, write
from hands.hand_fonts import (
    BEST_HANDS,
    CURSIVE,
    HELD_OUT_FONTS,
    ITALIC,
    LATIN_HANDS,
    PRINT,
    Face,
    load_faces,
    load_file,
    write_in_font,
)
from hands.paper import Sheets, finish_line, write_sheets
from hands.pens import Style, Written, deform, draw_strokes, random_style, warp
from hands.real_ink import CutLine, RealInk, coverage, cut_line, write_letters
from pretrain_small import (
    CLASSES,
    HELD_OUT_DOCUMENTS,
    STRETCH,
    error_rate,
    grey_line,
    start_network,
)
from small_lines import write_source
from small_texts import (
    CHARACTERS,
    LATIN_WEIGHTS,
    WEIGHTS,
    LineMaker,
    Words,
    count_words,
    is_held_out,
    literature_lines,
    load_words,
)

WORDS = {
    "ru": ("large_ru", "ru_RU"),
    "uk": ("large_uk", "uk_UA"),
    "bg": ("small_bg", "bg_BG"),
    "be": ("", "be_BY"),
    "sr": ("", "sr_RS"),
    **{language: (f"large_{language}", "") for language in ("fr", "de", "en", "pl", "es", "it")},
}
"""The tables of frequencies and the word lists of each language."""

SOURCES = ("tracks", "joined", "fonts", "latin", "ink")

UNSEEN_SEED = 1_000_003
"""Added to the seed of validation lines, whose writers are never those of training."""

WITH_NEIGHBOUR = 0.35

_WIDEST = 0.26
"""Width of a stroke in x-heights where the pen goes down, above which letters become blots."""

_FLOOD = 0.28
"""Width in x-heights, of two pixels each, of what ink may fill."""

MOST_ERRORS = 0.6
"""CER of a reader above which a line set from real letters is left out: its letters were cut at wrong places."""

_MARKS = '.,:;!?…«»()"„“”'


@dataclass(frozen=True)
class Settings:
    """What every process needs to draw the lines of a source."""

    source: str
    sheets: Path
    words: Path
    lists: Path
    fonts: Path | None
    russkopis: Path | None
    letters: Path | None
    literature: Path | None
    seed: int
    unseen: bool
    height: int = LINE_HEIGHT


def keep_legible(style: Style) -> Style:
    """Limit a pen to what leaves letters that can be read."""
    flood = int(_FLOOD * style.x_height)
    limit = _WIDEST / (1 + 0.75 * style.pressure)
    return replace(style, pen=min(style.pen, limit), flood=min(style.flood, flood - 1 + flood % 2))


class Hands:
    """Writes the lines of a source."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.sheets = Sheets(settings.sheets)
        words = {
            language: load_words(
                settings.words / f"{table}.msgpack.gz" if table else None,
                settings.lists / f"{listed}.dic" if listed else None,
                unseen=settings.unseen,
            )
            for language, (table, listed) in WORDS.items()
        }
        self.literature: list[str] = []
        if settings.literature:
            # Words of the time; the held-out ones stay out of what trains.
            lines = [
                " ".join(word for word in line.split() if is_held_out(word.strip(_MARKS).lower()) is settings.unseen)
                for line in literature_lines(settings.literature, 1_500_000)
            ]
            self.literature = [line for line in lines if line and set(line) <= set(CHARACTERS) and is_decent(line)]
            counted = count_words(self.literature)
            words["ru"] = Words(counted.frequent, counted.cumulated, words["ru"].every)
        self.archives = ArchiveTexts(words["ru"])
        self.languages = LineMaker(words, WEIGHTS)
        self.latin = LineMaker(words, LATIN_WEIGHTS)
        self.groups = self._load_groups()
        self.ink = RealInk(settings.letters) if settings.letters else None

    def _load_groups(self) -> list[tuple[float, list[Face]]]:
        """The faces of the source in groups, each with the share of its lines."""
        source, fonts, russkopis = self.settings.source, self.settings.fonts, self.settings.russkopis
        if source == "joined":
            assert russkopis, "joined needs --russkopis"
            files = [(0.65, "Russkopis-Normalny"), (0.35, "Russkopis-Zhirny")]
            return [(share, [load_file("russkopis", russkopis / f"{name}.ttf")]) for share, name in files]
        if source in ("tracks", "ink"):
            return []
        assert fonts, f"{source} needs --fonts"
        if source == "latin":
            return [(1.0, load_faces(fonts, LATIN_HANDS))]
        if self.settings.unseen:
            return [(1.0, load_faces(fonts, HELD_OUT_FONTS))]
        groups = [(0.45, load_faces(fonts, BEST_HANDS)), (0.40, load_faces(fonts, CURSIVE))]
        return [*groups, (0.08, load_faces(fonts, ITALIC, "italic")), (0.07, load_faces(fonts, PRINT))]

    def text(self, rng: np.random.Generator) -> str:
        """A random text for the source."""
        if self.settings.source == "latin":
            return self.latin.line(rng, int(rng.triangular(3, 25, 58)))[1]
        if self.settings.source == "fonts" and rng.random() < 0.45:
            return self.languages.line(rng, int(rng.triangular(3, 25, 58)))[1]
        if self.literature and rng.random() < 0.4:
            words = self.literature[int(rng.integers(len(self.literature)))].split()
            first = int(rng.integers(len(words))) if rng.random() < 0.3 else 0
            text = " ".join(words[first : first + int(rng.integers(1, 10))])
            return modern(text) if rng.random() < 0.3 else text
        return self.archives.line(rng)

    def write(self, rng: np.random.Generator) -> tuple[str, Written]:
        """Write a line by a writer of its own: its text and the ink."""
        text, style = self.text(rng), keep_legible(random_style(rng))
        if len(text) < 14 and rng.random() < 0.4:  # single words are often written large and wide
            style = replace(style, width=style.width * float(rng.uniform(1.1, 1.8)))
        if self.ink is not None:
            return self.write_in_ink(self.ink, text, style, rng)
        if self.settings.source == "tracks":
            while not can_write(text):
                text = self.text(rng)
            strokes = write(text, random_writer(rng), style.space)
            return text, draw_strokes(deform(strokes, style, rng), style, rng)
        shares = [share for share, _ in self.groups]
        faces = self.groups[int(rng.choice(len(shares), p=shares))][1]
        face = faces[int(rng.integers(len(faces)))]
        if self.settings.source == "joined":
            style = replace(style, width=style.width * float(rng.uniform(0.7, 1.15)))
        text = text.upper() if face.capitals_only else text
        text = text if face.can_draw(text) else modern(text)
        text = " ".join("".join(letter for letter in text if face.can_draw(letter)).split()) or "1"
        return text, write_in_font(text, face, style, rng, middle=0.55)

    def write_in_ink(self, ink: RealInk, text: str, style: Style, rng: np.random.Generator) -> tuple[str, Written]:
        """Write the text whose letters a random page has most of."""
        while True:
            page = ink.page(rng)
            texts = [text for text in (text, *(self.text(rng) for _ in range(11))) if can_write(text)] or ["и"]
            text = max(texts, key=lambda text: coverage(text, page) + 0.05 * min(4, len(text) / 8))
            manner = replace(style, slant=page.slant + float(rng.normal(0, 0.08)), width=style.width**0.5)
            written = warp(ink.write(text, page, manner, rng), manner, rng, real=True)
            if (written.ink > 0.3).sum() > 0.06 * manner.x_height**2 * len(text.replace(" ", "")):
                return text, written  # and not a page whose ink is too pale to be seen

    def line(self, number: int) -> tuple[str, Image.Image]:
        """The text and the image of a line, which its number and the seed determine."""
        rng = np.random.default_rng((self.settings.seed + UNSEEN_SEED * self.settings.unseen, number))
        text, written = self.write(rng)
        other = self.write(rng)[1] if rng.random() < WITH_NEIGHBOUR else None
        return text, finish_line(written, other, self.sheets, rng)


_hands: Hands | None = None


def _start(settings: Settings) -> None:
    global _hands
    _hands = Hands(settings)


def _draw(number: int) -> tuple[str, NDArray[np.uint8]]:
    assert _hands is not None
    text, image = _hands.line(number)
    return text, grey_line(image, _hands.settings.height)


def draw_lines(
    settings: Settings, first: int, count: int, processes: int
) -> Iterator[tuple[str, NDArray[np.uint8], bool]]:
    """Yield text, pixels and whether they validate, of every line."""
    numbers = range(first, first + count)
    if processes == 1:
        hands = Hands(settings)
        yield from (
            (text, grey_line(image, settings.height), settings.unseen) for text, image in map(hands.line, numbers)
        )
        return
    context = multiprocessing.get_context("spawn")
    with context.Pool(processes, _start, (settings,)) as pool:
        for text, pixels in pool.imap(_draw, numbers, chunksize=16):
            yield text, pixels, settings.unseen


def read_well(
    lines: Iterator[tuple[str, NDArray[np.uint8], bool]], reader: Path
) -> Iterator[tuple[str, NDArray[np.uint8], bool]]:
    """Leave out the lines that a reader reads with too many errors."""
    torch.set_num_threads(1)
    network = start_network(reader).eval()
    skipped = 0
    for text, pixels, validates in lines:
        if error_rate(network, [(text, pixels)]) > MOST_ERRORS:
            skipped += 1
        else:
            yield text, pixels, validates
    print(f"{skipped} lines left out that {reader} cannot read", flush=True)


def main() -> None:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    kinds = ("sheets", "take the strokes away from real lines", 300), ("letters", "cut real lines into letters", 400)
    for name, use, most in kinds:
        command = commands.add_parser(name, help=use)
        command.add_argument("datasets", type=Path, nargs="+")
        command.add_argument("--out", type=Path, required=True)
        command.add_argument("--most", type=int, default=most, help="lines of a dataset")
        command.add_argument("--held-out", action="store_true", help="of the documents that only validate")
    command.add_argument("--base", type=Path, required=True, help="checkpoint folder of the reader that aligns them")
    drawing = commands.add_parser("lines", help="draw lines")
    drawing.add_argument("source", choices=SOURCES)
    drawing.add_argument("--sheets", type=Path, required=True)
    drawing.add_argument("--words", type=Path, required=True, help="tables of the package wordfreq")
    drawing.add_argument("--lists", type=Path, default=Path("/usr/share/hunspell"), help="word lists of Hunspell")
    drawing.add_argument("--fonts", type=Path)
    drawing.add_argument("--russkopis", type=Path)
    drawing.add_argument("--letters", type=Path, help="what the command letters wrote")
    drawing.add_argument("--literature", type=Path, help="folder of Russian text files")
    drawing.add_argument("--reader", type=Path, help="checkpoint folder that must be able to read the lines")
    drawing.add_argument("--cache", type=Path, required=True)
    drawing.add_argument("--name", help="of the source in the cache; drawn-SOURCE if not given")
    drawing.add_argument("--first", type=int, default=0, help="number of the first line, to draw more than before")
    drawing.add_argument("--count", type=int, default=10_000)
    drawing.add_argument("--seed", type=int, default=1)
    drawing.add_argument("--unseen", action="store_true", help="for validation")
    drawing.add_argument("--processes", type=int, default=1)
    drawing.add_argument("--height", type=int, default=LINE_HEIGHT, help="of the lines, in pixels")
    options = parser.parse_args()

    def keep(source: str) -> bool:
        return any(part in source for part in HELD_OUT_DOCUMENTS) is options.held_out

    if options.command == "sheets":
        print(write_sheets(options.datasets, options.out, options.most, keep), "sheets")
    elif options.command == "letters":
        torch.set_num_threads(1)
        network = start_network(options.base).eval()

        def cut(image: Image.Image, text: str) -> CutLine | None:
            return cut_line(image, text, network, CLASSES, STRETCH) if set(text) <= CLASSES.keys() else None

        print(write_letters(options.datasets, options.out, options.most, keep, cut), "lines")
    else:
        names = (
            "source",
            "sheets",
            "words",
            "lists",
            "fonts",
            "russkopis",
            "letters",
            "literature",
            "seed",
            "unseen",
            "height",
        )
        settings = Settings(**{name: getattr(options, name) for name in names})
        name = options.name or f"{'unseen' if options.unseen else 'drawn'}-{options.source}"
        lines = draw_lines(settings, options.first, options.count, options.processes)
        write_source(options.cache, name, read_well(lines, options.reader) if options.reader else lines)


if __name__ == "__main__":
    main()
