"""Published collections: RIMES, IAM, HKR and COCO files."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from dsocr.data.prepare import prepare
from dsocr.document import Item, Note, Outline, Region, SkipReason, Split
from tests.data.making import picture, write
from tests.formats.reading import pages, read, read_one, skipped, texts
from tests.raising import raises_code


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
        pytest.param("../a", "да", SkipReason.NO_IMAGE, id="an image one level up"),
        pytest.param(7, "да", SkipReason.BAD_SOURCE, id="a number for a name"),
        pytest.param("a", None, SkipReason.BAD_SOURCE, id="no description"),
    ],
)
def test_unusable_entries_of_hkr_are_skipped(tmp_path: Path, name: Any, text: Any, reason: SkipReason) -> None:
    picture(tmp_path / "img" / "a.jpg")
    annotate(tmp_path, name, text, file="a")
    assert skipped(read("hkr", tmp_path)) == [(reason, "ann/a.json")]


HEAD = "#--- lines.txt ---#\n# a01-000u-00  -> line id for form a01-000u\n"
ROW = 'a01-000u-00 ok 154 19 408 746 1661 89 A|MOVE|to|stop|Mr.|Gaitskell|"from"\n'
IAM_TEXT = 'A MOVE to stop Mr. Gaitskell "from"'


def read_iam(folder: Path, rows: str) -> list[Item]:
    write(folder / "ascii" / "lines.txt", HEAD + rows)
    return read("iam", folder)


@pytest.mark.parametrize(
    ("row", "text"),
    [
        pytest.param(ROW, IAM_TEXT, id="bars are spaces"),
        pytest.param(ROW.replace(" ok ", " err "), IAM_TEXT, id="err is about the words"),
        pytest.param(ROW.replace("\n", "\r\n"), IAM_TEXT, id="Windows' line ends"),
        pytest.param("a01-000u-00 ok 1 2 -1 4 5 6 B B|C D\n", "B B C D", id="spaces in the text"),
    ],
)
@pytest.mark.parametrize(
    ("forms", "writer"), [("", None), ("# head\na01-000u 000 2 prt 7 5 52 36\n", "000")], ids=["no forms", "forms"]
)
def test_a_row_is_read(tmp_path: Path, row: str, text: str, forms: str, writer: str | None) -> None:
    picture(tmp_path / "lines" / "a01" / "a01-000u" / "a01-000u-00.png")
    write(tmp_path / "ascii" / "forms.txt", forms)
    (item,) = pages(read_iam(tmp_path, row))
    assert (item.lines[0].text, item.where) == (text, "ascii/lines.txt:3")
    assert (item.name, item.page, item.writer) == ("lines/a01/a01-000u/a01-000u-00", "a01-000u", writer)


@pytest.mark.parametrize(
    ("images", "row", "reason"),
    [
        pytest.param([], ROW, SkipReason.NO_IMAGE, id="no image"),
        pytest.param(["a/a01-000u-00.png", "b/a01-000u-00.png"], ROW, SkipReason.NO_IMAGE, id="two images"),
        pytest.param(["a01-000u-00.png"], "a01-000u-00 ok 154 A|MOVE\n", SkipReason.BAD_SOURCE, id="a row cut short"),
        pytest.param(["a01-000u-00.png"], "../x-1-2 ok 1 2 3 4 5 6 A\n", SkipReason.BAD_SOURCE, id="a path for a name"),
    ],
)
def test_unusable_entries_of_iam_are_skipped(tmp_path: Path, images: list[str], row: str, reason: SkipReason) -> None:
    for image in images:
        picture(tmp_path / image)
    items = read_iam(tmp_path, "z99-000-00 ok 1 2 3 4 5 6 Z\n" + row)
    assert skipped(items)[-1] == (reason, "ascii/lines.txt:4")


def four_lines(folder: Path) -> str:
    """Rows of two lines of each of two forms, their images written."""
    rows = ""
    for form in ("a01-000u", "b02-000"):
        for line in ("00", "01"):
            picture(folder / "lines" / f"{form}-{line}.png")
            rows += f"{form}-{line} ok 1 2 3 4 5 6 text|{form}|{line}\n"
    return rows


TRAIN, VALIDATION, TEST = Split


@pytest.mark.parametrize(
    ("lists", "kind", "splits"),
    [
        # Official, by line; what is in no list is skipped, and both validation sets are one.
        ("trainset.txt=A0 A1;validationset1.txt=B0;testset.txt=", "the official task", [TRAIN, TRAIN, VALIDATION]),
        (
            "validationset2.txt=A0;validationset1.txt=A1;testset.txt=B0",
            "the official task",
            [VALIDATION, VALIDATION, TEST],
        ),
        # Aachen, by form; lists of papers; lists of images.
        ("train.uttlist=A;validation.uttlist=;test.uttlist=B", "Aachen (uttlist)", [TRAIN, TRAIN, TEST, TEST]),
        ("tr.lst=A0;va.lst=A1;te.lst=B0 B1", "lists of lines (lst)", [TRAIN, VALIDATION, TEST, TEST]),
        ("train.ln=lines/A0.png A1.png;test.ln=B0.png", "lists of lines (ln)", [TRAIN, TRAIN, TEST]),
    ],
)
def test_published_lists_give_the_splits(tmp_path: Path, lists: str, kind: str, splits: list[Split]) -> None:
    """A list is written as its name, and its lines or forms with A and B for the forms."""
    rows = four_lines(tmp_path)
    for name, _, entries in (part.partition("=") for part in lists.split(";")):
        content = re.sub(r"([AB])(\d)", r"\1-0\2", entries).replace("A", "a01-000u").replace("B", "b02-000")
        write(tmp_path / "splits" / name, content.replace(" ", "\r\n"))
    note, *items = read_iam(tmp_path, rows)
    assert isinstance(note, Note)
    assert f"{kind}: splits/" in note.message
    assert [page.split for page in pages(items)] == splits
    assert [reason for reason, _ in skipped(items)] == [SkipReason.NO_SPLIT] * (4 - len(splits))


@pytest.mark.parametrize(
    ("second", "content", "code"),
    [
        pytest.param("aachen/test.uttlist", "a01-000u", "splits-conflict", id="two published splits"),
        pytest.param("testset.txt", "a01-000u-00", "splits-conflict", id="a line in two lists"),
    ],
)
def test_contradicting_lists_are_an_error(tmp_path: Path, second: str, content: str, code: str) -> None:
    rows = four_lines(tmp_path)
    write(tmp_path / "trainset.txt", "a01-000u-00")
    write(tmp_path / second, content)
    with raises_code(code):
        read_iam(tmp_path, rows)


LINE = '<Line Left="10" Top="10" Right="60" Bottom="30" Value="Je vous prie d&apos;agr&#233;er"/>'


def rimes_page(*lines: str, image: str = "images_gray/train2011-0.png") -> str:
    box = 'Left="5" Top="5" Right="90" Bottom="45"'
    return f'<SinglePage FileName="{image}"><Paragraph {box}>{"".join(lines)}</Paragraph></SinglePage>'


def rimes_document(*pages: str) -> str:
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<DocumentList>\n{"".join(pages)}</DocumentList>'


def read_rimes(folder: Path, *pages: str, name: str = "training_2011.xml") -> list[Item]:
    picture(folder / "images_gray" / "train2011-0.png")
    write(folder / name, rimes_document(*pages))
    return read("rimes", folder)


@pytest.mark.parametrize(
    ("name", "split"),
    [("training_2011.xml", Split.TRAIN), ("eval_2011_annotated.xml", Split.TEST), ("mine.xml", None)],
)
def test_a_page_is_read(tmp_path: Path, name: str, split: Split | None) -> None:
    (item,) = pages(read_rimes(tmp_path, rimes_page(LINE, LINE.replace("Je vous", "Nous vous")), name=name))
    assert texts([item]) == ["Je vous prie d'agréer", "Nous vous prie d'agréer"]
    assert item.lines[0].outline == Outline((10, 10, 60, 30))
    assert item.lines[0].region == Region("1", Outline((5, 5, 90, 45)))
    assert (item.page, item.where, item.split) == ("images_gray/train2011-0", f"{name}:3", split)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        pytest.param(rimes_page(LINE, image="../p.png"), SkipReason.NO_IMAGE, id="climbing path"),
        pytest.param(rimes_page(LINE, image=""), SkipReason.NO_IMAGE, id="no name"),
        pytest.param(rimes_page('<Line Left="1" Value="a"/>'), SkipReason.NO_OUTLINE, id="sides missing"),
        pytest.param(rimes_page(LINE.replace('"60"', '"5"')), SkipReason.NO_OUTLINE, id="right of left"),
        pytest.param(rimes_page(LINE.replace('"60"', '"99999999"')), SkipReason.NO_OUTLINE, id="far outside"),
        pytest.param("<SinglePage FileName=", SkipReason.BAD_SOURCE, id="broken"),
    ],
)
def test_unusable_entries_of_rimes_are_skipped(tmp_path: Path, content: str, reason: SkipReason) -> None:
    assert [skip for skip, _ in skipped(read_rimes(tmp_path, content))] == [reason]


POLYGON = [10, 10, 60, 10, 60, 30, 10.4, 29.6]
OUTLINE = Outline((10, 10, 61, 31), ((10, 10), (60, 10), (60, 30), (10, 30)))
BOX = [5, 6, 20, 10]
PARTS = [[0, 0, 9, 0, 9, 9], [20, 5, 30, 5, 30, 40]]


def annotation(text: str | None = "слово", **more: Any) -> dict[str, Any]:
    """An annotation as school_notebooks has them; `more` replaces parts of it."""
    attributes = None if text is None else {"translation": text}
    return {"id": 7, "image_id": 1, "category_id": 0, "segmentation": [POLYGON], "attributes": attributes} | more


def write_coco(path: Path, *annotations: Any, images: list[Any] | None = None) -> Path:
    images = [{"id": 1, "file_name": "p.png"}] if images is None else images
    categories = [{"id": 1, "name": "pupil"}, {"id": 2, "name": "teacher"}, {"id": 3, "name": "paper"}]
    return write(path, json.dumps({"categories": categories, "images": images, "annotations": annotations}))


def read_coco(
    folder: Path, *annotations: Any, images: list[Any] | None = None, columns: dict[str, str] | None = None
) -> list[Item]:
    picture(folder / "images" / "p.png")
    write_coco(folder / "annotations.json", *annotations, images=images)
    return read("coco", folder, columns)


@pytest.mark.parametrize(
    ("more", "outline"),
    [
        pytest.param({}, OUTLINE, id="a polygon, rounded"),
        pytest.param({"segmentation": POLYGON}, OUTLINE, id="a polygon that is not in a list"),
        pytest.param({"segmentation": PARTS}, Outline((0, 0, 31, 41)), id="several parts are a box around them"),
        pytest.param({"segmentation": [], "bbox": BOX}, Outline((5, 6, 25, 16)), id="a box"),
        pytest.param({"segmentation": {"counts": "x"}, "bbox": BOX}, Outline((5, 6, 25, 16)), id="a mask has its box"),
    ],
)
def test_places_of_lines(tmp_path: Path, more: dict[str, Any], outline: Outline) -> None:
    (page,) = pages(read_coco(tmp_path, annotation(**more)))
    (line,) = page.lines
    assert (line.text, line.outline, line.where) == ("слово", outline, "annotations.json#7")
    assert (page.name, page.page, page.where) == ("images/p", "images/p", "annotations.json#p.png")


@pytest.mark.parametrize(
    ("more", "columns", "text"),
    [
        pytest.param({"attributes": {"translation": "да"}}, {}, "да", id="school_notebooks"),
        pytest.param({"attributes": {"text": "да"}}, {}, "да", id="another attribute"),
        pytest.param({"attributes": None, "utf8_string": "да"}, {}, "да", id="beside the polygon, as in COCO-Text"),
        pytest.param({"attributes": {"чтение": "да", "text": "нет"}}, {"text": "чтение"}, "да", id="named"),
        pytest.param({"attributes": {"translation": " ", "text": "да"}}, {}, "да", id="the other is empty"),
        pytest.param({"attributes": None}, {}, "", id="no text"),
        pytest.param({"attributes": {"translation": None}}, {}, "", id="null"),
    ],
)
def test_fields_that_hold_the_text(tmp_path: Path, more: dict[str, Any], columns: dict[str, str], text: str) -> None:
    assert texts(read_coco(tmp_path, annotation(**more), columns=columns)) == [text]


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        pytest.param(annotation(segmentation=[]), SkipReason.NO_OUTLINE, id="no outline"),
        pytest.param(annotation(segmentation=[[1, 2, 3]]), SkipReason.BAD_SOURCE, id="an odd number"),
        pytest.param(annotation(segmentation=[["x", 2]]), SkipReason.BAD_SOURCE, id="words"),
        pytest.param(annotation(bbox=[0, 0, 1e9, 1], segmentation=[]), SkipReason.BAD_SOURCE, id="far outside"),
        pytest.param(annotation(segmentation=[[float("nan")] * 6]), SkipReason.BAD_SOURCE, id="NaN"),
        pytest.param(annotation(segmentation=[[10**400] * 6]), SkipReason.BAD_SOURCE, id="huge"),
        pytest.param(annotation(image_id=2), SkipReason.NO_IMAGE, id="image unknown"),
        pytest.param("x", SkipReason.BAD_SOURCE, id="no annotation at all"),
    ],
)
def test_unusable_entries_of_coco_are_skipped(tmp_path: Path, entry: Any, reason: SkipReason) -> None:
    items = read_coco(tmp_path, annotation(), entry)
    assert [skip for skip, _ in skipped(items)] == [reason]
    assert texts(items) == ["слово"]


@pytest.mark.parametrize("name", ["../images/p.png", None])
def test_an_image_outside_the_folder_is_skipped(tmp_path: Path, name: str | None) -> None:
    items = read_coco(tmp_path, annotation(), images=[{"id": 1, **({} if name is None else {"file_name": name})}])
    assert skipped(items) == [(SkipReason.NO_IMAGE, f"annotations.json#{name or ''}")]


def test_images_that_could_be_one_file_are_skipped(tmp_path: Path) -> None:
    images = [{"id": number, "file_name": f"/scans/{number}/p.png"} for number in (1, 2)]
    items = read_coco(tmp_path, annotation(), annotation(image_id=2), images=images)
    assert [reason for reason, _ in skipped(items)] == [SkipReason.NO_IMAGE] * 2


def test_an_image_without_annotations_is_not_transcribed_yet(tmp_path: Path) -> None:
    assert skipped(read_coco(tmp_path)) == [(SkipReason.NO_TRANSCRIPTION, "annotations.json#p.png")]


def test_categories_are_types_and_those_without_a_text_are_skipped(tmp_path: Path) -> None:
    boxes = [[10, 10, 40, 20], [10, 40, 40, 20], [0, 0, 90, 60], [60, 10, 30, 20]]
    words = [
        annotation(text, id=number, category_id=number, segmentation=[], bbox=box)
        for number, (text, box) in enumerate(zip(["ученик", "учитель", None, "кто-то"], boxes, strict=True), start=1)
    ]
    items = read_coco(tmp_path, *words)
    (page,) = pages(items)
    kinds = {line.text: line.region.kind if line.region else "" for line in page.lines}
    assert kinds == {"ученик": "pupil", "учитель": "teacher", "кто-то": ""}
    assert skipped(items) == [(SkipReason.NO_TEXT, "annotations.json#3")]
    assert any("paper" in item.message for item in items if isinstance(item, Note))
    dataset = prepare(tmp_path, tmp_path / "data", regions="pupil", split="1/0/0", workers=1)
    assert sorted(sample.text for sample in dataset.samples("train")) == ["кто-то", "ученик"]


@pytest.mark.parametrize(
    ("words", "text", "notes"),
    [
        pytest.param("г60,50 а10,10 в10,52 б70,8", "а б\nв г", 2, id="words"),
        pytest.param("א60,50 ב10,10 ג10,52 ד70,8", "ד ב\nא ג", 2, id="words from right to left"),
        pytest.param("в_г10,50 а_б10,10", "а б\nв г", 1, id="lines"),
        pytest.param("а10,10 б10,50", "а\nб", 0, id="in order"),
        pytest.param("а_б10,10 б20,12", "а б\nб", 1, id="a line and its word"),
    ],
)
def test_pages_are_read_by_their_places_and_it_is_said(tmp_path: Path, words: str, text: str, notes: int) -> None:
    places = re.findall(r"(\D+)(\d+),(\d+)", words.replace(" ", ""))
    annotations = [
        annotation(word.replace("_", " "), id=number, segmentation=[], bbox=[int(x), int(y), 30, 20])
        for number, (word, x, y) in enumerate(places)
    ]
    items = read_coco(tmp_path, *annotations)
    assert sum(isinstance(item, Note) for item in items) == notes
    dataset = prepare(tmp_path, tmp_path / "data", unit="page", split="1/0/0", workers=1)
    assert [sample.text for sample in dataset.samples("train")] == [text]


def test_a_second_text_of_annotations_is_mentioned(tmp_path: Path) -> None:
    *_, note = read_coco(tmp_path, annotation(attributes={"translation": "да", "text": "нет", "label": "да"}))
    assert isinstance(note, Note)
    assert "column text=text" in note.message
