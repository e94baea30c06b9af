"""Reading a text or JSON file that somebody else wrote: UTF-8, with or without its mark, and of a sane size."""

import codecs
import json
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from dsocr.data.sources.encodings import EIGHT_BIT, is_wide, likely_encoding
from dsocr.errors import DataError

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
