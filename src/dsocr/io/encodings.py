"""Read text files: UTF-8, or the encoding the user names, with a suggestion for files of neither kind.

The suggestion covers what Windows, DOS and Unix in Russian wrote. It is never applied without being asked for.
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
"""Rank of each Russian letter by frequency in prose, 0 the most frequent."""

_SIGNS = frozenset("«»—–…№„“”‘’°§©\u00a0")
_LATIN_SMALL = frozenset("àâäæçèéêëíîïñóôöøùûüÿœßå")
_WORD = re.compile(r"[^\W\d_]+")
_SAMPLE_BYTES = 20_000
"""Bytes of a file that are examined."""


def likely_encoding(data: bytes) -> str | None:
    """The Python name of the most plausible encoding; None if no encoding makes sense."""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    part = data[:_SAMPLE_BYTES]
    if len(part) >= 4 and part.count(0) > len(part) / 8:
        # Spaces and digits have a zero byte, the second of two in little-endian order.
        return "utf-16-le" if part[1::2].count(0) > part[::2].count(0) else "utf-16-be"
    if (wide := _cyrillic_utf16(part)) is not None:
        return wide
    scores = {encoding: _plausibility(part, encoding) for encoding in EIGHT_BIT}
    best = max(scores, key=lambda encoding: scores[encoding])
    return best if scores[best] > 0 else None


def _is_utf16(data: bytes) -> bool:
    """True for UTF-16, which can be valid UTF-8 with control characters."""
    return (b"\0" in data or b"\4" in data) and (likely_encoding(data) or "").startswith("utf-16")


def _cyrillic_utf16(part: bytes) -> str | None:
    """UTF-16 of Cyrillic letters only: every other byte is 4."""
    for name, high in (("utf-16-le", part[1::2]), ("utf-16-be", part[::2])):
        if len(high) >= 3 and high.count(4) > 0.7 * len(high):
            return name
    return None


def _plausibility(part: bytes, encoding: str) -> float:
    """Score per letter: at most 1, negative if it does not look like text."""
    text = part.decode(encoding, errors="replace")
    high = [character for character in text if ord(character) > 127]
    if not high:
        return 0.0
    signs = sum(0.0 if character in _SIGNS else -2.0 for character in high if not character.isalpha())
    return (signs + sum(_word_score(word) for word in _WORD.findall(text))) / len(high)


def _word_score(word: str) -> float:
    """Reward frequent letters; penalise two scripts in a word and capitals after small letters."""
    high = [letter for letter in word if ord(letter) > 127]
    if not high:
        return 0.0
    mixed = len(high) < len(word)
    if all(letter.lower() in _LATIN_SMALL for letter in high):
        # Accented letters stand among plain Latin ones; a word of accented letters alone is something else.
        score = 0.8 if mixed or len(word) == 1 else -1.0
        return score * len(high) - _case_penalty(word)
    if mixed or not all(letter.lower() in _FREQUENT for letter in high):
        return -1.0 * len(high)
    return sum(1 - _FREQUENT[letter.lower()] / 20 for letter in high) - _case_penalty(word)


def _case_penalty(word: str) -> float:
    """One for each capital after a small letter, and a little for a word in capitals."""
    odd = sum(first.islower() and second.isupper() for first, second in pairwise(word))
    odd += sum(first.isupper() and second.islower() for first, second in pairwise(word[1:]))
    return float(odd) + (0.3 * len(word) if len(word) > 1 and word.isupper() else 0.0)


MAX_TEXT_BYTES = 256 * 1024 * 1024
_HEAD_BYTES = 16 * 1024

_encoding: ContextVar[str | None] = ContextVar("encoding of text files that are not UTF-8", default=None)


@contextmanager
def text_encoding(encoding: str | None) -> Iterator[None]:
    """Read text files that are not UTF-8 in this encoding inside the block; None rejects them.

    A context rather than an argument, since a format decides by itself which text files it reads.
    """
    if encoding is not None:
        try:
            codecs.lookup(encoding)
            "а".encode(encoding, errors="replace")
        except LookupError:
            hint = f"common encodings are: {', '.join((*EIGHT_BIT, 'utf-16'))}"
            raise DataError(f"unknown encoding {encoding!r}", code="unknown-encoding", hint=hint) from None
    token = _encoding.set(encoding)
    try:
        yield
    finally:
        _encoding.reset(token)


def read_text(path: Path) -> str:
    """The text of a UTF-8 file without its byte order mark, line ends unchanged; see `text_encoding` for others."""
    try:
        if path.stat().st_size > MAX_TEXT_BYTES:
            message = f"the file is larger than {MAX_TEXT_BYTES // 2**20} MB, too large for a text"
            raise DataError(message, code="text-too-large", where=path)
        return _decode(path.read_bytes(), path)
    except OSError as error:
        message = f"the file cannot be read: {error.strerror or error}"
        raise DataError(message, code="file-unreadable", where=path) from error


def _decode(data: bytes, path: Path) -> str:
    encoding = _encoding.get()
    problem = "it looks like two bytes per letter"
    if not _is_utf16(data):
        try:
            return data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            problem = f"byte {data[error.start]:#04x} at position {error.start}"
    if encoding is None:
        message, hint = f"the file is not UTF-8: {problem}", "save it as UTF-8"
        if likely := likely_encoding(data):
            message = f"{message}; it looks like {likely}, which --encoding {likely} reads"
            hint = f"add --encoding {likely} to the command, or save the file as UTF-8"
        raise DataError(message, code="not-utf8", where=path, hint=hint)
    try:
        return data.decode(encoding).removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        message = f"the file is neither UTF-8 nor {encoding}: {error.reason} at position {error.start}"
        raise DataError(message, code="wrong-encoding", where=path) from error


def read_json(path: Path) -> object:
    """The content of a JSON file."""
    return parse_json(read_text(path), path)


def parse_json(text: str, where: object) -> object:
    """Parse JSON; `where` names its place in the error."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"the JSON is invalid: {error}", code="not-json", where=where) from error


def writable(value: object) -> str:
    """A string that can be encoded as UTF-8: lone surrogates, which JSON can contain, are escaped."""
    return str(value).encode("utf-8", "backslashreplace").decode("utf-8")


def head(path: Path) -> bytes:
    """The first kilobytes of a file, for recognising its format; empty if it cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(_HEAD_BYTES).removeprefix(b"\xef\xbb\xbf")
    except OSError:
        return b""
