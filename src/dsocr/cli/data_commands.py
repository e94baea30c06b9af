"""Commands that make, check and show datasets."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from dsocr.cli.app import (
    Columns,
    Document,
    Encoding,
    Fetch,
    Format,
    Json,
    Output,
    Overwrite,
    Page,
    Quiet,
    Settings,
    Strict,
    Workers,
    Writer,
    command,
    parse_columns,
    parse_fetch,
    print_json,
    quiet_libraries,
)
from dsocr.console import Printer
from dsocr.document import Unit
from dsocr.errors import ConfigError, typed

if TYPE_CHECKING:
    from dsocr.config import RunConfig
    from dsocr.data.check import Finding
    from dsocr.data.dataset import Dataset
    from dsocr.data.leaks import LeakReport
    from dsocr.data.source_report import CountCard
    from dsocr.data.synthesize import SynthesisReport

_YAML = (".yaml", ".yml")
_LISTED = 10


def _print_formats(wanted: bool) -> None:
    """List the formats that prepare reads, each with a command."""
    if not wanted:
        return
    from dsocr.formats import SOURCE_FORMATS

    for format_ in SOURCE_FORMATS.values():
        typer.echo(f"{format_.name:<14}{format_.title}\n{'':<14}dsocr prepare {format_.example}")
    typer.echo("A zip archive of any of these works too, and so does hf:owner/name, a dataset of the Hugging Face Hub.")
    typer.echo(
        "IIIF manifests, IIIF collections and METS are files or addresses: dsocr prepare https://... -o data/mine"
    )
    typer.echo("The format is detected; --format NAME decides where a folder holds several.")
    raise typer.Exit


@command("Data", "dsocr prepare scans -o data/mine", r"dsocr prepare export.zip -o data/mine --writer '(\w+?)_\d+'")
def prepare(
    source: Annotated[
        Path,
        typer.Argument(
            help="Folder of scans with transcriptions, a zip archive, a table, IIIF, METS, or hf:owner/name."
        ),
    ],
    output: Output,
    format: Format = None,
    formats: Annotated[
        bool, typer.Option("--formats", callback=_print_formats, is_eager=True, help="List the formats and exit.")
    ] = False,
    writer: Writer = None,
    page: Page = None,
    document: Document = None,
    split: Annotated[str, typer.Option(help="Fractions of train/validation/test.")] = "0.8/0.1/0.1",
    split_by: Annotated[
        str | None,
        typer.Option(help="What splits never share: writer, document, page, text, writer+text; chosen if not given."),
    ] = None,
    unit: Annotated[Unit | None, typer.Option(help="What a sample is; as transcribed if not given.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the split.")] = 17,
    stratify: Annotated[bool, typer.Option(help="Make splits alike in lengths and scripts.")] = True,
    folds: Annotated[
        int | None, typer.Option(help="Number of folds for cross-validation; a configuration names the one to test.")
    ] = None,
    fixed: Annotated[
        Path | None,
        typer.Option(help="List of writers, pages or images, each with a tab and its split; test if there is none."),
    ] = None,
    like: Annotated[
        Path | None, typer.Option(help="Earlier dataset whose samples keep their splits; only new ones are placed.")
    ] = None,
    column: Columns = None,
    store: Annotated[
        Literal["files", "parquet"], typer.Option(help="How to store images; parquet is for very many.")
    ] = "files",
    workers: Workers = None,
    text_policy: Annotated[Path | None, typer.Option(help="YAML file on how to normalize transcriptions.")] = None,
    struck: Annotated[str | None, typer.Option(help="Struck-out text: keep, strip or drop-line.")] = None,
    unclear: Annotated[str | None, typer.Option(help="Marks of unclear text: keep, strip or drop-line.")] = None,
    mojibake: Annotated[str | None, typer.Option(help="Text decoded with a wrong encoding: keep or repair.")] = None,
    line_end_hyphens: Annotated[str | None, typer.Option(help="Words broken at a line end: keep or join.")] = None,
    encoding: Encoding = None,
    fetch: Fetch = None,
    strict: Strict = False,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
) -> None:
    """Make a dataset from scans and transcriptions."""
    from dsocr.config import read_policy
    from dsocr.data.prepare import prepare

    policy = {"struck": struck, "unclear": unclear, "mojibake": mojibake, "line_end_hyphens": line_end_hyphens}
    printer = Printer(quiet=quiet)
    with printer.progress("preparing", "images") as progress:
        dataset = prepare(
            source,
            output,
            format=format,
            writer=writer,
            page=page,
            document=document,
            split=split,
            split_by=split_by,
            unit=unit,
            seed=seed,
            stratify=stratify,
            folds=folds,
            fixed=fixed,
            like=like,
            columns=parse_columns(column),
            store=store,
            workers=workers,
            text_policy=read_policy(text_policy, policy),
            encoding=encoding,
            fetch=parse_fetch(fetch),
            strict=strict,
            overwrite=overwrite,
            progress=progress,
        )
    print_prepared(printer, dataset)
    printer.message(f"next:    dsocr check {typed(dataset.folder)}")


def print_prepared(printer: Printer, dataset: "Dataset") -> None:
    """Print a prepared dataset's splits, and what was skipped."""
    card, report = dataset.card, dataset.report
    printer.message(f"{'split':<12}{'samples':>9}{'writers':>9}{'pages':>8}{'characters':>12}")
    for split, part in card.splits.items():
        printer.message(f"{split:<12}{part.samples:>9}{part.writers:>9}{part.pages:>8}{part.characters:>12}")
    folds = f" into {card.folds} folds, the table shows fold 1" if card.folds else ""
    printer.message(f"read as {card.source_format}, {card.unit} by {card.unit}; split by {card.split_by}{folds}")
    if report.reused:
        printer.message(f"of {report.pages} images, {report.reused} had been cropped before")
    for rule, changes in card.text_changes.items():
        printer.message(f"text policy, texts changed by {rule}: {changes.count}, e.g. {changes.examples[0]}")
    for kind, names in report.names.items():
        shown = ", ".join(f"{name} ({count})" for name, count in names.most_common(5))
        printer.message(f"{len(names)} {kind}s, with their images: {shown}{', ...' if len(names) > 5 else ''}")
    _print_skipped(printer, card.skipped, card.unmatched)
    for note in card.notes:
        printer.message(f"note: {note}")
    printer.result(f"dataset: {dataset.folder}")


