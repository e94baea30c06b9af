"""From any format that can be read to one for other programs: read, name, write, and say what stays behind.

The source is read twice, first to know what there is and then to write it, so nothing of it is held.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from dsocr.data.conversion import Conversion, files_of, refuse_conversion
from dsocr.data.file_names import UniqueStems
from dsocr.data.fitting import Fitting, Survey
from dsocr.data.notes import Notes
from dsocr.data.opening import Opened, opened
from dsocr.data.paths import is_dataset
from dsocr.data.prepare import Progress, counted
from dsocr.data.sources import choose_format
from dsocr.data.sources.datasets import read_dataset
from dsocr.data.sources.layout import Item, LeftOut, SourceImage
from dsocr.data.sources.texts import text_encoding
from dsocr.data.targets import choose_target
from dsocr.data.targets.layout import Writer
from dsocr.data.writers import Names
from dsocr.errors import DataError, typed
from dsocr.runs import writing_folder


@dataclass(frozen=True, slots=True)
class ConvertReport:
    """What was written, what of the source is not in it, and what to do next."""

    out: Path
    conversion: Conversion
    left_out: list[LeftOut]
    next: str


def convert(
    source: Path,
    out: Path,
    *,
    to: str,
    format: str | None = None,
    writer: str | None = None,
    page: str | None = None,
    document: str | None = None,
    columns: Mapping[str, str] | None = None,
    encoding: str | None = None,
    strict: bool = False,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> ConvertReport:
    """Writes into the folder `out`, in the target format `to`, what the source holds.

    Texts stay as they are but for white space at their ends, which no format keeps. The same source gives the same
    bytes. `format`, `writer`, `page`, `document`, `columns`, `encoding` and `strict` are those of
    `prepare`.
    """
    target = choose_target(to)
    refuse_conversion(out, source, overwrite=overwrite)
    asked = columns or {}
    notes = Notes(strict)
    with (
        text_encoding(encoding),
        writing_folder(out) as folder,
        opened(source, folder.with_name(f"{folder.name}-unpacked")) as held,
    ):
        reading = _Reads(held, format, asked)
        names = Names({"writer": writer, "page": page, "document": document})
        fitting = Fitting(reading, names, target)
        survey = Survey.of(fitting.images(Notes(strict=False)), asked)
        names.demand_matches()
        carried, lost = survey.columns_for(target)
        with closing(target.open(folder, carried)) as writing:
            written = _write(writing, fitting.images(notes), survey, notes, progress)
        if not sum(written.lines.values()):
            raise DataError(f"no line is left{notes.told()}", where=source)
        card = Conversion(
            source=held.name,
            source_format=reading.name,
            target=target.name,
            images=written.images,
            lines=sum(written.lines.values()),
            splits=dict(written.lines) if set(written.lines) != {""} else {},
            left_behind=[*survey.left_behind(target, lost), *_moved(written.moved)],
            left_out=counted((item.reason, f"{item.where}: {item.message}") for item in notes.left_out),
            unmatched=counted((kind, name) for kind, names in notes.unmatched.items() for name in names),
            remarks=notes.remarks,
            files=files_of(folder),
        )
        card.write(folder)
    return ConvertReport(out, card, notes.left_out, target.next.format(out=typed(out.as_posix())))


class _Reads:
    """A source that can be read as often as asked."""

    def __init__(self, held: Opened, format_: str | None, columns: Mapping[str, str]) -> None:
        self._held = held
        self._columns = columns
        is_ours = format_ is None and not columns and is_dataset(held.path)
        self._chosen = None if is_ours else choose_format(held.path, format_, columns)

    @property
    def name(self) -> str:
        return self._chosen.name if self._chosen else "dataset"

    def __call__(self) -> Iterator[Item]:
        path = self._held.path
        items = self._chosen.read(path, self._columns) if self._chosen else read_dataset(path)
        return chain(self._held.told, items)


@dataclass(slots=True)
class _Written:
    """How many images were written, how many lines for each split (empty where none is said), how many were moved."""

    images: int
    lines: Counter[str]
    moved: int


def _write(
    writing: Writer, images: Iterator[SourceImage], survey: Survey, notes: Notes, progress: Progress | None
) -> _Written:
    """Hands the images to the writer, one at a time."""
    written = _Written(0, Counter(), 0)
    stems = UniqueStems()
    for done, image in enumerate(images, start=1):
        added = writing.add(image, stems.take(survey.short_name(image)))
        for item in added.left_out:
            notes.add(item)
        if added.lines:
            written.images += 1
            written.lines[image.split or ""] += added.lines
        written.moved += added.moved
        if progress:
            progress(done, survey.images)
    return written


def _moved(count: int) -> list[str]:
    return [f"{count} outlines began outside their image and were moved to its edge"] if count else []
