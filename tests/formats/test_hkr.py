"""HKR: an annotation beside each image, and the published splits."""

import json
from pathlib import Path
from typing import Any

import pytest

from dsocr.document import SkipReason, Split
from tests.data.making import picture, write
from tests.formats.reading import pages, read, read_one, skipped


def annotate(folder: Path, name: Any, text: Any = "Алматы", file: str | None = None) -> None:
    """An annotation as HKR has them."""
    data = {"description": text, "name": name, "size": {"width": 5}, "moderation": {"isModerated": 1}, "objects": []}
    write(folder / "ann" / f"{file or name}.json", json.dumps(data))


def test_an_annotation_names_its_image(tmp_path: Path) -> None:
    picture(tmp_path / "data" / "img" / "0_1_2.jpg")
    annotate(tmp_path / "data", "0_1_2")
    page = read_one("hkr", tmp_path)
    assert (page.image.name, page.name, page.where) == ("0_1_2.jpg", "data/img/0_1_2", "data/ann/0_1_2.json")
    assert (page.lines[0].text, page.lines[0].outline, page.split) == ("Алматы", None, None)


def test_published_splits_are_kept(tmp_path: Path) -> None:
    for name in ("0_0_0", "0_0_1_", "0_0_2", "0_0_3", "0_0_4"):
        picture(tmp_path / "img" / f"{name}.jpg")
        annotate(tmp_path, name)
    write(tmp_path / "HKR_splitting.csv", "id,stage\n0_0_0,train\n0_0_1_,val\n0_0_2,test1\n0_0_3,test2\n")
    splits = [page.split for page in pages(read("hkr", tmp_path))]
    assert splits == [Split.TRAIN, Split.VALIDATION, Split.TEST, Split.TEST, None]


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        pytest.param("gone", "да", SkipReason.NO_IMAGE, id="no image"),
        pytest.param("../a", "да", SkipReason.NO_IMAGE, id="one level up"),
        pytest.param("/etc/gone", "да", SkipReason.NO_IMAGE, id="absolute"),
        pytest.param(7, "да", SkipReason.BAD_SOURCE, id="a number for a name"),
        pytest.param("a", None, SkipReason.BAD_SOURCE, id="no description"),
    ],
)
def test_unusable_entries_are_skipped(tmp_path: Path, name: Any, text: Any, reason: SkipReason) -> None:
    picture(tmp_path / "img" / "a.jpg")
    annotate(tmp_path, name, text, file="a")
    assert skipped(read("hkr", tmp_path)) == [(reason, "ann/a.json")]
