"""A name in somebody's file never leads out of the folder it is in."""

import os
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsocr.io.files import UniqueStems, inside, list_files, natural_sort, safe_stem, until_changed
from tests.data.making import write
from tests.raising import raises_code


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("/etc/passwd", id="absolute"),
        pytest.param("\\\\server\\share\\a.png", id="network share"),
        pytest.param("\\a.png", id="root of a Windows drive"),
        pytest.param("C:\\scans\\a.png", id="drive"),
        pytest.param("C:a.png", id="drive without slash"),
        pytest.param("../a.png", id="one level up"),
        pytest.param("images/../../a.png", id="up from within"),
        pytest.param("images\\..\\..\\a.png", id="up with backslashes"),
        pytest.param("images/../a.png", id="up, though it ends in the folder"),
        pytest.param("a\0.png", id="NUL"),
        pytest.param("a\ud800.png", id="half of a surrogate pair"),
        pytest.param("", id="empty"),
        pytest.param("  ", id="blank"),
    ],
)
def test_names_that_lead_elsewhere_are_rejected(tmp_path: Path, name: str) -> None:
    with raises_code("path-outside"):
        inside(tmp_path, name)


def test_a_link_that_leads_out_is_rejected(tmp_path: Path) -> None:
    secret = write(tmp_path / "secret.png", "s")
    (tmp_path / "source").mkdir()
    try:
        (tmp_path / "source" / "a.png").symlink_to(secret)
    except OSError:
        pytest.skip("links need a right that most accounts lack")
    with raises_code("path-outside"):
        inside(tmp_path / "source", "a.png")


def test_hidden_files_and_finished_datasets_are_not_listed(tmp_path: Path) -> None:
    for name in ("b.PNG", "a/c.png", ".hidden/d.png", "._e.png", "__MACOSX/f.png", "done/train/g.png", "note.txt"):
        write(tmp_path / name, "")
    write(tmp_path / "done" / "dataset.json", '{\n  "format": "dsocr-dataset"')
    assert [path.relative_to(tmp_path).as_posix() for path in list_files(tmp_path, {".png"})] == ["a/c.png", "b.PNG"]


@pytest.mark.parametrize(
    "names",
    [
        pytest.param("list_1.png list_2.png list_10.png list_12.png", id="numbers"),
        pytest.param("л. 9.jpg|л. 9 об.jpg|л. 9а.jpg|л. 9а об.jpg|л. 10.jpg", id="leaves of РГАДА"),
        pytest.param("Ф. 102 Оп. 3 Д. 15 Л. 9|Ф. 102 Оп. 3 Д. 15 л.9об.|Ф. 102 Оп. 3 Д. 15 Л. 10", id="and of ГАРФ"),
        pytest.param("f1r.jpg f1v.jpg f12.jpg f12r.jpg f12v.jpg f12bis.jpg f100r.jpg", id="folios of the BnF"),
        pytest.param("004567890_00009.jpg 004567890_00010.jpg 004567890_00100.jpg", id="FamilySearch"),
        pytest.param("0001_p001.xml 0002_p002.xml 0010_p010.xml", id="Transkribus"),
        pytest.param("IMG_20230101_1.jpg|IMG_20230101_1 (1).jpg|img_20230101_2.jpg|IMG_20230102_0.jpg", id="phone"),
        pytest.param("1L.jpg 1R.jpg 2L.jpg 2R.jpg 10L.jpg", id="left and right pages"),
        pytest.param("001.png 001a.png 001b.png 002.png", id="inserted leaves"),
        pytest.param("I.png II.png IV.png V.png IX.png X.png", id="Roman numbers"),
        pytest.param("том V/1|том V/10|том VІ/1|том ІХ/1|том Х/1", id="typed with a Russian keyboard"),
        pytest.param("civil.png di.png mix.png vita.png", id="words that could be Roman numbers"),
        pytest.param("a/1.png a/10.png a.png a_2/1.png", id="folders"),
    ],
)
def test_names_are_sorted_as_leaves_are_counted(names: str) -> None:
    expected = names.split("|" if "|" in names else " ")
    assert natural_sort(reversed(expected)) == natural_sort(sorted(expected)) == expected


@pytest.mark.parametrize(
    ("name", "stem"),
    [
        pytest.param("wikitexte_0001_2", "wikitexte_0001_2", id="unchanged"),
        pytest.param("Письмо 3, л. 2 об", "Письмо_3__л__2_об", id="Cyrillic stays, spaces and stops go"),
        pytest.param("и\u0306", "й", id="composed"),
        pytest.param("box/a:b*c?", "box_a_b_c_", id="slash, colon, wildcards"),
        pytest.param("CON", "CON_", id="reserved on Windows"),
        pytest.param("", "_", id="empty"),
    ],
)
def test_safe_stem(name: str, stem: str) -> None:
    assert safe_stem(name) == stem


@given(st.lists(st.text(max_size=8), max_size=6))
def test_any_names_become_safe_short_and_unique(names: list[str]) -> None:
    stems = list(map(UniqueStems().take, [*names, *("ш" * 200 + end for end in "ab")]))
    assert len({stem.casefold() for stem in stems}) == len(names) + 2
    assert all(re.fullmatch(r"[\w-]{1,80}", stem) for stem in stems)


def test_what_was_loaded_is_remembered_until_its_file_changes(tmp_path: Path) -> None:
    loads: list[Path] = []

    def load(folder: Path) -> str:
        loads.append(folder)
        return (folder / "a.txt").read_text(encoding="utf-8") if (folder / "a.txt").is_file() else "none"

    reload = until_changed(load, "a.txt")
    assert (reload(tmp_path), reload(tmp_path), len(loads)) == ("none", "none", 1)
    write(tmp_path / "a.txt", "old")
    assert (reload(tmp_path), reload(tmp_path), len(loads)) == ("old", "old", 2)
    status = (tmp_path / "a.txt").stat()
    write(tmp_path / "a.txt", "new")
    os.utime(tmp_path / "a.txt", ns=(status.st_atime_ns, status.st_mtime_ns + 1))  # of the same size
    assert reload(tmp_path) == "new"
    write(tmp_path / "a.txt", "longer")
    os.utime(tmp_path / "a.txt", ns=(status.st_atime_ns, status.st_mtime_ns + 1))  # of the same time
    assert (reload(tmp_path), len(loads)) == ("longer", 4)
