"""The `dsocr` application: command groups, options that several commands share, interrupts and exit codes."""

import os
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from dsocr import __version__
from dsocr.console import Printer, make_output_utf8
from dsocr.errors import ConfigError, DsocrError, FilesWarning, Interrupted

if TYPE_CHECKING:
    from dsocr.io.web import FetchOptions

GROUPS = ("Data", "Train", "Judge", "Read", "Share", "Setup")
"""Groups of commands, in the order in which `dsocr --help` lists them."""

_AGAIN = "run the same command, without --overwrite"
_AFTER_INTERRUPT = {
    "train": f"checkpoints are kept; {_AGAIN}, to resume from the last one",
    "forecast": f"finished trainings are kept; {_AGAIN}, to resume",
    "tune": f"finished trials are kept; {_AGAIN}, to resume",
    "audit": f"trained and read folds are kept; {_AGAIN}, to resume",
    "evaluate": "no scores are written; run the same command again",
    "serve": "the server has stopped; run the same command to start it again",
    "workbench": "the workbench has stopped; corrections are kept, run the same command to continue",
}
"""What an interrupted command leaves and how to continue, where it leaves anything."""

_JOURNALS = {"prepare": "prepared images are kept", "transcribe": "transcribed pages are kept"}
"""Commands that keep a journal beside their output, and what is in it."""


class Commands(TyperGroup):
    """The commands of `dsocr`, listed by group."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """List the commands under the headings of their groups."""
        for group in GROUPS:
            commands = [command for command in self.commands.values() if command.rich_help_panel == group]  # type: ignore[attr-defined]
            with formatter.section(group):
                formatter.write_dl([(command.name, command.get_short_help_str(90)) for command in commands])


class Command(TyperCommand):
    """One command: adds advice to usage errors, and says after Ctrl-C what is kept."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse as Typer does, with clearer messages for bad values and stray words."""
        try:
            return super().parse_args(ctx, args)
        except typer.BadParameter as error:
            error.message = _explain(error)
            raise
        except Exception as error:
            usage: Any = error  # Typer exports no name for its usage errors.
            if "unexpected extra argument" in getattr(usage, "message", ""):
                is_setting = "=" in usage.message
                usage.message += ": put --set before a setting" if is_setting else ": put a path with spaces in quotes"
            raise

    def invoke(self, ctx: Any) -> Any:
        """Run the command; after Ctrl-C or a signal say what is kept, and exit with 128 plus the signal's number."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as interrupt:
            for line in _after_interrupt(interrupt, self.name or "", ctx.params):
                Printer().complain(line)
            raise typer.Exit(interrupt.exit_code if isinstance(interrupt, Interrupted) else 130) from None

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write the examples, one a line."""
        if self.epilog:
            with formatter.section("Examples"):
                for line in self.epilog.splitlines():
                    formatter.write(f"  {line}\n")


def _explain(error: typer.BadParameter) -> str:
    """The help text of a missing parameter, or what is wrong with a value."""
    if not error.message:
        return getattr(error.param, "help", None) or ""
    from pydantic import ValidationError

    from dsocr.config import problems_in

    cause = error.__cause__
    return problems_in(cause)[0] if isinstance(cause, ValidationError) else error.message


def _after_interrupt(interrupt: KeyboardInterrupt, name: str, options: Mapping[str, Any]) -> list[str]:
    """What the command leaves and how to continue; of several processes only the first one says it."""
    from dsocr.io.processes import rank_and_count
    from dsocr.io.work import work_path

    rank, processes = rank_and_count()
    if isinstance(interrupt, Interrupted):
        launcher = "" if processes == 1 else f"torchrun --nproc-per-node {processes} -m "
        resume = _AGAIN if name in {"audit", "evaluate", "forecast", "tune"} else f"{launcher}{interrupt.resume}"
        lines = [f"interrupted; a checkpoint of step {interrupt.step} is written", f"resume:  {resume}"]
        return lines if rank == 0 else []
    if name in _JOURNALS and work_path(Path(options["output"])).exists():
        return [f"interrupted: {_JOURNALS[name]}; run the same command to resume"]
    again = "nothing half-made is left; run the same command again to start over"
    return [f"interrupted: {_AFTER_INTERRUPT.get(name, again)}"]


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"max_content_width": 100},
)


