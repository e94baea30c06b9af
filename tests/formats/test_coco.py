"""COCO files: texts in attributes, polygons and boxes, splits by file name."""

import json
from pathlib import Path
from typing import Any

import pytest

from dsocr.document import Item, Outline, SkipReason
from tests.data.making import picture, write
from tests.formats.reading import pages, read, skipped, texts

POLYGON = [10, 10, 60, 10, 60, 30, 10.4, 29.6]
OUTLINE = Outline((10, 10, 61, 31), ((10, 10), (60, 10), (60, 30), (10, 30)))
BOX = [5, 6, 20, 10]


def annotation(text: str | None = "слово", **more: Any) -> dict[str, Any]:
    """An annotation as school_notebooks has them; `more` replaces parts of it."""
    attributes = None if text is None else {"translation": text}
    return {"id": 7, "image_id": 1, "category_id": 0, "segmentation": [POLYGON], "attributes": attributes} | more


def write_coco(path: Path, *annotations: Any, images: list[Any] | None = None) -> Path:
    images = [{"id": 1, "file_name": "p.png"}] if images is None else images
    return write(path, json.dumps({"categories": [], "images": images, "annotations": annotations}))


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
        pytest.param(
            {"segmentation": [[0, 0, 9, 0, 9, 9], [20, 5, 30, 5, 30, 40]]},
            Outline((0, 0, 31, 41)),
            id="several parts are a box around them",
        ),
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
def test_unusable_entries_are_skipped(tmp_path: Path, entry: Any, reason: SkipReason) -> None:
    items = read_coco(tmp_path, annotation(), entry)
    assert [skip for skip, _ in skipped(items)] == [reason]
    assert texts(items) == ["слово"]


@pytest.mark.parametrize("name", ["gone.png", "../images/p.png", "/etc/gone.png", "", None])
def test_an_image_outside_the_folder_is_skipped(tmp_path: Path, name: str | None) -> None:
    items = read_coco(tmp_path, annotation(), images=[{"id": 1, **({} if name is None else {"file_name": name})}])
    assert skipped(items) == [(SkipReason.NO_IMAGE, f"annotations.json#{name or ''}")]


@pytest.mark.parametrize("width", [0, -1, "100", None, 10**400])
def test_an_impossible_size_is_ignored(tmp_path: Path, width: object) -> None:
    entry = {"id": 1, "file_name": "p.png", "width": width, "height": 50}
    assert pages(read_coco(tmp_path, annotation(), images=[entry]))[0].size is None


def test_an_image_without_annotations_is_not_transcribed_yet(tmp_path: Path) -> None:
    assert skipped(read_coco(tmp_path)) == [(SkipReason.NO_TRANSCRIPTION, "annotations.json#p.png")]


@pytest.mark.parametrize("content", ['{"images": [', '{"images": []}'], ids=["broken", "incomplete"])
def test_an_unreadable_file_is_skipped(tmp_path: Path, content: str) -> None:
    write(tmp_path / "a.json", content)
    assert skipped(read("coco", tmp_path)) == [(SkipReason.BAD_SOURCE, "a.json")]
