"""The `dsocr` application: commands, their help, errors, interrupts and exit codes.

A command is a public function, imported when it is used: its signature declares the options, its docstring explains.
"""

import inspect
import json as json_format
import os
import pkgutil
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import fields
from difflib import get_close_matches
from functools import wraps
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

from cyclopts import (
    App,
    CycloptsError,
    Group,
    Parameter,
    UnknownCommandError,
    UnknownOptionError,
    UnusedCliTokensError,
)

import dsocr
from dsocr.cli.commands import AGAIN, COMMANDS, GROUPS, Command
from dsocr.console import Printer, make_output_utf8, reporting_to
from dsocr.errors import (
    DISK_FULL,
    TRAIN,
    ConfigError,
    DsocrError,
    FilesWarning,
    Interrupted,
    disk_full,
    not_installed,
    option,
)

IN_PYTHON_ONLY = frozenset({"progress", "callbacks"})
"""Parameters that a command line cannot give."""
_SECONDS_TO_SPEAK = 3

app = App(
    name="dsocr",
    help="Train handwriting recognition on your own archive and measure how accurate it is.",
    version=f"dsocr {dsocr.__version__}",
    default_parameter=Parameter(
        accepts_keys=False,
        negative_bool=(),
        negative_iterable=(),
        negative_none=(),
        show_default=lambda value: (
            value if isinstance(value, str | int | float) and not isinstance(value, bool) else None
        ),
    ),
    group_parameters=Group("Options", sort_key=len(GROUPS) + 1),
    help_format="plaintext",
    print_error=False,
    exit_on_error=False,
    verbose=False,
)
app["--help"].group = app["--version"].group = Group("Help", sort_key=0)
_GROUPS = {name: Group(name, sort_key=place) for place, name in enumerate(GROUPS, 1)}
for _place, (_name, _command) in enumerate(COMMANDS.items()):
    _group = _GROUPS[_command.group]
    app.command(f"{__name__}:{_name}", name=_name, help=_command.summary, group=_group, sort_key=_place)


def __getattr__(name: str) -> App:
    """Make the application of a command when cyclopts asks for it."""
    if name not in COMMANDS:
        raise AttributeError(name)
    command = COMMANDS[name]
    examples = "\n".join(["Examples:", "", *(f"    {line}" for line in command.examples)])
    made = App(name=name, help_epilogue=examples, help_format="markdown")
    for switch in command.switches:
        if switch.is_alone:
            made.command(pkgutil.resolve_name(switch.function), name=f"--{switch.name}", help=switch.help, show=False)
    made.default(_with_switches(command))
    return made


def _with_switches(command: Command) -> Callable[..., Any]:
    """Return the function of a command with the parameters of the command line; a switch calls another one."""
    function = pkgutil.resolve_name(command.function)
    switches = [switch for switch in command.switches if not switch.is_alone]

    @wraps(function)
    def called(*arguments: object, **options: object) -> object:
        arguments = (*arguments, ())[:2] if command.run_is_optional else arguments
        switch = next((switch for switch in switches if options.pop(switch.name, False)), None)
        called_instead = pkgutil.resolve_name((switch or command).function)
        if switch is not None:
            for name in options.keys() - inspect.signature(called_instead).parameters.keys():
                message = f"{option(name, ...)} does not go with {option(switch.name)}"
                raise ConfigError(message, code="option-invalid")
        return called_instead(*arguments, **options)

    parameters = []
    for name, parameter in inspect.signature(function).parameters.items():
        kind = parameter.kind
        if kind is parameter.POSITIONAL_OR_KEYWORD:  # positional words have no names, and the output is an option
            kind = parameter.KEYWORD_ONLY if name == "output" else parameter.POSITIONAL_ONLY
        if command.run_is_optional and name == "inputs":
            parameter = parameter.replace(default=())
        if name not in IN_PYTHON_ONLY and kind is not parameter.VAR_KEYWORD:
            parameters.append(parameter.replace(kind=kind))
    for switch in switches:
        annotation = Annotated[bool, Parameter(help=switch.help)]
        kind = inspect.Parameter.KEYWORD_ONLY
        parameters.append(inspect.Parameter(switch.name, kind, default=False, annotation=annotation))
    called.__signature__ = inspect.Signature(sorted(parameters, key=lambda parameter: parameter.kind))  # type: ignore[attr-defined]
    called.__annotations__ = {}
    return called


@app.meta.default
def run(
    *tokens: Annotated[str, Parameter(show=False, allow_leading_hyphen=True)],
    quiet: Annotated[bool, Parameter(alias="-q", group="Output", help="Print results and errors only.")] = False,
    json: Annotated[bool, Parameter(group="Output", help="Print the result as JSON.")] = False,
) -> int:
    """Run a command, print its result, and return the exit code."""
    from dsocr.io.processes import rank_and_count

    called, bound = parse(tokens)
    words, _, _ = app.parse_commands(tokens)
    if not words or words[0] not in COMMANDS:  # help or version
        called(*bound.args, **bound.kwargs)
        return 0
    command, is_stream = COMMANDS[words[0]], Path(bound.arguments.get("output", ".")) == Path("-")
    if json and is_stream:
        raise ConfigError("--json does not go with -o -", code="option-invalid", hint="--format jsonl does")
    printer = Printer(quiet=quiet or json, command_line=True, is_text=is_stream or words[0] == "read")
    try:
        with reporting_to(printer):
            result = called(*bound.args, **bound.kwargs)
    except KeyboardInterrupt as interrupt:
        for line in _after_interrupt(interrupt, words[0], bound.arguments):
            printer.complain(line)
        return interrupt.exit_code if isinstance(interrupt, Interrupted) else 130
    chosen = next((switch for switch in command.switches if bound.arguments.get(switch.name)), command)
    if rank_and_count()[0] == 0 and result is not None:
        if json:
            printer.result(json_format.dumps(command.to_json(result), ensure_ascii=False, indent=2))
        elif chosen.show is not None:
            chosen.show(printer, result)
    return int(chosen.fails(result))


