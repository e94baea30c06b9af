"""From the journal to the files that were asked for: all pages in one, or each in its own inside a folder.

A folder carries `transcription.json`, by which it is known for one, so that it may be replaced.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from dsocr.data.targets.filling import Step
from dsocr.errors import DataError
from dsocr.inference.formats import Format
from dsocr.inference.inputs.names import UniqueNames
from dsocr.inference.pages import ReadPage
from dsocr.runs import to_json, write_atomically

CARD = "transcription"

Pages = Callable[[], Iterator[ReadPage]]
"""The pages that were read, in order, anew each time."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where to write, in which formats; `is_folder` gives each page files of its own."""

    out: Path
    formats: Sequence[Format]
    is_folder: bool

    def refuse(self, *, overwrite: bool, pages: int) -> None:
        """An error where writing would lose something, or the format cannot hold what there is."""
        if not self.is_folder:
            (format_,) = self.formats
            if format_.single and pages != 1:
                message = f"a file holds one page of {format_.title}, and there are {pages}"
                raise DataError(message, where=self.out, hint="name a folder")
        if not self.out.exists():
            return
        if self.out.is_dir() != self.is_folder:
            what = "a folder" if self.out.is_dir() else "a file"
            raise DataError(f"{what} is there already", where=self.out, hint="choose another name")
        if self.is_folder and not any(self.out.iterdir()):
            return
        if not overwrite:
            raise DataError("is there already", where=self.out, hint="choose another name, or give --overwrite")
        if self.is_folder and (strange := _strange(self.out)):
            message = f"the folder holds files that no transcription made: {', '.join(strange[:5])}"
            raise DataError(message, where=self.out, hint="choose another folder")

    def write(self, draft: Path, pages: Pages, step: Step, card: dict[str, Any]) -> list[str]:
        """Writes all files, to the file `draft` or into the new folder `draft`; what could not be written, by page."""
        if not self.is_folder:
            self.formats[0].write(pages(), draft, step)
            return []
        draft.mkdir()
        refused = []
        for format_ in self.formats:
            for name, group in _files(pages(), format_):
                path = draft / f"{name}{self._ending(format_)}"
                path.parent.mkdir(parents=True, exist_ok=True)
                try:
                    format_.write(group, path, step)
                except DataError as error:
                    path.unlink(missing_ok=True)
                    refused.append(f"{name}: {error.message}")
        files = sorted(path.relative_to(draft).as_posix() for path in draft.rglob("*") if path.is_file())
        shard = f"-{card['shard'].replace('/', '-of-')}" if card.get("shard") else ""
        write_atomically(draft / f"{CARD}{shard}.json", to_json({**card, "files": files}))
        return refused

    def _ending(self, format_: Format) -> str:
        """The suffix; two formats that share one are told apart."""
        alike = [other for other in self.formats if other.suffix == format_.suffix]
        return format_.suffix if len(alike) == 1 else f".{format_.name}{format_.suffix}"


def _files(pages: Iterator[ReadPage], format_: Format) -> Iterator[tuple[str, Iterator[ReadPage]]]:
    """The names of the files in a folder, without suffix, each with its pages."""
    names = UniqueNames()
    together = format_.paged
    for _, group in groupby(
        pages, key=lambda page: page.page.path if together and page.page.number else page.page.name
    ):
        first = next(group)
        name = first.page.document if together else first.page.name
        yield names.take(name, first.page.path.suffix), _with(first, group)  # noqa: B031 - which is the rest of it


def _with(first: ReadPage, others: Iterator[ReadPage]) -> Iterator[ReadPage]:
    yield first
    yield from others


def _strange(folder: Path) -> list[str]:
    """Files that no card of a transcription names."""
    own: set[str] = set()
    for card in folder.glob(f"{CARD}*.json"):
        try:
            told = json.loads(card.read_text(encoding="utf-8"))
            own |= {card.name, *map(str, told["files"])} if told.get("format") == "dsocr-transcription" else set()
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            continue
    files = (path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    return sorted(name for name in files if name not in own)
