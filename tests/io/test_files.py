"""A name in somebody's file never leads out of the folder it stands in."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsocr.io.files import UniqueStems, inside, list_files, safe_stem
from tests.data.making import write
from tests.raising import raises_code


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("a.png", id="plain"),
        pytest.param("images/a.png", id="in a folder"),
        pytest.param("images\\a.png", id="written on Windows"),
        pytest.param("./a.png", id="with a dot"),
        pytest.param("a..b.png", id="two dots inside a name"),
        pytest.param("папка/письмо.png", id="Cyrillic"),
    ],
)
def test_names_below_the_folder_are_followed(tmp_path: Path, name: str) -> None:
    assert inside(tmp_path, name).is_relative_to(tmp_path)


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        pytest.param("/etc/passwd", "path-outside", id="absolute"),
        pytest.param("\\\\server\\share\\a.png", "path-outside", id="network share"),
        pytest.param("\\a.png", "path-outside", id="root of a Windows drive"),
        pytest.param("C:\\scans\\a.png", "path-outside", id="drive"),
        pytest.param("C:a.png", "path-outside", id="drive without slash"),
        pytest.param("../a.png", "path-outside", id="one level up"),
        pytest.param("images/../../a.png", "path-outside", id="up from within"),
        pytest.param("images\\..\\..\\a.png", "path-outside", id="up with backslashes"),
        pytest.param("a\0.png", "path-outside", id="path-outside"),
        pytest.param("", "path-outside", id="empty"),
        pytest.param("  ", "path-outside", id="blank"),
    ],
)
def test_names_that_lead_elsewhere_are_rejected(tmp_path: Path, name: str, problem: str) -> None:
    with raises_code(problem):
        inside(tmp_path, name)


def test_a_link_that_leads_out_is_rejected(tmp_path: Path) -> None:
    secret = write(tmp_path / "secret.png", "s")
    (tmp_path / "source").mkdir()
    try:
        (tmp_path / "source" / "a.png").symlink_to(secret)
    except OSError:
        pytest.skip("this system lets users make no links")
    with raises_code("path-outside"):
        inside(tmp_path / "source", "a.png")


def test_hidden_files_and_finished_datasets_are_not_listed(tmp_path: Path) -> None:
    for name in ("b.PNG", "a/c.png", ".hidden/d.png", "._e.png", "__MACOSX/f.png", "done/train/g.png", "note.txt"):
        write(tmp_path / name, "")
    write(tmp_path / "done" / "dataset.json", '{\n  "format": "dsocr-dataset"')
    assert [path.relative_to(tmp_path).as_posix() for path in list_files(tmp_path, {".png"})] == ["a/c.png", "b.PNG"]


@pytest.mark.parametrize(
    ("name", "stem"),
    [
        pytest.param("wikitexte_0001_2", "wikitexte_0001_2", id="as it is"),
        pytest.param("Письмо 3, л. 2 об", "Письмо_3__л__2_об", id="Cyrillic stays, spaces and stops go"),
        pytest.param("и\u0306", "й", id="composed"),
        pytest.param("box/a:b*c?", "box_a_b_c_", id="slash, colon, wildcards"),
        pytest.param("CON", "CON_", id="reserved on Windows"),
        pytest.param("", "_", id="empty"),
    ],
)
def test_safe_stem(name: str, stem: str) -> None:
    assert safe_stem(name) == stem


def taken(names: list[str]) -> list[str]:
    stems = UniqueStems()
    return [stems.take(name) for name in names]


def test_long_names_are_short_and_stay_apart() -> None:
    first, second = (safe_stem("ш" * 200 + end) for end in "ab")
    assert first != second
    assert len(first.encode()) < 80


def test_names_that_differ_in_case_stay_apart() -> None:
    assert taken(["a", "A", "a", "a-2"]) == ["a", "A-2", "a-3", "a-2-2"]


@given(st.lists(st.text(max_size=80), max_size=20))
def test_any_names_become_safe_and_unique(names: list[str]) -> None:
    stems = taken(names)
    assert len({stem.casefold() for stem in stems}) == len(names)
    assert all(re.fullmatch(r"[\w-]{1,80}", stem) for stem in stems)
