"""Lists that other programs keep are read as they mean them, and formats that are not read are named."""

import json
from pathlib import Path
from typing import Any

import pytest

from dsocr.data.prepare import prepare
from dsocr.document import SkipReason, Split
from dsocr.errors import DataError
from dsocr.formats import detect_format
from tests.data.making import picture, write
from tests.formats.reading import pages, skipped, texts

CORNERS = [[10, 10], [60, 10], [60, 30], [10, 30]]
TWO = [{"image": "a.png", "text": "да"}, {"image": {"bytes": None, "path": "img/b.png"}, "text": "нет"}]
DRAWN = [{"transcription": text, "points": CORNERS} for text in ("да", "нет", "###")]
ASKED = {"query": "<image>?", "response": "да", "images": ["a.png"]}


def read(folder: Path, file: str, content: Any) -> list[Any]:
    """Read a list beside its images in the format that it has."""
    for image in ("a.png", "img/b.png"):
        picture(folder / image)
    write(folder / file, content if isinstance(content, str) else json.dumps(content, ensure_ascii=False))
    return list(detect_format(folder, None, {}).read(folder, {}))


@pytest.mark.parametrize(
    ("file", "content", "expected", "split"),
    [
        pytest.param("rec_gt_train.txt", "a.png\tда\nimg/b.png\tнет\n", "да|нет", Split.TRAIN, id="PaddleOCR"),
        pytest.param("gt.txt", '\ufeffa.png\t"да", нет\r\nimg/b.png\tнет"\r\n', '"да", нет|нет"', None, id="quotes"),
        pytest.param("Label.txt", f"a.png\t{json.dumps(DRAWN)}\nimg/b.png\t[]\n", "да|нет||", None, id="PPOCRLabel"),
        pytest.param("labels.json", {"a.png": "да", "b.png": "нет"}, "да|нет", None, id="docTR"),
        pytest.param("val.json", TWO, "да|нет", Split.VALIDATION, id="rows of datasets"),
        pytest.param("t.json", {"data": TWO}, "да|нет", None, id="rows under data"),
        pytest.param("t.json", {"test": TWO}, "да|нет", Split.TEST, id="rows of splits"),
        pytest.param("t.jsonl", "\n".join(map(json.dumps, TWO)), "да|нет", None, id="lines of datasets"),
        pytest.param("t.jsonl", ASKED, "да", None, id="ms-swift 2"),
        pytest.param("t.json", [ASKED, ASKED], "да|да", None, id="a list of ms-swift 2"),
    ],
)
def test_lists_are_read(tmp_path: Path, file: str, content: Any, expected: str, split: Split | None) -> None:
    items = read(tmp_path, file, content)
    assert ("|".join(texts(items)), skipped(items)) == (expected, [])
    assert {page.split for page in pages(items)} == {split}
    assert len({line.where for page in pages(items) for line in page.lines}) == len(texts(items))


@pytest.mark.parametrize(
    ("file", "content", "where"),
    [
        pytest.param("Label.txt", f"a.png\t{json.dumps(DRAWN)}\na.png\t[{{bad\n", "Label.txt:2", id="broken JSON"),
        pytest.param(
            "Label.txt", f"a.png\t{json.dumps([{**DRAWN[0], 'points': [[1e9, 0]]}])}\n", "Label.txt:1", id="far"
        ),
        pytest.param("t.jsonl", {"image": {"bytes": "x", "path": None}, "text": "да"}, "t.jsonl", id="an image inside"),
        pytest.param("t.json", [ASKED, {**ASKED, "history": [["?", "а"]]}], "t.json#2", id="two turns"),
    ],
)
def test_other_rows_of_lists_are_skipped(tmp_path: Path, file: str, content: Any, where: str) -> None:
    assert (SkipReason.BAD_SOURCE, where) in skipped(read(tmp_path, file, content))


def test_lines_of_pages_are_not_read_again_from_their_crops(tmp_path: Path) -> None:
    write(tmp_path / "rec_gt.txt", "img/b.png\tда\n")
    write(tmp_path / "fileState.txt", "a.png\t1\n")
    items = read(tmp_path, "Label.txt", f"a.png\t{json.dumps(DRAWN)}\n")
    assert (texts(items), skipped(items)) == (["да", "нет", ""], [(SkipReason.OTHER_LAYER, "rec_gt.txt")])
    assert prepare(tmp_path, tmp_path / "out", split="1/0/0").card.splits[Split.TRAIN].samples == 2


@pytest.mark.parametrize(
    ("file", "content", "program"),
    [
        ("ann/p.jpg.json", {"name": "p", "description": "", "objects": [{"classTitle": "line"}]}, "Supervisely"),
        ("via.json", {"p.png1": {"filename": "p.png", "regions": [{"region_attributes": {}}]}}, "VIA"),
        ("p.json", {"shapes": [], "imagePath": "p.png"}, "labelme"),
        ("labels.json", {"p.png": {"img_dimensions": [1, 2], "polygons": []}}, "docTR"),
        ("train.json", {"metainfo": {}, "data_list": []}, "MMOCR"),
        ("annotations.xml", "<annotations>\n<version>1.1</version></annotations>", "CVAT"),
        ("p.xml", '<document xmlns="http://www.abbyy.com/FineReader_xml/FineReader10-schema-v1.xml"/>', "ABBYY"),
        (
            "p.xml",
            '<TEI xmlns="http://www.tei-c.org/ns/1.0"><facsimile><surface><zone/></surface></facsimile></TEI>',
            "TEI",
        ),
        ("p.html", '<div class="ocr_page"/>', "hOCR"),
        ("train.txt", "p-1 д а <space> н е т\n", "PyLaia"),
        ("gt.txt", 'p.png, "да"\n', "a list without tabs"),
        ("data.mdb", "", "LMDB"),
        ("data-00000-of-00001.arrow", "", "Arrow"),
    ],
)
@pytest.mark.parametrize("is_folder", [True, False])
def test_formats_that_are_not_read_are_named(
    tmp_path: Path, file: str, content: Any, program: str, is_folder: bool
) -> None:
    path = write(tmp_path / file, content if isinstance(content, str) else json.dumps(content))
    with pytest.raises(DataError) as error:
        detect_format(tmp_path if is_folder else path, None, {})
    assert (error.value.code, f"{path.name} looks like {program}" in (error.value.hint or "")) == (
        "no-format-found",
        True,
    )
    assert not is_folder or f"1 {path.suffix}" in error.value.message
