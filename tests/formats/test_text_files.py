"""Pairs of images and texts, conversations of other programs, and JSON that holds half of a character."""

import json
from pathlib import Path
from typing import Any

import pytest

from dsocr.data.prepare import prepare
from dsocr.document import Item, Page, Skipped, SkipReason, Split
from dsocr.formats.published import find_pairs, read_pairs
from dsocr.formats.tables import find_tables
from tests.data.making import pair, picture, write
from tests.formats.reading import pages, read, skipped, texts


def read_names(folder: Path) -> tuple[dict[str, str], dict[str, SkipReason]]:
    """Image name -> text, and where -> reason."""
    items = list(read_pairs(folder))
    images = [item for item in items if isinstance(item, Page)]
    skipped = [item for item in items if isinstance(item, Skipped)]
    return {image.name: image.lines[0].text for image in images}, {item.where: item.reason for item in skipped}


def test_texts_are_beside_their_images_or_in_a_folder_of_texts(tmp_path: Path) -> None:
    pair(tmp_path, "a", "recognized")
    write(tmp_path / "a.gt.txt", "transcribed")
    pair(tmp_path / "sub", "b", "буква б", ending=".gt.txt")
    picture(tmp_path / "images" / "1_2_3.png")
    write(tmp_path / "words" / "1_2_3.txt", "слово", "utf-8-sig")
    expected = {"a": "transcribed", "images/1_2_3": "слово", "sub/b": "буква б"}
    assert read_names(tmp_path) == (expected, {"a.txt": SkipReason.OTHER_LAYER})


@pytest.mark.parametrize(
    ("files", "expected", "reasons"),
    [
        pytest.param("a.nrm.png a.bin.png a.gt.txt", "a.nrm", ["other-image"], id="OCRopus: two images of a line"),
        pytest.param("a.png a.BIN.png a.txt", "a", ["other-image"], id="the scan before its variants"),
        pytest.param("a.png a.png.txt b.jpg b.jpg.gt.TXT", "a b", [], id="two endings"),
        pytest.param("a.png a.gt.txt a.pred.txt", "a", ["other-layer"], id="Calamari's predictions"),
        pytest.param("край.png краи\u0306.txt", "край", [], id="written by a Mac"),
        pytest.param("A.PNG a.txt", "A", [], id="other case"),
        pytest.param("A.png a.png a.txt", "a", ["no-transcription"], id="one of two is named exactly"),
        pytest.param("A.png a.png a.txt A.txt", "A a", [], id="both are"),
        pytest.param("A.png a.jpg Á.txt", "", ["no-transcription", "no-transcription", "no-image"], id="accents count"),
        pytest.param("AB.png ab.png Ab.txt", "", [*["no-transcription"] * 2, "bad-source"], id="in doubt"),
        pytest.param("a.png a.txt a.png.txt", "", ["bad-source", "other-layer", "other-layer"], id="two texts"),
        pytest.param("x/a.png x/a.txt y/a.png", "x/a", ["no-transcription"], id="text of a folder with its own image"),
        pytest.param("x/a.png y/a.png z/a.txt", "", [*["no-transcription"] * 2, "bad-source"], id="two folders"),
        pytest.param("img/a.png masks/a.png z/a.txt", "img/a", ["no-transcription"], id="the folder of images"),
    ],
)
def test_names_of_pairs_are_folded(tmp_path: Path, files: str, expected: str, reasons: list[str]) -> None:
    for file in files.split(" "):
        if file.lower().endswith("txt"):
            write(tmp_path / file, "да")
        else:
            picture(tmp_path / file)
    names, skipped = read_names(tmp_path)
    assert sorted(names) == expected.split()
    assert sorted(skipped.values()) == sorted(SkipReason[reason.upper().replace("-", "_")] for reason in reasons)
    assert bool(find_pairs(tmp_path)) == (bool(expected) or SkipReason.BAD_SOURCE in skipped.values())


def test_unpaired_files_are_reported(tmp_path: Path) -> None:
    pair(tmp_path, "a", "а")
    picture(tmp_path / "b.png")
    write(tmp_path / "c.gt.txt", "в")
    write(tmp_path / "README.txt", "about")
    assert read_names(tmp_path)[1] == {"b.png": SkipReason.NO_TRANSCRIPTION, "c.gt.txt": SkipReason.NO_IMAGE}


ASKED = {"role": "user", "content": "<image>Free OCR."}
SAID = {"role": "assistant", "content": "да"}
ROW = {"messages": [ASKED, SAID], "images": ["scans/a.png"]}
PARTS = [{"type": "image", "image": "scans/a.png"}, {"type": "text", "text": "Free OCR."}]
SAID_IN_PARTS = {"role": "<|Assistant|>", "content": [{"type": "text", "text": "да"}]}
OLD = [{"from": "human", "value": "?"}, {"from": "gpt", "value": "да"}]


def read_messages(folder: Path, *rows: Any, name: str = "m.jsonl") -> list[Item]:
    picture(folder / "scans" / "a.png")
    whole = name.endswith(".json")
    lines = (row if isinstance(row, str) else json.dumps(row) for row in rows)
    write(folder / name, json.dumps(rows) if whole else "\n".join(lines) + "\n\n")
    return read("messages", folder)


