"""The pages beside the report: comparison, training curves, forecast, and the runs of a folder over time."""

import json
from pathlib import Path

import pytest
from lxml import etree
from PIL import Image

from dsocr.errors import RunError
from dsocr.evaluation.compare import ComparedGroup, System, compare
from dsocr.evaluation.learning_curve import CurvePoint, Forecast, ScoredLine
from dsocr.evaluation.metrics import ErrorRate
from dsocr.evaluation.report.contents import gather_contents, unbroken
from dsocr.evaluation.report.plots import MOST_WRITERS, curve_plots, writers_svg
from dsocr.evaluation.report.result_pages import (
    CHANGES,
    NUMBERS,
    PAGE,
    PLOT,
    render_comparison_page,
    render_curves,
    render_forecast,
    require_free,
    write_comparison,
    write_curves,
    write_forecast,
)
from dsocr.evaluation.report.run_history import history_plot, is_folder_of_runs, list_runs, write_history
from dsocr.evaluation.scores import load_lines
from dsocr.runs import RunFolder, elapsed_until, read_history
from tests.evaluation.making_runs import Reader, make_evaluated_run, misread, read_better, scored
from tests.html_pages import Page
from tests.raising import raises_code


def make_run(folder: Path, best: float = 0.2, *, tail: str = "") -> Path:
    """A run folder of thirty steps, of which step 20 read best."""
    folder.mkdir(parents=True)
    rows: list[dict[str, object]] = []
    for step in (10, 20, 30):
        training = {"loss": 3 / step, "learning_rate": 1e-4, "gradient_norm": None, "elapsed_seconds": 6.0 * step}
        rows.append({"kind": "train", "step": step, **training})
        cer = best if step == 20 else best + 0.1
        rows.append({"kind": "validation", "step": step, "loss": 0.5, "cer": cer, "elapsed_seconds": 6.0 * step})
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / "metrics.jsonl").write_text(text + tail, encoding="utf-8")
    return folder


def test_a_page_has_the_curves_of_all_runs_and_marks_the_best(tmp_path: Path) -> None:
    runs = [make_run(tmp_path / "один"), make_run(tmp_path / "<b>two", 0.1)]
    found = write_curves(runs, tmp_path / "curves.html")
    assert [history.best and history.best["step"] for history in found] == [20, 20]
    html = (tmp_path / "curves.html").read_text(encoding="utf-8")
    page = Page(html)
    assert page.words.count("best 10") == page.words.count("best 20") == 2, "over steps and over minutes"
    assert "один" in page.words
    assert "<b>two" in page.words
    assert "script" not in page.tags
    assert "http:" not in html


def test_plots_hold_the_numbers_of_the_run(tmp_path: Path) -> None:
    plots = {(plot.title, plot.axis): plot for plot in curve_plots([read_history(make_run(tmp_path / "run"))])}
    assert plots["training loss", "steps"].curves[0].points == [(10, 0.3), (20, 0.15), (30, 0.1)]
    assert [x for x, _ in plots["training loss", "minutes"].curves[0].points] == pytest.approx([1, 2, 3])
    assert not any(title == "gradient norm" for title, _ in plots), "never measured"


def test_the_guard_set_starts_with_the_base(tmp_path: Path) -> None:
    row = {"kind": "validation", "step": 40, "loss": 0.5, "cer": 0.1, "guard_cer": 0.05, "guard_base_cer": 0.02}
    run = make_run(tmp_path / "run", tail=json.dumps(row) + "\n")
    (drawn,) = [plot for plot in curve_plots([read_history(run)]) if plot.title.startswith("guard")]
    assert drawn.curves[0].points == [(0, 2.0), (40, 5.0)]


def test_a_picture_shows_each_run_in_its_colour(tmp_path: Path) -> None:
    write_curves([make_run(tmp_path / "a"), make_run(tmp_path / "b", 0.4)], tmp_path / "curves.png")
    with Image.open(tmp_path / "curves.png") as image:
        colours = {colour for _, colour in image.convert("RGB").getcolors(1 << 20) or []}
    assert {(0x1F, 0x5F, 0xA8), (0xC2, 0x50, 0x1C)} <= colours
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b", "curves.png"]


def test_rows_of_a_resumed_run_replace_earlier_ones_and_a_partial_line_is_skipped(tmp_path: Path) -> None:
    again = json.dumps({"kind": "train", "step": 30, "loss": 9.0, "learning_rate": 0, "elapsed_seconds": 500.0})
    history = read_history(make_run(tmp_path / "run", tail=f'{again}\n{{"kind": "tra'))
    assert [row["loss"] for row in history.training] == [0.3, 0.15, 9.0]
    assert elapsed_until(RunFolder(tmp_path / "run"), 20) == 120.0
    assert elapsed_until(RunFolder(tmp_path / "run"), 0) == 0.0
    assert elapsed_until(RunFolder(tmp_path / "none"), 5) == 0.0


def test_runs_with_the_same_name_differ(tmp_path: Path) -> None:
    found = write_curves([make_run(tmp_path / "a" / "run"), make_run(tmp_path / "b" / "run")], tmp_path / "c.html")
    assert len({history.name for history in found}) == 2


