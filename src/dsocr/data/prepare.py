"""Turn scans and transcriptions into a dataset folder: read, name, crop, split, write."""

import json
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, field, replace
from itertools import chain
from os import PathLike
from pathlib import Path
from typing import Annotated, Any, TextIO

from cyclopts import Parameter

from dsocr import __version__
from dsocr.config import read_policy
from dsocr.console import shows_progress
from dsocr.data.check.image_checks import find_several_lines
from dsocr.data.crops import CROPS, Cropper, CropResult, read_sources
from dsocr.data.dataset import (
    IMAGES_FOLDER,
    MAX_EXAMPLES,
    SKIPPED_FILE,
    SOURCES_FILE,
    Card,
    Dataset,
    SourceReport,
    SplitCard,
    SplitWriter,
    Store,
    count_example,
    read_card,
    require_free_dataset,
)
from dsocr.data.layouts import largest_sample, layout_xml, take_layout
from dsocr.data.sources import NamePatterns, OpenedSource, RegionChoice, UnitGrouper, choose_unit, open_source
from dsocr.data.split_plan import (
    EarlierDataset,
    SplitAssignment,
    SplitPlan,
    assign_splits,
    read_earlier_dataset,
    read_fixed_list,
)
from dsocr.data.splits import GIVEN, SplitCandidate, count_crossing, parse_fractions
from dsocr.document import Line, Outline, Page, SampleUnit, Skipped, SkipReason, Split, format_points
from dsocr.errors import DataError, first_few, option
from dsocr.formats import detect_format
from dsocr.formats.format import NOT_UTF8, Format
from dsocr.formats.xml import preferred_layer
from dsocr.images import CropFailure, CroppedPage, cropped_outline
from dsocr.io.encodings import text_encoding
from dsocr.io.files import UniqueStems, current_time, is_dataset
from dsocr.io.processes import ProgressCallback, Workers
from dsocr.io.web import Fetch, FetchOptions
from dsocr.io.work import resumable_work
from dsocr.options import ON, Columns, Count, Output, Rare, StrPath, Texts, read_pairs
from dsocr.outlines import outline_by_baselines, turn_baselines
from dsocr.text import TextChange, TextPolicy, is_blank, percentage

DEFAULT_POLICY = TextPolicy()
COMMIT_SECONDS = 0.5
"""Crops that took less time than this are lost together if the process is killed."""
MANIFEST_COLUMNS = ("canvas", "rights")
"""Columns of samples from IIIF and METS: the page that a sample is from, and the terms of its use."""


