"""Convert a source in any readable format to a format for other programs, and report content that it cannot hold.

The source is read twice, first to survey it and then to write it, so nothing of it is held in memory.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Literal

from lxml import etree
from pydantic import BaseModel, ConfigDict

from dsocr import __version__
from dsocr.console import shows_progress
from dsocr.data.dataset import CountCard, Dataset, SourceReport
from dsocr.data.sources import NamePatterns, OpenedSource, open_source
from dsocr.document import Item, Line, PackedImage, Page, Skipped, SkipReason, Split, format_points
from dsocr.errors import DataError, first_few, typed
from dsocr.formats import detect_format, same_format, target_format
from dsocr.formats.documents import DOCUMENTS
from dsocr.formats.format import Format
from dsocr.formats.tables import OUTLINE_ROLES, USUAL_NAMES, guess_roles
from dsocr.formats.xml import (
    UNGROUPED_BLOCK,
    cell_place,
    custom_tags,
    custom_value,
    parse_xml,
    preferred_layer,
    tag_labels,
)
from dsocr.images import read_packed
from dsocr.io.encodings import text_encoding
from dsocr.io.files import UniqueStems, is_dataset
from dsocr.io.processes import ProgressCallback
from dsocr.io.web import Fetch, FetchOptions
from dsocr.io.work import listed_files, require_free_output, writing_folder
from dsocr.options import Columns, Output, Rare, StrPath, read_pairs
from dsocr.runs import to_json
from dsocr.text import is_blank

CONVERSION_FILE = "conversion.json"

_FILES_ARE_PAGES = frozenset({"alto", "page", "pairs", "pdf"})
"""Formats with a file for each page, which no file puts in order."""


class Conversion(BaseModel):
    """Provenance and counts of a conversion; `left_behind` lists content that the format cannot hold."""

    model_config = ConfigDict(frozen=True)

    format: Literal["dsocr-conversion"] = "dsocr-conversion"
    dsocr_version: str = __version__
    source: str
    source_format: str
    target: str
    images: int
    lines: int
    splits: dict[str, int] = {}
    left_behind: list[str] = []
    skipped: dict[str, CountCard] = {}
    unmatched: dict[str, CountCard] = {}
    notes: list[str]
    files: list[str]

    def write(self, folder: Path) -> None:
        """Write `conversion.json`."""
        (folder / CONVERSION_FILE).write_bytes(to_json(self.model_dump()).encode("utf-8", "backslashreplace"))


def converted_files(folder: Path) -> list[str]:
    """All files in a folder, as `conversion.json` lists them."""
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def require_free_conversion(output: Path, source: Path, *, overwrite: bool) -> None:
    """Raise DataError if writing a conversion to `output` would destroy something else."""
    require_free_output(
        output,
        "conversion",
        lambda folder: listed_files(folder / CONVERSION_FILE, "dsocr-conversion"),
        overwrite=overwrite,
        sources=[source],
    )


@dataclass(frozen=True, slots=True)
class ConvertReport:
    """The written conversion, skipped items, and the next step."""

    output: Path
    conversion: Conversion
    skipped: list[Skipped]
    next: str

    def to_dict(self) -> dict[str, object]:
        """Return the conversion in JSON's types."""
        return {"output": str(self.output), **self.conversion.model_dump(mode="json")}


