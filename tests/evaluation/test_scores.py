"""Lines are scored and pooled without losing any, and survive their file."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import TypeAdapter

from dsocr.document import Sample
from dsocr.errors import RunError
from dsocr.evaluation.metrics import ErrorRate
from dsocr.evaluation.scores import (
    ReadText,
    Score,
    WriterStatus,
    load_lines,
    score_lines,
    write_lines,
    writer_statuses,
)
from dsocr.evaluation.statistics import clusters_of
from tests.evaluation.making_runs import sample
from tests.raising import raises_code

LINES = [sample("a", "ёлка", "Анна"), sample("b", "перо", "Борис"), sample("c", "йод")]
READ = {"a": ReadText("ёлка"), "b": ReadText(""), "c": ReadText("йод йод", truncated=True)}
SCORED = score_lines(LINES, READ, {"Анна": "known", "Борис": "new"})
ROW = {"model": "base", **SCORED[0].to_dict()}


def test_lines_are_scored_in_the_order_of_the_samples() -> None:
    scored = score_lines(LINES, dict(reversed(READ.items())), {"Анна": "known", "Борис": "new"})
    assert [(line.id, line.writer_status) for line in scored] == [("a", "known"), ("b", "new"), ("c", "unknown")]
    again = score_lines(LINES, READ, trained=[replace(LINES[1], id="elsewhere")])
    assert [line.seen_text for line in again] == [False, True, False]
    assert [line.cer for line in scored] == [ErrorRate(0, 4), ErrorRate(4, 4), ErrorRate(4, 3)]
    assert [(line.exact, line.empty, line.runaway) for line in scored] == [
        (True, False, False),
        (False, True, False),
        (False, False, True),
    ]


def test_equal_page_names_in_several_documents_are_different_pages() -> None:
    pages = [replace(sample(f"{n}", "йод", page="1"), document=f"letter {n}") for n in range(6)]
    scored = score_lines([*pages, sample("x", "йод", page="1")], {name: ReadText("йод") for name in "012345x"})
    assert [line.page for line in scored[-2:]] == ["letter 5/1", "1"]
    assert (clusters_of(scored).unit, clusters_of(scored).count) == ("page", 7)


def test_failures_are_recorded_and_counted() -> None:
    failed = score_lines([replace(sample("a", "Милая Соня"), source="letters")], {"a": ReadText("oh " * 40)})[0]
    assert (failed.looping, failed.over_long, failed.wrong_script, failed.runaway) == (True, True, True, True)
    assert (failed.truncated, failed.empty, failed.source) == (False, False, "letters")
    removed = score_lines(LINES[:1], {"a": ReadText("ёл", truncated=True, looping=True)})[0]
    assert removed.looping, "a loop counts even if it was removed from the text"
    score = Score.compute(SCORED, seconds=2.0)
    assert (score.cer, score.lines, score.exact, score.runaway) == (ErrorRate(8, 11), 3, 1, 1)
    assert score.failures == {"empty": 1, "truncated": 1, "looping": 0, "over_long": 0, "wrong_script": 0}
    values = TypeAdapter(Score).dump_python(score)
    assert values["cer"] == {"rate": 8 / 11, "errors": 8, "length": 11}
    assert TypeAdapter(Score).validate_python(values) == score
    assert score_lines([sample("a", "")], {"a": ReadText("да")})[0].to_dict()["cer"]["rate"] is None


@pytest.mark.parametrize(
    ("samples", "predictions", "code"),
    [
        pytest.param([], {}, "no-lines", id="an empty split is not a perfect one"),
        pytest.param(LINES, {"a": ReadText("")}, "prediction-missing", id="missing"),
        pytest.param(LINES, {**READ, "d": ReadText("")}, "prediction-unmatched", id="extra"),
        pytest.param([*LINES, LINES[0]], READ, "duplicate-id", id="twice"),
    ],
)
def test_nothing_is_dropped_silently(samples: list[Sample], predictions: Mapping[str, ReadText], code: str) -> None:
    with raises_code(code):
        score_lines(samples, predictions)


@pytest.mark.parametrize(
    ("training", "expected"),
    [
        pytest.param(["Анна"], ("known", "new"), id="all writers named"),
        pytest.param(["Анна", None], ("known", "unknown"), id="Борис may be the unnamed one"),
        pytest.param([None], ("unknown", "unknown"), id="no writer named"),
    ],
)
def test_a_writer_is_new_only_if_that_is_certain(
    training: list[str | None], expected: tuple[WriterStatus, WriterStatus]
) -> None:
    statuses = writer_statuses(training, ["Анна", "Борис", None])
    assert statuses == dict(zip(["Анна", "Борис"], expected, strict=True)) | {None: "unknown"}


@pytest.mark.parametrize("models", [("base", "adapter"), ("adapter",)])
def test_lines_survive_their_file(tmp_path: Path, models: tuple[str, ...]) -> None:
    path = tmp_path / "lines.jsonl"
    write_lines(path, dict.fromkeys(models, SCORED))
    assert load_lines(path) == dict.fromkeys(models, SCORED)


def without(name: str) -> dict[str, object]:
    return {key: value for key, value in ROW.items() if key != name}


@pytest.mark.parametrize(
    ("rows", "code", "line"),
    [
        pytest.param([], "lines-missing", "", id="an empty file"),
        pytest.param(["{"], "lines-invalid", ":1", id="not JSON"),
        pytest.param(["7"], "lines-invalid", ":1", id="not an object"),
        pytest.param([ROW, without("looping")], "lines-invalid", ":2", id="a missing key"),
        pytest.param([ROW | {"confidence": 1}], "lines-invalid", ":1", id="newer"),
        pytest.param([without("model")], "lines-invalid", ":1", id="no model"),
        pytest.param([ROW | {"model": "gpt"}], "lines-invalid", ":1", id="another model"),
        pytest.param([ROW | {"cer": {"errors": "1", "length": 4}}], "lines-invalid", ":1", id="count is a text"),
        pytest.param([ROW | {"writer": 5}], "lines-invalid", ":1", id="writer is a number"),
        pytest.param([ROW | {"exact": "no"}], "lines-invalid", ":1", id="flag is a text"),
        pytest.param([ROW, ROW], "lines-invalid", ":2", id="duplicate"),
    ],
)
def test_an_invalid_file_is_rejected_with_its_line(tmp_path: Path, rows: list[object], code: str, line: str) -> None:
    path = tmp_path / "lines.jsonl"
    path.write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows), encoding="utf-8")
    with pytest.raises(RunError) as caught:
        load_lines(path)
    assert (caught.value.code, caught.value.where) == (code, f"{path}{line}")


def test_a_missing_or_undecodable_file_is_reported(tmp_path: Path) -> None:
    for content, code in ((None, "lines-missing"), (b"\xff\xfe", "lines-invalid")):
        if content is not None:
            (tmp_path / "lines.jsonl").write_bytes(content)
        with raises_code(code):
            load_lines(tmp_path / "lines.jsonl")
