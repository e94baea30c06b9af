"""The `dsocr` application: groups of commands, interrupts and exit codes.

A command parses, calls one public function, and prints what it returned. Its options are those of the function, made
from its signature when the command is used, so that `dsocr --help` answers at once.
"""

import inspect
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command_from_info
from typer.models import CommandInfo

import dsocr
from dsocr.console import Printer, make_output_utf8, printing_with
from dsocr.errors import ConfigError, DsocrError, FilesWarning, Interrupted, flag, option

GROUPS = ("Data", "Train", "Judge", "Read", "Share", "Setup")
"""Groups of commands, in the order in which `dsocr --help` lists them."""
AGAIN = "run the same command, without --overwrite"
_SECONDS_TO_SPEAK = 3

Given = Mapping[str, Any]
"""The values of a command's parameters."""


@dataclass(frozen=True)
class Mode:
    """One way to use a command: the public function that it calls, by its name, and how its result is printed.

    `switch` is the option that chooses the mode; the last mode of a command has none. A function without parameters is
    called as soon as its switch is parsed. `to_json` returns a result in JSON's types, `fails` says whether it is a
    failure, and `more` returns arguments that no option gives. `as_options` are arguments that the command line takes
    as options.
    """

    function: str | Callable[..., Any]
    show: Callable[[Printer, Any, Given], None]
    switch: str | None = None
    switch_help: str = ""
    to_json: Callable[[Any, Given], object] | None = None
    fails: Callable[[Any], bool] | None = None
    more: Callable[[Printer, Given], dict[str, Any]] | None = None
    as_options: tuple[str, ...] = ()

    @property
    def target(self) -> Callable[..., Any]:
        """The function that is called."""
        function: Callable[..., Any] = (
            getattr(dsocr, self.function) if isinstance(self.function, str) else self.function
        )
        return function


@dataclass(frozen=True)
class CommandSpec:
    """A command: its group, summary, modes and examples, and what it leaves after Ctrl-C, also in its journal."""

    name: str
    group: str
    summary: str
    modes: Sequence[Mode]
    examples: tuple[str, str]
    kept: str = "nothing half-made is left; run the same command again to start over"
    journal: str = ""

    def run(self, context: typer.Context, **given: Any) -> None:
        """Call the public function of the chosen mode, and print its result."""
        from dsocr.cli.parameters import values_for
        from dsocr.io.processes import rank_and_count

        mode = next(mode for mode in self.modes if mode.switch is None or given.get(mode.switch))
        self._require_options(mode, context, given)
        json = bool(given.get("json"))
        printer = Printer(quiet=given["quiet"] or json, command_line=True)
        quiet_libraries()
        arguments, options = values_for(mode.target, given)
        options |= mode.more(printer, given) if mode.more else {}
        with printing_with(printer):
            result = mode.target(*arguments, **options)
        if rank_and_count()[0] == 0:
            if json and mode.to_json is not None:
                print_json(printer, mode.to_json(result, given))
            else:
                mode.show(printer, result, given)
        raise typer.Exit(1 if mode.fails and mode.fails(result) else 0)

    def _require_options(self, mode: Mode, context: typer.Context, given: Given) -> None:
        """Raise ConfigError for an option of another mode, and for one that this mode needs."""
        known = inspect.signature(mode.target).parameters
        chosen = flag(mode.switch) if mode.switch else f"dsocr {self.name}"
        for name, value in given.items():
            source = context.get_parameter_source(name)
            is_typed = source is not None and source.name == "COMMANDLINE"
            if is_typed and name not in {*known, "json", "quiet", mode.switch}:
                raise ConfigError(f"{option(name, ...)} does not go with {chosen}", code="option-invalid")
            if name == "json" and value and mode.to_json is None:
                raise ConfigError(f"{option('json')} does not go with {chosen}", code="option-invalid")
            if value is None and name in known and known[name].default is inspect.Parameter.empty:
                others = " or ".join(flag(other.switch) for other in self.modes if other.switch not in (None, name))
                hint = f"or give {others}" if others else None
                raise ConfigError(f"{option(name, ...)} is missing", code="option-missing", hint=hint)

    def make(self) -> "Command":
        """Make Typer's command, with the options of the functions of all modes."""
        parameters = list(self._parameters())

        def callback(context: typer.Context, **given: Any) -> None:
            self.run(context, **given)

        annotations = {parameter.name: parameter.annotation for parameter in parameters}
        callback.__annotations__ = {"context": typer.Context, **annotations}
        context = inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
        callback.__signature__ = inspect.Signature([context, *parameters])  # type: ignore[attr-defined]
        made = get_command_from_info(
            CommandInfo(self.name, cls=Command, callback=callback, help=self.summary, epilog="\n".join(self.examples)),
            pretty_exceptions_short=False,
            rich_markup_mode=None,
        )
        assert isinstance(made, Command)
        made.spec = self
        return made

    def _parameters(self) -> Iterator[inspect.Parameter]:
        from dsocr.cli.parameters import parameters_of

        modes = [mode for mode in reversed(self.modes) if inspect.signature(mode.target).parameters]
        made: dict[str, inspect.Parameter] = {}
        for mode in modes:
            for parameter in parameters_of(mode.target, as_options=mode.as_options):
                made.setdefault(parameter.name, parameter)
        for name, parameter in made.items():
            is_shared = all(name in inspect.signature(mode.target).parameters for mode in modes)
            yield parameter if is_shared or parameter.default is not parameter.empty else _made_optional(parameter)
        for mode in self.modes:
            if mode.switch is not None and mode.switch not in made:
                run = None if mode in modes else _runs_at_once(mode)
                yield _switch(mode.switch, mode.switch_help, flag(mode.switch), callback=run, is_eager=run is not None)
        if any(mode.to_json for mode in self.modes):
            yield _switch("json", "Print the result as JSON.", "--json")
        yield _switch("quiet", "Print results and errors only.", "--quiet", "-q")