@shows_progress("converting", "images")
def convert(
    source: StrPath,
    output: Output,
    *,
    to: str | None = None,
    format: str | None = None,
    writer: str | None = None,
    page: str | None = None,
    document: str | None = None,
    columns: Columns | None = None,
    encoding: str | None = None,
    layer: Rare[str | None] = None,
    fetch: Fetch | None = None,
    strict: Rare[bool] = False,
    overwrite: bool = False,
    progress: ProgressCallback | None = None,
) -> ConvertReport:
    """Write transcriptions in another format. The same source gives the same bytes.

    Texts stay as they are except for white space at their ends.

    Args:
        source: Anything that prepare reads, or a dataset folder.
        output: Folder to write.
        to: Format: alto, page, page-2013, tsv, parquet, ms-swift, llama-factory, unsloth, or a document: text, tei,
            pdf, docx, or csv and xlsx of tables; the source's own if not given.
        format: Format of the source; detected if not given; `dsocr prepare --formats` lists them.
        writer: Writer: a column, or a pattern over file names.
        page: Page: a column, or a pattern over file names.
        document: Document of the page: a column, or a pattern over file names.
        columns: Column of a table, as image=NAME, text=NAME, writer=NAME; repeatable.
        encoding: Encoding of texts and tables that are not UTF-8, e.g. cp1251.
        layer: Part of the path of the file to take where several describe a scan, such as chocomufin; the file named as
            its image if not given.
        fetch: How IIIF and METS are fetched: size=2000 (or max), pages=50, ...; repeatable.
        strict: Stop at the first fault instead of counting and listing it.
        overwrite: Replace what an earlier command wrote there.
        progress: Called with the images done and in total, instead of a progress bar.

    Raises:
        DataError: The source cannot be read, or the folder cannot be written.
    """
    source, output = Path(source), Path(output)
    named_target = None if to is None else target_format(to)
    require_free_conversion(output, source, overwrite=overwrite)
    named_columns = read_pairs("columns", columns)
    report = SourceReport(strict)
    with (
        text_encoding(encoding),
        preferred_layer(layer),
        writing_folder(output) as folder,
        open_source(source, folder.with_name(f"{folder.name}-unpacked"), FetchOptions.parse(fetch), progress) as opened,
    ):
        format_name, read = _reader(opened, format, named_columns)
        names = NamePatterns({"writer": writer, "page": page, "document": document})
        target = named_target or same_format(format_name)
        survey = _Survey(fit_pages(read(), names, target, SourceReport()))
        names.require_matches()
        carried, lost = survey.columns_for(target, named_columns)
        images, lines, changes, stems, order = 0, Counter[str](), Counter[str](), UniqueStems(), list[str]()
        with target.writing(folder, carried) as write:
            for done, fitted in enumerate(fit_pages(read(), names, target, report), start=1):
                written = write(fitted, stems.take(survey.short_name(fitted)))
                for item in written.skipped:
                    report.skip(item)
                if written.lines:
                    images += 1
                    order.append(fitted.name)
                    lines[fitted.split or ""] += written.lines
                changes.update(written.changes)
                if progress:
                    progress(done, survey.counts["images"])
        if not images:
            raise DataError(f"no line is left{report.explain_empty()}", code="no-lines", where=source)
        if images > 1 and target.name in DOCUMENTS and format_name in _FILES_ARE_PAGES and opened.index is None:
            report.note(f"the pages are in the order of their names: {first_few(order, 5)}")
        if missing := report.missing_images(images):
            report.note(missing)
        card = Conversion(
            source=opened.name,
            source_format=format_name,
            target=target.name,
            images=images,
            lines=lines.total(),
            splits=dict(lines) if set(lines) != {""} else {},
            left_behind=survey.left_behind(target, lost, changes),
            skipped=report.skipped_card(),
            unmatched=report.unmatched,
            notes=report.notes,
            files=converted_files(folder),
        )
        card.write(folder)
    return ConvertReport(output, card, report.skipped, target.next_step.format(out=typed(output.as_posix())))


def _reader(
    opened: OpenedSource, format_: str | None, columns: Mapping[str, str]
) -> tuple[str, Callable[[], Iterator[Item]]]:
    """The name of the source's format, and a function that reads it from the start."""
    if format_ is None and not columns and is_dataset(opened.path):
        return "dataset", lambda: chain(opened.items, read_dataset(opened.path))
    chosen = detect_format(opened.path, format_, columns)
    return chosen.name, lambda: chain(opened.items, chosen.read(opened.path, columns))


