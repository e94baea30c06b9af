"""From any format that can be read to one for other programs: read, name, write, and say what stays behind."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from dsocr.data.conversion import Conversion, files_of, refuse_conversion
from dsocr.data.file_names import unique_stems
from dsocr.data.notes import Notes
from dsocr.data.paths import is_dataset
from dsocr.data.prepare import Progress, counted
from dsocr.data.sources import choose_format
from dsocr.data.sources.datasets import read_dataset
from dsocr.data.sources.layout import LeftOut, Outline, Reason, SourceImage, SourceLine
from dsocr.data.sources.outlines import ROLES as OUTLINE_ROLES
from dsocr.data.sources.tables import USUAL_NAMES, roles_of
from dsocr.data.targets import TargetFormat, choose_target
from dsocr.data.targets.layout import Added, Writer
from dsocr.data.writers import with_pages, with_writers
from dsocr.errors import DataError
from dsocr.runs import writing_folder
from dsocr.text import is_blank


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
    columns: Mapping[str, str] | None = None,
    strict: bool = False,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> ConvertReport:
    """Writes into the folder `out`, in the target format `to`, what the source holds.

    Texts stay as they are but for white space at their ends, which no format keeps. The same source gives the same
    bytes. `writer`, `page`, `format`, `columns` and `strict` are those of `prepare`.
    """
    target = choose_target(to)
    refuse_conversion(out, source, overwrite=overwrite)
    name, items = _read(source, format, columns or {})
    notes = Notes(strict)
    images = notes.sifted(items)
    images = with_pages(with_writers(images, writer, notes), page, notes)
    images = [image for image in (_writable(image, target, notes) for image in images) if image.lines]
    others = _other_columns(images, columns or {})
    carried = [name for name in others if target.columns is not None and name not in _reserved(target)]
    with writing_folder(out) as folder:
        with closing(target.open(folder, carried)) as writing:
            written = _write(writing, images, notes, progress)
        if not sum(written.lines.values()):
            raise DataError(f"no line is left{notes.told()}", where=source)
        card = Conversion(
            source=source.resolve().name,
            source_format=name,
            target=target.name,
            images=written.images,
            lines=sum(written.lines.values()),
            splits=dict(written.lines) if set(written.lines) != {""} else {},
            left_behind=_left_behind(images, target, {*others} - {*carried} - target.origin, written.moved),
            left_out=counted((item.reason, f"{item.where}: {item.message}") for item in notes.left_out),
            unmatched=counted((kind, name) for kind, names in notes.unmatched.items() for name in names),
            files=files_of(folder),
        )
        card.write(folder)
    return ConvertReport(out, card, notes.left_out, target.next.format(out=out.as_posix()))


def _read(source: Path, format_: str | None, columns: Mapping[str, str]) -> tuple[str, Iterable[SourceImage | LeftOut]]:
    """The name of the source's format, and what it holds; a dataset folder is read as one unless a format is named."""
    if format_ is None and not columns and is_dataset(source):
        return "dataset", read_dataset(source)
    chosen = choose_format(source, format_, columns)
    return chosen.name, chosen.read(source, columns)


def _writable(image: SourceImage, target: TargetFormat, notes: Notes) -> SourceImage:
    """The image with the lines that the target can hold, and with names that can be written."""
    lines = [kept for line in image.lines if (kept := _writable_line(line, target, notes))]
    if image.lines and not lines:
        return replace(image, lines=())
    if not image.lines:
        notes.add(LeftOut(Reason.NO_TRANSCRIPTION, _told(image.where), "no line stands on the image"))
    columns = {_told(name): _told(value) for name, value in image.columns.items()}
    return replace(
        image,
        lines=tuple(lines),
        where=_told(image.where),
        writer=image.writer and _told(image.writer),
        page=image.page and _told(image.page),
        columns=columns,
    )


