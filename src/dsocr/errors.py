"""The errors that a user can cause, each with a message, a code, a place and a hint.

    DsocrError
    |-- ConfigError     a YAML file or a command-line setting cannot be used
    |-- DataError       an image, a transcription, a source or a dataset folder cannot be used
    |-- ModelError      a base model or an adapter cannot be used
    `-- RunError        a run folder is missing, incomplete or in use

    KeyboardInterrupt
    `-- Interrupted     a signal ended training after a complete step

The command line prints them without a traceback and exits with 2; any other exception is a bug and keeps its
traceback.

A hint names options, settings and commands with `option`, `setting` and `command`, so that it reads as what the caller
used: `overwrite=True` from Python, `--overwrite` on the command line.
"""

import errno
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from os import PathLike
from pathlib import Path
from typing import Self


def typed(word: str | Path) -> str:
    """Return a word as it is typed in a command: in quotes if a shell would split it."""
    return str(word) if re.fullmatch(r"[\w./:\\=,@%+~-]+", str(word)) else f'"{word}"'


_FLAGS: Mapping[str, str] = {"columns": "--column", "output": "-o"}
"""Options whose name on the command line is not that of the parameter."""
# Characters for private use, around the names that the command line and Python have for the same thing.
_FORMS = re.compile("\ue000(.*?)\ue001(.*?)\ue002", re.DOTALL)


def flag(name: str) -> str:
    """Return the option of a parameter on the command line."""
    return _FLAGS.get(name, f"--{name.replace('_', '-')}")


def option(name: str, value: object = True) -> str:
    """Name an option of the called function in a message, with a value; `...` leaves the value out."""
    return _forms(_typed_option(name, value), _written_option(name, value))


def setting(key: str, value: object) -> str:
    """Name a key of the configuration with its value in a message."""
    section, _, name = key.rpartition(".")
    written = _written_option(name, value)
    if section:
        written = f'{section}={{"{name}": {_written(value)}}}'
    value = str(value).lower() if isinstance(value, bool) else value
    return _forms(f"--set {typed(f'{key}={value}')}", written)


def command(name: str, *arguments: object, **options: object) -> str:
    """Name a command, or the public function that it calls, in a message."""
    words = [typed(str(argument)) for argument in arguments]
    words += [_typed_option(key, value) for key, value in options.items()]
    written = [_written(argument) for argument in arguments]
    written += [_written_option(key, value) for key, value in options.items()]
    return _forms(f"`{' '.join(['dsocr', name, *words])}`", f"`dsocr.{name}({', '.join(written)})`")


def _forms(on_command_line: str, in_python: str) -> str:
    return f"\ue000{on_command_line}\ue001{in_python}\ue002"


def _typed_option(name: str, value: object) -> str:
    if isinstance(value, bool):
        return flag(name) if value else flag(name).replace("--", "--no-", 1)
    if isinstance(value, Mapping):
        return " ".join(f"{flag(name)} {typed(f'{key}={part}')}" for key, part in value.items())
    return flag(name) if value is ... else f"{flag(name)} {typed(str(value))}"


def _written_option(name: str, value: object) -> str:
    return f"{name}=" if value is ... else f"{name}={_written(value)}"


def _written(value: object) -> str:
    if isinstance(value, Mapping):
        return json.dumps(value, ensure_ascii=False)
    return json.dumps(str(value), ensure_ascii=False) if isinstance(value, str | PathLike) else repr(value)


class ErrorText(str):
    """A message as a caller in Python reads it; `raw` has both forms of the options that it names."""

    __slots__ = ("raw",)
    raw: str

    def __new__(cls, text: str) -> Self:  # noqa: D102
        raw = text.raw if isinstance(text, ErrorText) else text
        message = super().__new__(cls, _FORMS.sub(r"\2", raw))
        message.raw = raw
        return message