@shows_progress("preparing", "images")
def prepare(
    source: StrPath,
    output: Output,
    *,
    format: str | None = None,
    writer: str | None = None,
    page: str | None = None,
    document: str | None = None,
    split: str = "0.8/0.1/0.1",
    split_by: str | None = None,
    unit: SampleUnit | None = None,
    regions: Texts = (),
    lines_per_region: Rare[int | None] = None,
    single_lines: Rare[float] = 0.0,
    seed: int = 17,
    stratify: Rare[Annotated[bool, ON]] = True,
    folds: int | None = None,
    fixed: Rare[StrPath | None] = None,
    like: Rare[StrPath | None] = None,
    columns: Columns | None = None,
    store: Rare[Store] = "files",
    workers: Rare[Count | None] = None,
    text_policy: Annotated[
        TextPolicy | Sequence[str] | PathLike[str], Parameter(metavar="FILE|KEY=VALUE")
    ] = DEFAULT_POLICY,
    encoding: str | None = None,
    layer: Rare[str | None] = None,
    fetch: Fetch | None = None,
    strict: Rare[bool] = False,
    overwrite: bool = False,
    progress: ProgressCallback | None = None,
) -> Dataset:
    """Write a dataset folder from a folder, a table or another file, a zip archive, `hf:owner/name`, IIIF or METS.

    Crops of an earlier run with the same source, finished or killed, are reused.

    Args:
        source: Folder of scans with transcriptions, a zip archive, a table, IIIF, METS, or hf:owner/name.
        output: Folder to write; it appears only when it is complete.
        format: Format of the source; detected if not given; `dsocr prepare --formats` lists them.
        writer: Writer: a column, or a pattern over file names: its first group, or else the whole match.
        page: Page: a column, or a pattern over file names.
        document: Document of the page: a column, or a pattern over file names.
        split: Fractions of train/validation/test.
        split_by: Unit that splits never share: writer, document, page, text, writer+text, or given for the source's
            own; chosen if not given.
        unit: Unit of a sample; as transcribed if not given. A layout is a page with its lines, transcribed or not.
        regions: Type of region whose lines are taken, such as MainZone, with those whose type is not known; repeatable.
        lines_per_region: Of regions: the most neighbouring lines together, 5 to 15 for readers of pages; they are read
            and scored line by line.
        single_lines: With `lines_per_region`: share of these groups that become single lines instead, so that a reader
            learns to read lines alone, too.
        seed: Seed of the split.
        stratify: Make splits alike in lengths and scripts.
        folds: Number of folds for cross-validation; a configuration names the one to test.
        fixed: List of writers, pages or images, each with a tab and its split; test if there is none.
        like: Earlier dataset whose samples keep their splits; only new ones are placed. An overwritten dataset with the
            same settings is one too.
        columns: Column of a table, as image=NAME, text=NAME, writer=NAME; repeatable.
        store: How to store images; parquet is for very many.
        workers: Number of processes; one per core if not given.
        text_policy: How to normalize transcriptions: a YAML file, or a rule such as struck=strip, unclear=drop-line,
            mojibake=repair or line_end_hyphens=join; repeatable. In Python also a `TextPolicy`.
        encoding: Encoding of texts and tables that are not UTF-8, e.g. cp1251.
        layer: Part of the path of the file to take where several describe a scan, such as chocomufin; the file named as
            its image if not given.
        fetch: How IIIF and METS are fetched: size=2000 (or max), pages=50, ...; repeatable.
        strict: Stop at the first fault instead of counting and listing it.
        overwrite: Replace what an earlier command wrote there.
        progress: Called with the images done and in total, instead of a progress bar.

    Raises:
        ConfigError: The text policy or another option cannot be used.
        DataError: The source cannot be read, or the dataset cannot be written.
    """
    policy, named_columns = read_policy(text_policy), read_pairs("columns", columns)
    source, output = Path(source), Path(output)
    with text_encoding(encoding):
        fixed_list = read_fixed_list(Path(fixed)) if fixed else None
    earlier = read_earlier_dataset(Path(like)) if like else None
    fractions = parse_fractions(split)
    plan = SplitPlan(fractions, split_by, seed, stratify=stratify, folds=folds, fixed=fixed_list, earlier=earlier)
    require_free_dataset(output, source, overwrite=overwrite)
    report = SourceReport(strict)
    patterns = {"writer": writer, "page": page, "document": document}
    with (
        text_encoding(encoding),
        preferred_layer(layer),
        resumable_work(output, commit_seconds=COMMIT_SECONDS) as work,
        open_source(source, work.folder / "unpacked", FetchOptions.parse(fetch), progress) as opened,
    ):
        chosen = detect_format(opened.path, format, named_columns)
        sample_unit = choose_unit(unit, chosen)
        grouper = UnitGrouper(sample_unit, lines_per_region, single_lines)
        types = [regions] if isinstance(regions, str) else list(regions)
        if like is None and is_dataset(output):
            plan = replace(plan, earlier=_read_overwritten(output, opened.name, plan, patterns, report))
        reader = _PageReader(
            opened, chosen, named_columns, NamePatterns(patterns), RegionChoice(types), grouper, policy
        )
        total = reader.count()
        earlier_crops = ((key, cut) for key, _, cut in read_sources(output) if "lines" in cut)
        work.journal.add(earlier_crops, replace=False)
        pages = work.folder / "pages.jsonl"
        columns_kept = MANIFEST_COLUMNS if opened.index else ()
        with closing(Workers(workers)) as pool, pages.open("w", encoding="utf-8") as file:
            recorder = _Recorder(file, report, columns_kept, keeps_layout=sample_unit in ("page", "layout"))
            cropper = Cropper(work, output, pool, largest_sample(sample_unit))
            for result in pool.in_order(map(cropper.start, reader.pages(report))):
                recorder.add(result)
                if progress:
                    progress(report.pages, total)
        for message, places in report.reshaped.items():
            report.note(f"{len(places)} {message}: {', '.join(places[:MAX_EXAMPLES])}")
        report.notes += describe_policy(report, policy)
        candidates = recorder.candidates
        if not candidates:
            code, hint, untranscribed = "no-samples", None, {SkipReason.NO_TEXT, SkipReason.NO_TRANSCRIPTION}
            if {item.reason for item in report.skipped} <= untranscribed:
                code = "not-transcribed"
                hint = (
                    "nothing is transcribed yet: read pages with `dsocr transcribe`, or type them in `dsocr workbench`"
                )
            raise DataError(f"no sample is left{report.explain_empty()}", code=code, where=source, hint=hint)
        if sample_unit == "line":
            _require_lines(recorder)
        missing = report.missing_images(report.pages)
        try:
            assignment = assign_splits(candidates, plan, report)
        except DataError as error:
            # Too few groups may be due to images that are missing, which the error would not mention.
            message = f"{error.message}; {missing}" if missing else error.message
            raise DataError(message, code=error.code, where=error.where, hint=error.hint) from error
        if missing:
            report.note(missing)
        is_drawn = assignment.unit != GIVEN
        has_aligned = not all(candidate.is_checked for candidate in candidates)
        card = Card(
            dsocr_version=__version__,
            created=current_time().isoformat(timespec="seconds"),
            source=opened.name,
            source_format=chosen.name,
            unit=sample_unit,
            lines_per_region=lines_per_region,
            regions=types,
            writer=writer,
            page=page,
            document=document,
            text_policy=policy.as_dict(),
            split_by=assignment.unit,
            fractions=plan.target_fractions() if is_drawn else None,
            seed=seed if is_drawn else None,
            stratified=is_drawn and stratify,
            folds=folds,
            fixed=fixed_list.card if fixed_list else None,
            like=plan.earlier.name if plan.earlier and is_drawn else None,
            splits=_write_samples(pages, work.draft, assignment, store, has_aligned=has_aligned),
            store=store,
            crossing=count_crossing(candidates, assignment.splits),
            text_changes=report.text_changes,
            skipped=report.skipped_card(),
            unmatched=report.unmatched,
            notes=report.notes,
            manifests=opened.index.rights if opened.index else [],
        )
        # The card has only the first of each kind.
        if skipped := [json.dumps(asdict(item), ensure_ascii=False) + "\n" for item in report.skipped]:
            (work.draft / SKIPPED_FILE).write_text("".join(skipped), encoding="utf-8", newline="\n")
        card.write(work.draft)
    return Dataset(output, card, report=report)


