"""Whose hand an image shows and which page it is of, where the user says how to tell: by a column or by a pattern."""

import re
from dataclasses import replace

from dsocr.data.notes import Notes
from dsocr.data.sources.layout import SourceImage
from dsocr.errors import DataError


class Namer:
    """Tells an image's writer or page: by a column of this name where the image has one, else by the pattern."""

    def __init__(self, kind: str, wanted: str | None, notes: Notes) -> None:
        self._kind = kind
        self._wanted = wanted
        self._notes = notes
        self._pattern: re.Pattern[str] | None = None

    def named(self, image: SourceImage) -> str | None:
        """The name, None where it is not told; `wanted` None is never told."""
        if self._wanted is None:
            return None
        if self._wanted in image.columns:
            return image.columns[self._wanted].strip() or None
        if self._pattern is None:
            self._pattern = _compiled(self._kind, self._wanted)
        name = _matched(self._pattern, image.name)
        if name is None:
            self._notes.add_unmatched(self._kind, self._wanted, image.name)
        return name
def _compiled(kind: str, pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise DataError(f"the {kind} pattern {pattern!r} is not a regular expression: {error}") from error


def _matched(pattern: re.Pattern[str], name: str) -> str | None:
    """The first group, else the whole match. A pattern with a slash sees the folders too, any other the file's name."""
    found = pattern.search(name if "/" in pattern.pattern else name.rpartition("/")[2])
    return ((found[1] if pattern.groups else found[0]) or None) if found else None
