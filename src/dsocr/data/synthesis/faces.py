"""Font files as faces: which files belong together, and which characters each of them can draw."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from pathlib import Path

from PIL import ImageFont

from dsocr.data.paths import list_files, relative
from dsocr.errors import DataError

FONT_SUFFIXES = frozenset({".ttf", ".otf", ".woff", ".woff2"})

_NO_CHARACTERS = ("\uffff", "\U0010ffff")
"""Code points that Unicode keeps free of characters: what a font draws for them stands for all that it lacks."""

_PROBE = 48
"""Pixels: large enough that two glyphs look alike only if they are."""


@dataclass(frozen=True)
class Face:
    """One style of one font family: the files to try, and the characters each of them has."""

    name: str
    files: tuple[Path, ...]
    characters: tuple[frozenset[str], ...]
    capitals_only: bool = False
    family: str = ""

    @property
    def alphabet(self) -> frozenset[str]:
        """Every character the face can draw."""
        return frozenset().union(*self.characters)

    def can_draw(self, text: str) -> bool:
        """True where every character but the space has a glyph."""
        return set(text) - {" "} <= self.alphabet

    def runs(self, word: str) -> Iterator[tuple[Path, str]]:
        """The word in pieces, each with the file that draws it."""

        def home(character: str) -> int:
            return next(index for index, known in enumerate(self.characters) if character in known)

        for index, run in groupby(word, key=home):
            yield self.files[index], "".join(run)


@lru_cache(maxsize=4096)
def load_font(path: Path, size: int) -> ImageFont.FreeTypeFont:
    """The font in a file at a size in pixels."""
    return ImageFont.truetype(path, size)


@dataclass(frozen=True, slots=True)
class FoundFonts:
    """The font files of a folder by family and style, and a sentence for each file that is no font."""

    files: dict[tuple[str, str], tuple[Path, ...]]
    broken: dict[str, str]

    def faces(self, characters: Iterable[str]) -> list[Face]:
        """A face for each family and style, which knows of these characters whether it has them."""
        wanted = sorted(set(characters) - {" "})
        return [
            Face(
                f"{family} {style}".strip(),
                files,
                tuple(frozenset(_drawable(path, wanted)) for path in files),
                family=family,
            )
            for (family, style), files in sorted(self.files.items())
        ]


def find_fonts(folder: Path) -> FoundFonts:
    """The fonts in a folder and below it: TrueType, OpenType and both kinds of WOFF.

    Files that name the same family and style are one face: fonts for the web come as a file for each script. Raises
    DataError where there is no font file.
    """
    if not folder.is_dir():
        message = "is a file, not a folder of fonts" if folder.exists() else "there is no such folder of fonts"
        raise DataError(message, where=folder, hint="put the fonts to draw in into a folder, and name it")
    files: dict[tuple[str, str], list[Path]] = defaultdict(list)
    broken: dict[str, str] = {}
    for path in list_files(folder, FONT_SUFFIXES):
        try:
            files[_name(path)].append(path)
        except (OSError, ValueError, SyntaxError) as error:
            broken[relative(path, folder)] = f"not a font that can be read: {error}"
    if not files and not broken:
        hint = f"what is read: {', '.join(sorted(FONT_SUFFIXES))}"
        raise DataError("the folder holds no fonts", where=folder, hint=hint)
    return FoundFonts({name: tuple(found) for name, found in files.items()}, broken)


def _name(path: Path) -> tuple[str, str]:
    """Family and style as the file tells them, else its name."""
    font = load_font(path, _PROBE)
    # A file may be cut short behind its names; what cannot draw is found out here.
    font.getmask("a")
    family, style = font.getname()
    return (family or path.stem).strip() or path.stem, (style or "").strip()


def _drawable(path: Path, characters: Iterable[str]) -> Iterator[str]:
    """The characters that a font has a glyph for, told by its looks: neither empty nor the one for what is missing.

    On 316 font files this said of 659 characters what their tables say, but for the no-break space and soft hyphen.
    """
    font = ImageFont.truetype(path, _PROBE, layout_engine=ImageFont.Layout.BASIC)
    lacking = {_looks(font, character) for character in _NO_CHARACTERS}
    for character in characters:
        try:
            looks = _looks(font, character)
        except OSError:
            # A glyph that is damaged is a glyph that is not there.
            continue
        if looks not in lacking and any(looks[1]):
            yield character


def _looks(font: ImageFont.FreeTypeFont, character: str) -> tuple[tuple[int, int], bytes, float]:
    mask = font.getmask(character, mode="1")
    return mask.size, bytes(mask), font.getlength(character)
