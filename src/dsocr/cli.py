"""The command line: each command parses, calls one function of the library, and prints what it made.

Slow imports stand inside the commands, so that `dsocr --help` answers at once.
"""

import sys
from pathlib import Path
from typing import Annotated

import typer

from dsocr import __version__
from dsocr.console import Printer, make_output_utf8
from dsocr.errors import DsocrError
from dsocr.samples import Split

app = typer.Typer(
    help="Teach DeepSeek-OCR to read a particular handwriting.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print results and errors only.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON, for programs.")]
Strict = Annotated[bool, typer.Option("--strict", help="Stop at the first fault instead of counting and listing it.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace what an earlier command made there.")]


def main() -> None:
    """Run the command line; a user's mistake prints a sentence and exits with 2, a bug keeps its traceback."""
    make_output_utf8()
    try:
        app()
    except DsocrError as error:
        printer = Printer()
        printer.complain(f"error: {error}")
        if error.hint:
            printer.complain(f"  hint: {error.hint}")
        sys.exit(2)
    except KeyboardInterrupt:
        Printer().complain("interrupted")
        sys.exit(130)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"dsocr {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print it.")] = False,
) -> None:
    """Teach DeepSeek-OCR to read a particular handwriting."""


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
    from dsocr.commands import prepare_command

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
    from dsocr.commands import sources_command

    sources_command(Printer(quiet=quiet))


@app.command()
def check(
    dataset: Annotated[Path, typer.Argument(help="A dataset folder, or a configuration that names one.")],
    base: Annotated[str, typer.Option(help="The base whose tokenizer must know the characters.")] = "nano",
    max_text_tokens: Annotated[int, typer.Option(help="The longest transcription, in tokens.")] = 512,
    html: Annotated[Path | None, typer.Option(help="Write the findings with their images to this page.")] = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Look for what would spoil a training; exits with 1 if there are errors."""
    from dsocr.commands import check_command

    code = check_command(
        Printer(quiet=quiet), dataset, base=base, max_text_tokens=max_text_tokens, html=html, json=json
    )
    sys.exit(code)


@app.command()
def plan(
    config: Annotated[Path, typer.Argument(help="The YAML file; configs/ holds recipes.")],
    set_: Annotated[list[str] | None, typer.Option("--set", help="Change a setting: section.key=value.")] = None,
    probe: Annotated[bool, typer.Option(help="Train a few batches to tell the time; nothing is kept.")] = True,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Say what a training will take in tokens, memory, steps and time; exits with 1 if it will not fit."""
    from dsocr.commands import plan_command

    sys.exit(plan_command(Printer(quiet=quiet or json), config, set_ or [], probe=probe, json=json))


@app.command()
def train(
    config: Annotated[Path, typer.Argument(help="The YAML file; configs/ holds recipes.")],
    set_: Annotated[list[str] | None, typer.Option("--set", help="Change a setting: section.key=value.")] = None,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
) -> None:
    """Train an adapter, or go on where training was interrupted."""
    from dsocr.commands import train_command

    train_command(Printer(quiet=quiet), config, set_ or [], overwrite=overwrite)


@app.command()
def evaluate(
    run: Annotated[Path, typer.Argument(help="The run folder.")],
    dataset: Annotated[Path | None, typer.Option(help="Another dataset folder than the run's own.")] = None,
    split: Annotated[Split, typer.Option(help="The split to score.")] = Split.TEST,
    limit: Annotated[int | None, typer.Option(min=1, help="Score the first so many samples only.")] = None,
    base: Annotated[bool, typer.Option(help="Score the base beside the adapter.")] = True,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Score a run's adapter beside its base on lines it was not trained on."""
    from dsocr.commands import evaluate_command

    evaluate_command(
        Printer(quiet=quiet or json), run, dataset=dataset, split=split, limit=limit, with_base=base, json=json
    )


@app.command()
def transcribe(
    run: Annotated[Path, typer.Argument(help="The run folder.")],
    images: Annotated[list[Path], typer.Argument(help="Line images, or folders of them.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The file to write: .jsonl or .txt.")],
    strict: Strict = False,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
) -> None:
    """Read images with a run's adapter."""
    from dsocr.commands import transcribe_command

    transcribe_command(Printer(quiet=quiet), run, images, out, strict=strict, overwrite=overwrite)


@app.command()
def export(
    run: Annotated[Path, typer.Argument(help="The run folder.")],
    merged: Annotated[
        Path | None, typer.Option(help="The folder to write the base to, with the adapter merged in.")
    ] = None,
    adapter: Annotated[Path | None, typer.Option(help="The folder to write the adapter alone to.")] = None,
    for_: Annotated[
        str | None, typer.Option("--for", help="Who is to read the adapter: peft or vllm; peft if not given.")
    ] = None,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
) -> None:
    """Write what a run learnt for other programs: merged weights for a server, or the adapter."""
    from dsocr.commands import export_command

    export_command(Printer(quiet=quiet), run, merged=merged, adapter=adapter, form=for_, overwrite=overwrite)


@app.command()
def doctor(json: Json = False, quiet: Quiet = False) -> None:
    """Say what this machine has for dsocr and what is missing; exits with 1 if dsocr cannot work here."""
    from dsocr.commands import doctor_command

    sys.exit(doctor_command(Printer(quiet=quiet), json=json))


@app.command()
def demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="The run folder.")] = Path("runs/demo"),
    quiet: Quiet = False,
) -> None:
    """Train on the shipped handwriting and score it: the whole of dsocr in a few minutes, without a GPU."""
    from dsocr.commands import demo_command

    demo_command(Printer(quiet=quiet), out)
