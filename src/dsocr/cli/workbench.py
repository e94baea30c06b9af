"""The command that opens a workbench."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from dsocr.cli.options import Encoding, Format, Quiet, Writer, app
from dsocr.console import Printer


@app.command()
def workbench(
    source: Annotated[
        Path, typer.Argument(help="Pages with lines: PAGE, ALTO or any other source, images, PDF, or an archive.")
    ],
    run: Annotated[Path | None, typer.Option(help="The run that reads what has no text yet.")] = None,
    config: Annotated[
        Path | None, typer.Option(help="How to train on corrections; as the run was, if not given.")
    ] = None,
    work: Annotated[
        Path | None, typer.Option(help="Where corrections are kept; NAME.workbench beside the source if not given.")
    ] = None,
    format_: Format = None,
    writer: Writer = None,
    encoding: Encoding = None,
    port: Annotated[int, typer.Option(min=1, max=65535, help="The port.")] = 8080,
    show: Annotated[bool, typer.Option(help="Open the browser.")] = True,
    language: Annotated[Literal["en", "ru"], typer.Option(help="What it speaks.")] = "en",
    quiet: Quiet = False,
) -> None:
    """Correct texts in a browser, and train on the corrections. Each stands beside its page, the doubtful first."""
    from dsocr.commands.workbench import workbench_command

    workbench_command(
        Printer(quiet=quiet),
        source,
        run=run,
        config=config,
        work=work,
        format=format_,
        writer=writer,
        encoding=encoding,
        port=port,
        show=show,
        language=language,
    )
