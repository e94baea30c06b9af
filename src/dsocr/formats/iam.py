"""The IAM database as it is published: `lines.txt` (in `ascii/` or not), line images, and `forms.txt` for the writers.

Lines marked `err` are kept: the mark is about word segmentation, not about the transcription. The text is the published
one, with words and punctuation separated; other copies of IAM join them, so their scores are not comparable. Lists of a
published split in the folder give the splits; there are several, whose scores are not comparable either.
"""

import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from dsocr.document import Item, Line, Note, Page, Skipped, SkipReason, Split
from dsocr.errors import DataError
from dsocr.formats.format import Columns, Format
from dsocr.images import IMAGE_SUFFIXES
from dsocr.io.encodings import head, read_text
from dsocr.io.files import list_files, relative

_SPLIT_FILES = {
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
_SPLIT_SUFFIXES = {PurePosixPath(name).suffix for names in _SPLIT_FILES.values() for name in names}

_ROW = re.compile(r"(?P<line>(?P<form>[\w]+-\w+)-\w+) (?:ok|err) \d+(?: -?\d+){5} (?P<text>.*)")
"""Name, status, grey level, number of components, box (left, top, width, height), words with `|` between them."""
_FIRST_ROW = re.compile(rb"(?m)^[\w]+-\w+-\w+ (?:ok|err) \d+(?: -?\d+){5} ")


def find_iam(source: Path, columns: Columns | None = None) -> list[Path]:
    """List the `lines.txt` of a folder whose rows are IAM's."""
    return [path for path in _text_files(source, "lines.txt") if _FIRST_ROW.search(head(path))]


def _text_files(source: Path, name: str) -> list[Path]:
    return [path for path in list_files(source, {".txt"}) if path.name.lower() == name]


def read_iam(source: Path, columns: Columns | None = None) -> Iterator[Item]:
    """Read every row of `lines.txt` with its image; the page is its form."""
    description, splits = _read_splits(source)
    if description:
        yield Note(f"the splits are those of {description}")
    images: dict[str, list[Path]] = defaultdict(list)
    for path in list_files(source, IMAGE_SUFFIXES):
        images[path.stem].append(path)
    writers = _read_writers(source)
    for file in find_iam(source):
        for number, row in enumerate(read_text(file).split("\n"), start=1):
            if not row.strip() or row.startswith("#"):
                continue
            where = f"{relative(file, source)}:{number}"
            match = _ROW.fullmatch(row.rstrip("\r"))
            if match is None:
                yield Skipped(SkipReason.BAD_SOURCE, where, f"the row is not one of IAM's: {row[:60].rstrip()!r}")
                continue
            line, form = match["line"], match["form"]
            split = splits.get(line) or splits.get(form)
            if description and split is None:
                yield Skipped(SkipReason.NO_SPLIT, where, f"{line} is in none of {description}")
            elif len(paths := images.get(line, [])) != 1:
                yield Skipped(SkipReason.NO_IMAGE, where, f"{len(paths)} images are called {line!r}, not one")
            else:
                name = relative(paths[0].with_suffix(""), source)
                lines = (Line(match["text"].replace("|", " "), where),)
                yield Page(paths[0], name, where, lines, writer=writers.get(form), page=form, split=split)


def _read_splits(source: Path) -> tuple[str, dict[str, Split]]:
    """Return the published split whose lists are in the folder, and the split of each line or form.

    Both are empty if there is none; several are an error.
    """
    by_kind: dict[str, list[tuple[Path, Split]]] = defaultdict(list)
    for path in list_files(source, _SPLIT_SUFFIXES):
        for kind, names in _SPLIT_FILES.items():
            if split := names.get(path.name.lower()):
                by_kind[kind].append((path, split))
    if len(by_kind) > 1:
        kinds = "; ".join(f"{kind} ({', '.join(path.name for path, _ in files)})" for kind, files in by_kind.items())
        message = f"the folder holds the lists of more than one split: {kinds}"
        raise DataError(message, code="splits-ambiguous", where=source, hint="leave one of them in the folder")
    for kind, files in by_kind.items():
        return f"{kind}: {', '.join(relative(path, source) for path, _ in files)}", _read_split_lists(files)
    return "", {}


def _read_split_lists(files: list[tuple[Path, Split]]) -> dict[str, Split]:
    names: dict[str, Split] = {}
    for path, split in files:
        for row in read_text(path).splitlines():
            # Some lists have folders and a suffix.
            word = PurePosixPath((row.split() or [""])[0])
            name = word.stem if word.suffix.lower() in IMAGE_SUFFIXES else word.name
            if name and names.setdefault(name, split) != split:
                raise DataError(
                    f"{name} is in the {names[name]} and in the {split} list", code="splits-conflict", where=path
                )
    return names


def _read_writers(source: Path) -> dict[str, str]:
    """Return form -> writer, the first two words of each row; empty if there is no `forms.txt`."""
    rows = (row.split() for path in _text_files(source, "forms.txt") for row in read_text(path).split("\n"))
    return {row[0]: row[1] for row in rows if len(row) >= 2 and not row[0].startswith("#")}


FORMATS = (Format(name="iam", title="IAM lists of lines", find=find_iam, read=read_iam, example="iam -o data/mine"),)
