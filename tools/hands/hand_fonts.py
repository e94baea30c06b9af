"""Shapes of letters from fonts, joined or not: their outlines, or their middle lines drawn with another pen.

Fonts are npm packages `@fontsource/<name>`, unpacked side by side in one folder; none is shipped. Their Cyrillic files
hold letters only, so a word is drawn in runs, each from the file that has its characters.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import groupby
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from hands.own_letters import Cell, bend_picture, random_letters
from hands.pens import Style, Written, middle_line, warp

CURSIVE = ["comforter", "comforter-brush", "great-vibes", "pacifico", "lobster", "pattaya", "amatic-sc", "klee-one"]
CURSIVE += ["playpen-sans", "balsamiq-sans", "zen-kurenaido", "hachi-maru-pop", "bellota-text", "kurale"]
ITALIC = ["playfair-display", "lora", "cormorant", "alegreya", "pt-serif", "philosopher"]
PRINT = ["arimo", "tinos", "noto-serif", "roboto", "open-sans", "pt-sans", "pt-serif"]
LATIN_HANDS = ["playwrite-fr-moderne", "playwrite-fr-trad", "playwrite-de-grund", "playwrite-us-trad", "playwrite-pl"]
LATIN_HANDS += ["playwrite-it-moderna", "playwrite-es", "dancing-script", "homemade-apple", "la-belle-aurore", "zeyada"]
LATIN_HANDS += ["cedarville-cursive", "reenie-beanie", "sacramento", "nothing-you-could-do", "over-the-rainbow"]
LATIN_HANDS += ["mrs-saint-delafield", "mr-dafoe", "herr-von-muellerhoff", "dawning-of-a-new-day", "meddon", "allura"]
LATIN_HANDS += ["league-script", "kristi", "indie-flower", "kalam", "patrick-hand", "caveat-brush", "rouge-script"]
HELD_OUT_FONTS = ["bad-script", "caveat", "marck-script", "neucha", "shantell-sans", "pangolin", "yomogi"]
"""Fonts for tests: the four hands of `examples/handwriting` and three more. Pretraining never sees them."""

BEST_HANDS = ["great-vibes", "comforter", "comforter-brush", "pacifico"]
"""The fonts most like handwriting, which are drawn more often."""

SIZE = 40
"""The x-height in pixels at which fonts are drawn before they are deformed."""

LEAN = {
    "marck-script": 0.2,
    "great-vibes": 0.2,
    "comforter": 0.2,
    "comforter-brush": 0.2,
    "lobster": 0.2,
    "russkopis": 0.28,
}
"""How much a font leans by itself, which is taken away before a writer leans it."""


@dataclass(frozen=True)
class Face:
    """One style of a font family: its files, and the characters that each of them has."""

    name: str
    files: tuple[Path, ...]
    characters: tuple[frozenset[str], ...]
    capitals_only: bool = False
    family: str = ""

    @property
    def alphabet(self) -> frozenset[str]:
        """All characters that the face can draw."""
        return frozenset().union(*self.characters)

    def can_draw(self, text: str) -> bool:
        """Whether every character except the space has a glyph."""
        return set(text) - {" "} <= self.alphabet

    def runs(self, word: str) -> Iterator[tuple[Path, str]]:
        """Split a word into runs, each with the file that draws it."""

        def file_index(character: str) -> int:
            return next(index for index, known in enumerate(self.characters) if character in known)

        for index, run in groupby(word, key=file_index):
            yield self.files[index], "".join(run)


@lru_cache(maxsize=4096)
def load_font(path: Path, size: int) -> ImageFont.FreeTypeFont:
    """Load a font at a size in pixels."""
    return ImageFont.truetype(path, size)


def load_face(folder: Path, slope: str, *, capitals_only: bool) -> Face:
    """A face of an unpacked @fontsource package, e.g. `fonts/caveat`."""
    files = [
        path
        for subset in ("latin", "cyrillic", "latin-ext", "cyrillic-ext")
        if (path := folder / "files" / f"{folder.name}-{subset}-400-{slope}.woff2").is_file()
    ]
    if not files:
        raise FileNotFoundError(f"{folder} holds no @fontsource files of weight 400, {slope}")
    characters = [frozenset(map(chr, _character_map(path))) for path in files]
    name = f"{folder.name}-400" + ("" if slope == "normal" else f"-{slope}")
    return Face(name, tuple(files), tuple(characters), capitals_only)


@cache
def _character_map(path: Path) -> frozenset[int]:
    cache = path.with_suffix(".cmap.json")
    if not cache.is_file():
        from fontTools.ttLib import TTFont  # in the extra `tools`

        cache.write_text(json.dumps(sorted(TTFont(path, lazy=True).getBestCmap())), encoding="utf-8")
    return frozenset(json.loads(cache.read_text(encoding="utf-8")))


def load_file(name: str, file: Path) -> Face:
    """A face of one font file with all its characters."""
    from fontTools.ttLib import TTFont  # in the extra `tools`

    with TTFont(file, lazy=True) as font:
        characters = frozenset(map(chr, font.getBestCmap()))
    return Face(name, (file,), (characters,), family=name)


def load_faces(fonts: Path, names: Sequence[str], slope: str = "normal") -> list[Face]:
    """The faces of @fontsource packages at weight 400."""
    return [load_face(fonts / name, slope, capitals_only=name == "amatic-sc") for name in names]


def draw_text(text: str, face: Face) -> tuple[Written, list[Cell]]:
    """Draw a text in a face, x-height `SIZE`; also the cells of its letters."""
    probe = "х" if face.can_draw("х") else "x"
    height = -load_font(next(face.runs(probe))[0], 200).getbbox(probe, anchor="ls")[1]
    size = max(8, round(200 * SIZE / max(20, height)))
    parts = [(file, run) for word in text.split() for file, run in (*face.runs(word), (face.files[0], " "))][:-1]
    runs = [(load_font(file, size), run) for file, run in parts]
    length = sum(font.getlength(run) for font, run in runs)
    margin, baseline = 2 * SIZE, round(3.6 * SIZE)
    image = Image.new("L", (int(length) + 2 * margin, 6 * SIZE), 0)
    drawing, x = ImageDraw.Draw(image), float(margin)
    ends: list[tuple[str, float]] = []
    for font, run in runs:
        drawing.text((x, baseline), run, fill=255, font=font, anchor="ls")
        ends += [(run[place], x + font.getlength(run[: place + 1])) for place in range(len(run))]
        x += font.getlength(run)
    ink = np.asarray(image, dtype=np.float32) / np.float32(255)
    columns = np.flatnonzero(ink.max(0) > 0.2)
    if not len(columns):
        raise ValueError(f"{face.name} draws nothing for {text!r}")
    left = max(0, int(columns[0]) - 4)
    starts = [margin, *[end for _, end in ends[:-1]]]
    cells = [Cell(letter, start - left, end - left) for start, (letter, end) in zip(starts, ends, strict=True)]
    return Written(ink[:, left : columns[-1] + 5], baseline, SIZE), cells


def write_in_font(text: str, face: Face, style: Style, rng: np.random.Generator, *, middle: float) -> Written:
    """Write a text in a face as a writer of a style would; `middle` is how often middle lines are drawn with a pen."""
    written, cells = draw_text(text, face)
    lean = LEAN.get(face.family or face.name.rsplit("-", 1)[0], 0.0)
    written = bend_picture(written, cells, lean, random_letters(rng))
    if rng.random() < middle:
        written = Written(middle_line(written.ink, rng), written.baseline, written.x_height)
    return warp(written, style, rng)
