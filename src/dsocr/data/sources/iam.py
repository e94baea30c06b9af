"""The IAM database as it is published: `lines.txt` (in `ascii/` or not), line images, and `forms.txt` for the writers.

Lines marked `err` are kept: the mark is about the finding of words, not about the transcription. The text is the
published one, words and punctuation apart; other copies of IAM join them, so their scores do not compare.
"""

import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from dsocr.data.images import IMAGE_SUFFIXES
from dsocr.data.paths import list_files, relative
from dsocr.data.sources.layout import LeftOut, Reason, SourceImage, SourceLine
from dsocr.data.sources.texts import head, read_text

_ROW = re.compile(r"(?P<line>(?P<form>[\w]+-\w+)-\w+) (?:ok|err) \d+(?: -?\d+){5} (?P<text>.*)")
"""Name, status, grey level, number of parts, box (left, top, width, height), words with `|` between them."""

_FIRST_ROW = re.compile(rb"(?m)^[\w]+-\w+-\w+ (?:ok|err) \d+(?: -?\d+){5} ")
_FORMS = "forms.txt"


def find_iam(source: Path) -> list[Path]:
    """The `lines.txt` of a folder, if its rows are IAM's."""
    return [path for path in _texts(source, "lines.txt") if _FIRST_ROW.search(head(path))]


def read_iam(source: Path) -> Iterator[SourceImage | LeftOut]:
    """Every row of `lines.txt` with its image, the page being its form."""
    images: dict[str, list[Path]] = defaultdict(list)
    for path in list_files(source, IMAGE_SUFFIXES):
        images[path.stem].append(path)
    writers = _writers(source)
    for file in find_iam(source):
        for number, row in enumerate(read_text(file).split("\n"), start=1):
            if row.strip() and not row.startswith("#"):
                yield _source_image(row.rstrip("\r"), f"{relative(file, source)}:{number}", source, images, writers)


def _source_image(
    row: str, where: str, source: Path, images: dict[str, list[Path]], writers: dict[str, str]
) -> SourceImage | LeftOut:
    found = _ROW.fullmatch(row)
    if not found:
        return LeftOut(Reason.BAD_SOURCE, where, f"the row is not one of IAM's: {row[:60]!r}")
    paths = images.get(found["line"], [])
    if len(paths) != 1:
        return LeftOut(Reason.NO_IMAGE, where, f"{len(paths)} images are called {found['line']!r}, not one")
    text = found["text"].replace("|", " ")
    return SourceImage(
        image=paths[0],
        name=relative(paths[0].with_suffix(""), source),
        where=where,
        lines=(SourceLine(text, where),),
        writer=writers.get(found["form"]),
        page=found["form"],
    )


def _writers(source: Path) -> dict[str, str]:
    """Form -> writer, the first two words of each row; empty where there is no `forms.txt`."""
    rows = (row.split() for path in _texts(source, _FORMS) for row in read_text(path).split("\n"))
    return {row[0]: row[1] for row in rows if len(row) >= 2 and not row[0].startswith("#")}


def _texts(source: Path, name: str) -> list[Path]:
    return [path for path in list_files(source, {".txt"}) if path.name.lower() == name]
