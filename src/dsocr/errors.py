"""The errors that a user can cause, each with a message, a code, a place and a hint.

    DsocrError
    |-- ConfigError     a YAML file or a command-line setting cannot be used
    |-- DataError       an image, a transcription, a source or a dataset folder cannot be used
    |-- ModelError      a base model or an adapter cannot be used
    `-- RunError        a run folder is missing, incomplete or in use

    KeyboardInterrupt
    `-- Interrupted     a signal ended a training after a complete step

The command line prints them without a traceback and exits with 2; any other exception is a bug and keeps its
traceback.
"""

import re
from collections.abc import Sequence
from pathlib import Path


def typed(word: str | Path) -> str:
    """Return a word as it is typed in a command: in quotes if a shell would split it."""
    return str(word) if re.fullmatch(r"[\w./:\\=,@%+~-]+", str(word)) else f'"{word}"'


def first_few(names: Sequence[str], count: int = 3) -> str:
    """List the first names for a message."""
    return ", ".join(names[:count]) + (", ..." if len(names) > count else "")


class DsocrError(Exception):
    """A problem that the user can solve: what is wrong, where, and what to do about it.

    `str(error)` is the place and the message, e.g. `letters.jsonl:17: transcription is empty`. `code` identifies the
    problem for programs, `hint` says what to do.
    """

    def __init__(self, message: str, *, code: str = "", where: object = None, hint: str | None = None) -> None:
        self.message = message
        self.code = code
        self.where = None if where is None else str(where)
        self.hint = hint
        super().__init__(message if self.where is None else f"{self.where}: {message}")

    def render(self) -> str:
        """Return the text for the terminal: the message, then the hint on its own line."""
        return f"error: {self}" + (f"\n  hint: {self.hint}" if self.hint else "")

    def __reduce__(self) -> tuple[object, ...]:
        # Exceptions rebuild themselves from `args`; ours carry keywords, and worker processes must send them whole.
        return (_rebuild, (type(self), self.message, self.code, self.where, self.hint))


def _rebuild(kind: type[DsocrError], message: str, code: str, where: str | None, hint: str | None) -> DsocrError:
    return kind(message, code=code, where=where, hint=hint)


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


class Interrupted(KeyboardInterrupt):
    """A signal ended a training after a complete step, with a checkpoint; `resume` is the command to resume.

    `exit_code` is 128 plus the signal's number, as in shells.
    """

    def __init__(self, signal: int, step: int, resume: str) -> None:
        self.exit_code = 128 + signal
        self.step = step
        self.resume = resume
        super().__init__(f"ended by signal {signal} after step {step}; resume with {resume}")
