"""Reading a text file that somebody else wrote: UTF-8, with or without its mark, and of a sane size."""

from pathlib import Path

from dsocr.errors import DataError

MAX_TEXT_BYTES = 256 * 1024 * 1024


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
