"""What the guide promises: commands that parse, and files that exist."""

import re
import shlex
from contextlib import suppress
from pathlib import Path

import pytest
import typer

from dsocr.cli import app

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs" / "guide").glob("*.md"))


def commands(page: Path) -> list[list[str]]:
    """The `dsocr` commands in a page's shell blocks, and in what is indented, without their comments."""
    text = page.read_text(encoding="utf-8").replace("\\\n", " ")
    blocks = re.findall(r"```(?:sh|powershell)\n(.*?)```", text, flags=re.DOTALL)
    shown = [
        *(line.strip() for block in blocks for line in block.splitlines()),
        *re.findall(r"^    (\S.*)$", text, re.M),
    ]
    found = [re.match(r"(?:[A-Z_]+=\S+ )?dsocr (.+?)(?: && .*)?$", line) for line in shown]
    return [shlex.split(line[1], comments=True) for line in found if line]


@pytest.mark.parametrize("page", [page for page in PAGES if commands(page)], ids=lambda page: page.name)
def test_every_command_of_the_guide_parses(page: Path) -> None:
    root = typer.main.get_command(app)
    for command, *arguments in commands(page):
        with suppress(typer.Exit):  # of options that only print
            root.commands[command].make_context(command, arguments)  # type: ignore[attr-defined]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_file_that_the_docs_link_to_is_there(page: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    assert [link for link in links if "://" not in link and not (page.parent / link).exists()] == []
