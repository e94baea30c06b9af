"""Commands that listen say so in a sentence where they cannot."""

import socket
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dsocr.cli.options import app
from dsocr.commands.listening import listening
from dsocr.errors import RunError


@pytest.mark.parametrize("host", ["127.0.0.1", "a..b"])
def test_where_it_cannot_listen_it_says_so(host: str) -> None:
    with listening("127.0.0.1", 0) as taken, pytest.raises(RunError, match=f"cannot listen at {host}"):
        listening(host, taken.getsockname()[1])


def test_a_workbench_whose_port_is_taken_makes_nothing(tmp_path: Path) -> None:
    source = tmp_path / "scans"
    source.mkdir()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        answer = CliRunner().invoke(app, ["workbench", str(source), "--port", str(port), "--no-show"])
    assert isinstance(answer.exception, RunError)
    assert f"cannot listen at 127.0.0.1:{port}" in str(answer.exception)
    assert not (tmp_path / "scans.workbench").exists()


def test_a_workbench_speaks_two_languages(tmp_path: Path) -> None:
    answer = CliRunner().invoke(app, ["workbench", str(tmp_path), "--language", "de"])
    assert answer.exit_code == 2
    assert "'en', 'ru'" in answer.output
