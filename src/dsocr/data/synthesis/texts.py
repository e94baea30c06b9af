"""The lines to draw, out of a text file of any length: as they stand, or broken from running text at word ends."""

import codecs
import hashlib
import heapq
import unicodedata
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dsocr.errors import DataError
from dsocr.text import comparable

SHORTEST, LONGEST = 20, 60
"""Characters of a line that is broken from running text; a line of the file that is no longer is drawn as it stands."""

_PIECE = 1 << 16
_LONG_WORD = f"words of more than {LONGEST} characters"
_UNSEEN = "lines with characters that nobody can see"


@dataclass(frozen=True, slots=True)
class ChosenLines:
    """Lines in random order, no two alike, and what was passed over, counted by reason."""

    lines: list[str]
    passed_over: Counter[str]


def choose_lines(path: Path, count: int, seed: int) -> ChosenLines:
    """At most `count` different lines of a text file in UTF-8, each with the same chance.

    The file is read once, in pieces, and no more than `count` lines are held. Raises DataError where it cannot be read
    or holds nothing to draw.
    """
    passed_over: Counter[str] = Counter()
    # The lines with the smallest hashes are a fair draw, and a line that comes again has the hash it had before.
    largest_first: list[tuple[int, str]] = []
    kept: set[str] = set()
    for line in _lines(path, np.random.default_rng(seed), passed_over):
        rank = _rank(line, seed)
        if line in kept or (len(kept) == count and rank >= -largest_first[0][0]):
            continue
        kept.add(line)
        heapq.heappush(largest_first, (-rank, line))
        if len(kept) > count:
            kept.remove(heapq.heappop(largest_first)[1])
    if not kept:
        raise DataError("the text file holds nothing to draw", where=path, hint="give it a line for each to draw")
    return ChosenLines([line for _, line in sorted(largest_first, reverse=True)], passed_over)


def _rank(line: str, seed: int) -> int:
    return int.from_bytes(hashlib.blake2b(f"{seed} {line}".encode(), digest_size=8).digest())


def _lines(path: Path, rng: np.random.Generator, passed_over: Counter[str]) -> Iterator[str]:
    """Every line that can be drawn, as it is stored: NFC, no white space but single spaces."""
    for piece in _pieces(path):
        text = comparable(piece)
        for line in [text] if len(text) <= LONGEST else _broken(text, rng, passed_over):
            if any(unicodedata.category(character)[0] == "C" for character in line):
                passed_over[_UNSEEN] += 1
            elif line:
                yield line


def _pieces(path: Path) -> Iterator[str]:
    """The lines of a file; one that is longer than a piece comes in several, cut at a space where it has one."""
    decoder = codecs.getincrementaldecoder("utf-8-sig")()
    rest, done = "", False
    try:
        with path.open("rb") as file:
            while not done:
                data = file.read(_PIECE)
                done = not data
                *lines, rest = (rest + decoder.decode(data, done)).replace("\r", "\n").split("\n")
                yield from lines
                if len(rest) > _PIECE:
                    head, _, rest = rest.rpartition(" ")
                    yield head or rest
                    rest = rest if head else ""
    except UnicodeDecodeError as error:
        raise DataError("is not UTF-8 text", where=path, hint="save it with the encoding UTF-8") from error
    except OSError as error:
        hint = "name a text file in UTF-8, such as what was transcribed already"
        raise DataError(f"the text cannot be read: {error.strerror}", where=path, hint=hint) from error
    yield rest


def _broken(text: str, rng: np.random.Generator, passed_over: Counter[str]) -> Iterator[str]:
    """Running text in lines of SHORTEST to LONGEST characters, the last of them maybe shorter."""
    line, length = "", int(rng.integers(SHORTEST, LONGEST + 1))
    for word in text.split(" "):
        if len(word) > LONGEST:
            passed_over[_LONG_WORD] += 1
            # What stands on either side of it belongs together no longer.
            word = ""
        if line and (not word or len(line) + 1 + len(word) > length):
            yield line
            line, length = "", int(rng.integers(SHORTEST, LONGEST + 1))
        line = f"{line} {word}" if line else word
    if line:
        yield line