def read_dataset(folder: Path) -> Iterator[Page]:
    """The samples of a dataset folder as images of one line each; their place on the page goes to `columns`."""
    dataset = Dataset.open(folder)
    for split in Split:
        for where, sample in dataset.numbered(split):
            image = sample.image
            columns = {"source": sample.source or "", "fold": str(sample.fold or "")}
            if box := sample.geometry.get("bbox"):
                columns["bbox"] = format_points(((box[0], box[1]), (box[2], box[3])))
            columns |= {name: format_points(sample.geometry.get(name, ())) for name in ("polygon", "baseline")}
            yield Page(
                image=image.file if isinstance(image, PackedImage) else image,
                name=sample.id.rpartition(".")[0],
                where=where,
                lines=(Line(sample.text, where),),
                writer=sample.writer,
                page=sample.page,
                document=sample.document,
                split=sample.split,
                columns=columns,
                content=partial(read_packed, image) if isinstance(image, PackedImage) else None,
            )


def fit_pages(items: Iterable[Item], names: NamePatterns, target: Format, report: SourceReport) -> Iterator[Page]:
    """The pages of a source that have lines, with the content that a target format can hold."""
    for item in report.filter_pages(items):
        page = names.apply(item, report)
        if not page.lines:
            report.skip(Skipped(SkipReason.NO_TRANSCRIPTION, page.where, "the image has no lines"))
        lines = []
        for line in page.lines:
            fitted = _fit_line(replace(line, text=line.text.strip()), target)
            if isinstance(fitted, Skipped):
                report.skip(fitted)
            else:
                lines.append(fitted)
        if lines:
            yield replace(page, lines=tuple(lines))


def _fit_line(line: Line, target: Format) -> Line | Skipped:
    """The line, with an empty text if the target can hold untranscribed outlines."""
    if line.outline and target.keeps_pages:
        left, top, right, bottom = line.outline.box
        if left >= right or top >= bottom:
            return Skipped(SkipReason.TOO_SMALL, line.where, "the line's box is empty")
        if is_blank(line.text):
            return replace(line, text="")
    if is_blank(line.text):
        return Skipped(SkipReason.NO_TEXT, line.where, line.untranscribed or "the transcription is empty")
    if match := target.forbidden.search(line.text):
        message = f"the transcription has {match[0]!a}, which {target.name} cannot hold"
        return Skipped(SkipReason.UNWRITABLE, line.where, message)
    return line


