"""Whose hand an image shows, which page it is of and of which document, by a column or a pattern of the user's."""

import re
from dataclasses import replace

from dsocr.data.notes import Notes
from dsocr.data.sources.layout import SourceImage
from dsocr.errors import DataError


def with_writers(images: list[SourceImage], writer: str | None, notes: Notes) -> list[SourceImage]:
    """The images with their writers; unchanged where nothing was said about them."""
    if writer is None:
        return images
    names = _named(images, "writer", writer, notes)
    return [replace(image, writer=name) for image, name in zip(images, names, strict=True)]


def with_pages(images: list[SourceImage], page: str | None, notes: Notes) -> list[SourceImage]:
    """The images with their pages; unchanged where nothing was said about them."""
    if page is None:
        return images
    names = _named(images, "page", page, notes)
    return [replace(image, page=name) for image, name in zip(images, names, strict=True)]


def with_documents(images: list[SourceImage], document: str | None, notes: Notes) -> list[SourceImage]:
    """The images with their documents; unchanged where nothing was said about them."""
    if document is None:
        return images
    names = _named(images, "document", document, notes)
    return [replace(image, document=name) for image, name in zip(images, names, strict=True)]


def _named(images: list[SourceImage], kind: str, wanted: str, notes: Notes) -> list[str | None]:
    """Each image's name of a kind: from a column called `wanted` where the source has one, else by the pattern."""
    if any(wanted in image.columns for image in images):
        return [image.columns.get(wanted, "").strip() or None for image in images]
    pattern = _compiled(kind, wanted)
    names = [_matched(pattern, image.name) for image in images]
    if images and not any(names):
        hint = f"a file name here is {images[0].name!r}"
        if images[0].columns:
            hint += f", and the columns are: {', '.join(images[0].columns)}"
        raise DataError(f"the {kind} pattern {wanted!r} matches no file name", hint=hint)
    for image, name in zip(images, names, strict=True):
        if name is None:
            notes.add_unmatched(kind, wanted, image.name)
    return names


def _compiled(kind: str, pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise DataError(f"the {kind} pattern {pattern!r} is not a regular expression: {error}") from error


def _matched(pattern: re.Pattern[str], name: str) -> str | None:
    """The first group, else the whole match. A pattern with a slash sees the folders too, any other the file's name."""
    found = pattern.search(name if "/" in pattern.pattern else name.rpartition("/")[2])
    return ((found[1] if pattern.groups else found[0]) or None) if found else None
