"""Whose hand an image shows, which page it is of and of which document, by a column or a pattern of the user's."""

import re
from collections.abc import Mapping
from dataclasses import replace

from dsocr.data.notes import Notes
from dsocr.data.sources.layout import SourceImage
from dsocr.errors import DataError


class Names:
    """What the user says about writers, pages and documents: a column or a pattern each, None where nothing is said.

    One that matches nothing at all is an error, told when all images have been seen.
    """

    def __init__(self, wanted: Mapping[str, str | None]) -> None:
        self._namers = [_Namer(kind, said) for kind, said in wanted.items() if said is not None]

    def named(self, image: SourceImage, notes: Notes) -> SourceImage:
        """The image with its names."""
        for namer in self._namers:
            image = namer.named(image, notes)
        return image

    def demand_matches(self) -> None:
        """An error where a pattern matched none of the images it was asked about."""
        for namer in self._namers:
            namer.demand_match()


class _Namer:
    """A column of this name where an image has one, else the pattern, searched in the image's name."""

    def __init__(self, kind: str, wanted: str) -> None:
        self._kind = kind
        self._wanted = wanted
        self._matched = False
        self._unmatched: SourceImage | None = None

    def named(self, image: SourceImage, notes: Notes) -> SourceImage:
        if self._wanted in image.columns:
            self._matched = True
            return replace(image, **{self._kind: image.columns[self._wanted].strip() or None})  # type: ignore[arg-type]
        name = _matched(_compiled(self._kind, self._wanted), image.name)
        if name is None:
            notes.add_unmatched(self._kind, self._wanted, image.name)
            self._unmatched = self._unmatched or image
        self._matched = self._matched or name is not None
        return replace(image, **{self._kind: name})  # type: ignore[arg-type]

    def demand_match(self) -> None:
        if self._matched or self._unmatched is None:
            return
        hint = f"a file name here is {self._unmatched.name!r}"
        if self._unmatched.columns:
            hint += f", and the columns are: {', '.join(self._unmatched.columns)}"
        if self._wanted[:1] == self._wanted[-1:] == "'":
            hint = "the quotes came along, as they do in Windows' cmd: put the pattern in double ones there"
        raise DataError(f"the {self._kind} pattern {self._wanted} matches no file name", hint=hint)


def _compiled(kind: str, pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise DataError(f"the {kind} pattern {pattern} is not a regular expression: {error}") from error


def _matched(pattern: re.Pattern[str], name: str) -> str | None:
    """The first group, else the whole match. A pattern with a slash sees the folders too, any other the file's name."""
    found = pattern.search(name if "/" in pattern.pattern else name.rpartition("/")[2])
    return ((found[1] if pattern.groups else found[0]) or None) if found else None
