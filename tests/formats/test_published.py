"""Small copies of published collections of Russian handwriting are read correctly."""

import json
import zipfile
from pathlib import Path
from typing import Any

from dsocr.data.dataset import Card
from dsocr.data.prepare import prepare
from dsocr.document import Split
from tests.data.making import picture, png, write

WORD = [10, 10, 60, 10, 60, 30, 10, 30]


def prepared(source: Path, **options: Any) -> tuple[Card, dict[Split, list[str]]]:
    """The card, and the texts of each split."""
    dataset = prepare(source, source.parent / "out", **options)
    return dataset.card, {split: [sample.text for sample in dataset.samples(split)] for split in Split}


def notebook(split: str) -> str:
    """`annotations_train.json` of school_notebooks: words by polygons, and much that is no word."""

    def entry(number: int, category: int, text: str | None, *polygons: list[int]) -> dict[str, Any]:
        known = {"iscrowd": 0, "area": 1000.0, "bbox": [10, 10, 50, 20], "segmentation": polygons}
        attributes = None if text is None else {"translation": text}
        return {"id": number, "image_id": 7, "category_id": category, "attributes": attributes, **known}

    content = {
        "categories": [
            {"id": 0, "name": "pupil_text"},
            {"id": 2, "name": "teacher_comment"},
            {"id": 4, "name": "paper"},
        ],
        "images": [{"id": 7, "file_name": f"1_{split}.JPG", "width": 100, "height": 50}],
        "annotations": [
            entry(1, 0, f"{split} слово", WORD),
            entry(2, 0, "на двух полях", WORD, [70, 10, 90, 10, 90, 30]),
            entry(3, 0, "", WORD),
            entry(4, 4, None, [0, 0, 99, 0, 99, 49, 0, 49]),
            entry(5, 2, "5+"),
        ],
    }
    return json.dumps(content)


def test_school_notebooks_are_read_word_by_word_with_their_splits(tmp_path: Path) -> None:
    for place, split in enumerate(("train", "val", "test")):
        picture(tmp_path / "s" / "images" / f"1_{split}.JPG", colour=(255, 250, place), format="JPEG")
        write(tmp_path / "s" / f"annotations_{split}.json", notebook(split))
    card, texts = prepared(tmp_path / "s")
    assert (card.source_format, card.split_by) == ("coco", "given")
    assert list(texts.values()) == [[f"{split} слово", "на двух полях", "5+"] for split in ("train", "val", "test")]
    assert {reason: part.count for reason, part in card.skipped.items()} == {"no text": 6}


def test_school_notebooks_are_read_from_the_files_of_the_hub_with_the_images_in_their_archive(tmp_path: Path) -> None:
    source = tmp_path / "s"
    write(source / "school_notebooks_RU.py", "raise SystemExit")
    write(source / "annotations_train.json", notebook("train"))
    with zipfile.ZipFile(source / "images.zip", "w") as file:
        file.writestr("images/1_train.JPG", png())
    card, texts = prepared(source, split="1/0/0")
    assert (card.source, card.source_format) == ("s", "coco")
    assert texts[Split.TRAIN] == ["train слово", "на двух полях", "5+"]


def test_peter_is_read_from_the_competition_line_by_line(tmp_path: Path) -> None:
    source = tmp_path / "s"
    for page in range(3):
        for line in range(2):
            name = f"1_{page}_{line}"
            picture(source / "images" / f"{name}.jpg", colour=(255, page, line), format="JPEG")
            write(source / "words" / f"{name}.txt", f"которыхъ писемъ i подлинно ѣ {name}\n")
    card, texts = prepared(source, page=r"(\d+_\d+)_", split="0.4/0.3/0.3")
    assert (card.source_format, card.split_by, card.skipped) == ("pairs", "page", {})
    assert sorted(text for held in texts.values() for text in held)[0] == "которыхъ писемъ i подлинно ѣ 1_0_0"
    assert [len(held) for held in texts.values()] == [2, 2, 2]


def test_peter_is_read_from_the_hub_line_by_line(tmp_path: Path) -> None:
    source = tmp_path / "s"
    for place, split in enumerate(("train", "val", "test")):
        picture(source / "images" / f"10_{split}.jpg", colour=(255, 250, place), format="JPEG")
        line = {"id": 1, "image_id": 1, "category_id": 1, "segmentation": [WORD], "attributes": {"translation": split}}
        images = [{"id": 1, "file_name": f"10_{split}.jpg", "width": 100, "height": 50}]
        content = {"categories": [{"id": 1, "name": "text"}], "images": images, "annotations": [line]}
        write(source / f"annotations_{split}.json", json.dumps(content))
    card, texts = prepared(source)
    assert (card.source_format, card.skipped) == ("coco", {})
    assert texts == {Split.TRAIN: ["train"], Split.VALIDATION: ["val"], Split.TEST: ["test"]}


def cyrillic(folder: Path, split: str, *labels: str) -> None:
    """`train.tsv` and `train/` of the Cyrillic Handwriting Dataset: no header, and labels with anything in them."""
    rows = ""
    for number, label in enumerate(labels):
        picture(folder / split / f"{split[:2]}{number}.png", colour=(255, len(split), number))
        rows += f"{split[:2]}{number}.png\t{label}\r\n"
    write(folder / f"{split}.tsv", rows)


def test_the_cyrillic_handwriting_dataset_is_read_with_all_its_labels(tmp_path: Path) -> None:
    cyrillic(tmp_path / "s", "train", "таб\tвнутри", '"кавычка', "№ 5, «да»")
    cyrillic(tmp_path / "s", "test", "Hа латинице")
    card, texts = prepared(tmp_path / "s")
    assert (card.source_format, card.split_by, card.skipped) == ("table", "given", {})
    assert list(texts.values()) == [["таб внутри", '"кавычка', "№ 5, «да»"], [], ["Hа латинице"]]
