"""The IAM database as it is published: `lines.txt` (in `ascii/` or not), line images, and `forms.txt` for the writers.

Lines marked `err` are kept: the mark is about the finding of words, not about the transcription. The text is the
published one, words and punctuation apart; other copies of IAM join them, so their scores do not compare. Where lists
of a published split lie in the folder, they give the splits; there are several, and their scores do not compare either.
"""

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from dsocr.data.images import IMAGE_SUFFIXES
from dsocr.data.paths import list_files, relative
from dsocr.data.sources.iam_splits import Splits, read_splits
from dsocr.data.sources.layout import Item, LeftOut, Reason, Remark, SourceImage, SourceLine
from dsocr.data.sources.texts import head, read_text

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
        yield Remark(f"the splits are those of {splits.told()}")
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

    def source_image(self, row: str, where: str) -> SourceImage | LeftOut:
        found = _ROW.fullmatch(row)
        if not found:
            return LeftOut(Reason.BAD_SOURCE, where, f"the row is not one of IAM's: {row[:60]!r}")
        line, form = found["line"], found["form"]
        split = self.splits.of(line, form) if self.splits else None
        if self.splits and split is None:
            return LeftOut(Reason.NO_SPLIT, where, f"{line} stands in none of {self.splits.told()}")
        paths = self.images.get(line, [])
        if len(paths) != 1:
            return LeftOut(Reason.NO_IMAGE, where, f"{len(paths)} images are called {line!r}, not one")
        return SourceImage(
            image=paths[0],
            name=relative(paths[0].with_suffix(""), self.source),
            where=where,
            lines=(SourceLine(found["text"].replace("|", " "), where),),
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