@dataclass(frozen=True, slots=True)
class _PageReader:
    """Reads the pages of a source with their names, units and texts, as often as needed."""

    source: OpenedSource
    format: Format
    columns: Mapping[str, str]
    names: NamePatterns
    regions: RegionChoice
    grouper: UnitGrouper
    text_policy: TextPolicy

    def pages(self, report: SourceReport, *, counting: bool = False) -> Iterator[Page]:
        """The pages that have samples with a text; for counting, their outlines are not compared with baselines."""
        for page in report.filter_pages(chain(self.source.items, self.format.read(self.source.path, self.columns))):
            page = self.names.apply(self.source.describe(page), report)
            if not counting:
                for reshape, message in _RESHAPED.items():
                    page, lines = reshape(page)
                    for line in lines:
                        report.reshaped[message].append(line.where)
            chosen = self.regions.apply(page, report)
            if page.lines and not chosen.lines:
                continue
            page = chosen
            if self.grouper.unit == "layout":
                if layout := take_layout(page, report):
                    yield layout
                continue
            # Group before the text policy, which drops lines: a page must not lose a line unnoticed.
            page = self.grouper.apply(page, report)
            page = normalise_texts(page, report, self.text_policy)
            if page.lines:
                yield page

    def count(self) -> int:
        """The number of pages. Raises DataError for patterns and units that match none, before any work is done."""
        count = sum(1 for _ in self.pages(SourceReport(), counting=True))
        self.names.require_matches()
        self.regions.require_types()
        self.grouper.require_regions()
        return count


_RESHAPED = {
    turn_baselines: "baselines run against the reading, so they are turned around",
    outline_by_baselines: "lines have no outline or one off their baseline, so the baseline is used",
}
_DROPPED = {
    "struck": (SkipReason.STRUCK, "the transcription has struck-out text, which the policy drops"),
    "unclear": (SkipReason.UNCLEAR, "the transcription has an unclear place, which the policy drops"),
}


