"""Commands that score, report and compare."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from dsocr.cli.app import (
    Columns,
    Encoding,
    Json,
    Overwrite,
    Quiet,
    command,
    parse_columns,
    print_json,
    quiet_libraries,
)
from dsocr.console import Printer
from dsocr.document import Split
from dsocr.errors import ConfigError, typed


@command(
    "Judge",
    "dsocr evaluate runs/mine",
    "dsocr evaluate data/mine --folds",
)
def evaluate(
    run: Annotated[
        Path, typer.Argument(help="Run folder; with --folds also a configuration or a dataset, nothing trained yet.")
    ],
    dataset: Annotated[Path | None, typer.Option(help="Another dataset folder than the run's own.")] = None,
    split: Annotated[Split, typer.Option(help="Split to score.")] = Split.TEST,
    limit: Annotated[int | None, typer.Option(min=1, help="Score the first samples only, this many.")] = None,
    base: Annotated[bool, typer.Option(help="Also score the base as it was before training.")] = True,
    report: Annotated[bool, typer.Option(help="Also write report.html, a page with images of the lines.")] = True,
    calibrate: Annotated[
        bool, typer.Option("--calibrate", help="Fit the confidences again first, on the validation split.")
    ] = False,
    folds: Annotated[
        bool, typer.Option("--folds", help="Train as the run on all folds but one, for each, and score all lines.")
    ] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="With --folds: train again what has other settings or data.")
    ] = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Score a run on lines it never saw, beside its base."""
    if folds:
        if dataset or split != Split.TEST or limit or calibrate:
            message = "--folds scores all lines of the run's own dataset"
            hint = "leave --dataset, --split, --limit and --calibrate out"
            raise ConfigError(message, code="option-invalid", hint=hint)
        _evaluate_folds(run, base=base, report=report, overwrite=overwrite, json=json, quiet=quiet)
        return
    if overwrite:
        raise ConfigError("--overwrite is for --folds", code="option-invalid")
    from dsocr.evaluation.evaluate import evaluate
    from dsocr.evaluation.report.report import drop_reports
    from dsocr.runs import RunFolder

    quiet_libraries()
    folder, printer = RunFolder.open(run), Printer(quiet=quiet or json)
    with printer.progress("reading", "lines") as progress:
        card = evaluate(
            folder,
            dataset=dataset,
            split=split,
            limit=limit,
            with_base=base,
            calibrate=calibrate,
            progress=progress,
        )
    outdated = drop_reports(folder, drawn=report)
    page = write_run_report(printer, run, dataset=dataset)[0] if report else None
    for sentence in outdated:
        printer.complain(f"note: {sentence}")
    if json:
        print_json(printer, card.to_dict())
        return
    printer.result(str(card))
    print_guard(printer, card.guard)
    printer.message(f"scorecard:  {folder.scorecard}")
    printer.message(f"lines:      {folder.lines}")
    if folder.confidence_page.is_file():
        printer.message(f"confidence: {folder.confidence_page}")
    if page is not None:
        printer.message(f"report:     {page}")
    printer.message(f"next:       dsocr transcribe {typed(run)} SCANS -o texts.jsonl")


def _evaluate_folds(path: Path, *, base: bool, report: bool, overwrite: bool, json: bool, quiet: bool) -> None:
    """Cross-validate the recipe of a run, a configuration or a dataset, and print the scorecard."""
    from dsocr.runs import RunFolder
    from dsocr.training.folds import cross_validate, recipe_of
    from dsocr.training.lifecycle import require_sources

    config, printer = recipe_of(path), Printer(quiet=quiet or json)
    require_sources(config)
    quiet_libraries()
    folder = RunFolder(config.output).folds
    with printer.progress("cross-validating", "lines") as progress:
        card = cross_validate(
            config, with_base=base, overwrite=overwrite, progress=progress, on_message=printer.complain
        )
    page = write_run_report(printer, folder)[0] if report else None
    if json:
        print_json(printer, card.to_dict())
        return
    printer.result(str(card))
    printer.message(f"scorecard:  {RunFolder(folder).scorecard}")
    if page is not None:
        printer.message(f"report:     {page}")