def for_command_line(text: str) -> str:
    """Return a message as the command line prints it."""
    return _FORMS.sub(r"\1", text.raw if isinstance(text, ErrorText) else text)


def first_few(names: Sequence[str], count: int = 3) -> str:
    """List the first names for a message."""
    return ", ".join(names[:count]) + (", ..." if len(names) > count else "")


def group_messages(items: Iterable[tuple[str, str]]) -> list[str]:
    """Return a line for each message, with the first of its places and the number of the others."""
    places: dict[str, list[str]] = {}
    for where, message in items:
        places.setdefault(message, []).append(where)
    return [
        f"{named[0]} and {len(named) - 1} more: {message}" if len(named) > 1 else f"{named[0]}: {message}"
        for message, named in places.items()
    ]


class DsocrError(Exception):
    """A problem that the user can solve: the fault, its place, and the remedy.

    `str(error)` is the place and the message, e.g. `letters.jsonl:17: transcription is empty`. `code` identifies the
    problem for programs, `hint` is the remedy.
    """

    def __init__(self, message: str, *, code: str = "", where: object = None, hint: str | None = None) -> None:
        self.message = ErrorText(message)
        self.code = code
        self.where = None if where is None else str(where)
        self.hint = None if hint is None else ErrorText(hint)
        super().__init__(self.message if self.where is None else f"{self.where}: {self.message}")

    def render(self) -> str:
        """Return the text for the terminal: the message, then the hint on its own line."""
        place = "" if self.where is None else f"{self.where}: "
        hint = f"\n  hint: {for_command_line(self.hint)}" if self.hint else ""
        return f"error: {place}{for_command_line(self.message)}{hint}"

    def __reduce__(self) -> tuple[object, ...]:
        # Exceptions rebuild themselves from `args`; ours carry keywords, and worker processes must send them whole.
        return partial(type(self), code=self.code, where=self.where, hint=self.hint), (self.message,)


class ConfigError(DsocrError):
    """A configuration cannot be used; all its problems are listed in one message."""

    @classmethod
    def listing(cls, problems: Sequence[str], *, code: str = "config-invalid", where: object = None) -> "ConfigError":
        """Make one error of several problems: their number, then a line for each."""
        count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
        return cls(count + "".join(f"\n  {problem}" for problem in problems), code=code, where=where)


class DataError(DsocrError):
    """An image, a transcription, a source or a dataset folder cannot be used."""


class ModelError(DsocrError):
    """A base model or an adapter cannot be used."""


class RunError(DsocrError):
    """A run folder is missing, incomplete or in use."""


TRAIN = "train"
"""The extra whose packages train."""


def not_installed(use: str, package: str | None, extra: str) -> RunError:
    """Return the error for a use whose package only an extra of this one installs."""
    hint = f'pip install "dsocr-hw[{extra}]"'
    return RunError(f"{use} needs {package}, which is not installed", code="package-missing", hint=hint)


def require_package(use: str, package: str = "torch", extra: str = TRAIN) -> None:
    """Raise RunError unless a package is installed that an extra brings."""
    if find_spec(package) is None:
        raise not_installed(use, package, extra)


DISK_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
"""Numbers of operating system errors for a disk, or a quota, without space."""


def disk_full(where: object) -> RunError:
    """Return the error for a disk without space."""
    hint = "free some space, then run the same command again"
    return RunError("the disk is full", code="disk-full", where=where, hint=hint)


class Interrupted(KeyboardInterrupt):
    """A signal ended training after a complete step, with a checkpoint; `resume` is the command to resume.

    `exit_code` is 128 plus the signal's number, as in shells.
    """

    def __init__(self, signal: int, step: int, resume: str) -> None:
        self.exit_code = 128 + signal
        self.step = step
        self.resume = resume
        super().__init__(f"ended by signal {signal} after step {step}; resume with {resume}")


class FilesWarning(UserWarning):
    """A file that decides the readings was edited, or nothing would show that it was damaged."""
