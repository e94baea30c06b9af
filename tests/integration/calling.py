"""The command line, called in the process of the tests."""

import sys
from collections.abc import Callable

import pytest
from cyclopts import ArgumentCollection

from dsocr.cli import main
from dsocr.cli.app import app, invoke
from dsocr.cli.commands import COMMANDS
from dsocr.errors import DsocrError

for name in COMMANDS:
    app[name]  # a command is made once: here, before a test replaces its function

Call = Callable[..., tuple[str, str]]
Fail = Callable[..., DsocrError]


def call(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: object, code: int = 0
) -> tuple[str, str]:
    """Stdout and stderr of `dsocr ARGUMENTS`, which must end with this exit code."""
    monkeypatch.setattr(sys, "argv", ["dsocr", *map(str, arguments)])
    capsys.readouterr()
    try:
        main()
        ended = 0
    except SystemExit as exit_:
        ended = int(exit_.code or 0)
    out, err = capsys.readouterr()
    assert ended == code, out + err
    return out, err


def fail(*arguments: object) -> DsocrError:
    """The error that `dsocr ARGUMENTS` prints before it exits with 2."""
    with pytest.raises(DsocrError) as caught:
        invoke([*map(str, arguments)])
    return caught.value


def arguments_of(name: str) -> ArgumentCollection:
    """The arguments and options of a command, as its help has them."""
    collection = app[name].assemble_argument_collection(default_parameter=app.default_parameter, parse_docstring=True)
    return collection.filter_by(parse=True)
