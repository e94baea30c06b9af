"""From any format that can be read to one for other programs: read, name, write, and say what stays behind.

The source is read twice, first to know what there is and then to write it, so nothing of it is held.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from dsocr import __version__
from dsocr.data.dataset import SkippedCard
from dsocr.data.dataset_writer import is_of_the_system, refuse_output
from dsocr.data.placement import Notes
from dsocr.data.prepare import Names, Progress, counted
from dsocr.document import Item, Line, Outline, Page, Skipped, SkipReason
from dsocr.errors import DataError, typed
from dsocr.formats import TargetFormat, choose_format, choose_target
from dsocr.formats.dataset_folder import read_dataset
from dsocr.formats.tables import ROLES as OUTLINE_ROLES
from dsocr.formats.tables import USUAL_NAMES, roles_of
from dsocr.formats.writing import Writer
from dsocr.io.encodings import text_encoding
from dsocr.io.files import UniqueStems, is_dataset
from dsocr.io.sources import Opened, opened
from dsocr.runs import writing_folder
from dsocr.text import is_blank

CONVERSION_FILE = "conversion.json"


class Conversion(BaseModel):
    """A conversion's provenance and counts; `left_behind` says in sentences what the format has no place for."""

    model_config = ConfigDict(frozen=True)

    format: Literal["dsocr-conversion"] = "dsocr-conversion"
    dsocr_version: str = __version__
    source: str
    source_format: str
    target: str
    images: int
    lines: int
    splits: dict[str, int]
    left_behind: list[str]
    left_out: dict[str, SkippedCard]
    unmatched: dict[str, SkippedCard]
    remarks: list[str]
    files: list[str]

    def write(self, folder: Path) -> None:
        """Lays the card into the folder."""
        told = json.dumps(self.model_dump(), ensure_ascii=False, indent=2) + "\n"
        (folder / CONVERSION_FILE).write_bytes(told.encode("utf-8", "backslashreplace"))


def files_of(folder: Path) -> list[str]:
    """The files in a folder, as its card names them."""
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def refuse_conversion(out: Path, source: Path, *, overwrite: bool, called: str = "conversion") -> None:
    """An error where writing a conversion to `out` would lose something, or spoil the source.

    `called` is what the user knows it as.
    """
    if source.is_dir() and out.resolve().is_relative_to(source.resolve()):
        message = "the folder lies inside the source, which would hold everything twice then"
        raise DataError(message, where=out, hint="choose a folder beside the source")
    card = None if source.resolve().is_relative_to(out.resolve()) else _read(out)
    if card is None:
        if is_dataset(out):
            message = f"a dataset is there, which no {called} replaces"
            raise DataError(message, where=out, hint="choose another folder")
        refuse_output(out, source, overwrite=False)
        return
    if not overwrite:
        hint = "choose another folder, or give --overwrite"
        raise DataError(f"there is a {called} already", where=out, hint=hint)
    own = {CONVERSION_FILE, *card.files}
    strange = [name for name in files_of(out) if name not in own and not is_of_the_system(Path(name))]
    if strange:
        message = f"the folder holds files that no {called} made: {', '.join(strange[:5])}"
        raise DataError(message, where=out, hint="choose another folder")


def _read(folder: Path) -> Conversion | None:
    """The card of an earlier conversion; None where there is none that can be read."""
    try:
        return Conversion.model_validate_json((folder / CONVERSION_FILE).read_bytes())
    except (OSError, ValidationError):
        return None


@dataclass(frozen=True, slots=True)
class Fitting:
    """A source's images as a target can hold them; `read` begins anew each time."""

    read: Callable[[], Iterator[Item]]
    names: Names
    target: TargetFormat

    def images(self, notes: Notes) -> Iterator[Page]:
        """The images that have lines; all else is noted."""
        for item in notes.sifted(self.read()):
            image = self._fitted(self.names.named(item, notes), notes)
            if image.lines:
                yield image

    def _fitted(self, image: Page, notes: Notes) -> Page:
        if not image.lines:
            notes.add(Skipped(SkipReason.NO_TRANSCRIPTION, _told(image.where), "no line stands on the image"))
        lines = []
        for line in image.lines:
            stripped = replace(line, text=line.text.strip(), where=_told(line.where))
            fitted = self._line(stripped)
            if isinstance(fitted, Skipped):
                notes.add(fitted)
            else:
                lines.append(fitted)
        return replace(
            image,
            lines=tuple(lines),
            where=_told(image.where),
            writer=image.writer and _told(image.writer),
            page=image.page and _told(image.page),
            document=image.document and _told(image.document),
            columns={_told(name): _told(value) for name, value in image.columns.items()},
        )

    def _line(self, line: Line) -> Line | Skipped:
        """The line, without a text where it only has its place on a page."""
        if line.outline and self.target.whole and not _has_area(line.outline):
            return Skipped(SkipReason.TOO_SMALL, line.where, "the line's box holds no pixel")
        if is_blank(line.text):
            if line.outline and self.target.whole:
                return replace(line, text="")
            return Skipped(SkipReason.NO_TEXT, line.where, "the transcription is empty")
        if found := self.target.forbidden.search(line.text):
            message = f"the transcription holds {found[0]!a}, which {self.target.name} has no place for"
            return Skipped(SkipReason.UNWRITABLE, line.where, message)
        return line


