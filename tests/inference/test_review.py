"""The benefit of reviewing the least confident lines, measured and estimated, and what second readers mark."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsocr.document import Box, Outline
from dsocr.inference import inputs
from dsocr.inference.prediction_files import FoundPrediction, LinePlace, PlacedTexts, PredictionFile, read_predictions
from dsocr.inference.review import (
    CheckedShare,
    EstimatedCer,
    checking_curve,
    describe_gain,
    disputed_places,
    doubted_confidence,
    estimated_checking_curve,
    point_at,
    share_for,
    worth_checking,
    write_review,
)
from dsocr.inference.transcribe import transcribe
from dsocr.runs import RunFolder
from dsocr.text import TextPolicy
from tests.inference.reading_pages import Hashes, draw_page, fake_run, find_bars, rows_of
from tests.models import toy_family
from tests.raising import raises_code

LINES = st.lists(st.tuples(st.floats(0, 1), st.integers(0, 50)), max_size=30)


def test_every_checked_line_takes_its_errors_away() -> None:
    curve = checking_curve([(6, 10), (2, 10), (0, 20)])
    assert estimated_checking_curve([]) == [CheckedShare(0, 0, 0, 1)]
    assert curve == [
        CheckedShare(0, 0, 8 / 40, 0),
        CheckedShare(1 / 3, 1 / 4, 2 / 30, 0.75),
        CheckedShare(2 / 3, 2 / 4, 0, 1),
        CheckedShare(1, 1, 0, 1),
    ]
    assert describe_gain(curve, 1 / 3).count("(2.2 times chance)") == 1, "of the lines"
    assert describe_gain(curve, 1 / 4).count("(3.0 times chance)") == 1, "of the letters"


def test_a_line_is_worth_checking_for_the_errors_expected_in_it_and_not_for_its_length() -> None:
    certain, short, long = worth_checking(0.99, 80), worth_checking(0.5, 2), worth_checking(0.8, 60)
    assert certain < short < long
    assert worth_checking(0.7, 60) < worth_checking(0.6, 60) < worth_checking(None, 60)


@given(LINES)
def test_the_most_doubtful_first_never_makes_the_rest_worse(lines: list[tuple[float, int]]) -> None:
    curve = estimated_checking_curve(sorted(lines))
    assert all(0 <= point.rest <= 1 and -1e-9 <= point.errors_found <= 1 for point in curve)
    rests = [point.rest for point in curve]
    assert all(after <= before + 1e-9 for before, after in pairwise(rests))
    assert rests[-1] == 0


@pytest.mark.parametrize(
    "line",
    [pytest.param((None, 7), id="nothing is known of it"), pytest.param((0.2, 0), id="nothing was read")],
)
def test_a_line_without_confidence_or_text_estimates_nothing(line: tuple[float | None, int]) -> None:
    curve = estimated_checking_curve([line, (0.7, 10)])
    assert [point.rest for point in curve] == pytest.approx([0.3, 0.3, 0])
    assert [point.errors_found for point in curve] == pytest.approx([0, 0, 1])


def test_reviewing_the_uncertain_third_halves_the_estimated_errors() -> None:
    estimated = EstimatedCer.of(estimated_checking_curve([(0.5, 10), (0.9, 10), (0.9, 10)]))
    assert (estimated.cer, estimated.check, estimated.rest) == pytest.approx((7 / 30, 1 / 3, 0.1))


def test_a_point_is_found_by_its_share_and_by_its_rate() -> None:
    curve = checking_curve([(5, 10), (1, 10), (0, 20)])
    assert point_at(curve, 0.34) is curve[1]
    assert share_for(curve, 0.05) == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    ("text", "others", "places"),
    [
        pytest.param("рука", ["рука"], set(), id="the same"),
        pytest.param("рука", ["река"], {1}, id="another letter"),
        pytest.param("рука", ["река", "руки"], {1, 3}, id="two other readers"),
        pytest.param("рукка", ["рука"], {2, 3}, id="a letter that the other lacks"),
        pytest.param("рка", ["рука"], {1}, id="a letter that the other has more"),
        pytest.param("рук", ["рука"], {2}, id="a letter that it has at the end"),
        pytest.param("", ["рука"], set(), id="nothing was read"),
    ],
)
def test_disputed_characters(text: str, others: list[str], places: set[int]) -> None:
    disputed = disputed_places(text, others)
    assert disputed <= places
    assert bool(disputed) == bool(places)


def test_a_disputed_line_is_checked_earlier_and_its_words_are_marked(tmp_path: Path) -> None:
    row: dict[str, Any] = {"confidence": 0.9, "flags": [], "characters": [0.9] * 7}
    rows = [
        {**row, "id": "agreed", "text": "дом мёл", "confidence": 0.89},
        {**row, "id": "disputed", "text": "дож мел", "others": ["дом мел", "дож мел."]},
    ]
    write_review(rows, tmp_path / "review.txt")
    lines = (tmp_path / "review.txt").read_text(encoding="utf-8").splitlines()
    assert lines == ["0.900\t\tdisputed\t⟦дож⟧ ⟦мел⟧\tдом мел\tдож мел.", "0.890\t\tagreed\tдом мёл"]


@given(st.text("абв", min_size=1, max_size=9), st.lists(st.text("абв", max_size=9), max_size=3), st.floats(0.01, 0.99))
def test_a_dispute_never_makes_a_line_more_certain(text: str, others: list[str], confidence: float) -> None:
    characters = [confidence] * len(text)
    doubted = doubted_confidence(text, confidence, characters, others)
    assert doubted is not None
    assert 0 < doubted <= confidence
    assert (doubted < confidence) == bool(disputed_places(text, others))
    assert doubted_confidence(text, None, (), others) is None


@pytest.fixture
def scans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(inputs, "detect_lines", find_bars)
    draw_page(tmp_path / "scans" / "p1.png")
    return tmp_path / "scans"


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    return fake_run(tmp_path / "run")


def page_of_another_tool(folder: Path, boxes: Sequence[Box]) -> Path:
    """PAGE XML of the same page by another tool, the last line first, all a little larger."""
    lines = ""
    for number, (left, top, right, bottom) in reversed(list(enumerate(boxes))):
        points = f"{left},{top - 3} {right},{top - 3} {right},{bottom + 3} {left},{bottom + 3}"
        text = f"<TextEquiv><Unicode>other {number}</Unicode></TextEquiv>"
        lines += f'<TextLine id="x{number}"><Coords points="{points}"/>{text}</TextLine>'
    folder.mkdir()
    space = "http://schema.primaresearch.org/PAGE/gts/pagecontent/2019-07-15"
    region = f'<TextRegion id="r">{lines}</TextRegion>'
    page = f'<Page imageFilename="p1.png" imageWidth="600" imageHeight="800">{region}</Page>'
    xml = f'<?xml version="1.0" encoding="UTF-8"?><PcGts xmlns="{space}">{page}</PcGts>'
    (folder / "p1.xml").write_text(xml, encoding="utf-8")
    return folder


def test_pages_of_another_tool_are_found_by_position(run: RunFolder, scans: Path, tmp_path: Path) -> None:
    first = rows_of(transcribe(run, [scans], tmp_path / "alone.jsonl", reader=Hashes()).out)
    assert len(first) == 3
    pages = transcribe(run, [scans], tmp_path / "page", formats=["page"], reader=Hashes()).out
    boxes = [line.outline.box for line in read_predictions(pages / "p1.xml").predictions if line.outline]
    tool = page_of_another_tool(tmp_path / "tool", boxes)
    out, review = tmp_path / "out.jsonl", tmp_path / "review.txt"
    report = transcribe(run, [scans], out, reader=Hashes(), second=[str(tool)], review=review)
    rows = rows_of(out)
    assert report.disputed == 3
    assert [row["text"] for row in rows] == [row["text"] for row in first]
    assert [row["others"] for row in rows] == [[f"other {number}"] for number in range(3)]
    listed = {line.split("\t")[4] for line in review.read_text(encoding="utf-8").splitlines()}
    assert listed == {f"other {number}" for number in range(3)}


def test_of_two_pages_with_one_name_neither_is_taken(tmp_path: Path) -> None:
    outline = Outline((0, 0, 90, 20))
    found = [FoundPrediction(page, "l1", page, page=page, outline=outline) for page in ("a/1", "b/1", "b/2")]
    texts = PlacedTexts(PredictionFile(tmp_path, found, "", has_positions=True), TextPolicy())
    for page, text in {"a/1": "a/1", "1": None, "c/1": None, "c/2": "b/2", "3": None}.items():
        for place in (LinePlace("line", page, "l1", outline), LinePlace("page", page)):
            prediction = texts.find(place)
            assert (None if prediction is None else prediction.text) == text


def test_a_second_network_reads_the_same_lines(run: RunFolder, scans: Path, tmp_path: Path) -> None:
    base = toy_family.write_base(tmp_path / "base")
    out = tmp_path / "out.jsonl"
    report = transcribe(run, [scans], out, reader=Hashes(), second=[f"toy={base.as_posix()}"], unit="page")
    (row,) = rows_of(out)
    assert report.disputed == 1
    assert isinstance(row["others"], list)
    assert len(row["others"]) == 1


def test_two_readers_need_two_names(run: RunFolder, scans: Path, tmp_path: Path) -> None:
    with raises_code("duplicate-name"):
        transcribe(run, [scans], tmp_path / "out.jsonl", reader=Hashes(), second=[str(run.path)])
