"""Corrected pages as files: ALTO and PAGE files of the source with their texts replaced, new files for the rest.

A file of the source keeps everything that nobody changed, byte for byte: ids, types, tags, regions, layout.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from dsocr import __version__
from dsocr.console import ignore_progress
from dsocr.data.convert import Conversion, converted_files, fit_pages, require_free_conversion
from dsocr.data.dataset import Dataset, SourceReport
from dsocr.data.prepare import prepare
from dsocr.data.sources import NamePatterns
from dsocr.document import Line, Outline, ProcessingStep, Skipped, SkipReason
from dsocr.errors import DataError
from dsocr.formats import fill_xml, parse_xml_page, target_format
from dsocr.formats.documents import DOCUMENTS
from dsocr.formats.format import Format
from dsocr.formats.registers import TARGETS
from dsocr.formats.tables import spreadsheet
from dsocr.formats.xml import read_xml
from dsocr.formats.xml_tree import XmlTree
from dsocr.io.files import UniqueStems, inside
from dsocr.io.work import explain_disk_errors, write_file, writing_folder
from dsocr.workbench.archive import Archive
from dsocr.workbench.page_structure import PageStructure, read_regions
from dsocr.workbench.store import CorrectionStore
from dsocr.workbench.stored_lines import State, StoredLine, StoredPage, StoredRegion, tables_of

EXPORT_FORMATS = ("page", "page-2013", "alto", "tsv", *DOCUMENTS, *TARGETS)
"""The formats that keep lines on their pages, documents of all texts, and rows of registers."""

WITH_CONFIDENCES = ("page", "page-2013", "alto")
_ROOT_BY_FORMAT = {"page": "PcGts", "alto": "alto"}
_MIN_PAGES_TO_SPLIT = 5
_KEPT_SHARE = 0.15
_SPLIT = f"{1 - _KEPT_SHARE}/{_KEPT_SHARE}/0"
"""Train and validation only: the next corrections will test the model."""
_MIN_KEPT, _MAX_KEPT = 6, 1 / 3
"""Lines, and part of all lines, that a page must have to be kept for validation where there are few pages."""


Shapes = tuple[StoredPage, list[StoredLine], Mapping[int, StoredRegion]]
"""A page with its lines, and its regions by number."""


@dataclass(slots=True)
class ExportReport:
    """Numbers of written pages and lines with a text, and the parts that the format cannot hold."""

    out: Path
    pages: int = 0
    texts: int = 0
    skipped: list[Skipped] = field(default_factory=list)


def export(
    store: CorrectionStore,
    archive: Archive,
    out: Path,
    *,
    to: str,
    accepted_only: bool,
    overwrite: bool = False,
) -> ExportReport:
    """Write all pages to the folder `out`.

    A page that came as ALTO or PAGE and is exported as that keeps its file, in which changed texts are replaced; with
    `accepted_only` only accepted ones, and those removed from unreadable lines. In all other files lines without
    an (accepted) text are empty. In documents, texts that nobody accepted end in `[?]`. Raises DataError if `out` holds
    something else than an earlier export.
    """
    target = target_format(to)
    require_free_conversion(out, archive.root, overwrite=overwrite)
    notes, stems, report = SourceReport(strict=False), UniqueStems(), ExportReport(out)
    step = ProcessingStep(
        "dsocr",
        __version__,
        "texts corrected in the workbench",
        "accepted lines" if accepted_only else "all lines",
        datetime.now(UTC).isoformat(timespec="seconds"),
    )
    with writing_folder(out) as folder:
        rest: list[Shapes] = []
        for page in store.pages():
            lines = store.lines(page.number)
            regions = {region.number: region for region in store.regions(page.number)}
            filled = _fill_file(archive, (page, lines, regions), target, step, notes, accepted_only=accepted_only)
            if filled is None:
                if accepted_only:
                    lines = [line if line.state is State.ACCEPTED else replace(line, text="") for line in lines]
                elif target.name in DOCUMENTS:
                    lines = [_marked(line) if line.state is State.READ and line.text else line for line in lines]
                rest.append((page, lines, regions))
                continue
            content, texts = filled
            _write_inside(folder, page.markup or "", content)
            try:
                _write_inside(folder, page.image.as_posix(), archive.image_bytes(page))
            except DataError as error:
                notes.skip(Skipped(SkipReason.BAD_IMAGE, page.name, error.message))
            stems.take(Path(page.markup or "").stem)
            report.pages += 1
            report.texts += texts
        if rest:
            with target.writing(folder, ()) as write:
                _note_losses(rest, target, notes)
                images = (archive.source_image(*item) for item in rest)
                for new in fit_pages(images, NamePatterns({}), target, notes):
                    for skipped in write(new, stems.take(new.name)).skipped:
                        notes.skip(skipped)
                    report.pages += 1
                    report.texts += sum(bool(line.text) for line in new.lines)
        report.skipped = notes.skipped
        Conversion(
            source=store.setting("source") or archive.root.name,
            source_format="workbench",
            target=target.name,
            images=report.pages,
            lines=report.texts,
            notes=[f"{item.where}: {item.message}" for item in report.skipped],
            files=converted_files(folder),
        ).write(folder)
    return report


def export_dataset(store: CorrectionStore, archive: Archive, out: Path, *, overwrite: bool = False) -> Dataset:
    """Make a dataset folder of the accepted lines. Raises DataError if there are none, or `out` is something else.

    It is split by writer, else by page; with few pages by text, where a page for validation would be too much to lose.
    """
    accepted = [line for line in store.lines() if line.state is State.ACCEPTED]
    if not accepted:
        message = "no line is accepted yet, so there is nothing to train on"
        raise DataError(message, code="nothing-accepted", where=out)
    split_by = _unit_to_split(list(Counter(line.page for line in accepted).values()))
    out.resolve().parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=".corrections-", dir=out.resolve().parent) as folder:
        pages = Path(folder) / (store.setting("source") or archive.root.name)
        export(store, archive, pages, to="tsv", accepted_only=True)
        return prepare(
            pages, out, split=_SPLIT, split_by=split_by, overwrite=overwrite, workers=1, progress=ignore_progress
        )


def _unit_to_split(pages: Sequence[int]) -> str | None:
    """The unit to split pages of so many lines by: None for the best there is, `text` if no page can be spared.

    Lines of other pages tell what a reader that learnt will do for the rest; lines of the same pages flatter it.
    """
    if len(pages) >= _MIN_PAGES_TO_SPLIT:
        return None
    total = sum(pages)
    kept = min(pages, key=lambda lines: abs(lines - _KEPT_SHARE * total))  # as `prepare` will choose
    return "page" if _MIN_KEPT <= kept <= _MAX_KEPT * total else "text"


def export_log(store: CorrectionStore, out: Path) -> Path:
    """Write every change that was not undone as a row of `log.csv` in a folder, the oldest first; returns the file.

    Columns: when (UTC), name of the person, what was done, page, line, its text before and after.
    """
    names = store.names()
    pages = {page.number: page.name for page in store.pages()}
    table: list[Sequence[object]] = [("at", "who", "what", "page", "line", "before", "after")]
    for change in store.history():
        before = {line.number: line for line in change.before}
        after = {line.number: line for line in change.after}
        who = names.get(change.who.partition("/")[0], "")
        for number in before | after:
            page = pages[(after.get(number) or before[number]).page]
            texts = ("" if number not in side else side[number].text for side in (before, after))
            table.append((change.at, who, change.what, page, number, *texts))
    path = out / "log.csv"
    with explain_disk_errors(out):
        out.mkdir(parents=True, exist_ok=True)
        write_file(path, "\ufeff" + spreadsheet(table))  # the mark tells spreadsheets that it is UTF-8
    return path


def _fill_file(
    archive: Archive, shapes: Shapes, target: Format, step: ProcessingStep, notes: SourceReport, *, accepted_only: bool
) -> tuple[bytes, int] | None:
    """The page's own file, filled, and the number of its lines with a text; None if it needs a new file."""
    page, lines, regions = shapes
    if page.markup is None or target.name not in _ROOT_BY_FORMAT:
        return None
    try:
        path = inside(archive.root, page.markup)
        raw = read_xml(path)
        tree = XmlTree(raw)
        if tree.root.name != _ROOT_BY_FORMAT[target.name]:
            return None
        described = parse_xml_page(path)
        originals = {line.index or 0: line for line in described.lines}
        if not {element for line in lines for element in line.elements} <= originals.keys():
            raise DataError("it was changed since its lines were imported", code="source-changed")
        width, height = described.size or (page.width, page.height)
        scale, across, down = (width / page.width, height / page.height), page.width / width, page.height / height
        whole = Outline((0, 0, page.width, page.height))
        outlines = {
            element: line.outline.scaled(across, down) if line.outline and not described.is_line_image else whole
            for element, line in originals.items()
        }
        former = {
            region.element or 0: replace(region, outline=region.outline.scaled(across, down))
            for region, _ in read_regions(raw)
            if region.element in page.regions
        }
        structure = PageStructure(tree, lines, regions, former, scale)
        structure.write(outlines, page.elements)
        places = {element: place for place, element in enumerate(tree.iter("TextLine"))}
        fills, texts = dict[int, Line](), 0
        for line in lines:
            element = line.elements[0] if len(line.elements) == 1 else None
            original = None if element is None else originals[element].text.strip()
            is_as_drawn = element is not None and line.outline == outlines[element]
            if original is not None and is_as_drawn and accepted_only and not line.is_reviewed:
                text = original
            else:
                is_empty = line.state is State.UNREADABLE or (accepted_only and line.is_reading)
                text = "" if is_empty else line.text
            texts += bool(text)
            is_aligned = element is not None and originals[element].alignment is not None
            # The file can have a text that only a program read.
            is_untouched = is_as_drawn and line.state is State.UNREAD
            if (text == original or is_untouched) and not (line.is_reviewed and is_aligned):
                continue
            if match := target.forbidden.search(text):
                message = f"the text contains {match[0]!a}, which {target.name} cannot hold"
                notes.skip(Skipped(SkipReason.UNWRITABLE, f"{page.name}:{line.number}", message))
                continue
            is_machine_text = text == line.machine
            read = {"confidence": line.confidence, "characters": line.characters} if is_machine_text else {}
            place = places[structure.line_elements[line.number]]
            fills[place] = Line(text, page.name, line.outline.scaled(*scale), prediction=read)
        return fill_xml(tree.content(), fills, step), texts
    except DataError as error:
        message = f"its file cannot be filled, so a new one is written: {error.message}"
        notes.skip(Skipped(SkipReason.BAD_SOURCE, page.markup, message))
        return None


def _marked(line: StoredLine) -> StoredLine:
    return replace(line, text=f"{line.text}[?]")


def _note_losses(pages: Sequence[Shapes], target: Format, notes: SourceReport) -> None:
    """Note the regions without lines, which are not in a new file, and once the tables, if the format has none."""
    has_tables = [page.name for page, _, regions in pages if tables_of(regions.values())]
    if has_tables and not target.keeps_tables:
        more = f" and on {len(has_tables) - 1} more pages" if len(has_tables) > 1 else ""
        message = f"the rows and columns of its table{more} are not in the file: {target.name} has no tables"
        notes.skip(Skipped(SkipReason.UNWRITABLE, has_tables[0], message))
    for page, lines, regions in pages if target.keeps_regions else ():
        for number in regions.keys() - {line.region for line in lines}:
            if not (region := regions[number]).cell:
                name = f"{region.name or number} ({region.kind or 'no type'})"
                message = f"region {name} has no lines, so it is not in the new file"
                notes.skip(Skipped(SkipReason.UNWRITABLE, page.name, message))


def _write_inside(folder: Path, name: str, content: bytes) -> None:
    path = inside(folder, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
