"""The commands that say whether more transcriptions would help, and which."""

from pathlib import Path
from typing import Annotated

import typer

from dsocr.cli.options import Encoding, Format, Json, Overwrite, Quiet, Settings, Strict, Writer, app
from dsocr.console import Printer
from dsocr.document import Split


@app.command()
def forecast(
    config: Annotated[Path, typer.Argument(help="The YAML file; configs/ holds recipes.")],
    set_: Settings = None,
    more: Annotated[
        list[int] | None, typer.Option(min=1, help="So many more lines: what would they bring? May come several times.")
    ] = None,
    target: Annotated[
        list[float] | None,
        typer.Option(
            min=0, max=1, help="A CER to reach, as 0.05: how many lines does it take? May come several times."
        ),
    ] = None,
    sizes: Annotated[
        list[float] | None,
        typer.Option(
            min=0,
            max=1,
            help="A share of the training split; may come several times; 0.125 0.25 0.5 1 if not given.",
        ),
    ] = None,
    split: Annotated[Split, typer.Option(help="The split to score on.")] = Split.VALIDATION,
    overwrite: Overwrite = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Say how many more lines would help. Trains on ever more of them and follows the learning curve."""
    from dsocr.commands.forecast import forecast_command

    forecast_command(
        Printer(quiet=quiet or json),
        config,
        set_ or [],
        sizes=sizes or [],
        split=split,
        more=more or [],
        targets=target or [],
        overwrite=overwrite,
        json=json,
    )


@app.command(name="next")
def next_(
    run: Annotated[Path, typer.Argument(help="The run folder whose adapter reads.")],
    source: Annotated[
        Path, typer.Argument(help="What prepare reads, with lines that have no text yet, or a folder of line images.")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder to write the queue to.")],
    count: Annotated[int, typer.Option(min=1, help="How many lines to choose.")] = 100,
    format: Format = None,
    writer: Writer = None,
    encoding: Encoding = None,
    strict: Strict = False,
    overwrite: Overwrite = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Choose the lines that are worth transcribing next. Unsure readings, new writers, rare characters come first."""
    from dsocr.commands.next_lines import next_command

    next_command(
        Printer(quiet=quiet or json),
        run,
        source,
        out,
        count=count,
        format=format,
        writer=writer,
        encoding=encoding,
        strict=strict,
        overwrite=overwrite,
        json=json,
    )
