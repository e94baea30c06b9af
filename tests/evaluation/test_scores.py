from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from dsocr.document import Sample, Split
from dsocr.errors import DataError
from dsocr.evaluation.metrics import ErrorRate
from dsocr.evaluation.scores import Hand, LineScore, Score, hands_by_writer, score_lines
from dsocr.evaluation.statistics import clusters_of


@dataclass(frozen=True)
class Read:
    text: str
    truncated: bool = False
    looping: bool = False


def line(name: str, text: str, writer: str | None = None) -> Sample:
    return Sample(id=name, image=Path(name), text=text, split=Split.TEST, writer=writer)


LINES = [line("a", "ёлка", "Анна"), line("b", "перо", "Борис"), line("c", "йод")]
READ = {"a": Read("ёлка"), "b": Read(""), "c": Read("йод йод", truncated=True)}


def test_lines_are_scored_in_the_order_of_the_references() -> None:
    scored = score_lines(LINES, dict(reversed(READ.items())), {"Анна": "known", "Борис": "new"})
    assert [(score.id, score.hand) for score in scored] == [("a", "known"), ("b", "new"), ("c", "unknown")]
    assert [score.cer for score in scored] == [ErrorRate(0, 4), ErrorRate(4, 4), ErrorRate(4, 3)]
    assert [(score.exact, score.empty, score.runaway) for score in scored] == [
        (True, False, False),
        (False, True, False),
        (False, False, True),
    ]


def test_pages_of_one_name_in_several_documents_are_several() -> None:
    pages = [replace(line(f"{n}", "йод"), page="1", document=f"letter {n}") for n in range(6)]
    scored = score_lines([*pages, replace(line("x", "йод"), page="1")], {name: Read("йод") for name in "012345x"})
    assert [score.page for score in scored[-2:]] == ["letter 5/1", "1"]
    assert (clusters_of(scored).unit, clusters_of(scored).count) == ("page", 7)


def test_failed_lines_are_counted_and_cost_what_they_cost() -> None:
    score = Score.of(score_lines(LINES, READ), seconds=2.0)
    assert score.cer == ErrorRate(8, 11)
    assert (score.lines, score.exact, score.runaway, score.seconds) == (3, 1, 1, 2.0)
    assert score.failures == {"empty": 1, "truncated": 1, "looping": 0, "over_long": 0, "wrong_script": 0}
    assert (score.as_dict()["truncated_lines"], score.as_dict()["truncated_rate"]) == (1, 0.333333)


def test_a_loop_counts_that_was_cut_off_before_it_was_written() -> None:
    assert score_lines([line("a", "ёлка")], {"a": Read("ёл", truncated=True, looping=True)})[0].looping


def test_a_line_knows_its_page_and_source_and_how_it_failed() -> None:
    known = replace(line("a", "Милая Соня"), page="p1", source="letters")
    scored = score_lines([known], {"a": Read("oh " * 40)})[0]
    assert (scored.page, scored.source) == ("p1", "letters")
    assert (scored.looping, scored.over_long, scored.wrong_script) == (True, True, True)
    assert (scored.truncated, scored.empty, scored.runaway) == (False, False, True)


@pytest.mark.parametrize(
    ("references", "predictions", "problem"),
    [
        pytest.param([], {}, "there is no line to score", id="an empty split is not a perfect one"),
        pytest.param(LINES, {"a": Read("")}, "no prediction for 2 of 3 lines: b, c", id="missing"),
        pytest.param(LINES, {**READ, "d": Read("")}, "belong to no line, 1 in all: d", id="extra"),
        pytest.param([*LINES, LINES[0]], READ, "two references have the same id: a", id="twice"),
    ],
)
def test_nothing_is_dropped_in_silence(references: list[Sample], predictions: Mapping[str, Read], problem: str) -> None:
    with pytest.raises(DataError, match=problem):
        score_lines(references, predictions)


@pytest.mark.parametrize(
    ("training", "expected"),
    [
        pytest.param(["Анна"], {"Анна": "known", "Борис": "new", None: "unknown"}, id="all writers named"),
        pytest.param(
            ["Анна", None], {"Анна": "known", "Борис": "unknown", None: "unknown"}, id="Борис may be the unnamed"
        ),
        pytest.param([None], {"Анна": "unknown", "Борис": "unknown", None: "unknown"}, id="no writer named"),
    ],
)
def test_a_hand_is_new_only_where_that_is_certain(training: list[str | None], expected: dict[str | None, Hand]) -> None:
    assert hands_by_writer(training, ["Анна", "Борис", None]) == expected


def test_scores_survive_json() -> None:
    scored = score_lines(LINES, READ)
    assert [LineScore.from_dict(score.as_dict()) for score in scored] == scored
    score = Score.of(scored, 1.5)
    assert score.as_dict()["cer"] == 8 / 11
    assert Score.from_dict(score.as_dict()) == score


def test_a_rate_over_no_text_is_null_in_json() -> None:
    score = Score.of(score_lines([line("a", "")], {"a": Read("да")}))
    assert score.as_dict()["cer"] is None
    assert Score.from_dict(score.as_dict()) == score
