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
from dsocr.inference.inputs.finding import InputPage
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

    def refuse(self, pages: Sequence[InputPage], *, overwrite: bool, shard: str | None = None) -> None:
        """An error where writing would lose something, or the format cannot hold what there is."""
        if not self.is_folder:
            (format_,) = self.formats
            if format_.single and len(pages) != 1:
                message = f"a file holds one page of {format_.title}, and there are {len(pages)}"
                raise DataError(message, where=self.out, hint="name a folder")
            if format_.single and pages[0].kind == "pdf":
                message = f"a file of {format_.title} names an image, and that of a PDF has to be written beside it"
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
        own = _card_name(shard)
        if shard and (others := [card.name for card in self.out.glob(f"{CARD}*.json") if card.name != own]):
            message = f"the folder holds other pages, which would be lost: {', '.join(sorted(others)[:5])}"
            raise DataError(message, where=self.out, hint="give each share a folder of its own")

    def write(self, draft: Path, pages: Pages, step: Step, card: dict[str, Any]) -> list[str]:
        """Writes all files, to the file `draft` or into the new folder `draft`; what could not be written, by page."""
        if not self.is_folder:
            # Under its own name, as some formats carry it for a title.
            named = draft.with_name(self.out.name)
            self.formats[0].write(pages(), named, step)
            named.replace(draft)
            return []
        draft.mkdir()
        refused = []
        shard: str | None = card.get("shard")
        for format_ in self.formats:
            for name, group in _files(pages(), format_, shard):
                path = draft / f"{name}{self._ending(format_)}"
                path.parent.mkdir(parents=True, exist_ok=True)
                try:
                    format_.write(group, path, step)
                except DataError as error:
                    path.unlink(missing_ok=True)
                    refused.append(f"{name}: {error.message}")
        files = sorted(path.relative_to(draft).as_posix() for path in draft.rglob("*") if path.is_file())
        told = {**card, "refused": card["refused"] + len(refused), "files": files}
        write_atomically(draft / _card_name(shard), to_json(told))
        return refused

    def _ending(self, format_: Format) -> str:
        """The suffix; two formats that share one are told apart."""
        alike = [other for other in self.formats if other.suffix == format_.suffix]
        return format_.suffix if len(alike) == 1 else f".{format_.name}{format_.suffix}"


def _card_name(shard: str | None) -> str:
    return f"{CARD}{_of(shard)}.json"


def _of(shard: str | None) -> str:
    """What names end in that shares must not have in common, as their folders are put together."""
    return f"-{shard.replace('/', '-of-')}" if shard else ""


def _files(pages: Iterator[ReadPage], format_: Format, shard: str | None) -> Iterator[tuple[str, Iterator[ReadPage]]]:
    """The names of the files in a folder, without suffix, each with its pages."""
    names = UniqueNames()
    together = format_.paged
    for _, group in groupby(
        pages, key=lambda page: page.page.path if together and page.page.number else page.page.name
    ):
        first = next(group)
        # A share has some pages of a PDF only.
        name = first.page.document + _of(shard if first.page.number else None) if together else first.page.name
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
