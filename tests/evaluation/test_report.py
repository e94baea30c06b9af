"""The report of a run holds what was measured, first in plain words, and no text can become part of its code."""

import base64
import io
import json
import re
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from dsocr.document import Split
from dsocr.evaluation import result_pages
from dsocr.evaluation.calibration import CalibrationReport, JudgedLine
from dsocr.evaluation.compare import System, compare, read_lines
from dsocr.evaluation.metrics import ErrorRate, of_hundred
from dsocr.evaluation.report import (
    character_tables,
    commands,
    describe_in_words,
    gather_contents,
    render_report,
    report,
)
from dsocr.evaluation.result_pages import (
    LONGEST,
    Axis,
    chapters_of,
    differences,
    other_lines,
    score_changes,
)
from dsocr.evaluation.scorecard import CharacterErrors, Scorecard, make_scorecard
from dsocr.evaluation.scores import LineScore, Score, WriterStatus, load_lines
from dsocr.inference.confidence import UNCALIBRATED
from dsocr.inference.review import CheckedShare, checking_curve
from dsocr.io.work import write_file
from dsocr.models.generation import ScoredText
from dsocr.runs import RunFolder, to_json
from dsocr.text import comparable
from tests.conftest import rendering
from tests.evaluation.making_runs import (
    change_card,
    make_evaluated_run,
    misread,
    other_test_split,
    read_better,
    scored,
)
from tests.html_pages import Page
from tests.raising import raises_code


def line(number: int, errors: int, *, looping: bool = False) -> LineScore:
    """A line of a hundred characters with the given number of errors."""
    (made,) = scored(("a" * 100, "b"))
    return replace(made, id=f"{number}.png", cer=ErrorRate(errors, 100), exact=not errors, looping=looping)


def test_a_line_is_in_every_chapter_it_belongs_to() -> None:
    base = [line(number, 10) for number in range(6)]
    adapter = [line(0, 0), line(1, 10), line(2, 30, looping=True), *base[3:]]
    chapters = chapters_of(read_lines([base, adapter]), ["base", "adapter"])
    assert {chapter.key: [line.number for line in chapter.lines] for chapter in chapters} == {
        "sample": [1, 2, 3, 4, 5, 6],
        "worst": [3, 2, 4, 5, 6],
        "better": [1],
        "worse": [3],
        "failures": [3],
    }


def test_the_sample_is_the_same_each_time_and_independent_of_errors() -> None:
    good, bad = (read_lines([[line(number, number * wrong) for number in range(500)]]) for wrong in (0, 1))
    (drawn,) = chapters_of(good, ["adapter"])
    assert len(drawn.lines) == 30
    again, worst = chapters_of(bad, ["adapter"])
    assert [line.number for line in drawn.lines] == [line.number for line in again.lines]
    assert worst.key == "worst"


def test_other_lines_end_where_the_room_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = read_lines([[line(number, number % 7) for number in range(500)]])
    chapters = chapters_of(lines, ["adapter"])
    everything, left = other_lines(lines, chapters)
    errors = [one.last.cer.errors for one in everything]
    assert (left, errors) == (0, sorted(errors, reverse=True))
    monkeypatch.setattr(result_pages, "MOST_TEXT", 20_000)
    some, left = other_lines(lines, chapters)
    assert 0 < len(some) < 50
    assert (some, left) == (everything[: len(some)], len(everything) - len(some))


@given(st.text("аб <&>'\"ё", max_size=14), st.text("аб <&>'\"ё", max_size=14))
def test_differences_hold_both_texts(reference: str, prediction: str) -> None:
    parts, hidden = differences(reference, prediction)
    assert hidden == 0
    assert "".join(text for tag, text in parts if tag != "ins") == comparable(reference)
    assert "".join(text for tag, text in parts if tag != "del") == comparable(prediction)


def test_a_long_text_is_cut_and_its_rest_counted() -> None:
    parts, hidden = differences("a", "a" + "b" * LONGEST * 2)
    assert sum(len(text) for _, text in parts) == LONGEST
    assert hidden == LONGEST + 1


@given(st.lists(st.floats(0, 5), max_size=5))
def test_everything_has_its_place_on_an_axis(values: list[float]) -> None:
    axis = Axis.up_to(max(values, default=0))
    assert axis.ticks[0] == 0
    assert axis.ticks[-1] == pytest.approx(axis.most)
    assert axis.most >= min(max(values, default=0), 1)
    assert all(0 <= axis.place(value) <= 100 for value in values)


