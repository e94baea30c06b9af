"""The commands that show what was measured."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from dsocr.cli.options import Json, Overwrite, Quiet, app
from dsocr.console import Printer
from dsocr.document import Split


@app.command()
def report(
    run: Annotated[Path, typer.Argument(help="The run folder, evaluated.")],
    dataset: Annotated[Path | None, typer.Option(help="The dataset folder that was scored, if it has moved.")] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The file to write; report.html in the run if not given.")
    ] = None,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Write Markdown, to report.md in the run if no file is given.")
    ] = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Show an evaluation as one page. Scores, writers, curves, and the lines with their pictures."""
    from dsocr.commands.report import report_command

    report_command(Printer(quiet=quiet or json), run, dataset=dataset, out=out, markdown=markdown, json=json)


@app.command()
def compare(
    readings: Annotated[
        list[str], typer.Argument(help="Evaluated run folders, or files of predictions; NAME=PATH names one.")
    ],
    base: Annotated[bool, typer.Option("--base", help="Put the first run's base before all, to compare with it.")] = (
        False
    ),
    dataset: Annotated[
        Path | None, typer.Option(help="The dataset that predictions are of, if not the first run's own.")
    ] = None,
    split: Annotated[
        Split | None, typer.Option(help="The split that they are of; the first run's if not given, else test.")
    ] = None,
    missing: Annotated[
        Literal["error", "empty"], typer.Option(help="What a line without a prediction is: an error, or empty.")
    ] = "error",
    column: Annotated[list[str] | None, typer.Option(help="A table's column: id=NAME or text=NAME.")] = None,
    encoding: Annotated[str | None, typer.Option(help="Of predictions that are not UTF-8, e.g. cp1251.")] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="A page.html, or a folder for page, numbers and lines.")
    ] = None,
    overwrite: Overwrite = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Say which reading is better, and whether one can tell. Of the same lines; a run alone is its base and adapter."""
    from dsocr.commands.compare import compare_command

    compare_command(
        Printer(quiet=quiet or json),
        readings,
        base=base,
        dataset=dataset,
        split=split,
        missing=missing,
        columns=column or [],
        encoding=encoding,
        out=out,
        overwrite=overwrite,
        json=json,
    )
