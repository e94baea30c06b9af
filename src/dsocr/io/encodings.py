"""Read text files: UTF-8, or the encoding the user names, with a suggestion for files of neither kind.

The suggestion covers Russian texts of Windows, DOS and Unix. It is applied only on request.
"""

import codecs
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from dsocr.errors import DataError, DsocrError, option
from dsocr.io.budget import MB, Budget

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
    # In UTF-16 the high bytes of Latin letters, spaces and digits are 0, those of Cyrillic letters 4.
    even, odd = part[::2], part[1::2]
    if len(part) >= 4 and part.count(0) > len(part) / 8:
        return "utf-16-le" if odd.count(0) > even.count(0) else "utf-16-be"
    for name, high in (("utf-16-le", odd), ("utf-16-be", even)):
        if len(high) >= 3 and high.count(4) > 0.7 * len(high):
            return name
    scores = {encoding: _plausibility(part.decode(encoding, errors="replace")) for encoding in EIGHT_BIT}
    best = max(scores, key=lambda encoding: scores[encoding])
    return best if scores[best] > 0 else None


def _plausibility(text: str) -> float:
    """Score per letter beyond ASCII: at most 1, negative if it does not look like text."""
    high = [character for character in text if not character.isascii()]
    signs = sum(not character.isalpha() and character not in _SIGNS for character in high)
    return (sum(map(_word_score, _WORD.findall(text))) - 2 * signs) / max(1, len(high))


def _word_score(word: str) -> float:
    """Reward frequent letters; penalise two scripts in a word, and capitals after its first letter."""
    high = [letter for letter in word.lower() if not letter.isascii()]
    # Accented letters are between plain Latin ones; a word of accented letters alone is something else.
    is_latin = len(high) < len(word) or word.lower() in _LATIN_SMALL
    if not all(letter in (_LATIN_SMALL if is_latin else _FREQUENT) for letter in high):
        return -1.0 * len(high)
    penalty = 0.3 * (sum(letter.isupper() for letter in word[1:]) + word.isupper()) if high else 0.0
    return sum(0.8 if is_latin else 1 - _FREQUENT[letter] / 20 for letter in high) - penalty


MAX_TEXT_BYTES = 64 * MB
_MAX_VALUES = 8_000_000
"""Values of a JSON file; an empty list takes 64 bytes."""
_HEAD_BYTES = 16 * 1024

_encoding: ContextVar[str | None] = ContextVar("encoding of text files that are not UTF-8", default=None)


@contextmanager
def text_encoding(encoding: str | None) -> Iterator[None]:
    """Read text files that are not UTF-8 in this encoding, None rejects them; a context, as formats choose files."""
    if encoding is not None:
        try:
            "а".encode(encoding, errors="replace")
        except LookupError:
            hint = f"common encodings are: {', '.join((*EIGHT_BIT, 'utf-16'))}"
            raise DataError(f"unknown encoding {encoding!r}", code="encoding-unknown", hint=hint) from None
    token = _encoding.set(encoding)
    try:
        yield
    finally:
        _encoding.reset(token)


def read_text(path: Path) -> str:
    """The text of a UTF-8 file without its byte order mark, line ends unchanged; see `text_encoding` for others."""
    return _decode(Budget(size=MAX_TEXT_BYTES).read(path), path)


def _decode(data: bytes, path: Path) -> str:
    encoding = _encoding.get()
    problem = "it looks like two bytes per letter"
    # UTF-16 can be valid UTF-8 with control characters.
    if not ((b"\0" in data or b"\4" in data) and (likely_encoding(data) or "").startswith("utf-16")):
        try:
            return data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            problem = f"byte {data[error.start]:#04x} at position {error.start}"
    if encoding is None:
        message, hint = f"the file is not UTF-8: {problem}", "save it as UTF-8"
        if likely := likely_encoding(data):
            message = f"{message}; it looks like {likely}, which the option encoding names"
            hint = f"add {option('encoding', likely)}, or save the file as UTF-8"
        raise DataError(message, code="not-utf8", where=path, hint=hint)
    try:
        return data.decode(encoding).removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        message = f"the file is neither UTF-8 nor {encoding}: {error.reason} at position {error.start}"
        raise DataError(message, code="wrong-encoding", where=path) from error


def read_json(path: Path) -> object:
    """The content of a JSON file."""
    return parse_json(read_text(path), path)


def read_object(path: Path) -> dict[str, Any]:
    """The object in a JSON file; empty if the file is missing, damaged or holds something else."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


@contextmanager
def refusing_json(
    path: Path, error: type[DsocrError], code: str, *, message: str = "cannot be read", hint: str | None = None
) -> Iterator[None]:
    """Raise `error` for what fails in the block because of the content of a JSON file; not if there is no file."""
    try:
        yield
    except FileNotFoundError:
        raise
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as problem:
        raise error(f"{message}: {problem}", code=code, where=path, hint=hint) from problem


@contextmanager
def reading_json(
    path: Path, error: type[DsocrError], code: str, *, message: str = "cannot be read", hint: str | None = None
) -> Iterator[Any]:
    """Yield the content of a JSON file, refused as `refusing_json` does it."""
    with refusing_json(path, error, code, message=message, hint=hint):
        yield json.loads(path.read_text(encoding="utf-8"))


def parse_json(text: str, where: object) -> object:
    """Parse JSON; `where` names its place in the error."""
    Budget(elements=_MAX_VALUES).take(where, elements=sum(map(text.count, "[{,:")))
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
