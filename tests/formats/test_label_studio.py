"""Label Studio: regions whose parts share an id, per cent to pixels, and which annotation counts."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dsocr.document import Item, Note, Outline, Page, Skipped, SkipReason
from tests.data.making import picture, write
from tests.formats.reading import pages, read, skipped, texts

UPLOAD = "/data/upload/1/0a1b2c3d-p.png"
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


def task(*annotations: Any, image: Any = UPLOAD) -> dict[str, Any]:
    return {"id": 5, "annotations": list(annotations), "data": {"ocr": image}}


def read_tasks(folder: Path, *tasks: Any) -> list[Item]:
    picture(folder / "images" / "p.png", size=(200, 100))
    write(folder / "project.json", json.dumps(list(tasks), ensure_ascii=False))
    return read("label-studio", folder)


TURNED, CORNERS = shape(value={**BOX, "rotation": 90}), ((20, 20), (20, 120), (-10, 120), (-10, 20))
DRAWN = shape(kind="polygonlabels", value={"points": [[0, 0], [50, 0], [50, 50]]})
LABELS = {"id": "r1", "type": "labels", "value": {"labels": ["Text"]}}
TEXT_ALONE = text(value={"text": ["да"]})


@pytest.mark.parametrize(
    ("result", "outline"),
    [
        pytest.param([shape(), text()], Outline((20, 20, 120, 50)), id="three items of one id, per cent to pixels"),
        pytest.param([text()], Outline((20, 20, 120, 50)), id="a text that carries its own geometry"),
        pytest.param([TURNED, TEXT_ALONE], Outline.of_polygon(CORNERS), id="turned clockwise about its upper left"),
        pytest.param([DRAWN, TEXT_ALONE], Outline.of_polygon(((0, 0), (100, 0), (100, 50))), id="a polygon"),
        pytest.param([LABELS, shape(kind="rectangle"), text()], Outline((20, 20, 120, 50)), id="labels apart"),
        pytest.param([TEXT_ALONE], None, id="a text of the whole image"),
    ],
)
def test_places_of_regions(tmp_path: Path, result: list[Any], outline: Outline | None) -> None:
    (page,) = pages(read_tasks(tmp_path, task(annotation(*result))))
    assert [(line.text, line.outline, line.where) for line in page.lines] == [("да", outline, "project.json#1#r1")]
    assert (page.name, page.page, page.size) == ("images/p", "images/p", (200, 100))


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        pytest.param([shape(), text("да")], ["да"], id="a string"),
        pytest.param([shape(), text(["да"])], ["да"], id="a list"),
        pytest.param([shape(), text(["да", " ", "да"])], ["да"], id="the same twice"),
        pytest.param([shape(), text([])], [""], id="nothing entered"),
        pytest.param([shape(), text(None)], [""], id="null"),
        pytest.param([shape(), text(7)], [""], id="a number"),
        pytest.param([shape(), text("что?", from_name="note"), text("да")], ["да"], id="the field for transcriptions"),
        pytest.param([shape(), text(), shape("r2")], ["да", ""], id="a shape without a text is not transcribed yet"),
    ],
)
def test_typed_texts(tmp_path: Path, result: list[Any], expected: list[str]) -> None:
    assert texts(read_tasks(tmp_path, task(annotation(*result)))) == expected


OLD = annotation(text("старое"), updated_at="2024-01-01T00:00:00Z")
NEW = annotation(text("новое"))
TIMELESS, CANCELLED = {"updated_at": None}, {"was_cancelled": True}


@pytest.mark.parametrize(
    ("annotations", "words", "reason"),
    [
        pytest.param([OLD, NEW], ["новое"], SkipReason.SUPERSEDED, id="the newest"),
        pytest.param([NEW, OLD], ["новое"], SkipReason.SUPERSEDED, id="wherever it is"),
        pytest.param([NEW | TIMELESS, OLD | TIMELESS], ["старое"], SkipReason.SUPERSEDED, id="the last without a time"),
        pytest.param([OLD, NEW | CANCELLED], ["старое"], SkipReason.NO_TRANSCRIPTION, id="not a cancelled one"),
        pytest.param([OLD | {"ground_truth": True}, NEW], ["старое"], SkipReason.SUPERSEDED, id="the ground truth"),
        pytest.param([NEW | CANCELLED], [], SkipReason.NO_TRANSCRIPTION, id="all cancelled"),
        pytest.param([], [], SkipReason.NO_TRANSCRIPTION, id="none"),
        pytest.param([annotation()], [], SkipReason.NO_TRANSCRIPTION, id="an empty one"),
    ],
)
def test_which_annotation_counts(tmp_path: Path, annotations: list[Any], words: list[str], reason: SkipReason) -> None:
    items = read_tasks(tmp_path, task(*annotations))
    assert (texts(items), [found for found, _ in skipped(items)]) == (words, [reason])


@pytest.mark.parametrize(
    "image",
    [
        pytest.param(UPLOAD, id="uploaded, with Label Studio's prefix"),
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
    (page,) = pages(read_tasks(tmp_path, task(annotation(text()), image=image)))
    assert page.image == tmp_path / "images" / "p.png"


def test_an_image_with_the_prefix_is_taken_before_one_without(tmp_path: Path) -> None:
    picture(tmp_path / "images" / "0a1b2c3d-p.png", size=(200, 100))
    (page,) = pages(read_tasks(tmp_path, task(annotation(text()))))
    assert page.image.name == "0a1b2c3d-p.png"


def test_images_that_could_be_one_file_are_skipped(tmp_path: Path) -> None:
    tasks = [task(annotation(text()), image=f"/data/upload/{number}/0a1b2c3{number}-p.png") for number in (1, 2)]
    assert [reason for reason, _ in skipped(read_tasks(tmp_path, *tasks))] == [SkipReason.NO_IMAGE] * 2


def test_an_image_is_found_by_the_name_that_was_changed_for_the_upload(tmp_path: Path) -> None:
    picture(tmp_path / "дело 5, л. 3.png", size=(200, 100))
    (page,) = pages(read_tasks(tmp_path, task(annotation(text()), image="/data/upload/1/0a1b2c3d-дело_5_л._3.png")))
    assert page.image.name == "дело 5, л. 3.png"


PAIR = {"image_a": "p.png", "image_b": "q.png"}


@pytest.mark.parametrize(
    ("data", "places", "expected"),
    [
        pytest.param(PAIR, [{"to_name": "image_b"}, {"to_name": "image_a"}], {"p": "2", "q": "1"}, id="by key"),
        pytest.param({"l": ["p.png", "q.png"]}, [{"to_name": "l", "item_index": 1}], {"q": "1"}, id="by number"),
        pytest.param({"l": ["p.png", "q.png"]}, [{"to_name": "l"}], {}, id="no number"),
        pytest.param({"l": ["p.png"]}, [{"to_name": "l", "item_index": -1}], {}, id="a number of none"),
        pytest.param(PAIR, [{"to_name": "page"}], {}, id="a name of none"),
        pytest.param({"image": "p.png"}, [{"to_name": "a"}, {"to_name": "b"}], {}, id="two names of one image"),
        pytest.param({"ocr": "p.png"}, [{"to_name": "image"}], {"p": "1"}, id="the only image"),
    ],
)
def test_a_region_is_on_the_image_that_it_names(
    tmp_path: Path, data: Any, places: list[dict[str, Any]], expected: dict[str, str]
) -> None:
    picture(tmp_path / "q.png", size=(200, 100))
    results = [text(str(number), str(number), **place) for number, place in enumerate(places, start=1)]
    items = read_tasks(tmp_path, task(annotation(*results)) | {"data": data})
    assert {page.image.stem: line.text for page in pages(items) for line in page.lines} == expected
    refused = [where for reason, where in skipped(items) if reason == SkipReason.BAD_SOURCE]
    assert len(refused) == len(places) - len(expected)


def at(y: int, words: str = "") -> dict[str, Any]:
    return text(words or str(y), f"r{y}", value={**BOX, "y": y, "height": 10, "text": words or str(y)})


NOTE = text("исправить", "r2", from_name="comment")


@pytest.mark.parametrize(
    ("result", "columns", "expected", "notes"),
    [
        pytest.param([at(50), at(70), at(10)], {}, ["10", "50", "70"], 1, id="from the top, which is said"),
        pytest.param([text(), NOTE], {}, ["да", ""], 1, id="another field, which is said"),
        pytest.param([text(from_name="a"), NOTE], {"text": "a"}, ["да", ""], 1, id="the field that is named"),
        pytest.param([text(from_name="a"), NOTE], {}, [], 0, id="neither field is usual"),
        pytest.param([text(origin="prediction")], {}, ["да"], 1, id="a model's text that was submitted, which is said"),
    ],
)
def test_choices_are_noted(
    tmp_path: Path, result: list[Any], columns: dict[str, str], expected: list[str], notes: int
) -> None:
    read_tasks(tmp_path, task(annotation(*result), image="p.png"))
    items = read("label-studio", tmp_path, columns)
    assert (texts(items), sum(isinstance(item, Note) for item in items)) == (expected, notes)


def test_the_newest_row_of_a_task_is_read(tmp_path: Path) -> None:
    row = {"image": "p.png", "id": 7, "lead_time": 1}
    items = read_tasks(
        tmp_path,
        row | {"text": "новое", "annotation_id": 2, "updated_at": "2024-05-02"},
        row | {"text": "старое", "annotation_id": 1, "annotator": "a@b.ru", "updated_at": "2024-05-01"},
    )
    assert (texts(items), skipped(items)) == (["новое"], [(SkipReason.SUPERSEDED, "project.json#1")])


def of_image(image: Any) -> dict[str, Any]:
    return task(annotation(text()), image=image)


def of_shape(**more: Any) -> dict[str, Any]:
    return task(annotation(shape(**more), text()))


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        pytest.param(of_image("gone.png"), SkipReason.NO_IMAGE, id="missing"),
        pytest.param(of_image("../p.txt/.."), SkipReason.NO_IMAGE, id="climbing"),
        pytest.param(of_image("http://[/p.png"), SkipReason.NO_IMAGE, id="no address"),
        pytest.param(of_image(7), SkipReason.NO_IMAGE, id="no name"),
        pytest.param({"annotations": [], "data": None}, SkipReason.NO_IMAGE, id="no data"),
        pytest.param(of_shape(kind="brush", value={"rle": [1]}), SkipReason.NO_OUTLINE, id="a brush"),
        pytest.param(of_shape(value={**BOX, "x": "a"}), SkipReason.BAD_SOURCE, id="a word"),
        pytest.param(of_shape(value={**BOX, "x": 1e9}), SkipReason.BAD_SOURCE, id="far outside"),
        pytest.param(of_shape(value={"points": [[0, 0], [1]]}), SkipReason.BAD_SOURCE, id="points"),
        pytest.param(of_shape(original_width=None), SkipReason.BAD_SOURCE, id="no image size"),
        pytest.param(of_shape(image_rotation=90), SkipReason.BAD_SOURCE, id="a turned image"),
        pytest.param(task(annotation(text(["да", "дa"]))), SkipReason.BAD_SOURCE, id="two texts"),
        pytest.param(task(annotation(text(), text("нет"))), SkipReason.BAD_SOURCE, id="two texts in the same field"),
        pytest.param(
            {"ocr": UPLOAD, "transcription": ["раз", "два"]}, SkipReason.BAD_SOURCE, id="JSON_MIN with two texts"
        ),
        pytest.param(
            {"ocr": UPLOAD, "text": "а", "caption": "б"}, SkipReason.BAD_SOURCE, id="JSON_MIN with two fields"
        ),
        pytest.param(task(annotation(text(), TEXT_ALONE | {"id": "r2"})), SkipReason.NO_OUTLINE, id="beside regions"),
        pytest.param({"ocr": "p.png", "bbox": [{"x": 1}], "text": ["да"]}, SkipReason.BAD_SOURCE, id="JSON_MIN boxes"),
        pytest.param({"ocr": "p.png", "sentiment": "хорошо"}, SkipReason.BAD_SOURCE, id="JSON_MIN without a text"),
        pytest.param({"data": {"ocr": UPLOAD}, "predictions": []}, SkipReason.NO_TRANSCRIPTION, id="only predictions"),
        pytest.param(7, SkipReason.BAD_SOURCE, id="no object"),
    ],
)
def test_unusable_entries_are_skipped(tmp_path: Path, entry: Any, reason: SkipReason) -> None:
    ((found, where),) = skipped(read_tasks(tmp_path, task(annotation(text())), entry))
    assert (found, where[:14]) == (reason, "project.json#2")


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        pytest.param({"captioning": "p.png", "caption": "да", "lead_time": 1}, "да", id="a text of the whole image"),
        pytest.param({"image": "p.png", "transcription": ["да"], "annotation_id": 3}, "да", id="a list"),
    ],
)
def test_the_short_export_is_read_where_a_text_is_the_whole_images(
    tmp_path: Path, row: dict[str, Any], expected: str
) -> None:
    (page,) = pages(read_tasks(tmp_path, row))
    assert [(line.text, line.outline) for line in page.lines] == [(expected, None)]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        pytest.param("label-studio", '[{"annotations": [', id="broken"),
        pytest.param("label-studio", '[{"annotations": [], "data": "\xff"}]', id="another encoding"),
        pytest.param("coco", '{"images": [', id="broken COCO"),
        pytest.param("coco", '{"images": []}', id="incomplete COCO"),
    ],
)
def test_an_unreadable_file_is_skipped(tmp_path: Path, name: str, content: str) -> None:
    write(tmp_path / "a.json", content, encoding="latin-1")
    assert skipped(read(name, tmp_path)) == [(SkipReason.BAD_SOURCE, "a.json")]


ANYTHING = st.sampled_from([None, True, 7, -1e300, float("nan"), "textarea", "да", [], ["раз"], [[1, 2]], {}, {"x": 1}])
NUMBER: st.SearchStrategy[Any] = st.sampled_from([0, 10, 99.5, 10**400, float("inf"), "5", None, [], {}])
SHAPES = dict.fromkeys(("x", "y", "width", "height", "rotation"), NUMBER)
VALUE = ANYTHING | st.fixed_dictionaries({}, optional={**SHAPES, "points": ANYTHING, "text": ANYTHING})
PART = ANYTHING | st.fixed_dictionaries(
    {"type": ANYTHING, "value": VALUE},
    optional={
        "id": ANYTHING,
        "from_name": ANYTHING,
        "to_name": ANYTHING,
        "item_index": ANYTHING,
        "original_width": NUMBER,
        "original_height": NUMBER,
    },
)
RESULT = ANYTHING | st.fixed_dictionaries({"result": ANYTHING | st.lists(PART, max_size=3), "updated_at": ANYTHING})


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(ANYTHING, st.lists(RESULT, max_size=2), ANYTHING)
def test_any_export_is_either_read_or_skipped(tmp_path: Path, image: Any, annotations: list[Any], other: Any) -> None:
    picture(tmp_path / "p.png")
    first = {"annotations": annotations, "data": {"image": "p.png", "more": image}}
    write(tmp_path / "a.json", json.dumps([first, {"annotations": annotations, "data": image}, other]))
    items = read("label-studio", tmp_path)
    assert items
    assert all(isinstance(item, Page | Skipped | Note) for item in items)