def normalise_texts(page: Page, report: SourceReport, policy: TextPolicy) -> Page:
    """Apply the text policy to the lines of a page; lines without text are skipped, possibly all of them."""
    lines = []
    for line in page.lines:
        if line.alignment and not line.alignment.sure:
            likely = percentage(line.alignment.score, 0)
            message = f"its aligned text is right with {likely}: accept it in the workbench"
            report.skip(Skipped(SkipReason.IN_DOUBT, line.where, message))
            continue
        revision = policy.revise(line.text, line.struck, line.unclear)
        report.tagged.update(struck=bool(line.struck), unclear=bool(line.unclear))
        if is_blank(revision.text):
            left = "the transcription is empty" if is_blank(line.text) else "nothing is left of the transcription"
            report.skip(Skipped(SkipReason.NO_TEXT, line.where, line.untranscribed or left))
        elif NOT_UTF8.search(revision.text):
            message = "the transcription has half of a surrogate pair"
            report.skip(Skipped(SkipReason.BAD_SOURCE, line.where, message))
        elif revision.dropped:
            reason, message = _DROPPED[revision.dropped]
            report.skip(Skipped(reason, line.where, message))
        else:
            lines.append(replace(line, text=revision.text))
            for rule in dict.fromkeys(change.rule for change in revision.changes):
                first = next(change for change in revision.changes if change.rule == rule)
                count_example(report.text_changes, rule, f"{line.where}: {_describe_change(first)}")
    return replace(page, lines=tuple(lines))


def describe_policy(report: SourceReport, policy: TextPolicy) -> Iterator[str]:
    """Sentences on rules that found nothing to act on, and on tagged lines that stay as they are."""
    reasons = {item.reason for item in report.skipped}
    acted = {*report.text_changes, *(rule for rule, (reason, _) in _DROPPED.items() if reason in reasons)}
    for rule in ("mojibake", "hyphen_signs", "line_end_hyphens", "struck", "unclear"):
        action = getattr(policy, rule)
        if count := report.tagged[rule] * (rule not in acted):
            yield f"{count} texts have {rule} places by the source's tags and are kept; {rule}=drop-line drops them"
        elif action != "keep" and rule not in acted:
            yield f"the text policy's {rule}={action} found nothing to act on"


_CONTEXT = 20
_MAX_SHOWN = 60
"""Characters shown before a change, and in all."""


def _describe_change(change: TextChange) -> str:
    """The changed part of a text before and after, with invisible characters as `\\u` escapes."""
    before, after = change.before, change.after
    same = next((place for place, letter in enumerate(before) if after[place : place + 1] != letter), len(before))
    start = max(same - _CONTEXT, 0)

    def excerpt(text: str) -> str:
        shown = f"{'…' if start else ''}{text[start:][:_MAX_SHOWN]}{'…' if start + _MAX_SHOWN < len(text) else ''}"
        return "".join(f"\\u{ord(sign):04x}" if unicodedata.combining(sign) else sign for sign in repr(shown))

    return f"{excerpt(before)} -> {excerpt(after)}"


@dataclass(slots=True)
class _Recorder:
    """Names the samples of cropped pages and lists them in a file, and records failures in the report."""

    file: TextIO
    report: SourceReport
    columns: Sequence[str]
    keeps_layout: bool
    stems: UniqueStems = field(default_factory=UniqueStems)
    candidates: list[SplitCandidate] = field(default_factory=list)
    sizes: list[tuple[int, int]] = field(default_factory=list)
    """Width and height of each sample's image."""

    def add(self, result: CropResult) -> None:
        self.report.pages += 1
        self.report.reused += result.is_reused
        page, crops, layout, samples = result.page, result.crops, "", []
        if isinstance(crops, CroppedPage):
            try:
                layout = layout_xml(page, crops.size)
            except DataError as error:
                crops = CropFailure(SkipReason.OTHER_SIZE, error.message)
        cut = CROPS.dump_python(crops, mode="json")
        if isinstance(crops, CropFailure):
            for line in page.lines:
                self.report.skip(Skipped(crops.reason, line.where, crops.message))
        else:
            stem = self.stems.take(page.name)
            for place, (line, crop) in enumerate(zip(page.lines, crops.lines, strict=True)):
                if isinstance(crop, CropFailure):
                    self.report.skip(Skipped(crop.reason, line.where, crop.message))
                    continue
                is_whole_page = line.outline is None and place == 0
                name = stem if is_whole_page else self.stems.take_stem(f"{stem}_{place + 1:04d}")
                name += Path(crop.file).suffix
                cut["lines"][place][0] = name
                outline = cropped_outline(line, page, crops.size)
                box = outline.box if outline else (0, 0, *crops.size)
                self.sizes.append((box[2] - box[0], box[3] - box[1]))
                row = _sample_row(name, line, outline, page)
                row |= {column: page.columns.get(column, "") for column in self.columns}
                if self.keeps_layout:
                    row["page_xml"] = layout
                samples.append((str(result.folder / crop.file), row))
                names: dict[str, Any] = {unit: row[unit] or None for unit in ("writer", "document", "page")}
                candidate = SplitCandidate(page.name, line.where, line.text, split=page.split, **names)
                is_checked = line.alignment is None
                self.candidates.append(replace(candidate, picture=result.picture, is_checked=is_checked))
        source = {"source": page.where, "image": page.name, "sha256": result.picture, "key": result.key, "cut": cut}
        self.file.write(json.dumps({"source": source, "samples": samples}) + "\n")