class _Survey:
    """The contents of a source's pages: counts, structure, the columns in use, and unique image names."""

    def __init__(self, pages: Iterable[Page]) -> None:
        self.counts, self._names = Counter[str](), Counter[str]()
        self._structure: dict[str, Counter[str]] = defaultdict(Counter)
        self._columns: dict[str, None] = {}
        for page in pages:
            name = page.name.rpartition("/")[2]
            self.counts.update(
                {
                    "images": 1,
                    "outlines": sum(line.outline is not None for line in page.lines),
                    "regions": sum(line.region is not None for line in page.lines),
                    "writers": page.writer is not None,
                    "documents": page.document is not None,
                    "page names": page.page is not None and page.page.rpartition("/")[2] != name,
                }
            )
            if page.xml:
                for kind, type_ in _list_structure(parse_xml(page.xml)):
                    self._structure[kind][type_] += 1
            self._columns.update(dict.fromkeys(column for column, value in page.columns.items() if value))
            self._names[name.casefold()] += 1

    def short_name(self, page: Page) -> str:
        """The image's file name if no other image has it, else with its folders."""
        name = page.name.rpartition("/")[2]
        return name if self._names[name.casefold()] == 1 else page.name

    def columns_for(self, target: Format, named: Mapping[str, str]) -> tuple[list[str], list[str]]:
        """The additional columns that the target takes over, those without the name of a role, and the lost ones."""
        unread = set() if self.counts["outlines"] else set(OUTLINE_ROLES)
        roles = guess_roles(list(self._columns), named)
        read = {column for role, column in roles.items() if role not in unread}
        reserved = {*(target.columns or ()), *(name for names in USUAL_NAMES.values() for name in names)}
        others = [name for name in self._columns if name not in read]
        carried = [name for name in others if target.columns is not None and name not in reserved]
        return carried, [name for name in others if name not in carried and name not in target.origin_columns]

    def left_behind(self, target: Format, lost_columns: Sequence[str], changes: Mapping[str, int]) -> list[str]:
        """Kinds of content that the target cannot hold or that was changed, with their counts."""
        cropped = 0 if target.keeps_pages else self.counts["outlines"]
        counts = {"pages of cropped lines": cropped, "polygons and baselines": cropped if target.columns is None else 0}
        if target.keeps_regions:
            counts |= {kind: self.counts[kind] for kind in ("writers", "documents", "page names")}
        else:
            counts["regions of lines"] = self.counts["regions"]
        messages = [f"{kind}: {count}" for kind, count in {**counts, **changes}.items() if count]
        if lost_columns:
            messages.append(f"columns: {', '.join(lost_columns)}")
        kept = _KEPT_STRUCTURE if target.keeps_regions else frozenset()
        for kind, types in sorted(self._structure.items()):
            if kind not in kept and not (kind == "tables" and target.keeps_tables):
                listed = ", ".join(f"{type_} {count}" for type_, count in sorted(types.items()) if type_)
                messages.append(f"{kind}: {types.total()}" + (f" ({listed})" if listed else ""))
        return messages


_KEPT_STRUCTURE = frozenset({"region ids", "line ids", "region types", "line types"})
_OTHER_BLOCKS = frozenset({"ComposedBlock", "Illustration", "GraphicalElement"})


def _list_structure(root: etree._Element) -> Iterator[tuple[str, str]]:
    """Yield the kind and type of all that an ALTO or PAGE document says besides texts and outlines."""
    labels = {tag: label or tag for tag, label in tag_labels(root).items()}
    used = {tag for element in root.iter("{*}*") for tag in (element.get("TAGREFS") or "").split()}
    yield from (("unused tag definitions", label) for tag, label in labels.items() if tag not in used)
    for element in root.iter("{*}*"):
        name = etree.QName(element).localname
        if name in {"TextRegion", "TableCell", "TextBlock", "TextLine"}:
            yield from _describe(element, name, labels)
        elif name == "Word" or (
            name == "String" and element.get("HPOS") and element.xpath("count(../*[local-name()='String']) > 1")
        ):
            yield "word boxes", ""
        elif name == "Glyph":
            yield "glyphs", ""
        elif name == "TableRegion":
            yield "tables" if any(map(cell_place, element)) else "tables without rows and columns", ""
        elif name.endswith("Region") or name in _OTHER_BLOCKS:
            yield "other regions", name


def _describe(element: etree._Element, name: str, labels: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield what a region or a line says about itself."""
    kind = "line" if name == "TextLine" else "region"
    id_ = element.get("id") or element.get("ID")
    if id_ == UNGROUPED_BLOCK:
        return
    is_text = kind == "line" or element.find("{*}TextLine") is not None or element.find("{*}TextEquiv") is not None
    if not is_text and element.find(".//{*}TextLine") is None:
        if cell_place(element) is None:
            yield "text regions without lines", ""
    elif id_ and is_text:
        yield f"{kind} ids", ""
    if name == "TextRegion" and next(element.iterancestors("{*}TextRegion"), None) is not None:
        yield "nested text regions", ""
    tags = " ".join(labels.get(tag) or tag for tag in (element.get("TAGREFS") or "").split())
    if type_ := element.get("type") or custom_value(element, "structure", "type") or tags:
        yield f"{kind} types", type_
    if kind == "line":
        yield from (("tags in texts", tag) for tag, values in custom_tags(element) if "offset" in values)