@pytest.mark.parametrize(
    "row",
    [
        pytest.param(ROW, id="ms-swift and LLaMA-Factory"),
        pytest.param({"messages": [{"role": "system", "content": ""}, ASKED, SAID], "images": "scans/a.png"}, id="one"),
        pytest.param({"conversations": OLD, "image": "scans/a.png"}, id="LLaMA-Factory's older form"),
        pytest.param({"messages": [{**ASKED, "images": ["scans/a.png"]}, SAID]}, id="in the message"),
        pytest.param({"messages": [{**ASKED, "content": PARTS}, SAID_IN_PARTS]}, id="contents in parts"),
        pytest.param({**ROW, "images": [{"bytes": None, "path": "scans/a.png"}]}, id="a path beside bytes"),
    ],
)
@pytest.mark.parametrize(("name", "where"), [("m.jsonl", "m.jsonl:1"), ("m.json", "m.json#1")])
def test_a_conversation_is_read(tmp_path: Path, row: dict[str, Any], name: str, where: str) -> None:
    (item,) = read_messages(tmp_path, row, name=name)
    assert isinstance(item, Page)
    assert (item.name, item.lines[0].text, item.where) == ("scans/a", "да", where)


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        pytest.param({**ROW, "images": ["../a.png"]}, SkipReason.NO_IMAGE, id="one level up"),
        pytest.param({**ROW, "images": []}, SkipReason.BAD_SOURCE, id="no image"),
        pytest.param({**ROW, "images": ["a", "b"]}, SkipReason.BAD_SOURCE, id="two images"),
        pytest.param({**ROW, "images": [7]}, SkipReason.BAD_SOURCE, id="a number"),
        pytest.param({**ROW, "messages": [ASKED]}, SkipReason.BAD_SOURCE, id="no answer"),
        pytest.param({**ROW, "messages": [SAID, SAID]}, SkipReason.BAD_SOURCE, id="two answers"),
        pytest.param({**ROW, "messages": ["да"]}, SkipReason.BAD_SOURCE, id="a word for a message"),
        pytest.param({"images": []}, SkipReason.BAD_SOURCE, id="no messages"),
        pytest.param([1], SkipReason.BAD_SOURCE, id="a list"),
        pytest.param("{broken", SkipReason.BAD_SOURCE, id="a broken line"),
    ],
)
def test_unusable_conversations_are_skipped(tmp_path: Path, row: Any, reason: SkipReason) -> None:
    items = read_messages(tmp_path, ROW, row, ROW)
    assert (skipped(items), texts(items)) == ([(reason, "m.jsonl:2")], ["да", "да"])
    assert find_tables(tmp_path, {}) == []


def test_a_broken_list_of_conversations_is_skipped(tmp_path: Path) -> None:
    write(tmp_path / "m.json", '[{"messages": [')
    assert skipped(read("messages", tmp_path)) == [(SkipReason.BAD_SOURCE, "m.json")]


def test_a_file_named_after_a_split_gives_it(tmp_path: Path) -> None:
    (page,) = pages(read_messages(tmp_path, {**ROW, "writer": "anna"}, name="my_val.jsonl"))
    assert (page.split, page.columns["writer"]) == (Split.VALIDATION, "anna")


HALF = "\ud800"
"""Half of a character, which JSON can hold."""
GOOD = {"image": "p.png", "text": "да"}
IMAGES = [{"id": 1, "file_name": HALF}, {"id": 2, "file_name": "p.png"}]
DRAWN = [{"id": HALF, "image_id": number, "bbox": [0, 0, 50, 40], "text": "да"} for number in (1, 2)]


def task(*fields: str, image: str = "p.png", id_: str = "a") -> dict[str, Any]:
    """A task of Label Studio with a text in each of these fields of one region."""
    text = {"id": id_, "type": "textarea", "value": {"text": ["да"]}}
    return {"annotations": [{"result": [text | {"from_name": field} for field in fields]}], "data": {"image": image}}


@pytest.mark.parametrize(
    ("file", "content"),
    [
        pytest.param("t.jsonl", [{"image": "q.png", "text": HALF}, GOOD], id="text"),
        pytest.param("t.jsonl", [{**GOOD, "image": f"{HALF}.png"}, GOOD], id="image"),
        pytest.param("a.json", {"images": IMAGES, "annotations": DRAWN}, id="COCO image and id"),
        pytest.param("a.json", [task("b", image=f"{HALF}.png"), task("b", id_=HALF)], id="Label Studio image and id"),
        pytest.param("a.json", [task(HALF), task("text")], id="Label Studio field"),
    ],
)
def test_a_text_with_an_unpaired_surrogate_is_skipped(tmp_path: Path, file: str, content: Any) -> None:
    picture(tmp_path / "s" / "p.png")
    if file == "t.jsonl":
        picture(tmp_path / "s" / "q.png")
    write(tmp_path / "s" / file, "\n".join(map(json.dumps, content)) if file == "t.jsonl" else json.dumps(content))
    card = prepare(tmp_path / "s", tmp_path / "out", split="1/0/0").card
    assert [part.samples for part in card.splits.values()] == [1]
    assert sum(part.count for part in card.skipped.values()) == 1
