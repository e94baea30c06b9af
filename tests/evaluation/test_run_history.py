"""The runs of a folder over time and over the lines that they were trained on."""

import json
from pathlib import Path

import pytest
from PIL import Image

from dsocr.evaluation.report.run_history import history_plot, is_folder_of_runs, list_runs, write_history
from dsocr.runs import RunFolder
from tests.evaluation.making_runs import Reader, make_evaluated_run, misread, read_better
from tests.html_pages import Page
from tests.raising import raises_code


def make_past_run(folder: Path, dataset: Path, reader: Reader, begun_at: str, lines: int | None = None) -> RunFolder:
    run = make_evaluated_run(folder, dataset, {"adapter": reader})
    made = {"begun_at": begun_at, "dataset": {"train": "abcdef0123"}, "training_samples": lines}
    run.provenance.write_text(json.dumps(made), encoding="utf-8")
    return run


@pytest.fixture
def folder(small_dataset: Path, tmp_path: Path) -> Path:
    """Two evaluated runs, the newer first by name, one that is not evaluated, a damaged one, and what is no run."""
    runs = tmp_path / "runs"
    make_past_run(runs / "a_new", small_dataset, read_better, "2026-03-01T00:00:00+00:00", 16)
    make_past_run(runs / "later" / "b_old", small_dataset, misread, "2026-02-01T00:00:00+00:00", 8)
    waiting = make_past_run(runs / "c", small_dataset, misread, "2026-04-01T00:00:00+00:00")
    waiting.scorecard.unlink()
    waiting.log.write_text("12 INFO 5 training samples, 1 excluded as too long\n", encoding="utf-8")
    damaged = make_past_run(runs / "d", small_dataset, misread, "2026-04-02T00:00:00+00:00")
    damaged.scorecard.write_text("{", encoding="utf-8")
    (runs / "notes" / "more").mkdir(parents=True)
    return runs


def test_runs_are_listed_by_date_with_what_they_were_trained_on(folder: Path) -> None:
    assert is_folder_of_runs(folder)
    assert not is_folder_of_runs(folder / "a_new")
    assert not is_folder_of_runs(folder / "notes")
    runs, skipped = list_runs(folder)
    assert [(run.name, run.lines) for run in runs] == [("later/b_old", 8), ("a_new", 16), ("c", 5)]
    assert [run.score is None for run in runs] == [False, False, True]
    assert runs[0].scored_on == runs[1].scored_on
    assert {sentence.partition(" ")[0] for sentence in skipped} == {"notes", "d"}
    assert {run.data for run in runs} == {"abcdef0123"}


def test_a_page_and_a_picture_show_them(folder: Path, tmp_path: Path) -> None:
    runs, skipped = write_history(folder, tmp_path / "history.html")
    html = (tmp_path / "history.html").read_text(encoding="utf-8")
    assert html.count("<svg") == 2
    page = Page(html)
    assert all(run.name in html for run in runs)
    assert all(sentence.partition(" ")[0] in html for sentence in skipped)
    assert "dsocr compare" in html
    assert page.values("style")
    write_history(folder, tmp_path / "history.png")
    with Image.open(tmp_path / "history.png") as image:
        assert image.width > 500


def test_points_are_the_scores_with_their_intervals(folder: Path) -> None:
    from matplotlib.figure import Figure

    runs, _ = list_runs(folder)
    axes = Figure().subplots()
    history_plot(runs, over_lines=True)(axes)
    (line, *_) = axes.containers[0]
    rates = [100 * run.score.cer.rate for run in runs if run.score]
    assert line.get_xydata().tolist() == [[8, pytest.approx(rates[0])], [16, pytest.approx(rates[1])]]


def test_runs_scored_on_other_lines_are_not_joined(folder: Path, small_dataset: Path) -> None:
    other = make_past_run(folder / "z", small_dataset, misread, "2026-05-01T00:00:00+00:00", 4)
    card = json.loads(other.scorecard.read_text(encoding="utf-8"))
    card["dataset"]["test"] = "f" * 64
    other.scorecard.write_text(json.dumps(card), encoding="utf-8")
    assert len({run.scored_on for run in list_runs(folder)[0] if run.score}) == 2


def test_a_folder_without_runs_is_an_error(tmp_path: Path) -> None:
    with raises_code("no-runs"):
        list_runs(tmp_path)
    with raises_code("curves-suffix"):
        write_history(tmp_path, tmp_path / "history.svg")
