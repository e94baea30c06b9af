"""A dataset stored in Parquet files equals the same dataset stored as image files."""

from pathlib import Path

import pytest

from dsocr.data.check import check_dataset
from dsocr.data.dataset import Dataset
from dsocr.data.prepare import prepare
from dsocr.document import PackedImage, Split
from dsocr.formats import parquet as shards
from dsocr.images import open_image, read_bytes, shard_files
from tests.data.making import write_pages
from tests.raising import raises_code

PAGES = [f"w{number}_{side}" for number in range(4) for side in (1, 2)]


@pytest.fixture
def pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "0")
    monkeypatch.setattr(shards, "GROUP_BYTES", 400)  # several rows a group
    return write_pages(tmp_path / "source", PAGES, lines=3)


def make(pages: Path, out: Path, **options: object) -> Dataset:
    prepare(pages, out, writer="(w.)_", **options)  # type: ignore[arg-type]
    return Dataset.open(out)


def test_samples_images_and_hashes_are_the_same(pages: Path, tmp_path: Path) -> None:
    files, shards_ = make(pages, tmp_path / "files"), make(pages, tmp_path / "packed", store="parquet")
    assert shards_.card.splits == files.card.splits, "the hash of a split too"
    for split in Split:
        pairs = list(zip(files.samples(split), shards_.samples(split), strict=True))
        assert pairs
        for one, other in pairs:
            assert (one.id, one.text, one.writer, one.geometry) == (other.id, other.text, other.writer, other.geometry)
            assert isinstance(other.image, PackedImage)
            assert read_bytes(one.image) == read_bytes(other.image)
            assert open_image(one.image) == open_image(other.image)
    assert not list((tmp_path / "packed").rglob("*.png"))
    assert {finding.code for finding in check_dataset(shards_)} == {finding.code for finding in check_dataset(files)}


def test_a_line_taken_out_of_the_metadata_shifts_nothing(pages: Path, tmp_path: Path) -> None:
    dataset = make(pages, tmp_path / "out", store="parquet")
    before = {sample.id: read_bytes(sample.image) for sample in dataset.samples(Split.TRAIN)}
    metadata = dataset.metadata(Split.TRAIN)
    metadata.write_bytes(b"".join(metadata.read_bytes().splitlines(keepends=True)[1:]))
    left = (sample for _, sample in dataset.stored(Split.TRAIN, may_be_short=True))
    assert {sample.id: read_bytes(sample.image) for sample in left} == dict(list(before.items())[1:])


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        pytest.param(b"", "shard-unreadable", id="emptied"),
        pytest.param(b"PAR1 and no more", "shard-unreadable", id="damaged"),
        pytest.param(None, "file-unreadable", id="gone"),
    ],
)
def test_damage_is_reported(pages: Path, tmp_path: Path, damage: bytes | None, message: str) -> None:
    dataset = make(pages, tmp_path / "out", store="parquet")
    file = shard_files(tmp_path / "out", Split.TEST)[0]
    file.unlink()
    if damage is not None:
        file.write_bytes(damage)
    with raises_code(message):
        [open_image(sample.image) for sample in dataset.samples(Split.TEST)]
