"""The command line: each command parses, calls one function of the library, and prints what it made.

Slow imports stand inside the commands, so that `dsocr --help` answers at once.
"""

import sys
from typing import Annotated

import typer

from dsocr import __version__
from dsocr.cli import collecting, data, models, reports, serving, workbench
from dsocr.cli.command import Command
from dsocr.cli.options import app
from dsocr.cli.threads import wait_briefly
from dsocr.console import Printer, make_output_utf8
from dsocr.errors import DsocrError

__all__ = ["app", "collecting", "data", "main", "models", "reports", "serving", "workbench"]

JOURNEY = (
    *("doctor", "demo", "sources", "prepare", "check", "splits", "preview", "synthesize", "convert"),
    *("plan", "preflight", "train", "curves", "forecast", "evaluate", "report", "compare"),
    *("transcribe", "next", "workbench", "serve", "export"),
)
"""The commands in the order in which somebody meets them, as `dsocr --help` lists them."""

app.registered_commands.sort(
    key=lambda command: JOURNEY.index(command.name or getattr(command.callback, "__name__", ""))
)
for command in app.registered_commands:
    command.cls = Command


def main() -> None:
    """Run the command line; a user's mistake prints a sentence and exits with 2, a bug keeps its traceback."""
    make_output_utf8()
    wait_briefly()
    try:
        app()
    except DsocrError as error:
        Printer().complain(error.render())
        sys.exit(2)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"dsocr {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Teach DeepSeek-OCR to read a particular handwriting."""
