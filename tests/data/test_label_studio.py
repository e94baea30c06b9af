"""Label Studio: regions whose parts share an id, per cent to pixels, and which annotation counts."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dsocr.data.prepare import prepare
from dsocr.document import Outline, Page, Skipped, SkipReason
from dsocr.formats.label_studio import find_label_studio, read_label_studio
from tests.data.making import picture, write

SIZE = {"original_width": 200, "original_height": 100}
BOX = {"x": 10, "y": 20, "width": 50, "height": 30, "rotation": 0}


def shape(id_: str = "r1", kind: str = "rectanglelabels", **more: Any) -> dict[str, Any]:
    """A region's geometry; `more` replaces parts of the item."""
    return {"id": id_, "type": kind, "from_name": "label", "value": {**BOX, "rectanglelabels": ["Text"]}, **SIZE} | more


def text(words: Any = "да", id_: str = "r1", **more: Any) -> dict[str, Any]:
    """A region's text, which repeats the geometry as Label Studio does."""
    return {"id": id_, "type": "textarea", "from_name": "transcription", "value": {**BOX, "text": words}, **SIZE} | more


def annotation(*result: Any, **more: Any) -> dict[str, Any]:
    return {"id": 1, "was_cancelled": False, "result": list(result), "updated_at": "2024-05-01T10:00:00Z"} | more


def task(*annotations: Any, image: Any = "/data/upload/1/0a1b2c3d-p.png") -> dict[str, Any]:
    return {"id": 5, "annotations": list(annotations), "data": {"ocr": image}}


def read(folder: Path, *tasks: Any) -> list[Page | Skipped]:
    picture(folder / "images" / "p.png", size=(200, 100))
    write(folder / "project.json", json.dumps(list(tasks), ensure_ascii=False))
    return list(read_label_studio(folder))


@pytest.mark.parametrize(
    ("result", "outline"),
    [
        pytest.param([shape(), text()], Outline((20, 20, 120, 50)), id="three items of one id, per cent to pixels"),
        pytest.param([text()], Outline((20, 20, 120, 50)), id="a text that carries its own geometry"),
        pytest.param(
            [shape(value={**BOX, "rotation": 90}), text(value={"text": ["да"]})],
            Outline((-10, 20, 21, 121), ((20, 20), (20, 120), (-10, 120), (-10, 20))),
            id="turned about its upper left corner, clockwise",
        ),
        pytest.param(
            [shape(kind="polygonlabels", value={"points": [[0, 0], [50, 0], [50, 50]]}), text(value={"text": "да"})],
            Outline((0, 0, 101, 51), ((0, 0), (100, 0), (100, 50))),
            id="a polygon",
        ),
        pytest.param(
            [{"id": "r1", "type": "labels", "value": {"labels": ["Text"]}}, shape(kind="rectangle"), text()],
            Outline((20, 20, 120, 50)),
            id="labels apart from the rectangle",
        ),
        pytest.param([text(value={"text": ["да"]})], None, id="a text of the whole image"),
    ],
)
def test_positions_of_regions(tmp_path: Path, result: list[Any], outline: Outline | None) -> None:
    (item,) = read(tmp_path, task(annotation(*result)))
    assert isinstance(item, Page)
    assert [(line.text, line.outline, line.where) for line in item.lines] == [("да", outline, "project.json#1#r1")]
    assert (item.name, item.page, item.size) == ("images/p", "images/p", (200, 100))


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        pytest.param("да", "да", id="a string"),
        pytest.param(["да"], "да", id="a list"),
        pytest.param(["раз", "два"], "раз\nдва", id="what was entered line by line"),
        pytest.param([], "", id="nothing entered"),
        pytest.param(None, "", id="null"),
        pytest.param(7, "", id="a number"),
    ],
)
def test_typed_text(tmp_path: Path, words: Any, expected: str) -> None:
    (item,) = read(tmp_path, task(annotation(shape(), text(words))))
    assert isinstance(item, Page)
    assert [line.text for line in item.lines] == [expected]


def test_of_several_fields_the_transcription_counts(tmp_path: Path) -> None:
    note = text("сомнительно", from_name="note")
    (item,) = read(tmp_path, task(annotation(shape(), note, text("да"))))
    assert isinstance(item, Page)
    assert [line.text for line in item.lines] == ["да"]


