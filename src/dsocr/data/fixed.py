"""Lists of names that must stand in a given split, as published ones do: one name a line, or a name, a tab and a split.

A name is a writer, a document, a page or an image; `writer:a01` says which, where a name could be two things.
"""

import hashlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from dsocr.data.grouping import Placeable, page_key
from dsocr.data.images import IMAGE_SUFFIXES
from dsocr.data.sources.texts import read_text
from dsocr.data.splits import split_called
from dsocr.errors import DataError
from dsocr.samples import Split

_KINDS = ("writer", "document", "page", "image")


@dataclass(frozen=True, slots=True)
class FixedName:
    """A line of a list; `where` is its file and number."""

    name: str
    split: Split
    where: str


@dataclass(frozen=True, slots=True)
class FixedList:
    """A list that was read; `sha256` is its file's."""

    file: str
    sha256: str
    names: tuple[FixedName, ...]


def read_fixed(path: Path) -> FixedList:
    """The names of a list; empty lines and lines that begin with # are let be, and no second column means test."""
    text = read_text(path)
    names = [
        _fixed_name(line, f"{path.name}:{number}")
        for number, line in enumerate(text.splitlines(), start=1)
        if line.strip() and not line.startswith("#")
    ]
    if not names:
        raise DataError("the list names nothing", where=path)
    return FixedList(path.name, hashlib.sha256(path.read_bytes()).hexdigest(), tuple(names))


def _fixed_name(line: str, where: str) -> FixedName:
    name, tab, word = line.strip().partition("\t")
    split = split_called(word) if tab else Split.TEST
    if split is None:
        raise DataError(f"{word.strip()!r} is no split; write train, validation or test after a tab", where=where)
    return FixedName(name.strip(), split, where)


def fix(names: Sequence[FixedName], facts: Sequence[Placeable]) -> dict[int, FixedName]:
    """Place of a sample -> the line that names it; a name of nothing or of two things, or two splits, is an error."""
    index = _index(facts)
    fixed: dict[int, FixedName] = {}
    for name in names:
        for place in sorted(_named(name, index)):
            other = fixed.setdefault(place, name)
            if other.split != name.split:
                message = f"{name.name!r} is to be in {name.split}, but {other.where} puts it in {other.split}"
                raise DataError(message, where=name.where)
    return fixed


Index = Mapping[str, Mapping[str, Sequence[int]]]
"""Name -> what it may mean, as `kind called name` -> the places of the samples."""


def _index(facts: Sequence[Placeable]) -> Index:
    index: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for place, fact in enumerate(facts):
        whole_page = page_key(fact.document, fact.page)
        for kind, names, meant in (
            ("writer", {fact.writer}, fact.writer),
            ("document", {fact.document}, fact.document),
            ("page", {fact.page, whole_page}, whole_page),
            ("image", {fact.name, fact.name.rpartition("/")[2]}, fact.name),
        ):
            for name in names - {None, ""}:
                index[name or ""][f"{kind} {meant}"].append(place)
    return index


def _named(name: FixedName, index: Index) -> Sequence[int]:
    kind, colon, rest = name.name.partition(":")
    called, only = (rest, kind) if colon and kind in _KINDS and name.name not in index else (name.name, None)
    meant = {
        what: places
        for spelling in _spellings(called)
        for what, places in index.get(spelling, {}).items()
        if only in (None, what.partition(" ")[0])
    }
    if not meant:
        raise DataError(f"{name.name!r} is no writer, document, page or image of the source", where=name.where)
    if len({tuple(places) for places in meant.values()}) > 1:
        told = " and ".join(f"{what} ({len(places)} samples)" for what, places in sorted(meant.items()))
        hint = f"say which: {sorted(meant)[0].partition(' ')[0]}:{called}, or an image's whole path"
        raise DataError(f"{name.name!r} may be {told}", where=name.where, hint=hint)
    return next(iter(meant.values()))


def _spellings(name: str) -> set[str]:
    """The name as it stands, and without the suffix of an image; a path may be written as on Windows."""
    path = PurePosixPath(name.replace("\\", "/"))
    return {name, str(path.with_suffix("")) if path.suffix.lower() in IMAGE_SUFFIXES else str(path)}