def _has_area(outline: Outline) -> bool:
    left, top, right, bottom = outline.box
    return left < right and top < bottom


def _told(name: str) -> str:
    """A name as it can be written, half characters escaped."""
    return name.encode("utf-8", "backslashreplace").decode("utf-8")


@dataclass(slots=True)
class Survey:
    """What there is to be written: counts, the columns that say something, and which names are used once."""

    asked: Mapping[str, str]
    images: int = 0
    outlines: int = 0
    regions: int = 0
    writers: int = 0
    documents: int = 0
    other_pages: int = 0
    columns: dict[str, None] = field(default_factory=dict)
    _seen: Counter[str] = field(default_factory=Counter)

    @classmethod
    def of(cls, images: Iterable[Page], asked: Mapping[str, str]) -> "Survey":
        """The survey of these images; `asked` are the columns that were given by name."""
        survey = cls(asked)
        for image in images:
            survey._add(image)
        return survey

    def _add(self, image: Page) -> None:
        self.images += 1
        self.outlines += sum(line.outline is not None for line in image.lines)
        self.regions += sum(line.region is not None for line in image.lines)
        self.writers += image.writer is not None
        self.documents += image.document is not None
        self.other_pages += image.page is not None and image.page.rpartition("/")[2] != _own_name(image)
        self.columns.update(dict.fromkeys(name for name, value in image.columns.items() if value))
        self._seen[_own_name(image).casefold()] += 1

    def short_name(self, image: Page) -> str:
        """The image's own name where no other has it, else with its folders."""
        own = _own_name(image)
        return own if self._seen[own.casefold()] == 1 else image.name

    def columns_for(self, target: TargetFormat) -> tuple[list[str], list[str]]:
        """The source's own columns, those that were not read for what they say: which the target takes, which not.

        A column that has the name of a role would be taken for it when the target is read again.
        """
        unread = set() if self.outlines else set(OUTLINE_ROLES)
        read = {column for role, column in roles_of(list(self.columns), self.asked).items() if role not in unread}
        reserved = {*(target.columns or ()), *(name for names in USUAL_NAMES.values() for name in names)}
        others = [name for name in self.columns if name not in read]
        carried = [name for name in others if target.columns is not None and name not in reserved]
        return carried, [name for name in others if name not in carried and name not in target.origin]

    def left_behind(self, target: TargetFormat, columns: Sequence[str]) -> list[str]:
        """What the target has no place for, in sentences."""
        told = []
        if self.outlines and not target.whole:
            told.append(f"{self.outlines} lines were cut out of their pages; the pages are not in this format")
            if target.columns is None:
                told.append("polygons and baselines are not in this format")
        if self.regions and not target.regions:
            told.append(f"regions are not in this format: {self.regions} lines stood in one")
        if not target.names:
            told += self._names_left_behind()
        if columns:
            told.append(f"columns that have no place here: {', '.join(columns)}")
        return told

    def _names_left_behind(self) -> list[str]:
        """What is lost where a file's name is the page's, and nothing tells writers and documents."""
        sentences = {
            "writers are not in this format: {} images had one": self.writers,
            "documents are not in this format: {} images had one": self.documents,
            "pages are named by their images here: {} images had another page": self.other_pages,
        }
        return [sentence.format(count) for sentence, count in sentences.items() if count]


def _own_name(image: Page) -> str:
    return image.name.rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class ConvertReport:
    """What was written, what of the source is not in it, and what to do next."""

    out: Path
    conversion: Conversion
    skipped: list[Skipped]
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
            left_out=counted((item.reason, f"{item.where}: {item.message}") for item in notes.skipped),
            unmatched=counted((kind, name) for kind, names in notes.unmatched.items() for name in names),
            remarks=notes.remarks,
            files=files_of(folder),
        )
        card.write(folder)
    return ConvertReport(out, card, notes.skipped, target.next.format(out=typed(out.as_posix())))


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
    writing: Writer, images: Iterator[Page], survey: Survey, notes: Notes, progress: Progress | None
) -> _Written:
    """Hands the images to the writer, one at a time."""
    written = _Written(0, Counter(), 0)
    stems = UniqueStems()
    for done, image in enumerate(images, start=1):
        added = writing.add(image, stems.take(survey.short_name(image)))
        for item in added.skipped:
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