@pytest.mark.parametrize(
    ("annotations", "words", "reasons"),
    [
        pytest.param(
            [annotation(text("старое"), updated_at="2024-01-01T00:00:00Z"), annotation(text("новое"))],
            ["новое"],
            [SkipReason.SUPERSEDED],
            id="the newest",
        ),
        pytest.param(
            [annotation(text("новое")), annotation(text("старое"), updated_at="2024-01-01T00:00:00Z")],
            ["новое"],
            [SkipReason.SUPERSEDED],
            id="the newest, wherever it stands",
        ),
        pytest.param(
            [annotation(text("раз"), updated_at=None), annotation(text("два"), updated_at=None)],
            ["два"],
            [SkipReason.SUPERSEDED],
            id="the last without a time",
        ),
        pytest.param(
            [annotation(text("да")), annotation(text("нет"), was_cancelled=True, updated_at="2025")],
            ["да"],
            [SkipReason.NO_TRANSCRIPTION],
            id="not a cancelled one, be it newer",
        ),
        pytest.param([annotation(was_cancelled=True)], [], [SkipReason.NO_TRANSCRIPTION], id="all cancelled"),
        pytest.param([], [], [SkipReason.NO_TRANSCRIPTION], id="none"),
        pytest.param([annotation()], [], [SkipReason.NO_TRANSCRIPTION], id="an empty one"),
    ],
)
def test_which_annotation_counts(
    tmp_path: Path, annotations: list[Any], words: list[str], reasons: list[SkipReason]
) -> None:
    items = read(tmp_path, task(*annotations))
    assert [line.text for item in items if isinstance(item, Page) for line in item.lines] == words
    assert [item.reason for item in items if isinstance(item, Skipped)] == reasons
    assert not any(reason.is_fault for reason in reasons)


@pytest.mark.parametrize(
    "image",
    [
        pytest.param("/data/upload/1/0a1b2c3d-p.png", id="uploaded, with Label Studio's prefix"),
        pytest.param("/data/local-files/?d=images/p.png", id="a local file"),
        pytest.param("/data/local-files/?d=somewhere%2Felse%2Fp.png", id="a local file of another folder"),
        pytest.param("s3://bucket/scans/p.png", id="S3"),
        pytest.param("https://example.org/scans/p.png?token=a", id="an address"),
        pytest.param("p.png", id="a name"),
        pytest.param("C:\\scans\\p.png", id="a path of Windows"),
        pytest.param("/scans/p.png", id="an absolute path is no more than a name"),
    ],
)
def test_an_image_is_found_by_its_name(tmp_path: Path, image: str) -> None:
    (item,) = read(tmp_path, task(annotation(text()), image=image))
    assert isinstance(item, Page)
    assert item.image == tmp_path / "images" / "p.png"


def test_an_image_with_the_prefix_is_taken_before_one_without(tmp_path: Path) -> None:
    picture(tmp_path / "images" / "0a1b2c3d-p.png", size=(200, 100))
    (item,) = read(tmp_path, task(annotation(text())))
    assert isinstance(item, Page)
    assert item.image.name == "0a1b2c3d-p.png"


@pytest.mark.parametrize(
    ("entry", "reason", "message"),
    [
        pytest.param(
            task(annotation(text()), image="gone.png"), SkipReason.NO_IMAGE, "no image 'gone.png'", id="missing"
        ),
        pytest.param(
            task(annotation(text()), image="../p.txt/.."), SkipReason.NO_IMAGE, "leaves the folder", id="climbing"
        ),
        pytest.param(
            task(annotation(text()), image="http://[/p.png"), SkipReason.NO_IMAGE, "no address", id="no address"
        ),
        pytest.param(task(annotation(text()), image=7), SkipReason.NO_IMAGE, "names no image", id="no name"),
        pytest.param({"annotations": [], "data": None}, SkipReason.NO_IMAGE, "names no image", id="no data"),
        pytest.param(
            task(annotation(shape(kind="brush", value={"rle": [1]}), text(value={"text": "да"}))),
            SkipReason.NO_OUTLINE,
            "its shape is 'brush'",
            id="a brush",
        ),
        pytest.param(
            task(annotation(shape(value={**BOX, "x": "a"}), text())), SkipReason.BAD_SOURCE, "no number", id="a word"
        ),
        pytest.param(
            task(annotation(shape(value={**BOX, "x": 1e9}), text())),
            SkipReason.BAD_SOURCE,
            "no number",
            id="far outside",
        ),
        pytest.param(
            task(annotation(shape(value={"points": [[0, 0], [1]]}), text())),
            SkipReason.BAD_SOURCE,
            "polygon",
            id="points",
        ),
        pytest.param(
            task(annotation(shape(original_width=None), text())), SkipReason.BAD_SOURCE, "how large", id="no image size"
        ),
        pytest.param(
            task(annotation(shape(image_rotation=90), text())), SkipReason.BAD_SOURCE, "was turned", id="a turned image"
        ),
        pytest.param(
            task(annotation(text(from_name="a"), text(from_name="b"))),
            SkipReason.BAD_SOURCE,
            "2 texts: a, b",
            id="two texts",
        ),
        pytest.param(
            task(annotation(text(), text("нет", "r2", value={"text": "нет"}))),
            SkipReason.NO_OUTLINE,
            "belongs to no region",
            id="a text beside the regions",
        ),
    ],
)
def test_unusable_entries_are_skipped(tmp_path: Path, entry: Any, reason: SkipReason, message: str) -> None:
    skipped = [item for item in read(tmp_path, task(annotation(text())), entry) if isinstance(item, Skipped)]
    assert [item.reason for item in skipped] == [reason]
    assert message in skipped[0].message
    assert skipped[0].where.startswith("project.json#2")