@pytest.mark.parametrize("given", [".", "checkpoints/.."])
def test_a_run_has_its_name_however_it_is_given(given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = make_run(tmp_path / "письма")
    (run / "checkpoints").mkdir()
    monkeypatch.chdir(run)
    (history,) = write_curves([Path(given)], tmp_path / "curves.html")
    assert history.name == "письма"


def test_a_flat_curve_is_drawn(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    row = {"kind": "train", "step": 1, "loss": 0.0, "learning_rate": 0.0}
    (tmp_path / "run" / "metrics.jsonl").write_text(json.dumps(row) + "\n", encoding="utf-8")
    assert "<svg" in render_curves([read_history(tmp_path / "run")])


@pytest.mark.parametrize(
    ("out", "code"), [("curves.svg", "curves-suffix"), ("nowhere/curves.html", "output-folder-missing")]
)
def test_curves_need_a_place_they_can_be_written_to(out: str, code: str, tmp_path: Path) -> None:
    with raises_code(code):
        write_curves([make_run(tmp_path / "run")], tmp_path / out)


@pytest.mark.parametrize("content", [None, "", '{"loss": 1}\n{"kind": "train", "step": 1}\n'])
def test_a_run_without_readable_metrics_has_no_history(content: str | None, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "metrics.jsonl").write_text(content, encoding="utf-8")
    with pytest.raises(RunError):
        read_history(tmp_path)


def forecast(sizes: int, more: list[int]) -> Forecast:
    points = [
        CurvePoint(100 * 2**place, 50, [ScoredLine(f"{line}", 300 // (place + 1), 1000) for line in range(20)])
        for place in range(sizes)
    ]
    return Forecast.compute("validation", points, more=more, targets=[0.05])


@pytest.mark.parametrize(("sizes", "has_curve"), [(4, True), (2, False)])
def test_a_forecast_shows_points_curve_and_sentences(sizes: int, has_curve: bool) -> None:
    found = forecast(sizes, [300])
    page = Page(render_forecast(found, "<script>alert(1)</script>"))
    assert "script" not in page.tags
    assert all(sentence in page.words for sentence in found.sentences)
    assert ("95 % interval" in page.words) == ("expected" in page.words) == has_curve
    assert "trained and scored" in page.words


def test_a_forecast_that_is_too_far_ahead_does_not_stretch_the_plot(tmp_path: Path) -> None:
    write_forecast(forecast(4, [50_000_000]), "far", tmp_path)
    assert (
        "5,000"
        not in (tmp_path / "forecast.html").read_text(encoding="utf-8").partition("<svg")[2].partition("</svg")[0]
    )
    with Image.open(tmp_path / "forecast.png") as picture:
        assert picture.width < 1500
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["forecast.html", "forecast.png"]


@pytest.mark.parametrize(
    ("names", "title"),
    [
        pytest.param(["base", "adapter"], "adapter compared with base", id="two readings"),
        pytest.param(["base", "<i>kraken</i>", "adapter"], "2 readings compared with base", id="three readings"),
    ],
)
def test_a_comparison_holds_the_sentences_the_readings_and_their_lines(
    small_dataset: Path, tmp_path: Path, names: list[str], title: str
) -> None:
    run = make_evaluated_run(tmp_path / "run", small_dataset, {"base": misread, "adapter": read_better})
    lines = load_lines(run.lines)
    readings = [System(name, lines.get(name, lines["base"]), [f"note on {name}"]) for name in names]
    found = compare(readings, images=gather_contents(run).images, about={"split": "test"})
    page = Page(render_comparison_page(found))
    assert title in page.words
    for difference in found.differences:
        assert unbroken(difference.summary[1:]) in page.words
    assert all(f"note on {name}" in page.words for name in names)
    assert (page.tags.count("article"), page.tags.count("img"), page.tags.count("script")) == (4, 4, 1)
    assert page.values("class").count("name reading2") == len(names) - 2


def test_a_comparison_is_written_as_a_folder_or_a_page(tmp_path: Path) -> None:
    """No name and no text becomes code in it, whether it was read right, wrong, or not at all."""
    names = ["<script>", "w\x012", "$a$", "w4", "w5"]
    first, second = (scored(*(("<script>c", text),) * 5, writers=names) for text in ("<i>", "<script>"))
    found = compare([System("<base>", first), System("a & b", second)])
    write_comparison(found, tmp_path / "out")
    tables = {"comparison.csv", "comparison.tex"}
    assert {path.name for path in (tmp_path / "out").iterdir()} == {PAGE, NUMBERS, CHANGES, PLOT, *tables}
    changes = [json.loads(line) for line in (tmp_path / "out" / CHANGES).read_text(encoding="utf-8").splitlines()]
    assert [change["errors_saved"] for change in changes] == [5] * 5
    svg = (tmp_path / "out" / PLOT).read_text(encoding="utf-8")
    root = etree.fromstring(svg)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert not root.findall(".//{*}script")
    texts = {text for element in root.iter("{*}text") if (text := element.text)}
    assert {"<base>", "a & b", "<script> (1)", "w\ufffd2 (1)", "$a$ (1)"} <= texts
    assert writers_svg(["<base>", "a & b"], found.groups, "writer", standalone=True) == svg
    write_comparison(found, tmp_path / "page.html")
    page = Page((tmp_path / "page.html").read_text(encoding="utf-8"))
    assert page.tags.count("script") == 1
    assert page.words.count("<script>c") >= 5
    for path, overwrite, code in (("out", False, "output-exists"), (".", True, "output-foreign")):
        with raises_code(code):
            require_free(tmp_path / path, overwrite=overwrite)
    require_free(tmp_path / "out", overwrite=True)


def test_the_plot_has_the_writers_that_changed_most() -> None:
    groups = [ComparedGroup(f"w{n}", 1, [ErrorRate(500, 1000), ErrorRate(100 + n, 1000)]) for n in range(500)]
    svg = writers_svg(["a", "b"], groups, "writer")
    assert svg.count("(1)") == MOST_WRITERS
    assert ">w0 (1)<" in svg
    assert ">w499 (1)<" in svg
    assert "60 of 500" in svg


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