def print_guard(printer: Printer, guard: Mapping[str, Any] | None) -> None:
    """Print the result of the guard set, if there is one, as a warning if it exceeds its margin."""
    if guard is not None:
        (printer.complain if guard["exceeds_margin"] else printer.message)(guard["message"])


@command("Judge", "dsocr report runs/mine", "dsocr report runs/mine --markdown")
def report(
    run: Annotated[Path, typer.Argument(help="An evaluated run.")],
    dataset: Annotated[Path | None, typer.Option(help="Dataset folder that was scored, if it has moved.")] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="File to write; report.html in the run if not given.")
    ] = None,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Write Markdown, to report.md in the run if no file is given.")
    ] = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Write the report of an evaluated run."""
    printer = Printer(quiet=quiet or json)
    page, warnings = write_run_report(printer, run, dataset=dataset, output=output, markdown=markdown)
    if json:
        print_json(printer, {"report": str(page), "bytes": page.stat().st_size, "warnings": warnings})
        return
    printer.result(f"report: {page}")


def write_run_report(
    printer: Printer, run: Path, *, dataset: Path | None = None, output: Path | None = None, markdown: bool = False
) -> tuple[Path, list[str]]:
    """Write the report of an evaluated run and print its warnings; return its path and the warnings."""
    from dsocr.evaluation.report.report import write_report
    from dsocr.runs import RunFolder

    with printer.progress("drawing", "lines") as progress:
        page, contents = write_report(
            RunFolder.begun(run), dataset=dataset, out=output, markdown=markdown, progress=progress
        )
    for warning in contents.warnings:
        printer.complain(f"warning: {warning}")
    return page, list(contents.warnings)


@command("Judge", "dsocr compare runs/first runs/second", "dsocr compare runs/mine other=predictions.tsv -o page.html")
def compare(
    predictions: Annotated[
        list[str], typer.Argument(help="Evaluated runs, or files of predictions; NAME=PATH names one.")
    ],
    base: Annotated[bool, typer.Option("--base", help="Also compare with the base of the first run.")] = False,
    dataset: Annotated[
        Path | None, typer.Option(help="Dataset that the predictions are of, if not the first run's.")
    ] = None,
    split: Annotated[
        Split | None, typer.Option(help="Split that they are of; the first run's if not given, else test.")
    ] = None,
    missing: Annotated[
        Literal["error", "empty"],
        typer.Option(help="What a line without a prediction is: an error, or an empty text."),
    ] = "error",
    pages: Annotated[
        bool, typer.Option("--pages", help="Compare whole pages, whatever lines a tool found and in which order.")
    ] = False,
    pool_seeds: Annotated[
        bool, typer.Option("--pool-seeds", help="Count runs that differ in seed alone as one reader.")
    ] = False,
    column: Columns = None,
    encoding: Encoding = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Page.html, table.csv or table.tex, or a folder for all these."),
    ] = None,
    overwrite: Overwrite = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Compare models, and test whether the difference is significant. Scores predictions for the same lines."""
    from dsocr.evaluation.compare import render_comparison
    from dsocr.evaluation.predictions import compare_paths
    from dsocr.evaluation.report.result_pages import PAGE, require_free_comparison, write_comparison

    printer = Printer(quiet=quiet or json)
    if output is not None:
        require_free_comparison(output, overwrite=overwrite)
    comparison = compare_paths(
        predictions,
        base=base,
        dataset=dataset,
        split=split,
        missing=missing,
        columns=parse_columns(column),
        encoding=encoding,
        pages=pages,
        pool_seeds=pool_seeds,
    )
    if json:
        print_json(printer, comparison.to_dict())
    else:
        printer.result(render_comparison(comparison))
    if output is not None:
        with printer.progress("drawing", "lines") as progress:
            write_comparison(comparison, output, progress)
        printer.message(f"written: {output if output.is_file() else output / PAGE}")