def test_a_shape_without_a_text_is_not_transcribed_yet(tmp_path: Path) -> None:
    (item,) = read(tmp_path, task(annotation(shape(), text(), shape("r2"))))
    assert isinstance(item, Page)
    assert [line.text for line in item.lines] == ["да", ""]


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        pytest.param({"captioning": "p.png", "caption": "да", "lead_time": 1}, "да", id="a text of the whole image"),
        pytest.param({"image": "p.png", "transcription": ["раз", "два"], "annotation_id": 3}, "раз\nдва", id="a list"),
    ],
)
def test_the_short_export_is_read_where_a_text_is_the_whole_images(
    tmp_path: Path, row: dict[str, Any], expected: str
) -> None:
    (item,) = read(tmp_path, row)
    assert isinstance(item, Page)
    assert [(line.text, line.outline) for line in item.lines] == [(expected, None)]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        pytest.param(
            {"ocr": "p.png", "bbox": [{"x": 1}], "transcription": ["да"], "lead_time": 1},
            "JSON_MIN does not tell which text belongs to which box; export as JSON",
            id="boxes",
        ),
        pytest.param({"ocr": "p.png", "sentiment": "хорошо", "lead_time": 1}, "it has no text called", id="no text"),
    ],
)
def test_the_short_export_of_regions_is_refused_with_the_way_out(
    tmp_path: Path, row: dict[str, Any], message: str
) -> None:
    (item,) = read(tmp_path, row)
    assert isinstance(item, Skipped)
    assert item.reason == SkipReason.BAD_SOURCE
    assert message in item.message


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param('[{"annotations": [', "JSON is invalid", id="broken"),
        pytest.param('[{"data": {}, "annotations": []}, 7]', "names no image", id="no image"),
        pytest.param('[{"annotations": [], "data": "\xff"}]', "not UTF-8", id="another encoding"),
    ],
)
def test_an_unreadable_file_is_skipped(tmp_path: Path, content: str, message: str) -> None:
    write(tmp_path / "a.json", content, encoding="latin-1")
    item, *_ = read_label_studio(tmp_path)
    assert isinstance(item, Skipped)
    assert message in item.message


ANYTHING = st.sampled_from([None, True, 7, -1e300, float("nan"), "textarea", "да", [], ["раз"], [[1, 2]], {}, {"x": 1}])
NUMBER: st.SearchStrategy[Any] = st.sampled_from([0, 10, 99.5, 10**400, float("inf"), "5", None, [], {}])
SHAPES = dict.fromkeys(("x", "y", "width", "height", "rotation"), NUMBER)
VALUE = ANYTHING | st.fixed_dictionaries({}, optional={**SHAPES, "points": ANYTHING, "text": ANYTHING})
PART = ANYTHING | st.fixed_dictionaries(
    {"type": ANYTHING, "value": VALUE},
    optional={"id": ANYTHING, "from_name": ANYTHING, "original_width": NUMBER, "original_height": NUMBER},
)
RESULT = ANYTHING | st.fixed_dictionaries({"result": ANYTHING | st.lists(PART, max_size=3), "updated_at": ANYTHING})


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(ANYTHING, st.lists(RESULT, max_size=2), ANYTHING)
def test_any_export_is_either_read_or_skipped(tmp_path: Path, image: Any, annotations: list[Any], other: Any) -> None:
    picture(tmp_path / "p.png")
    first = {"annotations": annotations, "data": {"image": "p.png", "more": image}}
    write(tmp_path / "a.json", json.dumps([first, {"annotations": annotations, "data": image}, other]))
    items = list(read_label_studio(tmp_path))
    assert items
    assert all(isinstance(item, Page | Skipped) for item in items)


@pytest.mark.parametrize(
    "content",
    [
        pytest.param('{"images": [], "annotations": []}', id="COCO"),
        pytest.param('[{"messages": [], "images": ["a.png"]}]', id="conversations"),
        pytest.param('{"name": "a", "description": "да"}', id="HKR"),
        pytest.param("[]", id="an empty list"),
    ],
)
def test_other_json_is_not_label_studio(tmp_path: Path, content: str) -> None:
    write(tmp_path / "a.json", content)
    assert find_label_studio(tmp_path) == []


def test_an_export_becomes_a_dataset(tmp_path: Path) -> None:
    source = tmp_path / "s"
    tasks = []
    for place in range(3):
        picture(source / "images" / f"p{place}.png", size=(400, 200), colour=(255, 255, 250 - place))
        lines = [item for row in range(2) for item in (shape(f"r{row}"), text(f"страница {place} {row}", f"r{row}"))]
        tasks.append(task(annotation(*lines), image=f"/data/upload/1/0a1b2c3d-p{place}.png"))
    write(source / "project.json", json.dumps(tasks))
    card = prepare(source / "project.json", tmp_path / "out", split="0.4/0.3/0.3").card
    assert (card.source_format, card.split_by, card.skipped) == ("label-studio", "page", {})
    assert sum(part.samples for part in card.splits.values()) == 6
