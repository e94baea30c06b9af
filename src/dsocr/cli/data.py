"""The commands that make and look at datasets."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from dsocr.cli.options import Json, Overwrite, Quiet, Strict, app
from dsocr.console import Printer


@app.command()
def prepare(
    source: Annotated[Path, typer.Argument(help="A folder of scans with transcriptions, or a table.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The dataset folder to make.")],
    format: Annotated[
        str | None, typer.Option(help="The source's format; found out if not given; `dsocr sources` lists them.")
    ] = None,
    writer: Annotated[str | None, typer.Option(help="Who wrote it: a column, or a pattern over file names.")] = None,
    page: Annotated[str | None, typer.Option(help="The page: a column, or a pattern over file names.")] = None,
    split: Annotated[str, typer.Option(help="Fractions of train/validation/test.")] = "0.8/0.1/0.1",
    split_by: Annotated[
        str | None, typer.Option(help="What no two splits share: writer, page or text; the fairest if not given.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the split.")] = 17,
    column: Annotated[
        list[str] | None, typer.Option(help="A table's column, as image=NAME, text=NAME, writer=NAME, ...")
    ] = None,
    strict: Strict = False,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
) -> None:
    """Make a dataset folder from scans and transcriptions."""
    from dsocr.commands.prepare import prepare_command

    prepare_command(
        Printer(quiet=quiet),
        source,
        out,
        format=format,
        writer=writer,
        page=page,
        split=split,
        split_by=split_by,
        seed=seed,
        columns=column or [],
        strict=strict,
        overwrite=overwrite,
    )


@app.command()
def sources(quiet: Quiet = False) -> None:
    """List the formats that prepare reads, each with a command."""
    from dsocr.commands.prepare import sources_command

    sources_command(Printer(quiet=quiet))


@app.command()
def check(
    dataset: Annotated[Path, typer.Argument(help="A dataset folder, or a configuration that names one.")],
    base: Annotated[str, typer.Option(help="The base whose tokenizer must know the characters.")] = "nano",
    max_text_tokens: Annotated[int, typer.Option(help="The longest transcription, in tokens.")] = 512,
    html: Annotated[Path | None, typer.Option(help="Write the findings with their images to this page.")] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Processes that look at images; one a core.")] = None,
    fix: Annotated[
        bool, typer.Option("--fix", help="Put right what is certain, in a new dataset; then check it.")
    ] = False,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="The dataset folder that --fix makes.")] = None,
    overwrite: Overwrite = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Look for what would spoil a training; exits with 1 if there are errors."""
    from dsocr.commands.check import check_command

    code = check_command(
        Printer(quiet=quiet),
        dataset,
        base=base,
        max_text_tokens=max_text_tokens,
        html=html,
        json=json,
        workers=workers,
        fix=fix,
        out=out,
        overwrite=overwrite,
    )
    sys.exit(code)