def parse(tokens: tuple[str, ...]) -> tuple[Callable[..., Any], inspect.BoundArguments]:
    """Return the function of a command and its arguments. Raises ConfigError."""
    tokens = tuple("./-" if word == "-" else word for word in tokens)  # a path, not an option without a name
    try:
        called, bound, _ = app.parse_args(tokens)
    except UnknownCommandError as error:
        word = (error.unused_tokens or tokens)[0]
        likely = get_close_matches(word, COMMANDS, n=1)
        hint = f"did you mean {likely[0]}?" if likely else "`dsocr --help` lists the commands"
        raise ConfigError(f"no command {word!r}", code="command-unknown", hint=hint) from None
    except UnusedCliTokensError as error:
        unexpected = " ".join(error.unused_tokens or ())
        hint = f"put {'--set before a setting' if '=' in unexpected else 'a path with spaces in quotes'}"
        raise ConfigError(f"unexpected argument: {unexpected}", code="option-invalid", hint=hint) from None
    except CycloptsError as error:
        explained, _, nearest = str(error).partition(" Did you mean ")
        hint = f"did you mean {nearest}" if nearest else f"`dsocr {tokens[0]} --help` explains the options"
        if isinstance(error, UnknownOptionError) and (setting := _find_setting(tokens, explained)):
            hint = f"did you mean {setting}...?"
        message = explained[:1].lower() + explained[1:].rstrip(".")
        raise ConfigError(message, code="option-invalid", hint=hint) from None
    return called, bound


def _find_setting(tokens: tuple[str, ...], problem: str) -> str:
    """Return how the command takes the setting that a problem names as an option, or nothing."""
    from dsocr.config import OTHER_NAMES, RunConfig, expand_keys
    from dsocr.text import TextPolicy

    parameters = inspect.signature(pkgutil.resolve_name(COMMANDS[tokens[0]].function)).parameters
    name = problem.rpartition("--")[2].strip(' ".').replace("-", "_")
    if "text_policy" in parameters and name in {field.name for field in fields(TextPolicy)}:
        return f"--text-policy {name}="
    with suppress(ConfigError):
        key = next(iter(expand_keys({OTHER_NAMES.get(name, name): None})))
        return f"--set {key}=" if "changes" in parameters and (key in RunConfig.model_fields or "." in key) else ""
    return ""


def _after_interrupt(interrupt: KeyboardInterrupt, name: str, given: Mapping[str, Any]) -> list[str]:
    """Describe the state and how to continue; of several processes only the first one does."""
    from dsocr.io.processes import rank_and_count
    from dsocr.io.work import work_path

    (rank, processes), command = rank_and_count(), COMMANDS[name]
    if isinstance(interrupt, Interrupted):
        launcher = "" if processes == 1 else f"torchrun --nproc-per-node {processes} -m "
        resume = f"{launcher}{interrupt.resume}" if name in ("train", "demo") else AGAIN
        lines = [f"interrupted; a checkpoint of step {interrupt.step} is written", f"resume:  {resume}"]
        return lines if rank == 0 else []
    if command.journal and work_path(Path(given["output"])).exists():
        return [f"interrupted: {command.journal}; run the same command to resume"]
    return [f"interrupted: {command.kept}"]


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
    # Silence transformers and huggingface_hub, which read this when they are imported; errors still show.
    os.environ |= {"TRANSFORMERS_VERBOSITY": "error", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
    warnings.showwarning = _show_warning
    try:
        sys.exit(invoke(sys.argv[1:]))
    except DsocrError as error:
        from dsocr.io.processes import rank_and_count

        if error.code == "peer-failed" and rank_and_count()[0] > 0:
            time.sleep(_SECONDS_TO_SPEAK)  # when one process exits, the launcher ends the others, whatever they print
        else:
            Printer(command_line=True).complain(error.render())
        sys.exit(2)


def invoke(words: list[str]) -> int:
    """Run `dsocr WORDS` and return the exit code. Raises DsocrError."""
    try:
        code: int = app.meta(words, result_action="return_value")
    except OSError as error:
        if error.errno not in DISK_FULL:
            raise
        raise disk_full(error.filename) from error
    except ModuleNotFoundError as error:
        if find_spec("torch"):
            raise
        raise not_installed("this command", error.name, TRAIN) from error
    return code or 0


def limit_spinning() -> None:
    """Make OpenMP threads sleep soon when they wait, on Linux; must run before torch is imported.

    By default, libgomp's threads spin 300,000 times at the end of every matrix product: milliseconds in which they
    take a core from the threads they wait for, if anything else runs. The user's own setting wins.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "2000")
