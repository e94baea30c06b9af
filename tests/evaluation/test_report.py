"""The report of a run holds what was measured, and nothing in a text can become part of its code."""

import base64
import io
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image

from dsocr.document import Split
from dsocr.errors import DataError, RunError
from dsocr.evaluation.calibration import CalibrationReport, JudgedLine
from dsocr.evaluation.evaluate import GuardResult
from dsocr.evaluation.metrics import ErrorRate
from dsocr.evaluation.report import lines as lines_module
from dsocr.evaluation.report.contents import commands, gather_contents
from dsocr.evaluation.report.report import drop_reports, render_markdown, render_report, write_report
from dsocr.evaluation.scorecard import Scorecard
from dsocr.evaluation.scores import load_lines
from dsocr.inference.confidence import UNCALIBRATED, ScoredText
from dsocr.runs import RunFolder, to_json, write_atomically
from tests.evaluation.making_runs import make_evaluated_run, misread, read_better
from tests.html_pages import Page


@pytest.fixture
def run(small_dataset: Path, tmp_path: Path) -> RunFolder:
    """Four lines: one loops, one was lost, one is hostile, as the base read them; the adapter reads fairly."""
    return make_evaluated_run(tmp_path / "run <b>", small_dataset, {"base": misread, "adapter": read_better})


def test_the_page_shows_scores_curves_lines_and_provenance(run: RunFolder) -> None:
    html = render_report(gather_contents(run))
    page = Page(html)
    lines = load_lines(run.lines)
    assert all(line.reference in page.words for line in lines["adapter"])
    assert {"changes", "groups", "curves", "lines", "provenance", "again"} <= set(page.values("id"))
    assert "4 lines by 3 writers" in page.words
    assert "looping" in page.words
    assert "validation CER" in page.words
    assert "dsocr evaluate runs/again --split test" in page.words
    assert page.tags.count("article") == 4, "each line once, whatever chapters it stands in"
    assert page.tags.count("img") == 4


def test_no_text_becomes_code(run: RunFolder) -> None:
    html = render_report(gather_contents(run))
    page = Page(html)
    assert "run <b>" in page.words
    assert html.count("<script") == 1, "its own, and not the one that was read"
    assert "&lt;" in html.partition('id="lines"')[2]
    assert page.tags.count("script") == 1
    assert not {"link", "iframe", "object", "embed"} & set(page.tags)
    assert not re.search("https?:", html)
    assert {name for name, _ in page.attributes if name.startswith("on")} == set()
    for source in page.values("src"):
        kind, _, data = source.partition(",")
        assert kind == "data:image/jpeg;base64"
        with Image.open(io.BytesIO(base64.b64decode(data))) as image:
            assert image.width <= 960


def test_the_text_of_a_loop_is_cut_and_counted(run: RunFolder) -> None:
    html = render_report(gather_contents(run))
    assert re.search(r"and [\d,]+ characters more", html)
    assert html.count("далее") < 300


def test_the_marks_of_a_line_are_its_errors(run: RunFolder) -> None:
    html = render_report(gather_contents(run))
    last = load_lines(run.lines)["adapter"][0].reference[-1]
    assert f"<del>{last}</del>" in html


def test_a_page_holds_a_limited_number_of_images(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines_module, "MOST_PICTURES", 1)
    page = Page(render_report(gather_contents(run)))
    assert page.tags.count("img") == 1


def test_without_a_base_nothing_is_compared(small_dataset: Path, tmp_path: Path) -> None:
    run = make_evaluated_run(tmp_path / "run", small_dataset, {"adapter": read_better})
    page = Page(render_report(gather_contents(run)))
    assert "change" not in page.words.split()
    assert not {"better", "worse"} & set(page.values("id"))


def test_the_commands_name_another_dataset_and_a_missing_base(small_dataset: Path, tmp_path: Path) -> None:
    other = tmp_path / "a & b"
    shutil.copytree(small_dataset, other)
    run = make_evaluated_run(tmp_path / "run", other, {"adapter": read_better}, trained_on=small_dataset)
    contents = gather_contents(run)
    assert {str(path).startswith(str(other)) for path in contents.images.values()} == {True}
    assert f'dsocr evaluate runs/again --dataset "{other.as_posix()}" --split test --no-base' in commands(contents)


def with_extras(run: RunFolder, *, drop: int = 1) -> RunFolder:
    """The run with confidences and a guard set on which the adapter makes this many more errors."""
    guard = GuardResult("print <b>", 20, 1.5, ErrorRate(2, 100), ErrorRate(2 + drop, 100))
    replace(Scorecard.load(run.scorecard), guard=guard.to_dict()).save(run.scorecard)
    judged = [JudgedLine.compute(ScoredText("да", ()), reference) for reference in ("нет", "да")]
    found = CalibrationReport.compute(UNCALIBRATED, judged, dataset="letters", split=Split.TEST)
    write_atomically(run.confidence, to_json(found.to_dict()))
    return run


