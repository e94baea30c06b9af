"""A dataset folder is what `datasets.load_dataset("imagefolder", ...)` reads as it is."""

from pathlib import Path

import pytest

from dsocr.data.prepare import prepare
from tests.data.making import pair, write_pages

pytestmark = [
    # The library's own business: what it imports and leaves open.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


def load(folder: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, list[dict[str, object]]]:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_DATASETS_OFFLINE", "1")
    datasets = pytest.importorskip("datasets")
    datasets.disable_progress_bars()
    loaded = datasets.load_dataset("imagefolder", data_dir=str(folder), cache_dir=str(cache))
    return {split: list(rows) for split, rows in loaded.items()}


def test_lines_of_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = write_pages(tmp_path / "source", ["anna_1", "boris_1", "vera_1"], lines=2)
    prepare(source, tmp_path / "out", writer="(.+)_")
    splits = load(tmp_path / "out", tmp_path / "cache", monkeypatch)
    assert {split: len(rows) for split, rows in splits.items()} == {"train": 2, "validation": 2, "test": 2}
    row = next(row for rows in splits.values() for row in rows if row["writer"] == "anna")
    assert (row["text"], row["page"], row["bbox"]) == ("anna_1 строка 0", "anna_1", [10, 10, 61, 31])
    assert row["image"].size == (51, 21)  # type: ignore[attr-defined]


def test_pairs_without_writer_page_and_geometry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(3):
        pair(tmp_path / "source", f"{number}", f"{number}", colour=(number, 0, 0))
    prepare(tmp_path / "source", tmp_path / "out")
    splits = load(tmp_path / "out", tmp_path / "cache", monkeypatch)
    assert sorted(str(row["text"]) for rows in splits.values() for row in rows) == ["0", "1", "2"]


def test_a_writer_known_in_one_split_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for split, stem in (("train", "anna"), ("validation", "1"), ("test", "2")):
        pair(tmp_path / "source" / split, stem, stem, colour=(len(split), 0, 0))
    prepare(tmp_path / "source", tmp_path / "out", writer="[a-z]+")
    splits = load(tmp_path / "out", tmp_path / "cache", monkeypatch)
    assert [rows[0]["writer"] for rows in splits.values()] == ["anna", "", ""]
