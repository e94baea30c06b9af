"""The IAM database as it is published: `lines.txt` (in `ascii/` or not), line images, and `forms.txt` for the writers.

Lines marked `err` are kept: the mark is about the finding of words, not about the transcription. The text is the
published one, words and punctuation apart; other copies of IAM join them, so their scores do not compare. Where lists
of a published split lie in the folder, they give the splits; there are several, and their scores do not compare either.
"""

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from dsocr.document import Item, Line, Note, Page, Skipped, SkipReason, Split
from dsocr.errors import DataError
from dsocr.images import IMAGE_SUFFIXES
from dsocr.io.encodings import head, read_text
from dsocr.io.files import list_files, relative

_KINDS = {
    "the official task": {
        "trainset.txt": Split.TRAIN,
        "validationset1.txt": Split.VALIDATION,
        "validationset2.txt": Split.VALIDATION,
        "testset.txt": Split.TEST,
    },
    "Aachen (uttlist)": {
        "train.uttlist": Split.TRAIN,
        "validation.uttlist": Split.VALIDATION,
        "test.uttlist": Split.TEST,
    },
    "lists of lines (lst)": {"tr.lst": Split.TRAIN, "va.lst": Split.VALIDATION, "te.lst": Split.TEST},
    "lists of lines (ln)": {"train.ln": Split.TRAIN, "val.ln": Split.VALIDATION, "test.ln": Split.TEST},
}
_SUFFIXES = {PurePosixPath(name).suffix for names in _KINDS.values() for name in names}


@dataclass(frozen=True, slots=True)
class Splits:
    """One published split: the name of a line or a form -> where it belongs."""

    kind: str
    files: tuple[str, ...]
    names: dict[str, Split]

    def of(self, line: str, form: str) -> Split | None:
        """Where a line belongs, by its own name or its form's."""
        return self.names.get(line) or self.names.get(form)

    def told(self) -> str:
        """Which split it is, for a sentence."""
        return f"{self.kind}: {', '.join(self.files)}"


def read_splits(source: Path) -> Splits | None:
    """The split whose lists lie in the folder, None where none does; an error where there are several."""
    found: dict[str, list[tuple[Path, Split]]] = defaultdict(list)
    for path in list_files(source, _SUFFIXES):
        for kind, names in _KINDS.items():
            if split := names.get(path.name.lower()):
                found[kind].append((path, split))
    if len(found) > 1:
        told = "; ".join(f"{kind} ({', '.join(path.name for path, _ in files)})" for kind, files in found.items())
        message = f"the folder holds the lists of more than one split: {told}"
        raise DataError(message, where=source, hint="leave one of them in the folder")
    return next((_read(kind, files, source) for kind, files in found.items()), None)


def _read(kind: str, files: list[tuple[Path, Split]], source: Path) -> Splits:
    names: dict[str, Split] = {}
    for path, split in files:
        for row in read_text(path).splitlines():
            name = _name(row)
            if name and names.setdefault(name, split) != split:
                raise DataError(f"{name} stands in the {names[name]} and in the {split} list", where=path)
    return Splits(kind, tuple(relative(path, source) for path, _ in files), names)


def _name(row: str) -> str:
    """The first word of a row, without the folders and the suffix that some lists have."""
    word = PurePosixPath((row.split() or [""])[0])
    return word.stem if word.suffix.lower() in IMAGE_SUFFIXES else word.name


_ROW = re.compile(r"(?P<line>(?P<form>[\w]+-\w+)-\w+) (?:ok|err) \d+(?: -?\d+){5} (?P<text>.*)")
"""Name, status, grey level, number of parts, box (left, top, width, height), words with `|` between them."""

_FIRST_ROW = re.compile(rb"(?m)^[\w]+-\w+-\w+ (?:ok|err) \d+(?: -?\d+){5} ")
_FORMS = "forms.txt"


def find_iam(source: Path) -> list[Path]:
    """The `lines.txt` of a folder, if its rows are IAM's."""
    return [path for path in _texts(source, "lines.txt") if _FIRST_ROW.search(head(path))]


def read_iam(source: Path) -> Iterator[Item]:
    """Every row of `lines.txt` with its image, the page being its form."""
    splits = read_splits(source)
    if splits:
        yield Note(f"the splits are those of {splits.told()}")
    known = _Known(source, _images(source), _writers(source), splits)
    for file in find_iam(source):
        for number, row in enumerate(read_text(file).split("\n"), start=1):
            if row.strip() and not row.startswith("#"):
                yield known.source_image(row.rstrip("\r"), f"{relative(file, source)}:{number}")


def _images(source: Path) -> dict[str, list[Path]]:
    images: dict[str, list[Path]] = defaultdict(list)
    for path in list_files(source, IMAGE_SUFFIXES):
        images[path.stem].append(path)
    return images


@dataclass(frozen=True, slots=True)
class _Known:
    """What the rows are read with: line -> images of its name, form -> writer, and the published splits."""

    source: Path
    images: dict[str, list[Path]]
    writers: dict[str, str]
    splits: Splits | None

    def source_image(self, row: str, where: str) -> Page | Skipped:
        found = _ROW.fullmatch(row)
        if not found:
            return Skipped(SkipReason.BAD_SOURCE, where, f"the row is not one of IAM's: {row[:60]!r}")
        line, form = found["line"], found["form"]
        split = self.splits.of(line, form) if self.splits else None
        if self.splits and split is None:
            return Skipped(SkipReason.NO_SPLIT, where, f"{line} stands in none of {self.splits.told()}")
        paths = self.images.get(line, [])
        if len(paths) != 1:
            return Skipped(SkipReason.NO_IMAGE, where, f"{len(paths)} images are called {line!r}, not one")
        return Page(
            image=paths[0],
            name=relative(paths[0].with_suffix(""), self.source),
            where=where,
            lines=(Line(found["text"].replace("|", " "), where),),
            writer=self.writers.get(form),
            page=form,
            split=split,
        )


def _writers(source: Path) -> dict[str, str]:
    """Form -> writer, the first two words of each row; empty where there is no `forms.txt`."""
    rows = (row.split() for path in _texts(source, _FORMS) for row in read_text(path).split("\n"))
    return {row[0]: row[1] for row in rows if len(row) >= 2 and not row[0].startswith("#")}


def _texts(source: Path, name: str) -> list[Path]:
    return [path for path in list_files(source, {".txt"}) if path.name.lower() == name]