def _require_lines(recorded: _Recorder) -> None:
    """Raise DataError if most images of lines have texts of several, and note a few."""
    candidates = recorded.candidates
    places, is_most = find_several_lines(zip((item.text for item in candidates), recorded.sizes, strict=True))
    if not places:
        return
    first = first_few([candidates[place].where for place in places], 3)
    message = f"{len(places)} of {len(candidates)} texts are too long for one line, so they may be pages: {first}"
    if is_most:
        hint = f"give {option('unit', 'page')} or region, or find the lines of pages with `dsocr align`"
        raise DataError(message, code="unit-unsupported", hint=hint)
    recorded.report.note(message)


def _sample_row(name: str, line: Line, outline: Outline | None, page: Page) -> dict[str, Any]:
    """A sample's row of metadata.

    All rows have the same columns and types, since the `datasets` library rejects a column that is null in all of one
    split and text in another; unknown values are empty strings. `bbox` is null only if no sample of a source has one.
    Datasets without aligned texts do not get the column `aligned`.
    """
    return {
        "file_name": f"{IMAGES_FOLDER}/{name}",
        "text": line.text,
        "writer": page.writer or "",
        "page": page.page or "",
        "document": page.document or "",
        "source": line.where,
        "bbox": list(outline.box) if outline else None,
        "polygon": format_points(outline.polygon) if outline else "",
        "baseline": format_points(outline.baseline) if outline else "",
        "aligned": f"{line.alignment.score:.4f}" if line.alignment else "",
    }


def _write_samples(
    recorded: Path, draft: Path, assignment: SplitAssignment, store: Store, *, has_aligned: bool
) -> dict[Split, SplitCard]:
    """Write the images and metadata of all splits, and `sources.jsonl` with the crops that the next run can reuse."""
    assigned = zip(assignment.splits, assignment.folds, strict=True)
    used = [split for split in Split if split in assignment.splits]
    draft.mkdir()
    with (
        recorded.open(encoding="utf-8") as pages,
        (draft / SOURCES_FILE).open("w", encoding="utf-8", newline="\n") as sources,
        ExitStack() as stack,
    ):
        writers = {split: stack.enter_context(closing(SplitWriter(draft, split, store))) for split in used}
        for page in map(json.loads, pages):
            crops = (line for line in page["source"]["cut"].get("lines", ()) if isinstance(line, list))
            for crop, (image, row) in zip(crops, page["samples"], strict=True):
                split, fold = next(assigned)
                if not has_aligned:
                    del row["aligned"]
                if split:
                    writers[split].add(row | ({"fold": fold} if fold else {}), Path(image), crop[1])
                    crop[0] = f"{split}/{row['file_name']}"
            sources.write(json.dumps(page["source"], ensure_ascii=False) + "\n")
    return {split: writer.card() for split, writer in writers.items()}


def _read_overwritten(
    output: Path, source: str, plan: SplitPlan, patterns: Mapping[str, str | None], report: SourceReport
) -> EarlierDataset | None:
    """The dataset to be overwritten if it was made with the same settings: its groups keep their splits."""
    try:
        card = read_card(output)
        settings = {"writer": card.writer, "page": card.page, "document": card.document}
        # Sources on the Hub have a commit in their names.
        names = {name.partition("@")[0] if name.startswith("hf:") else name for name in (card.source, source)}
        is_same_source = len(names) == 1 and settings == patterns
        drawn = (card.fractions, card.seed, card.folds) == (plan.target_fractions(), plan.seed, plan.folds)
        is_same_unit = card.split_by != GIVEN and plan.split_by in (None, card.split_by)
        # Splits that were stratified or fixed are drawn anew if that is no longer asked for.
        is_as_strict = (plan.stratify or not card.stratified) and (plan.fixed is not None or card.fixed is None)
        if is_same_source and drawn and is_same_unit and is_as_strict:
            return read_earlier_dataset(output)
    except DataError as error:
        report.note(f"the overwritten dataset cannot be read, so all splits are new: {error.message}")
    return None
