"""A fixed dataset has what was certain put right and says so; the original is as it was."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from dsocr.data.check import survey_dataset
from dsocr.data.dataset import Dataset
from dsocr.data.fix import fix_dataset
from dsocr.data.prepare import prepare
from dsocr.document import Split
from dsocr.errors import DataError
from dsocr.images import read_bytes
from tests.data.making import file_of

NEWS = "fixes.jsonl"


@pytest.fixture
def folder(small_dataset: Path, tmp_path: Path) -> Path:
    return shutil.copytree(small_dataset, tmp_path / "dataset")


def edit(folder: Path, split: str, changes: dict[int, dict[str, Any]]) -> None:
    path = folder / split / "metadata.jsonl"
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    for number, change in changes.items():
        rows[number].update(change)
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")


def copy_sample(folder: Path, of: tuple[str, int], to: tuple[str, int]) -> None:
    """Image and text of one sample for another."""
    dataset = Dataset.open(folder)
    old, new = (dataset.samples(Split(split))[number] for split, number in (of, to))
    shutil.copyfile(file_of(old), file_of(new))
    edit(folder, to[0], {to[1]: {"text": old.text}})


def contents(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def codes(folder: Path) -> set[str]:
    return {finding.code for finding in survey_dataset(Dataset.open(folder), workers=1).findings}


def plant(folder: Path) -> None:
    edit(folder, "train", {0: {"text": "сло\u00adво мaма", "mine": "kept"}, 1: {"text": "и\u0306од"}})
    edit(folder, "test", {1: {"text": "пять\u00a0кг"}})
    copy_sample(folder, ("train", 4), ("train", 9))
    copy_sample(folder, ("test", 2), ("train", 7))
    copy_sample(folder, ("test", 3), ("validation", 0))


def test_what_is_certain_is_put_right_and_told(folder: Path, tmp_path: Path) -> None:
    plant(folder)
    before = contents(folder)
    report = fix_dataset(Dataset.open(folder), tmp_path / "new")
    assert contents(folder) == before
    assert dict(report.counts()) == {
        ("invisible-characters", Split.TRAIN): 1,
        ("look-alikes", Split.TRAIN): 1,
        ("decomposed-characters", Split.TRAIN): 1,
        ("invisible-characters", Split.TEST): 1,
        ("duplicate-image", Split.TRAIN): 2,
    }
    assert report.twins_left == 1
    new = Dataset.open(tmp_path / "new")
    texts = [sample.text for sample in new.samples(Split.TRAIN)]
    assert (texts[0], texts[1], len(texts)) == ("слово мама", "йод", 14)
    assert new.samples(Split.TEST)[1].text == "пять кг"


def test_every_change_is_listed(folder: Path, tmp_path: Path) -> None:
    plant(folder)
    fix_dataset(Dataset.open(folder), tmp_path / "new")
    rows = [json.loads(line) for line in (tmp_path / "new" / NEWS).read_text(encoding="utf-8").splitlines()]
    ids = [sample.id for sample in Dataset.open(folder).samples(Split.TRAIN)]
    assert rows[0] == {
        "id": ids[0],
        "code": "invisible-characters",
        "before": "сло\u00adво мaма",
        "after": "слово мaма",
    }
    dropped = [(row["id"], row["after"], row["same_as"]) for row in rows if row["code"] == "duplicate-image"]
    test = Dataset.open(folder).samples(Split.TEST)
    assert dropped == [(ids[7], None, test[2].id), (ids[9], None, ids[4])]


def test_a_check_of_the_result_finds_none_of_it(folder: Path, tmp_path: Path) -> None:
    plant(folder)
    fixable = {"invisible-characters", "look-alikes", "decomposed-characters", "duplicate-image", "hash-differs"}
    assert fixable <= codes(folder)
    fix_dataset(Dataset.open(folder), tmp_path / "new")
    assert codes(tmp_path / "new") & fixable == set()


def test_the_card_tells_of_it(folder: Path, tmp_path: Path) -> None:
    plant(folder)
    fix_dataset(Dataset.open(folder), tmp_path / "new")
    old, new = Dataset.open(folder).card, Dataset.open(tmp_path / "new").card
    assert new.splits[Split.TRAIN].samples == old.splits[Split.TRAIN].samples - 2
    assert {code: part.count for code, part in new.repaired.items()} == {
        "invisible-characters": 2,
        "look-alikes": 1,
        "decomposed-characters": 1,
        "duplicate-image": 2,
    }
    assert "'и\u0306од' -> 'йод'" in new.repaired["decomposed-characters"].examples[0]
    assert (new.source, new.seed, new.split_by) == (old.source, old.seed, old.split_by)


def test_columns_of_the_users_own_and_images_are_kept(folder: Path, tmp_path: Path) -> None:
    plant(folder)
    fix_dataset(Dataset.open(folder), tmp_path / "new")
    first = (tmp_path / "new" / "train" / "metadata.jsonl").read_text(encoding="utf-8").splitlines()[0]
    assert json.loads(first)["mine"] == "kept"
    before, after = contents(folder), contents(tmp_path / "new")
    images = {name for name in after if name.endswith(".png")}
    assert len(images) == 22
    assert all(after[name] == before[name] for name in images)


def test_fixing_twice_adds_up(folder: Path, tmp_path: Path) -> None:
    plant(folder)
    fix_dataset(Dataset.open(folder), tmp_path / "new")
    edit(tmp_path / "new", "train", {3: {"text": "ещё\u200b раз"}})
    fix_dataset(Dataset.open(tmp_path / "new"), tmp_path / "newer")
    assert Dataset.open(tmp_path / "newer").card.repaired["invisible-characters"].count == 3
    fix_dataset(Dataset.open(folder), tmp_path / "newer", overwrite=True)
    assert Dataset.open(tmp_path / "newer").card.repaired["invisible-characters"].count == 2


def test_nothing_to_fix_writes_nothing(folder: Path, tmp_path: Path) -> None:
    report = fix_dataset(Dataset.open(folder), tmp_path / "new")
    assert (report.dataset, report.fixes, report.twins_left) == (None, [], 0)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("out", "sentence"),
    [
        pytest.param("dataset", "there is a dataset already|lies inside", id="in place"),
        pytest.param("dataset/new", "inside the one it is made from", id="inside itself"),
        pytest.param(".", "lies inside the folder", id="around it"),
    ],
)
def test_the_original_is_never_written_over(out: str, sentence: str, folder: Path, tmp_path: Path) -> None:
    plant(folder)
    before = contents(folder)
    with pytest.raises(DataError, match=sentence):
        fix_dataset(Dataset.open(folder), tmp_path / out, overwrite=True)
    assert contents(folder) == before


def test_an_image_that_is_gone_leaves_no_trace(folder: Path, tmp_path: Path) -> None:
    plant(folder)
    file_of(Dataset.open(folder).samples(Split.TEST)[0]).unlink()
    with pytest.raises(DataError, match="the image cannot be read"):
        fix_dataset(Dataset.open(folder), tmp_path / "new")
    assert [path.name for path in tmp_path.iterdir()] == ["dataset"]


def test_a_packed_dataset_stays_packed(small_dataset: Path, tmp_path: Path) -> None:
    packed = prepare(small_dataset.parent / "source", tmp_path / "packed", store="parquet").dataset
    edit(packed, "train", {0: {"text": "сло\u00adво"}})
    fix_dataset(Dataset.open(packed), tmp_path / "new")
    new = Dataset.open(tmp_path / "new")
    assert new.card.store == "parquet"
    assert not (tmp_path / "new" / "train" / "images").exists()
    assert new.samples(Split.TRAIN)[0].text == "слово"
    old = Dataset.open(packed).samples(Split.TRAIN)
    pairs = zip(old, new.samples(Split.TRAIN), strict=True)
    assert all(read_bytes(before.image) == read_bytes(after.image) for before, after in pairs)
    assert "hash-differs" not in codes(tmp_path / "new")
