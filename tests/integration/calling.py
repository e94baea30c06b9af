"""The command line, called in the process of the tests."""

import sys
from collections.abc import Callable

import pytest

from dsocr.cli import main
from dsocr.cli.app import app
from dsocr.errors import DsocrError

Call = Callable[..., tuple[int, str, str]]
Fail = Callable[..., DsocrError]


def call(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: object
) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of `dsocr ARGUMENTS`."""
    monkeypatch.setattr(sys, "argv", ["dsocr", *map(str, arguments)])
    capsys.readouterr()
    try:
        main()
        code = 0
    except SystemExit as exit_:
        code = int(exit_.code or 0)
    return code, *capsys.readouterr()


def fail(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> DsocrError:
    """The error that `dsocr ARGUMENTS` prints before it exits with 2."""
    monkeypatch.setattr(sys, "argv", ["dsocr", *map(str, arguments)])
    with pytest.raises(DsocrError) as caught:
        app()
    return caught.value
