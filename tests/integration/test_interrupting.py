"""Ctrl-C ends every command with exit code 130 and a line on what is kept and how to resume."""

from pathlib import Path
from typing import Any

import pytest
from typer.core import TyperCommand

from dsocr.cli import app
from dsocr.errors import Interrupted
from dsocr.io.atomic import work_path
from tests.integration.calling import call

Texts = pytest.CaptureFixture[str]

ARGUMENTS = {
    **dict.fromkeys(("doctor", "demo"), ""),
    **dict.fromkeys(("train", "forecast"), "mine.yaml"),
    **dict.fromkeys(("check", "preview"), "data"),
    **dict.fromkeys(("evaluate", "report", "compare", "serve", "export"), "run"),
    "prepare": "scans -o data",
    "synthesize": "--fonts fonts --text text -o data",
    "convert": "scans -o out --to page",
    "transcribe": "run scans -o out",
    "suggest": "run scans -o out",
    "workbench": "scans",
}


def names() -> list[str]:
    return [command.name or str(getattr(command.callback, "__name__", "")) for command in app.registered_commands]


def interrupted(*arguments: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("name", names())
def test_every_command_says_how_to_go_on(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: Texts, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(TyperCommand, "invoke", interrupted)
    code, out, err = call(monkeypatch, capsys, name, *ARGUMENTS[name].split())
    assert (code, out) == (130, "")
    assert err.startswith("interrupted: ")
    assert "the same command" in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        pytest.param("prepare", "prepared images are kept", id="cut lines"),
        pytest.param("transcribe", "transcribed pages are kept", id="read pages"),
        pytest.param("train", "checkpoints are kept", id="checkpoints"),
    ],
)
def test_what_is_kept_is_named(
    name: str, kept: str, monkeypatch: pytest.MonkeyPatch, capsys: Texts, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    for out in ("data", "out"):
        work_path(Path(out)).mkdir()
    monkeypatch.setattr(TyperCommand, "invoke", interrupted)
    assert f"interrupted: {kept}" in call(monkeypatch, capsys, name, *ARGUMENTS[name].split())[2]


def test_a_demo_that_is_interrupted_tells_its_checkpoint(monkeypatch: pytest.MonkeyPatch, capsys: Texts) -> None:
    def train(*arguments: Any, **options: Any) -> None:
        raise Interrupted(15, 20, "dsocr train runs/demo/config.yaml")

    monkeypatch.setattr("dsocr.training.train.train", train)
    code, _, err = call(monkeypatch, capsys, "demo")
    assert code == 143
    assert err.splitlines() == [
        "interrupted; a checkpoint of step 20 is written",
        "resume:  dsocr train runs/demo/config.yaml",
    ]
