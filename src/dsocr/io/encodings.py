"""Which encoding a text is in that is not UTF-8: what Russian Windows, DOS and Unix wrote, told by the letters.

A guess is only ever told; nothing is read by it unasked.
"""

import codecs
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import pairwise
from pathlib import Path

from dsocr.errors import DataError

EIGHT_BIT = ("cp1251", "koi8-r", "cp866", "cp1252")

_FREQUENT = {letter: place for place, letter in enumerate("оеаинтсрвлкмдпуяыьгзбчйхжшюцщэфъё")}
"""Russian letters from the most frequent to the rarest, by the usual counts of prose."""

_SIGNS = frozenset("«»—–…№„“”‘’°§©\u00a0")
_LATIN_SMALL = frozenset("àâäæçèéêëíîïñóôöøùûüÿœßå")
_WORD = re.compile(r"[^\W\d_]+")
_LOOKED_AT = 20_000
"""Bytes that are enough to tell."""


def likely_encoding(data: bytes) -> str | None:
    """The Python name of the encoding that a text seems to be in; None where nothing makes sense."""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    part = data[:_LOOKED_AT]
    if len(part) >= 4 and part.count(0) > len(part) / 8:
        # Spaces and digits have a zero byte: the second of two where the low byte comes first.
        return "utf-16-le" if part[1::2].count(0) > part[::2].count(0) else "utf-16-be"
    if (wide := _without_nulls(part)) is not None:
        return wide
    scores = {encoding: _plausibility(part, encoding) for encoding in EIGHT_BIT}
    best = max(scores, key=lambda encoding: scores[encoding])
    return best if scores[best] > 0 else None


def is_wide(data: bytes) -> bool:
    """Whether a text has two bytes a letter; some of these would pass for UTF-8 with control characters."""
    return (b"\0" in data or b"\4" in data) and (likely_encoding(data) or "").startswith("utf-16")


def _without_nulls(part: bytes) -> str | None:
    """UTF-16 of Cyrillic letters alone: every other byte is 4."""
    for name, high in (("utf-16-le", part[1::2]), ("utf-16-be", part[::2])):
        if len(high) >= 3 and high.count(4) > 0.7 * len(high):
            return name
    return None


def _plausibility(part: bytes, encoding: str) -> float:
    """How much a text looks like one, by letter: up to 1, and below 0 where it looks like none."""
    text = part.decode(encoding, errors="replace")
    high = [character for character in text if ord(character) > 127]
    if not high:
        return 0.0
    signs = sum(0.0 if character in _SIGNS else -2.0 for character in high if not character.isalpha())
    return (signs + sum(_word_score(word) for word in _WORD.findall(text))) / len(high)


def _word_score(word: str) -> float:
    """Frequent letters are good; two scripts in a word, and capitals after small letters, are not."""
    high = [letter for letter in word if ord(letter) > 127]
    if not high:
        return 0.0
    mixed = len(high) < len(word)
    if all(letter.lower() in _LATIN_SMALL for letter in high):
        # An accent is at home between Latin letters; without any the letters are something else.
        score = 0.8 if mixed or len(word) == 1 else -1.0
        return score * len(high) - _odd_case(word)
    if mixed or not all(letter.lower() in _FREQUENT for letter in high):
        return -1.0 * len(high)
    return sum(1 - _FREQUENT[letter.lower()] / 20 for letter in high) - _odd_case(word)


def _odd_case(word: str) -> float:
    """One for each capital that follows a small letter, and for a word of capitals a little."""
    odd = sum(first.islower() and second.isupper() for first, second in pairwise(word))
    odd += sum(first.isupper() and second.islower() for first, second in pairwise(word[1:]))
    return float(odd) + (0.3 * len(word) if len(word) > 1 and word.isupper() else 0.0)


MAX_TEXT_BYTES = 256 * 1024 * 1024
_HEAD_BYTES = 16 * 1024


_encoding: ContextVar[str | None] = ContextVar("encoding of texts that are not UTF-8", default=None)


@contextmanager
def text_encoding(encoding: str | None) -> Iterator[None]:
    """While it lasts, texts that are not UTF-8 are read in this encoding; None refuses them.

    A context, not an argument: the formats that read texts are many, and which files they read is their own affair.
    """
    if encoding is not None:
        try:
            codecs.lookup(encoding)
            "а".encode(encoding, errors="replace")
        except LookupError:
            known = ", ".join((*EIGHT_BIT, "utf-16"))
            raise DataError(f"unknown encoding {encoding!r}", hint=f"usual ones are: {known}") from None
    token = _encoding.set(encoding)
    try:
        yield
    finally:
        _encoding.reset(token)


def read_text(path: Path) -> str:
    """The text of a UTF-8 file, its byte order mark dropped and line ends as they are.

    What is not UTF-8 is read as `text_encoding` says, else refused with the encoding that it seems to be in.
    """
    try:
        if path.stat().st_size > MAX_TEXT_BYTES:
            raise DataError(f"the file is larger than {MAX_TEXT_BYTES // 2**20} MB", where=path)
        return _decoded(path.read_bytes(), path)
    except OSError as error:
        raise DataError(f"the file cannot be read: {error.strerror or error}", where=path) from error


def _decoded(data: bytes, path: Path) -> str:
    encoding = _encoding.get()
    problem = "two bytes stand for a letter"
    if not is_wide(data):
        try:
            return data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            problem = f"byte {data[error.start]:#04x} at position {error.start}"
    if encoding is None:
        raise _refusal(data, path, problem)
    try:
        return data.decode(encoding).removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        message = f"the file is neither UTF-8 nor {encoding}: {error.reason} at position {error.start}"
        raise DataError(message, where=path) from error


def _refusal(data: bytes, path: Path, problem: str) -> DataError:
    likely = likely_encoding(data)
    if likely is None:
        return DataError(f"the file is not UTF-8: {problem}", where=path, hint="save it as UTF-8")
    told = f"the file is not UTF-8: {problem}; it looks like {likely}, which --encoding {likely} reads"
    return DataError(told, where=path, hint=f"add --encoding {likely} to the command, or save the file as UTF-8")


def read_json(path: Path) -> object:
    """What a JSON file holds."""
    return parse_json(read_text(path), path)


def parse_json(text: str, where: object) -> object:
    """What JSON says; `where` stands in the sentence where it is none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"it is not JSON: {error}", where=where) from error


def writable(value: object) -> str:
    """A name from JSON as it can be written, the half characters that it may hold escaped."""
    return str(value).encode("utf-8", "backslashreplace").decode("utf-8")


def head(path: Path) -> bytes:
    """The first kilobytes of a file, by which its format is told; empty where it cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(_HEAD_BYTES).removeprefix(b"\xef\xbb\xbf")
    except OSError:
        return b""