def test_the_guard_set_and_the_confidences_are_shown(run: RunFolder) -> None:
    contents = gather_contents(with_extras(run))
    html, text = render_report(contents), render_markdown(contents)
    page = Page(html)
    assert {"guard", "confidence"} <= set(page.values("id"))
    assert 'class="warning"' not in html
    for shown in ("print <b>", "2.00%", "3.00%", "within the margin of 1.5 points"):
        assert shown in page.words
        assert shown in text
    assert "Checking the least confident 50% of the lines" in page.words
    assert "Checking the least confident 50% of the lines" in text


def test_forgetting_too_much_is_a_warning(run: RunFolder) -> None:
    html = render_report(gather_contents(with_extras(run, drop=40)))
    assert '<p class="warning">The CER of the guard set' in html


@pytest.mark.parametrize("content", ["{", "[]", '{"points": []}'])
def test_an_unreadable_calibration_costs_only_its_table(run: RunFolder, content: str) -> None:
    run.confidence.write_text(content, encoding="utf-8")
    contents = gather_contents(run)
    assert contents.extras == []
    assert [warning.split(" ")[0] for warning in contents.warnings] == ["confidence.json"]
    assert "run `dsocr evaluate RUN` again" in Page(render_report(contents)).words


def test_lines_and_scorecard_must_be_of_the_same_evaluation(run: RunFolder) -> None:
    replace(Scorecard.load(run.scorecard), base=None).save(run.scorecard)
    with pytest.raises(RunError) as caught:
        gather_contents(run)
    assert caught.value.code == "evaluation-mixed"


def test_a_missing_dataset_costs_only_images(run: RunFolder, tmp_path: Path) -> None:
    contents = gather_contents(run, tmp_path / "nowhere")
    (warning,) = contents.warnings
    page = Page(render_report(contents))
    assert warning in page.words
    assert page.tags.count("img") == 0
    assert page.tags.count("article") == 4


def test_a_changed_dataset_is_a_warning_and_its_changed_line_has_no_image(
    run: RunFolder, small_dataset: Path, tmp_path: Path
) -> None:
    changed = shutil.copytree(small_dataset, tmp_path / "changed")
    metadata = changed / "test" / "metadata.jsonl"
    rows = metadata.read_text(encoding="utf-8").splitlines()
    first = json.loads(rows[0])
    rows[0] = json.dumps(first | {"text": "another"})
    metadata.write_text("\n".join(rows) + "\n", encoding="utf-8")
    card = json.loads((changed / "dataset.json").read_text(encoding="utf-8"))
    card["splits"]["test"]["sha256"] = "0" * 64
    (changed / "dataset.json").write_text(json.dumps(card), encoding="utf-8")
    contents = gather_contents(run, changed)
    assert len(contents.images) == 3
    assert len(contents.warnings) == 2
    assert any(warning.startswith("1 of 4 lines") for warning in contents.warnings)


def test_markdown_keeps_texts_in_code_spans(run: RunFolder) -> None:
    text = render_markdown(gather_contents(run))
    assert text.startswith("# How well run \\<b\\> reads\n")
    assert "| CER |" in text
    outside = re.sub(r"(`+) .*? \1|^    .*$", "", text, flags=re.MULTILINE)
    assert "<script" not in outside
    assert "<b>" not in outside
    for row in re.findall(r"^\|.*\|$", text, flags=re.MULTILINE):
        assert len(re.findall(r"(?<!\\)\|", row)) in {3, 4, 5}


def test_a_report_is_written_to_the_run_or_elsewhere(run: RunFolder, tmp_path: Path) -> None:
    assert write_report(run)[0] == run.report
    assert write_report(run, markdown=True)[0] == run.path / "report.md"
    assert write_report(run, out=tmp_path / "r.html")[0].is_file()
    with pytest.raises(DataError) as caught:
        write_report(run, out=tmp_path / "nowhere" / "r.html")
    assert caught.value.code == "output-folder-missing"


@pytest.mark.parametrize("drawn", [True, False])
def test_no_report_contradicts_a_newer_scorecard(drawn: bool, run: RunFolder) -> None:
    assert drop_reports(run, drawn=drawn) == []
    for name in ("report.html", "report.md"):
        (run.path / name).write_text("old", encoding="utf-8")
    messages = drop_reports(run, drawn=drawn)
    assert run.report.exists() == drawn
    assert [sentence.partition(" ")[0] for sentence in messages[:-1]] == ([] if drawn else ["removed"])
    assert f'`dsocr report "{run.path}" --markdown`' in messages[-1]
    assert (run.path / "report.md").exists(), "it may be part of a repository"


def test_a_page_that_cannot_be_removed_is_reported(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(path: Path) -> None:
        raise PermissionError(13, "it is open in another program")

    run.report.write_text("old", encoding="utf-8")
    monkeypatch.setattr(Path, "unlink", fail)
    (message,) = drop_reports(run, drawn=False)
    assert message.endswith("cannot be removed: it is open in another program")


def test_a_run_without_an_evaluation_has_no_report(tmp_path: Path) -> None:
    with pytest.raises(RunError) as caught:
        gather_contents(RunFolder(tmp_path))
    assert caught.value.hint
    assert "dsocr evaluate" in caught.value.hint