def command(group: str, *examples: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Register a function as a command of a group; the examples end its help."""
    return app.command(rich_help_panel=group, epilog="\n".join(examples), cls=Command)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"dsocr {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Teach a reader one archive's handwriting: datasets, fine-tuning, honest scores, transcription."""


_show_plain_warning = warnings.showwarning


def _show_warning(message: Warning | str, category: type[Warning], *place: Any, **options: Any) -> None:
    """Print a warning of ours as one line."""
    if issubclass(category, FilesWarning):
        Printer().complain(f"warning: {message}")
    else:
        _show_plain_warning(message, category, *place, **options)


def main() -> None:
    """Run the command line. A user's mistake prints a sentence and exits with 2; a bug keeps its traceback."""
    make_output_utf8()
    limit_spinning()
    warnings.showwarning = _show_warning
    try:
        app()
    except DsocrError as error:
        Printer().complain(error.render())
        sys.exit(2)


Output = Annotated[Path, typer.Option("--output", "-o", help="Folder to write.")]
Encoding = Annotated[str | None, typer.Option(help="Encoding of texts and tables that are not UTF-8, e.g. cp1251.")]
Format = Annotated[
    str | None,
    typer.Option("--format", help="Format of the source; detected if not given; `dsocr prepare --formats` lists them."),
]
Writer = Annotated[str | None, typer.Option("--writer", help="Writer: a column, or a pattern over file names.")]
Page = Annotated[str | None, typer.Option("--page", help="Page: a column, or a pattern over file names.")]
Document = Annotated[
    str | None, typer.Option("--document", help="Document of the page: a column, or a pattern over file names.")
]
Fetch = Annotated[
    list[str] | None,
    typer.Option("--fetch", help="How IIIF and METS are fetched: size=2000 (or max), pages=50, ...; repeatable."),
]
Columns = Annotated[
    list[str] | None,
    typer.Option("--column", help="Column of a table, as image=NAME, text=NAME, writer=NAME; repeatable."),
]
Settings = Annotated[
    list[str] | None, typer.Option("--set", help="Change a setting, as section.key=value; repeatable.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print results and errors only.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Strict = Annotated[bool, typer.Option("--strict", help="Stop at the first fault instead of counting and listing it.")]
Second = Annotated[
    list[str] | None,
    typer.Option(
        "--second",
        help="Second reader: a run, a base, or predictions of another tool; NAME=PLACE names it; repeatable.",
    ),
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace what an earlier command wrote there.")]
Workers = Annotated[int | None, typer.Option(min=1, help="Number of processes; one per core if not given.")]


def parse_columns(pairs: Sequence[str] | None) -> dict[str, str]:
    """Parse `--column role=NAME` options."""
    pairs = pairs or []
    if bad := [pair for pair in pairs if not pair.partition("=")[2]]:
        raise ConfigError(
            f"--column {bad[0]!r} has no =", hint="write role=NAME, for example text=label", code="option-invalid"
        )
    return dict(pair.split("=", 1) for pair in pairs)


def parse_fetch(settings: Sequence[str] | None) -> "FetchOptions":
    """Parse `--fetch name=value` options."""
    from dsocr.io.web import FetchOptions

    return FetchOptions.parse(settings)


def print_json(printer: Printer, value: object) -> None:
    """Print a value as indented JSON; letters stay letters."""
    import json

    printer.result(json.dumps(value, ensure_ascii=False, indent=2))


def quiet_libraries() -> None:
    """Silence progress bars and warnings of transformers and huggingface_hub, loaded or not; errors still show."""
    os.environ["TRANSFORMERS_VERBOSITY"] = "error"
    os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"
    # Loaded libraries have read the environment already.
    if "huggingface_hub" in sys.modules:
        from huggingface_hub.utils import disable_progress_bars  # type: ignore[attr-defined]

        disable_progress_bars()
    if "transformers" in sys.modules:
        from transformers.utils import logging

        logging.set_verbosity_error()
        logging.disable_progress_bar()


def limit_spinning() -> None:
    """Make OpenMP threads sleep soon when they wait, on Linux; must run before torch is imported.

    By default, libgomp's threads spin 300,000 times at the end of every matrix product: milliseconds in which they
    take a core from the threads they wait for, if anything else runs. The user's own setting wins.
    `docs/lab/experiments.md` has the measurement.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "2000")
