"""Commands that listen say so in a sentence where they cannot."""

import socket
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dsocr.cli import app
from dsocr.cli.share_commands import listen
from dsocr.errors import RunError


@pytest.mark.parametrize("host", ["127.0.0.1", "a..b"])
def test_where_it_cannot_listen_it_says_so(host: str) -> None:
    with listen("127.0.0.1", 0) as taken, pytest.raises(RunError) as caught:
        listen(host, taken.getsockname()[1])
    assert caught.value.code == "port-unavailable"
    assert host in str(caught.value)


def test_a_workbench_whose_port_is_in_use_writes_nothing(tmp_path: Path) -> None:
    source = tmp_path / "scans"
    source.mkdir()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        answer = CliRunner().invoke(app, ["workbench", str(source), "--port", str(port), "--no-show"])
    assert isinstance(answer.exception, RunError)
    assert answer.exception.code == "port-unavailable"
    assert not (tmp_path / "scans.workbench").exists()


def test_a_workbench_speaks_two_languages(tmp_path: Path) -> None:
    answer = CliRunner().invoke(app, ["workbench", str(tmp_path), "--language", "de"])
    assert answer.exit_code == 2
    assert "'en', 'ru'" in answer.output