def test_similar_letters_of_two_scripts_are_named() -> None:
    read = replace(line(1, 1), reference="а", prediction="a")
    tables = character_tables({"adapter": CharacterErrors.compute([read])})
    assert tables is not None
    assert tables["pairs"] == [("а (Cyrillic) read as a (Latin)", "1")]
    assert character_tables({"adapter": CharacterErrors.compute([line(1, 0)])}) is None


@pytest.mark.parametrize(
    ("errors", "change", "kind"),
    [
        pytest.param(2_010, "0.0005", "better", id="with enough digits"),
        pytest.param(2_025, "0.001", "worse", id="the other way"),
        pytest.param(2_015, "same", "", id="none"),
    ],
)
def test_a_tiny_change_is_not_shown_as_none(errors: int, change: str, kind: str) -> None:
    first, second = (Score.compute([replace(line(0, 0), cer=ErrorRate(wrong, 1_000_000))]) for wrong in (2_015, errors))
    row = score_changes([first, second])[0]
    assert re.match(rf"{change}\b", row.change)
    assert row.kind == kind


@pytest.fixture
def run(small_dataset: Path, tmp_path: Path) -> RunFolder:
    """Four lines: one loops, one was lost, one is hostile, as the base read them; the adapter reads fairly."""
    return make_evaluated_run(tmp_path / "run <b>", small_dataset, {"base": misread, "adapter": read_better})


@pytest.fixture(scope="module")
def drawn(small_dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, list[LineScore]]:
    """The page of such a run with its plots, and the lines of the adapter."""
    folder = tmp_path_factory.mktemp("drawn") / "run <b>"
    run = make_evaluated_run(folder, small_dataset, {"base": misread, "adapter": read_better})
    with rendering():
        return render_report(gather_contents(run)), load_lines(run.lines)["adapter"]


def test_the_page_shows_scores_curves_lines_and_provenance(drawn: tuple[str, list[LineScore]]) -> None:
    html, lines = drawn
    page = Page(html)
    assert all(line.reference in page.words and line.place in page.words for line in lines)
    assert lines[0].place == "line 21 of lines.jsonl"
    assert {"changes", "groups", "curves", "lines", "provenance", "again"} <= set(page.values("id"))
    for words in ("4 lines by 3 writers", "looping", "validation CER", "dsocr evaluate runs/again --split test"):
        assert words in page.words
    assert page.tags.count("article") == page.tags.count("img") == 4, "each line once, whatever chapters it is in"
    assert f"<del>{lines[0].reference[-1]}</del>" in html
    assert re.search(r"and [\d,]+ characters more", html), "a loop is cut"
    assert html.count("далее") < 300


def test_no_text_becomes_code(drawn: tuple[str, list[LineScore]]) -> None:
    html, _ = drawn
    page = Page(html)
    assert "run <b>" in page.words
    assert html.count("<script") == page.tags.count("script") == 1, "its own, and not the one that was read"
    assert "&lt;script&gt;" in html.partition('id="lines"')[2]
    assert not {"link", "iframe", "object", "embed"} & set(page.tags)
    assert not re.search("https?:", html)
    assert {name for name, _ in page.attributes if name.startswith("on")} == set()
    for source in page.values("src"):
        kind, _, data = source.partition(",")
        assert kind == "data:image/jpeg;base64"
        with Image.open(io.BytesIO(base64.b64decode(data))) as image:
            assert image.width <= 960


