"""What the READMEs promise: commands that parse, files that exist, the same steps in both languages."""

import re
import shlex
from contextlib import suppress
from pathlib import Path

import pytest
import typer

from dsocr.cli import app

ROOT = Path(__file__).parents[1]
READMES = ["README.md", "README.ru.md"]


def commands(name: str) -> list[list[str]]:
    """The `dsocr` commands in a README's shell blocks, without their comments."""
    text = (ROOT / name).read_text(encoding="utf-8")
    blocks = re.findall(r"```(?:sh|powershell)\n(.*?)```", text, flags=re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()]
    lines = [line.replace("\\", "/") if "Scripts" in line else line for line in lines]
    words = [shlex.split(line, comments=True) for line in lines if "dsocr " in line]
    return [line[1:] for line in words if Path(line[0]).name == "dsocr"]


@pytest.mark.parametrize("name", READMES)
def test_every_command_parses(name: str) -> None:
    root = typer.main.get_command(app)
    found = commands(name)
    assert {line[0] for line in found} == set(root.commands)  # type: ignore[attr-defined]
    for command, *arguments in found:
        subcommand = root.commands[command]  # type: ignore[attr-defined]
        with suppress(typer.Exit):  # of options that only print
            subcommand.make_context(command, arguments)


def test_both_languages_show_the_same_commands() -> None:
    assert commands(READMES[0]) == commands(READMES[1])


@pytest.mark.parametrize("name", READMES)
def test_every_linked_file_is_there(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    links = [link for link in re.findall(r"\]\(([^)]+)\)", text) if "://" not in link]
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []


@pytest.mark.parametrize("name", READMES)
def test_the_demo_output_is_real(name: str) -> None:
    assert "DEMO OUTPUT" not in (ROOT / name).read_text(encoding="utf-8")
