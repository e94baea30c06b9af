"""Parquet files of the Hub: images as bytes or names, columns guessed or given, shards and splits."""

import errno
import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dsocr.data.convert import convert
from dsocr.document import Page, SkipReason, Split
from dsocr.formats.parquet import ImageColumn, find_parquet, read_parquet
from tests.data.making import picture, png, write, write_parquet
from tests.formats.reading import pages, read, read_one, skipped
from tests.raising import raises_code

SHADES = [png((255, 255, shade)) for shade in range(200, 240)]


def cell(place: int, path: str | None = None) -> dict[str, Any]:
    """An image as `datasets` writes it."""
    return {"bytes": SHADES[place], "path": path}


def content_of(page: Page) -> bytes:
    assert page.content is not None
    return page.content()


@pytest.mark.parametrize(
    ("row", "name"),
    [
        pytest.param({"image": cell(0, "a/b.png"), "text": "да"}, "t/b", id="bytes with their path"),
        pytest.param({"image": cell(0), "text": "да"}, "t/1", id="bytes without a path"),
        pytest.param({"image": {"bytes": SHADES[0]}, "text": "да"}, "t/1", id="no field for a path"),
        pytest.param({"im": SHADES[0], "label": "да"}, "t/1", id="bare bytes"),
        pytest.param({"scan": SHADES[0], "text": "да"}, "t/1", id="the only column that holds bytes"),
        pytest.param({"image": cell(0, "../../x.png"), "text": "да"}, "t/x", id="a path is no more than a name"),
    ],
)
def test_a_row_is_read(tmp_path: Path, row: dict[str, Any], name: str) -> None:
    write_parquet(tmp_path / "t.parquet", [row])
    page = read_one("parquet", tmp_path)
    assert (page.name, page.where, page.lines[0].text) == (name, "t.parquet:1", "да")
    assert content_of(page) == SHADES[0]


def test_images_named_by_a_row_are_files_of_the_source(tmp_path: Path) -> None:
    picture(tmp_path / "images" / "a.png")
    write_parquet(tmp_path / "metadata.parquet", [{"file_name": "images/a.png", "text": "да"}])
    page = read_one("parquet", tmp_path)
    assert (page.image, page.content) == (tmp_path / "images" / "a.png", None)


@pytest.mark.parametrize("name", ["../a.png", ""])
def test_a_row_without_a_usable_image_is_skipped(tmp_path: Path, name: str) -> None:
    write_parquet(tmp_path / "t.parquet", [{"image": name, "text": "да"}])
    assert skipped(read("parquet", tmp_path)) == [(SkipReason.NO_IMAGE, "t.parquet:1")]


@pytest.mark.parametrize(
    ("place", "split"),
    [
        pytest.param("train-00000-of-00002.parquet", Split.TRAIN, id="a shard"),
        pytest.param("data/validation-00000-of-00001-a1b2c3.parquet", Split.VALIDATION, id="a shard with its hash"),
        pytest.param("default/test/0000.parquet", Split.TEST, id="a folder, as the Hub converts"),
        pytest.param("rows.parquet", None, id="nothing said"),
    ],
)
def test_the_name_of_a_file_determines_the_split(tmp_path: Path, place: str, split: Split | None) -> None:
    write_parquet(tmp_path / place, [{"image": cell(0), "text": "да"}])
    assert read_one("parquet", tmp_path).split == split


def test_columns_are_named_and_kept(tmp_path: Path) -> None:
    row: dict[str, Any] = {"image": cell(0), "чтение": "да", "hand": 7, "split": "dev", "boxes": [1, 2], "note": None}
    write_parquet(tmp_path / "t.parquet", [row, row | {"note": "x"}])
    first, _ = pages(read("parquet", tmp_path, {"text": "чтение"}))
    assert (first.writer, first.split) == ("7", Split.VALIDATION)
    assert first.columns == {"чтение": "да", "hand": "7", "split": "dev", "note": ""}


def test_unknown_columns_are_an_error(tmp_path: Path) -> None:
    write_parquet(tmp_path / "t.parquet", [{"x": "a", "y": "b"}])
    assert find_parquet(tmp_path, {}) == []
    with raises_code("column-role-unknown", "t.parquet") as error:
        read_parquet(tmp_path, {})
    assert "x, y" in str(error.value)


def test_a_row_without_bytes_is_an_error(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [{"image": cell(0)}, {"image": {"bytes": None, "path": "/a.png"}}, {"image": None}]
    column = ImageColumn(write_parquet(tmp_path / "t.parquet", rows), "image.bytes")
    for row in (1, 2):
        with raises_code("image-empty"):
            column.read(row)


def test_images_are_read_in_any_order(tmp_path: Path) -> None:
    rows = [{"image": cell(place), "text": "да"} for place in range(40)]
    column = ImageColumn(write_parquet(tmp_path / "t.parquet", rows, row_group_size=7), "image.bytes")
    order = [0, 39, 3, 16, 15, 15, 6, 7, 13, 14]
    assert [column.read(row) for row in order] == [SHADES[row] for row in order]
    with raises_code("parquet-unreadable"):
        column.read(40)
    assert column.read(20) == SHADES[20], "after an error too"


def test_going_back_reads_no_other_row_group_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{"image": cell(place), "text": "да"} for place in range(40)]
    path = write_parquet(tmp_path / "t.parquet", rows, row_group_size=10)
    asked: list[list[int]] = []
    iterate = pq.ParquetFile.iter_batches

    def watched(file: pq.ParquetFile, *arguments: Any, **options: Any) -> Any:
        asked.append(options["row_groups"])
        return iterate(file, *arguments, **options)

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", watched)
    column = ImageColumn(path, "image.bytes")
    assert [column.read(row) for row in (35, 36, 12, 11)] == [SHADES[row] for row in (35, 36, 12, 11)]
    assert asked == [[3], [1]], "row 11 was still at hand"


def test_an_image_is_sent_as_a_name_and_not_as_bytes(tmp_path: Path) -> None:
    noise = [{"image": {"bytes": SHADES[row] + bytes(100_000), "path": None}, "text": "да"} for row in range(5)]
    write_parquet(tmp_path / "t.parquet", noise)
    sent = pickle.dumps(pages(read("parquet", tmp_path))[3].content)
    assert len(sent) < 500 + len(str(tmp_path))
    assert pickle.loads(sent)() == SHADES[3] + bytes(100_000)


def test_a_full_disk_is_not_a_damaged_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer that failed cannot be closed, and would hide why it failed."""
    full = OSError(errno.ENOSPC, "No space left on device")

    class FullDisk:
        def __init__(self, path: Path, *arguments: Any, **options: Any) -> None:
            path.touch()
            self.is_broken = False

        def write_table(self, table: Any) -> None:
            if self.is_broken:
                raise pa.ArrowInvalid("Operation on closed file")
            self.is_broken = True
            raise full

        def close(self) -> None:
            raise pa.ArrowInvalid("Operation on closed file")

    monkeypatch.setattr("pyarrow.parquet.ParquetWriter", FullDisk)
    monkeypatch.setattr("dsocr.formats.parquet.GROUP_BYTES", 1)
    write(tmp_path / "source" / "a.txt", "да")
    picture(tmp_path / "source" / "a.png")
    with raises_code("disk-full"):
        convert(tmp_path / "source", tmp_path / "out", to="parquet")
