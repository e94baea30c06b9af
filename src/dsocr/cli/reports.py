"""The commands that show what was measured."""

from pathlib import Path
from typing import Annotated

import typer

from dsocr.cli.options import Json, Quiet, app
from dsocr.console import Printer


@app.command()
def report(
    run: Annotated[Path, typer.Argument(help="The run folder, evaluated.")],
    dataset: Annotated[
        Path | None, typer.Option(help="The dataset folder that was scored, if not the run's own.")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="The file to write; report.html in the run.")] = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="Write Markdown instead: report.md in the run.")] = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Show an evaluation as one page: scores, writers, curves, and the lines with their pictures."""
    from dsocr.commands.report import report_command

    report_command(Printer(quiet=quiet or json), run, dataset=dataset, out=out, markdown=markdown, json=json)
