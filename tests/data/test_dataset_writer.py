"""A dataset folder is whole or absent, and nothing of the user's is ever lost."""

from pathlib import Path

import pytest

from dsocr.data.prepare import prepare
from dsocr.errors import DataError
from dsocr.io.atomic import writing_folder
from tests.data.making import write, write_pages
from tests.raising import raises_code


@pytest.fixture
def pages(tmp_path: Path) -> Path:
    return write_pages(tmp_path / "source", ["a", "b", "c"], lines=1)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_failure_leaves_nothing_behind(tmp_path: Path) -> None:
    def stopped_halfway() -> None:
        with writing_folder(tmp_path / "out") as folder:
            write(folder / "half", "")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stopped_halfway()
    assert names(tmp_path) == []


def test_an_empty_folder_is_filled(pages: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    prepare(pages, tmp_path / "out")
    assert names(tmp_path) == ["out", "source"]


def test_a_dataset_is_overwritten_only_when_asked(pages: Path, tmp_path: Path) -> None:
    prepare(pages, tmp_path / "out", seed=1)
    with raises_code("output-exists"):
        prepare(pages, tmp_path / "out")
    prepare(pages, tmp_path / "out", seed=2, overwrite=True)
    assert '"seed": 2' in (tmp_path / "out/dataset.json").read_text(encoding="utf-8")
    assert names(tmp_path) == ["out", "source"]


def test_a_failed_overwrite_keeps_the_former_dataset(pages: Path, tmp_path: Path) -> None:
    prepare(pages, tmp_path / "out", seed=1)
    with pytest.raises(DataError):
        prepare(pages, tmp_path / "out", writer="a", split="0.5/0.5/0", split_by="given", overwrite=True)
    assert '"seed": 1' in (tmp_path / "out/dataset.json").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        pytest.param("letter.txt", "дорогая", "output-not-empty", id="a folder of the user's"),
        pytest.param("dataset.json", "{}", "output-not-empty", id="a card of somebody else's"),
        pytest.param("train/metadata.jsonl", "", "output-not-empty", id="a dataset without card"),
    ],
)
def test_a_folder_that_is_not_a_dataset_is_never_touched(
    pages: Path, tmp_path: Path, file: str, content: str, message: str
) -> None:
    kept = write(tmp_path / "out" / file, content)
    with raises_code(message):
        prepare(pages, tmp_path / "out", overwrite=True)
    assert kept.read_text(encoding="utf-8") == content


def test_a_dataset_with_files_of_the_user_is_not_overwritten(pages: Path, tmp_path: Path) -> None:
    prepare(pages, tmp_path / "out")
    write(tmp_path / "out/.DS_Store", "")
    prepare(pages, tmp_path / "out", overwrite=True)
    write(tmp_path / "out/notes.txt", "моё")
    with raises_code("output-foreign-files"):
        prepare(pages, tmp_path / "out", overwrite=True)


def test_a_file_in_the_way_is_an_error(pages: Path, tmp_path: Path) -> None:
    write(tmp_path / "out", "")
    with raises_code("output-is-file"):
        prepare(pages, tmp_path / "out", overwrite=True)


@pytest.mark.parametrize("out", ["source", "."])
def test_the_source_is_never_written_over(pages: Path, tmp_path: Path, out: str) -> None:
    with raises_code("output-holds-source"):
        prepare(pages, tmp_path / out, overwrite=True)
    assert "a.xml" in names(pages)


def test_a_dataset_inside_its_source_is_not_read_again(pages: Path) -> None:
    first = prepare(pages, pages / "dataset").card
    second = prepare(pages, pages / "dataset", overwrite=True).card
    assert first.splits == second.splits
