"""Reading a text or JSON file that somebody else wrote: UTF-8, with or without its mark, and of a sane size."""

import json
from pathlib import Path

from dsocr.errors import DataError

MAX_TEXT_BYTES = 256 * 1024 * 1024
_HEAD_BYTES = 16 * 1024


def read_text(path: Path) -> str:
    """The text of a UTF-8 file, its byte order mark dropped and line ends as they are."""
    try:
        if path.stat().st_size > MAX_TEXT_BYTES:
            raise DataError(f"the file is larger than {MAX_TEXT_BYTES // 2**20} MB", where=path)
        return path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        message = f"the file is not UTF-8: byte {error.object[error.start]:#04x} at position {error.start}"
        raise DataError(message, where=path, hint="save it as UTF-8") from error
    except OSError as error:
        raise DataError(f"the file cannot be read: {error.strerror or error}", where=path) from error


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
