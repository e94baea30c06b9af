"""`dsocr prepare --formats` lists what can be read, from the table that detection uses."""

import shlex

import pytest
import typer
from typer.testing import CliRunner

from dsocr.cli import app
from dsocr.formats import SOURCE_FORMATS


def test_every_format_is_listed_with_its_command() -> None:
    done = CliRunner().invoke(app, ["prepare", "--formats"])
    assert done.exit_code == 0
    for format_ in SOURCE_FORMATS.values():
        row = f"{format_.name:<14}{format_.title}\n{'':<14}dsocr prepare {format_.example}\n"
        assert row in done.stdout


@pytest.mark.parametrize("name", SOURCE_FORMATS)
def test_every_example_parses(name: str) -> None:
    prepare = typer.main.get_command(app).commands["prepare"]  # type: ignore[attr-defined]
    prepare.make_context("prepare", shlex.split(SOURCE_FORMATS[name].example))