def _writable_line(line: SourceLine, target: TargetFormat, notes: Notes) -> SourceLine | None:
    line = replace(line, text=line.text.strip(), where=_told(line.where))
    if line.outline and target.whole and not _has_area(line.outline):
        problem = LeftOut(Reason.TOO_SMALL, line.where, "the line's box holds no pixel")
    elif is_blank(line.text):
        if line.outline and target.whole:
            return replace(line, text="")
        problem = LeftOut(Reason.NO_TEXT, line.where, "the transcription is empty")
    elif found := target.forbidden.search(line.text):
        message = f"the transcription holds {found[0]!a}, which {target.name} has no place for"
        problem = LeftOut(Reason.UNWRITABLE, line.where, message)
    else:
        return line
    notes.add(problem)
    return None


def _has_area(outline: Outline) -> bool:
    left, top, right, bottom = outline.box
    return left < right and top < bottom


def _told(name: str) -> str:
    """A name as it can be written, half characters escaped."""
    return name.encode("utf-8", "backslashreplace").decode("utf-8")


@dataclass(slots=True)
class _Written:
    """How many images were written, how many lines for each split (empty where none is said), how many were moved."""

    images: int
    lines: Counter[str]
    moved: int


def _write(writing: Writer, images: Sequence[SourceImage], notes: Notes, progress: Progress | None) -> _Written:
    """Hands the images to the writer, one at a time."""
    written = _Written(0, Counter(), 0)
    for done, (image, stem) in enumerate(zip(images, _stems(images), strict=True), start=1):
        added: Added = writing.add(image, stem)
        for item in added.left_out:
            notes.add(item)
        if added.lines:
            written.images += 1
            written.lines[image.split or ""] += added.lines
        written.moved += added.moved
        if progress:
            progress(done, len(images))
    return written


def _stems(images: Sequence[SourceImage]) -> list[str]:
    """A file stem for each image: its own name where no other has it, else with its folders."""
    names = list(map(_own_name, images))
    seen = Counter(name.casefold() for name in names)
    return unique_stems(
        name if seen[name.casefold()] == 1 else image.name for name, image in zip(names, images, strict=True)
    )


def _other_columns(images: Sequence[SourceImage], columns: Mapping[str, str]) -> list[str]:
    """The columns that say something and were not read for it, in the order they are met."""
    names = dict.fromkeys(name for image in images for name, value in image.columns.items() if value)
    unread = set() if any(map(_outlined, images)) else set(OUTLINE_ROLES)
    read = {column for role, column in roles_of(list(names), columns).items() if role not in unread}
    return [name for name in names if name not in read]


def _outlined(image: SourceImage) -> int:
    return sum(line.outline is not None for line in image.lines)


def _reserved(target: TargetFormat) -> set[str]:
    """Names that another column may not have, as they would be taken for one of ours when the file is read."""
    return {*(target.columns or ()), *(name for names in USUAL_NAMES.values() for name in names)}


def _left_behind(images: Sequence[SourceImage], target: TargetFormat, columns: Set[str], moved: int) -> list[str]:
    """What the target has no place for, in sentences."""
    outlines = sum(map(_outlined, images))
    told = []
    if outlines and not target.whole:
        told.append(f"{outlines} lines were cut out of their pages; the pages are not in this format")
        if target.columns is None:
            told.append("polygons and baselines are not in this format")
    if not target.names:
        told += _names_left_behind(images)
    if columns:
        told.append(f"columns that have no place here: {', '.join(sorted(columns))}")
    if moved:
        told.append(f"{moved} outlines began outside their image and were moved to its edge")
    return told


def _names_left_behind(images: Sequence[SourceImage]) -> list[str]:
    """What is lost where a file's name is the page's, and nothing tells the writer."""
    writers = sum(image.writer is not None for image in images)
    pages = sum(image.page is not None and image.page.rpartition("/")[2] != _own_name(image) for image in images)
    told = [f"writers are not in this format: {writers} images had one"] if writers else []
    return told + ([f"pages are named by their images here: {pages} images had another page"] if pages else [])


def _own_name(image: SourceImage) -> str:
    return image.name.rpartition("/")[2]