def test_a_page_holds_a_limited_number_of_images(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dsocr.evaluation.result_pages.MOST_PICTURES", 1)
    assert Page(render_report(gather_contents(run))).tags.count("img") == 1


def test_a_reading_alone_of_another_dataset(small_dataset: Path, tmp_path: Path) -> None:
    other = tmp_path / "a & b"
    shutil.copytree(small_dataset, other)
    run = make_evaluated_run(tmp_path / "run", other, {"adapter": read_better}, trained_on=small_dataset)
    contents = gather_contents(run)
    assert {str(path).startswith(str(other)) for path in contents.images.values()} == {True}
    assert f'dsocr evaluate runs/again --dataset "{other.as_posix()}" --split test --no-base' in commands(contents)
    page = Page(render_report(contents))
    assert "change" not in page.words.split()
    assert not {"better", "worse"} & set(page.values("id"))


def test_confidences_are_shown(run: RunFolder) -> None:
    judged = [JudgedLine.compute(ScoredText("да", ()), reference) for reference in ("нет", "да")]
    found = CalibrationReport.compute(UNCALIBRATED, judged, dataset="letters <b>", split=Split.TEST)
    write_file(run.confidence, to_json(found.to_dict()))
    contents = gather_contents(run)
    page = Page(render_report(contents))
    assert "confidence" in page.values("id")
    for words in ("letters <b>", "Checking the first 50 % of the lines"):
        assert words in page.words


@pytest.mark.parametrize("content", ["{", "[]", '{"points": []}'])
def test_an_unreadable_calibration_costs_only_its_table(run: RunFolder, content: str) -> None:
    run.confidence.write_text(content, encoding="utf-8")
    contents = gather_contents(run)
    assert not contents.confidence
    assert [warning.split(" ")[0] for warning in contents.warnings] == ["confidence.json"]


def test_lines_and_scorecard_must_be_of_the_same_evaluation(run: RunFolder, tmp_path: Path) -> None:
    replace(Scorecard.load(run.scorecard), base=None).save(run.scorecard)
    for folder, code in ((run, "evaluation-mixed"), (RunFolder(tmp_path), "scorecard-missing")):
        with raises_code(code):
            gather_contents(folder)


def test_a_missing_dataset_costs_only_images(run: RunFolder, tmp_path: Path) -> None:
    contents = gather_contents(run, tmp_path / "nowhere")
    (warning,) = contents.warnings
    page = Page(render_report(contents))
    assert warning in page.words
    assert (page.tags.count("img"), page.tags.count("article")) == (0, 4)


def test_a_changed_dataset_is_a_warning_and_its_changed_line_has_no_image(
    run: RunFolder, small_dataset: Path, tmp_path: Path
) -> None:
    changed = change_card(small_dataset, tmp_path / "changed", other_test_split)
    metadata = changed / "test" / "metadata.jsonl"
    rows = metadata.read_text(encoding="utf-8").splitlines()
    rows[0] = json.dumps(json.loads(rows[0]) | {"text": "another"})
    metadata.write_text("\n".join(rows) + "\n", encoding="utf-8")
    contents = gather_contents(run, changed)
    assert (len(contents.images), len(contents.warnings)) == (3, 2)
    assert contents.warnings[1].startswith("1 of 4 lines")


def test_a_report_is_written_where_there_is_a_folder(run: RunFolder, tmp_path: Path) -> None:
    with raises_code("output-folder-missing"):
        report(run.path, output=tmp_path / "nowhere" / "r.html")


TEXT = "съешь ещё этих мягких булок"


def sixty_lines(wrong: int, writers: int = 7, status: WriterStatus = "new") -> list[LineScore]:
    """Sixty lines; in every second one some letters are wrong."""
    pairs = ((TEXT, "x" * wrong * (n % 2) + TEXT[wrong * (n % 2) :]) for n in range(60))
    lines = scored(*pairs, writers=[f"w{n % writers}" for n in range(60)])
    return [replace(line, writer_status=status) for line in lines]


def card(writers: int, *, new: bool = True, wrong: int = 3) -> Scorecard:
    return make_scorecard("test", {"adapter": sixty_lines(wrong, writers, "new" if new else "known")})


def test_a_rate_has_one_notation() -> None:
    for rate, words in ((1 / 16, "6 of 100"), (0.405, "40 of 100"), (0.004, "4 of 1,000"), (0.0, "0 of 100")):
        assert of_hundred(rate, "letter") == f"{words} letters"


def words_of(card: Scorecard, budget: Sequence[CheckedShare] = ()) -> list[str]:
    return list(describe_in_words(card, None, budget))


def test_the_result_names_its_writers_and_lines() -> None:
    text = " ".join(words_of(card(7), checking_curve([(6, 30)] * 10 + [(1, 30)] * 50)))
    for part in ("6 of 100 letters", "30 of 60 lines", "7 new writers, 60 lines", "first 10 % of the lines", "between"):
        assert part in text


@pytest.mark.parametrize(("writers", "new"), [(1, True), (4, True), (7, False)])
def test_nothing_is_promised_for_new_writers_without_five_of_them(writers: int, new: bool) -> None:
    assert not any("between" in sentence for sentence in words_of(card(writers, new=new)))


def test_no_errors_are_no_promise_of_none() -> None:
    """Of eight writers without an error, 5 % of such sets come from a population in which 31 % have some."""
    perfect = card(8, wrong=0)
    assert perfect.interval is None
    (sentence,) = perfect.uncertainty
    assert "31 % of all writers" in sentence
    assert words_of(perfect)[0].startswith("All 60 lines")


@pytest.mark.parametrize(("trained", "harm", "advice"), [(12, True, "base"), (1, False, "transcribe")])
def test_the_first_line_says_when_training_did_harm(trained: int, harm: bool, advice: str) -> None:
    readings = {"base": sixty_lines(6), "adapter": sixty_lines(trained)}
    both = make_scorecard("test", readings)
    (difference,) = compare([System(name, read) for name, read in readings.items()]).differences
    words = list(describe_in_words(both, difference))
    assert ("harm" in words[0]) == harm
    assert advice in words[-1]
    assert len(words) <= 8
