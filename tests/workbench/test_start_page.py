"""What the start page remembers and finds, what is open, and what a download holds."""

import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import pytest

from dsocr.errors import DataError
from dsocr.workbench.dialogs import pack
from dsocr.workbench.serving import Desk
from dsocr.workbench.session import Session
from dsocr.workbench.start_page import Projects, look_into, typed_path
from tests.raising import raises_code


def test_sources_are_remembered_the_latest_first(tmp_path: Path) -> None:
    projects = Projects(tmp_path / "dsocr")
    assert projects.recent() == []
    for name in ("a", "b", "c", "a"):
        (tmp_path / name).mkdir(exist_ok=True)
        projects.remember(tmp_path / name)
    (tmp_path / "b").rmdir()
    again = Projects(tmp_path / "dsocr")
    assert again.recent() == [tmp_path / "a", tmp_path / "c"]
    assert again.secret == projects.secret


@pytest.mark.parametrize("content", [b"", b"secret", b"secret\n\nnowhere", b"\xff\xfe\n\xff"])
def test_a_damaged_list_is_forgotten(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "recent.txt").write_bytes(content)
    assert Projects(tmp_path).recent() == []


def test_each_new_folder_is_empty(tmp_path: Path) -> None:
    projects = Projects(tmp_path / "dsocr")
    assert [projects.new_folder("сканы").name for _ in range(3)] == ["сканы", "сканы-2", "сканы-3"]
    (tmp_path / "file").touch()
    with raises_code("write-failed"):
        Projects(tmp_path / "file" / "dsocr").new_folder("сканы")


def test_the_example_has_pages_and_is_copied_once(tmp_path: Path) -> None:
    projects = Projects(tmp_path)
    example = projects.example()
    assert look_into(example) == (3, [])
    assert projects.example() == example


def test_a_folder_is_looked_into(tmp_path: Path) -> None:
    for name in ("delo-2", "delo-1", ".hidden", "$recycle"):
        (tmp_path / name).mkdir()
    for name in ("1.JPG", "2.tiff", "book.pdf", "notes.docx"):
        (tmp_path / name).touch()
    assert look_into(tmp_path) == (3, [("delo-1", tmp_path / "delo-1"), ("delo-2", tmp_path / "delo-2")])
    assert look_into(tmp_path / "nowhere") == (0, [])


@pytest.mark.parametrize(
    ("text", "path"),
    [(' "C:/дело 1" ', Path("C:/дело 1")), ("~/scans", Path.home() / "scans"), ("  ", None), (None, None)],
)
def test_a_path_is_taken_as_people_paste_it(text: str | None, path: Path | None) -> None:
    assert typed_path(text) == path


def test_one_source_is_open_at_a_time(tmp_path: Path) -> None:
    events: list[str] = []

    @contextmanager
    def opened(source: Path) -> Iterator[Session]:
        if source.name == "empty":
            raise DataError("holds no page", code="source-empty")
        events.append(f"open {source.name}")
        yield cast("Session", source.name)
        events.append(f"close {source.name}")

    desk = Desk(opened)
    for name in ("a", "a", "b"):
        assert cast("object", desk.open(tmp_path / name)) == name
    with raises_code("source-empty"):
        desk.open(tmp_path / "empty")
    assert desk.session is None
    desk.open(tmp_path / "b")
    desk.close()
    assert events == ["open a", "close a", "open b", "close b", "open b", "close b"]


def test_a_single_file_is_downloaded_as_it_is_and_several_as_a_zip(tmp_path: Path) -> None:
    folder = tmp_path / "docx"
    folder.mkdir()
    (folder / "conversion.json").touch()
    (folder / "texts.docx").touch()
    assert pack(folder) == folder / "texts.docx"
    assert pack(folder / "texts.docx") == folder / "texts.docx"
    (folder / "page").mkdir()
    (folder / "page" / "1.xml").touch()
    packed = pack(folder)
    assert packed == tmp_path / "docx.zip"
    assert {"texts.docx", "page/1.xml"} <= set(zipfile.ZipFile(packed).namelist())