def _print_skipped(printer: Printer, skipped: Mapping[str, "CountCard"], unmatched: Mapping[str, "CountCard"]) -> None:
    """Print what of a source was skipped, and the names that a pattern did not match."""
    for reason, part in skipped.items():
        _list(printer, f"skipped, {reason}: {part.count}", part.examples[:3])
    for kind, part in unmatched.items():
        printer.message(f"no {kind} found in the name of {part.count}, e.g. {part.examples[0]}")


def _list(printer: Printer, title: str, lines: Sequence[str]) -> None:
    printer.message(title)
    for line in lines[:_LISTED]:
        printer.message(f"  {line}")
    if len(lines) > _LISTED:
        printer.message("  ...")


@command("Data", "dsocr check data/mine --html check.html", "dsocr check data/mine --fix -o data/fixed")
def check(
    dataset: Annotated[Path, typer.Argument(help="Dataset folder, or a configuration that names one.")],
    base: Annotated[
        str | None, typer.Option(help="Base whose tokenizer must know the characters; the configuration's or small.")
    ] = None,
    max_text_tokens: Annotated[
        int | None, typer.Option(min=1, help="Longest transcription, in tokens; the configuration's or 512.")
    ] = None,
    fold: Annotated[int | None, typer.Option(min=1, help="Fold whose splits to report.")] = None,
    html: Annotated[Path | None, typer.Option(help="Also write the findings, with images, to this page.")] = None,
    source: Annotated[
        Path | None, typer.Option(help="What the dataset was prepared from, to show the page around a line in --html.")
    ] = None,
    csv: Annotated[Path | None, typer.Option(help="Also write every place of every finding to this table.")] = None,
    markdown: Annotated[
        Path | None, typer.Option(help="Also write how the data is split to this Markdown file, to quote.")
    ] = None,
    workers: Workers = None,
    fix: Annotated[
        bool, typer.Option("--fix", help="Repair what is certain in a new dataset, then check that.")
    ] = False,
    corrections: Annotated[
        Path | None, typer.Option(help="Table of corrected texts for --fix, such as the audit.csv of dsocr audit.")
    ] = None,
    encoding: Annotated[
        str | None, typer.Option(help="Encoding of --corrections if it is not UTF-8, e.g. cp1251.")
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Dataset folder for --fix to write.")] = None,
    overwrite: Overwrite = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Find what would spoil a training, and report the splits. Exits with 1 if there are errors."""
    from dsocr.data.dataset import Dataset

    for option, file in {"--html": html, "--csv": csv, "--markdown": markdown}.items():
        if file is not None and (file.is_dir() or not file.absolute().parent.is_dir()):
            raise ConfigError(f"{option} {file}", hint="name a file in an existing folder", code="option-invalid")
    if fix != (output is not None):
        code = "option-missing" if fix else "option-invalid"
        raise ConfigError("--fix and --output go together", hint="give --fix -o NEW, or neither", code=code)
    if corrections is not None and not fix:
        raise ConfigError("--corrections is for --fix", hint="give --fix -o NEW too", code="option-invalid")
    config = _load_config(dataset, {"base": base, "training.max_text_tokens": max_text_tokens, "fold": fold})
    opened = Dataset.open(config.dataset, fold=config.fold)
    printer = Printer(quiet=quiet or json)
    if output is not None:
        opened = _fix(printer, opened, output, corrections, encoding, overwrite=overwrite)
    # Slow, and not needed to say that there is no dataset.
    from dsocr.data.check import check_dataset
    from dsocr.data.leaks import report_leaks, summarise, to_markdown
    from dsocr.models.family import load_processor
    from dsocr.training.preview import text_limit

    processor = load_processor(config.base, config.input.resolution, config.input.prompt, config.base_revision)
    limit = text_limit(processor, config)
    with printer.progress("checking", "samples") as progress:
        findings = check_dataset(opened, processor, max_text_tokens=limit, workers=workers, progress=progress)
    splits = report_leaks(opened)
    if html is not None:
        findings.to_html(html, source=source)
    if csv is not None:
        findings.to_csv(csv)
    if markdown is not None:
        markdown.write_text(to_markdown(splits), encoding="utf-8", newline="\n")
    if json:
        described = {**splits.as_dict(), "quote": summarise(splits)}
        print_json(printer, {"findings": [finding.to_dict() for finding in findings], "splits": described})
    else:
        _print_splits(printer, splits)
        for finding in findings:
            print_finding(printer, finding)
        printer.result(f"{opened.folder}: {findings.summary()}")
        for label, file in (("page", html), ("splits", markdown), ("table", csv)):
            if file is not None:
                printer.result(f"{label}: {file}")
        if not findings.of("error"):
            printer.message(f"next: dsocr train {typed(opened.folder)}")
    sys.exit(1 if findings.of("error") else 0)


def _load_config(path: Path, changes: Mapping[str, object]) -> "RunConfig":
    """Load a configuration, or the default one for a dataset folder, with the changes that are not None."""
    from dsocr.config import load_config

    source = path if path.suffix in _YAML else {"dataset": path, "output": path}
    return load_config(source, changes={key: value for key, value in changes.items() if value is not None})


def _fix(
    printer: Printer,
    dataset: "Dataset",
    output: Path,
    corrections: Path | None,
    encoding: str | None,
    *,
    overwrite: bool,
) -> "Dataset":
    """Write the repaired dataset and return it, or the old one if there was nothing to repair."""
    from dsocr.data.dataset import Dataset
    from dsocr.data.fix import fix_dataset

    with printer.progress("copying", "samples") as progress:
        report = fix_dataset(
            dataset, output, corrections=corrections, encoding=encoding, overwrite=overwrite, progress=progress
        )
    for (code, split), count in sorted(report.counts().items()):
        printer.message(f"fixed in {split}: {count} [{code}]")
    if report.duplicates_left:
        printer.message(f"duplicates kept in validation and test: {report.duplicates_left} samples")
    if report.dataset is None:
        printer.message(f"nothing to fix; {output} was not written")
        return dataset
    printer.message(f"dataset: {output} (all changes are listed in {output / 'fixes.jsonl'})")
    return Dataset.open(output, fold=dataset.fold)


def _print_splits(printer: Printer, report: "LeakReport") -> None:
    from dsocr.data.leaks import leak_tables, summarise

    if printer.quiet:
        return
    for title, header, rows in leak_tables(report):
        printer.result(f"{title}:")
        printer.table(header, [(row, "") for row in rows])
        printer.result("")
    for split, facts in report.splits.items():
        if facts.sha256:
            printer.result(f"{split}: sha256 {facts.sha256}")
    printer.result(f"\nto quote:\n{summarise(report)}\n")


def print_finding(printer: Printer, finding: "Finding") -> None:
    """Print a finding with its first places and what to do about it."""
    printer.result(str(finding))
    for line in finding.details():
        printer.message(f"    {line}")


@command(
    "Data",
    "dsocr audit data/mine",
    "dsocr audit data/mine -o runs/audit --set base=runs/other --set training.max_steps=200",
)
def audit(
    dataset: Annotated[Path, typer.Argument(help="Dataset folder.")],
    set_: Settings = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Work folder, where it resumes; runs/NAME-audit if not given."),
    ] = None,
    folds: Annotated[
        int | None, typer.Option(min=3, help="Number of folds for a dataset without any; 5 if not given.")
    ] = None,
    lines: Annotated[int, typer.Option(min=1, help="Number of lines on the page and in the table.")] = 100,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Train again what was trained on other data or with other settings.")
    ] = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Find lines whose transcription is wrong. Every line is read by a model that never saw it."""
    from dsocr.data.dataset import Dataset
    from dsocr.evaluation.report.audit_page import ALL, PAGE, TABLE
    from dsocr.training.audit import audit as audit_lines

    quiet_libraries()
    Dataset.open(dataset)
    printer = Printer(quiet=quiet or json)
    with printer.progress("auditing", "lines") as progress:
        audit = audit_lines(
            dataset,
            output=output,
            folds=folds,
            lines=lines,
            overrides=set_ or [],
            overwrite=overwrite,
            progress=progress,
            on_message=printer.complain,
        )
    if json:
        print_json(printer, audit.to_dict(lines))
        return
    for line in audit.lines[:_LISTED]:
        printer.message(f"{line.rank:>3}. {line.sample.id}: {line.why}")
        printer.message(f"     given  {line.sample.text}")
        printer.message(f"     read   {line.read}")
    printer.result(str(audit))
    printer.result(f"page:  {audit.folder / PAGE}")
    printer.message(f"table: {audit.folder / TABLE}, all lines: {audit.folder / ALL}")


@command("Data", "dsocr preview data/mine -o preview.html", "dsocr preview mine.yaml --as-model --augmentation strong")
def preview(
    data: Annotated[Path, typer.Argument(help="Dataset folder, or a configuration that names one.")],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Page to write: .html with texts, or .png with images alone.")
    ] = Path("preview.html"),
    samples: Annotated[int, typer.Option(min=1, max=200, help="Number of training samples, evenly spread.")] = 8,
    epochs: Annotated[int, typer.Option(min=1, max=50, help="Number of epochs to show each of them in.")] = 4,
    augmentation: Annotated[
        str | None,
        typer.Option(help="none, light, medium, strong or a number; the configuration's or the base's if not given."),
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed; the configuration's if not given.")] = None,
    as_model: Annotated[
        bool, typer.Option("--as-model", help="Show images as the model sees them, with their number of tokens.")
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Show training samples with their augmentation."""
    from dsocr.data.dataset import Dataset
    from dsocr.html import sheet_writer

    write = sheet_writer(output)
    config = _load_config(data, {"training.augmentation": augmentation, "seed": seed})
    Dataset.open(config.dataset)
    # Slow, and not needed to say that something does not exist.
    from dsocr.models.family import load_processor
    from dsocr.training.lifecycle import pin_base
    from dsocr.training.preview import preview

    config = pin_base(config, None)
    processor = load_processor(config.base, config.input.resolution, config.input.prompt, config.base_revision)
    rows = list(preview(config, processor, samples=samples, epochs=epochs, as_model=as_model))
    how = f"augmentation {config.training.augmentation}, seed {config.seed}"
    how += f", as {config.base} sees it at {processor.resolution_name}" if as_model else ""
    write(f"{config.dataset.resolve().name}: {how}", rows)
    printer = Printer(quiet=quiet)
    printer.message(f"{len(rows)} samples in {epochs} epochs, {how}")
    printer.result(f"page: {output}")
    if config.training.augmentation in (0, "none") and not as_model:
        printer.message("next: nothing is augmented; --augmentation medium shows what that would do")
    else:
        printer.message("next: look at it; whatever a pen or a scanner could not produce is too much")


@command(
    "Data",
    "dsocr synthesize --fonts fonts --text words.txt -o data/drawn",
    "dsocr synthesize --fonts fonts --text words.txt -o data/drawn --count 5000 --augmentation medium",
)
def synthesize(
    fonts: Annotated[Path, typer.Option(help="Folder of fonts: ttf, otf, woff, woff2.")],
    text: Annotated[Path, typer.Option(help="UTF-8 text file: one line each, or running text.")],
    output: Output,
    count: Annotated[int, typer.Option(min=1, help="Number of lines to draw.")] = 1000,
    seed: Annotated[int, typer.Option(min=0, help="Seed of all random numbers.")] = 17,
    augmentation: Annotated[
        str, typer.Option(help="Augmentation of the images: none, light, medium, strong or a number.")
    ] = "light",
    split: Annotated[
        str, typer.Option(help="Fractions of train/validation/test; a font is in one only.")
    ] = "0.8/0.1/0.1",
    height: Annotated[int, typer.Option(min=16, max=512, help="Approximate height of a line in pixels.")] = 64,
    strict: Strict = False,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
) -> None:
    """Draw the lines of a text in your fonts, as a dataset."""
    from dsocr.config import read_augmentation
    from dsocr.data.synthesize import synthesize

    try:
        strength: Any = read_augmentation(augmentation)
    except ValueError as error:
        raise ConfigError(f"--augmentation {error}", code="option-invalid") from error
    printer = Printer(quiet=quiet)
    with printer.progress("drawing", "lines") as progress:
        report = synthesize(
            fonts,
            text,
            output,
            count=count,
            seed=seed,
            augmentation=strength,
            split=split,
            height=height,
            strict=strict,
            overwrite=overwrite,
            progress=progress,
        )
    _print_not_drawn(printer, report)
    print_prepared(printer, report.prepared)
    printer.message(f"next:    dsocr check {typed(report.prepared.folder)}")


def _print_not_drawn(printer: Printer, report: "SynthesisReport") -> None:
    """Print the files, fonts and lines that were not used."""
    from dsocr.data.synthesize import shorten_letters

    lacking = [
        f"{name} lacks {shorten_letters(letters)}: "
        f"{'draws nothing' if name in report.unused else f'{count} lines not drawn in it'}"
        for name, (count, letters) in report.missing.items()
    ]
    for title, lines in (
        ("not read", [f"{name}: {reason}" for name, reason in report.broken.items()]),
        ("fonts that lack letters", lacking),
        ("lines that no font of their split can draw", report.undrawn),
    ):
        if lines:
            _list(printer, f"{title}: {len(lines)}", lines)
    for what, count in report.skipped.items():
        printer.message(f"skipped: {count} {what}")


@command("Data", "dsocr convert data/mine -o pages --to page", "dsocr convert scans -o table --to tsv")
def convert(
    source: Annotated[Path, typer.Argument(help="Anything that prepare reads, or a dataset folder.")],
    output: Output,
    to: Annotated[
        str, typer.Option(help="Format: alto, page, page-2013, tsv, parquet, ms-swift, llama-factory or unsloth.")
    ],
    format: Format = None,
    writer: Writer = None,
    page: Page = None,
    document: Document = None,
    column: Columns = None,
    encoding: Encoding = None,
    fetch: Fetch = None,
    strict: Strict = False,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
) -> None:
    """Write transcriptions in another format."""
    from dsocr.data.convert import convert

    printer = Printer(quiet=quiet)
    with printer.progress("converting", "images") as progress:
        report = convert(
            source,
            output,
            to=to,
            format=format,
            writer=writer,
            page=page,
            document=document,
            columns=parse_columns(column),
            encoding=encoding,
            fetch=parse_fetch(fetch),
            strict=strict,
            overwrite=overwrite,
            progress=progress,
        )
    card = report.conversion
    printer.message(f"read as {card.source_format}, written as {card.target}: {card.images} images, {card.lines} lines")
    for split, lines in card.splits.items():
        printer.message(f"  {split or 'no split':<12}{lines:>9} lines")
    for note in card.notes:
        printer.message(note)
    for sentence in card.left_behind:
        printer.message(f"not written: {sentence}")
    _print_skipped(printer, card.skipped, card.unmatched)
    printer.result(f"written: {report.output}")
    printer.message(f"next:    {report.next}")
