"""Readings of a line are aligned so that each can be got back, and combined into one."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsocr.document import Outline
from dsocr.inference.combine import Combiner, Vote, align, combine, divide
from dsocr.inference.confidence import Prediction, Word
from dsocr.inference.prediction_files import (
    FoundPrediction,
    LinePlace,
    PlacedTexts,
    PredictionFile,
    read_predictions,
)
from dsocr.inference.transcribe import transcribe
from dsocr.text import TextPolicy
from tests.inference.reading_pages import Hashes, draw_page, fake_run, rows_of

TEXTS = st.text("абв гд", max_size=12)


def reading(text: str, confidence: float | Sequence[float] = 0.9, words: tuple[Word, ...] = ()) -> Prediction:
    characters = (confidence,) * len(text) if isinstance(confidence, float) else tuple(confidence)
    return Prediction("line", text, 1, False, words=words, characters=characters)


def vote(readers: int, *, unit: str = "character", kept: int | None = None) -> Vote:
    """Every reader counts the same, by its confidence."""
    weights = (0.0,) * readers + (1.0,) * readers + (0.0,)
    return Vote(tuple(map(str, range(readers))), weights, unit, kept)  # type: ignore[arg-type]


@given(st.lists(TEXTS, min_size=1, max_size=4))
def test_every_reading_can_be_got_back_from_the_alignment(texts: list[str]) -> None:
    columns = align(texts)
    assert all(any(column) for column in columns)
    for number, text in enumerate(texts):
        assert "".join(column[number] for column in columns) == text


@given(st.lists(TEXTS, min_size=1, max_size=3), st.sampled_from(["character", "word"]))
def test_every_reading_can_be_got_back_from_spans(texts: list[str], unit: str) -> None:
    spans = divide([reading(text) for text in texts], unit)  # type: ignore[arg-type]
    for number, text in enumerate(texts):
        assert "".join(span.texts[number] for span in spans) == text
        assert all(text[span.starts[number] :].startswith(span.texts[number]) for span in spans)


@given(TEXTS, st.integers(1, 4), st.sampled_from(["character", "word"]), st.sampled_from([None, 0]))
def test_a_reading_combined_with_itself_is_itself(text: str, readers: int, unit: str, kept: int | None) -> None:
    combined = combine([reading(text)] * readers, vote(readers, unit=unit, kept=kept))
    assert (combined.text, combined.others) == (text, ())
    assert len(combined.characters) == len(text)


@given(st.lists(TEXTS, min_size=2, max_size=3), st.integers(0, 2))
def test_a_reader_that_is_kept_is_not_changed(texts: list[str], kept: int) -> None:
    kept %= len(texts)
    combined = combine([reading(text) for text in texts], vote(len(texts), kept=kept))
    assert combined.text == texts[kept]
    assert set(combined.others) == set(texts) - {texts[kept]}


def test_the_more_certain_reading_of_each_span_wins() -> None:
    first = reading("дож мел", [0.9, 0.9, 0.3, 0.9, 0.99, 0.99, 0.99])
    second = reading("дом мёл", [0.9, 0.9, 0.9, 0.9, 0.9, 0.4, 0.9])
    combined = combine([first, second], vote(2))
    assert combined.text == "дом мел"
    assert combined.characters[2] < combined.characters[0]  # disputed, and so less certain
    assert combined.words[0].confidence < 0.9**3


@pytest.mark.parametrize(
    ("unit", "texts"),
    [
        pytest.param("character", {"Newcastle upon"}, id="letters of both"),
        pytest.param("word", {"Newcaslle upon", "Nevcastle upon"}, id="whole words"),
    ],
)
def test_a_word_that_is_not_agreed_upon_can_be_taken_whole(unit: str, texts: set[str]) -> None:
    first = reading("Newcaslle upon", [0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.2, *[0.9] * 7])
    second = reading("Nevcastle upon", [0.9, 0.9, 0.1, 0.9, 0.9, 0.9, 0.9, *[0.9] * 7])
    assert combine([first, second], vote(2, unit=unit)).text in texts


def test_equal_votes_go_to_the_bias_and_then_to_the_first_reader() -> None:
    readings = [reading("рука"), reading("река")]
    assert combine(readings, vote(2)).text == "рука"
    biased = Vote(("a", "b"), (0.0, 0.1, 1.0, 1.0, 0.0), "character", None)
    assert combine(readings, biased).text == "река"
    assert combine([*readings, reading("река")], vote(3)).text == "река"  # two against one


def test_a_line_that_only_one_reader_has_is_its_own() -> None:
    only = reading("рука")
    assert combine([only, None], vote(2)) == only
    assert combine([None, only, reading("река", 0.5)], vote(3, kept=0)).text == "рука"


def test_words_keep_their_place_along_the_line() -> None:
    words = (Word("ab", 0, 2, 0.9, 0.0, 0.4), Word("cd", 3, 5, 0.9, 0.5, 0.9))
    combined = combine([reading("ab cd", 0.2, words), reading("ab xcd e", 0.99)], vote(2))
    assert combined.text == "ab xcd e"
    assert [(word.left, word.right) for word in combined.words[:2]] == [(0.0, 0.4), (0.5, 0.9)]
    assert combined.words[2].left is None


def test_a_reader_without_confidences_counts_by_its_bias() -> None:
    tool = Prediction("line", "река", 0, False)
    for bias, text in ((-1.0, "рука"), (9.0, "река")):
        combined = combine([reading("рука"), tool], Vote(("a", "b"), (0.0, bias, 1.0, 1.0, 0.0), "character", None))
        assert combined.text == text
        assert combined.characters[1] < combined.characters[0]


@pytest.fixture
def scans(tmp_path: Path) -> tuple[Path, list[tuple[int, int, int, int]]]:
    boxes = draw_page(tmp_path / "scans" / "p1.png")
    return tmp_path / "scans", boxes


def page_of_another_tool(folder: Path, boxes: Sequence[tuple[int, int, int, int]]) -> Path:
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


def test_pages_of_another_tool_are_found_by_position(
    scans: tuple[Path, list[tuple[int, int, int, int]]], tmp_path: Path
) -> None:
    folder, _ = scans
    run = fake_run(tmp_path / "run")
    first = rows_of(transcribe(run, [folder], tmp_path / "alone.jsonl", segmenter="builtin", reader=Hashes()).out)
    assert len(first) == 3
    pages = transcribe(run, [folder], tmp_path / "page", formats=["page"], segmenter="builtin", reader=Hashes()).out
    found = read_predictions(pages / "p1.xml").predictions
    boxes = [one.outline.box for one in found if one.outline]
    texts = PlacedTexts(read_predictions(page_of_another_tool(tmp_path / "tool", boxes)), TextPolicy())
    for kept in (0, 1):
        out = tmp_path / f"{kept}.jsonl"
        report = transcribe(
            run,
            [folder],
            out,
            segmenter="builtin",
            reader=Hashes(),
            combiner=Combiner(Vote(("run", "tool"), kept=kept), [texts]),
            review=tmp_path / f"{kept}.txt",
        )
        rows = rows_of(out)
        assert report.disputed == 3
        tool = [f"other {number}" for number in range(3)]
        assert [row["text"] for row in rows] == ([row["text"] for row in first] if kept == 0 else tool)
        review = (tmp_path / f"{kept}.txt").read_text(encoding="utf-8").splitlines()
        assert {line.split("\t")[4] for line in review} == set(
            tool if kept == 0 else (str(row["text"]) for row in first)
        )


def test_of_two_pages_with_one_name_neither_is_taken(tmp_path: Path) -> None:
    outline = Outline((0, 0, 90, 20))
    found = [FoundPrediction(page, "l1", page, page=page, outline=outline) for page in ("a/1", "b/1", "b/2")]
    texts = PlacedTexts(PredictionFile(tmp_path, found, "", has_positions=True), TextPolicy())
    for page, text in {"a/1": "a/1", "1": None, "c/1": None, "c/2": "b/2", "3": None}.items():
        for place in (LinePlace("line", page, "l1", outline), LinePlace("page", page)):
            prediction = texts.find(place)
            assert (None if prediction is None else prediction.text) == text


def test_a_second_network_reads_the_same_lines(
    scans: tuple[Path, list[tuple[int, int, int, int]]], tmp_path: Path
) -> None:
    folder, _ = scans
    run, other = fake_run(tmp_path / "run"), Hashes(lines=2)
    combiner = Combiner(Vote(("run", "second"), kept=1), [other])
    rows = rows_of(transcribe(run, [folder], tmp_path / "o.jsonl", reader=Hashes(), combiner=combiner, unit="page").out)
    assert other.read_ids
    assert [str(row["text"]).partition(" ")[0] for row in rows] == ["слово", "строка"]