def _made_optional(parameter: inspect.Parameter) -> inspect.Parameter:
    kind, information = parameter.annotation.__args__[0], parameter.annotation.__metadata__[0]
    return parameter.replace(default=None, annotation=Annotated[kind | None, information])


def _switch(name: str, help: str, *names: str, **settings: Any) -> inspect.Parameter:
    annotation = Annotated[bool, typer.Option(*names, help=help, **settings)]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=False, annotation=annotation)


def _runs_at_once(mode: Mode) -> Callable[[bool], None]:
    def run(is_given: bool) -> None:
        if is_given:
            mode.show(Printer(command_line=True), mode.target(), {})
            raise typer.Exit

    return run


class Commands(TyperGroup):
    """The commands of `dsocr`, listed by group; each is made when it is used."""

    def __init__(self, **settings: Any) -> None:
        from dsocr.cli.table import COMMANDS

        super().__init__(**settings)
        self.specs = {spec.name: spec for spec in COMMANDS}
        self.commands = _MadeOnUse(self.specs)  # type: ignore[assignment]

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """List the commands under the headings of their groups."""
        for group in GROUPS:
            with formatter.section(group):
                specs = [spec for spec in self.specs.values() if spec.group == group]
                formatter.write_dl([(spec.name, spec.summary.partition(". ")[0].removesuffix(".")) for spec in specs])


class _MadeOnUse(Mapping[str, "Command"]):
    """The commands by their names."""

    def __init__(self, specs: Mapping[str, CommandSpec]) -> None:
        self._specs = specs
        self._made: dict[str, Command] = {}

    def __getitem__(self, name: str) -> "Command":
        if name not in self._made:
            self._made[name] = self._specs[name].make()
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._specs)

    def __len__(self) -> int:
        return len(self._specs)


class Command(TyperCommand):
    """One command: adds advice to usage errors, and says after Ctrl-C what is kept."""

    spec: CommandSpec

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
            for line in _after_interrupt(interrupt, self.spec, ctx.params):
                Printer(command_line=True).complain(line)
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


def _after_interrupt(interrupt: KeyboardInterrupt, spec: CommandSpec, given: Given) -> list[str]:
    """What the command leaves and how to continue; of several processes only the first one says it."""
    from dsocr.io.processes import rank_and_count
    from dsocr.io.work import work_path

    rank, processes = rank_and_count()
    if isinstance(interrupt, Interrupted):
        launcher = "" if processes == 1 else f"torchrun --nproc-per-node {processes} -m "
        resume = f"{launcher}{interrupt.resume}" if spec.name in {"train", "demo"} else AGAIN
        lines = [f"interrupted; a checkpoint of step {interrupt.step} is written", f"resume:  {resume}"]
        return lines if rank == 0 else []
    if spec.journal and work_path(Path(given["output"])).exists():
        return [f"interrupted: {spec.journal}; run the same command to resume"]
    return [f"interrupted: {spec.kept}"]


def _print_version(is_given: bool) -> None:
    if is_given:
        typer.echo(f"dsocr {dsocr.__version__}")
        raise typer.Exit


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"max_content_width": 100},
)


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
        from dsocr.io.processes import rank_and_count

        if error.code == "peer-failed" and rank_and_count()[0] > 0:
            time.sleep(_SECONDS_TO_SPEAK)  # when one process exits, the launcher ends the others, whatever they print
        else:
            Printer(command_line=True).complain(error.render())
        sys.exit(2)


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
    `lab/verdicts.md` has the measurement.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "2000")
