"""Training curves, and the pages beside the report: comparison."""

import json
from pathlib import Path

import numpy as np
import pytest
from lxml import etree
from matplotlib.figure import Figure

from dsocr.errors import RunError
from dsocr.evaluation.compare import ComparedGroup, System, compare
from dsocr.evaluation.metrics import ErrorRate
from dsocr.evaluation.report import curve_plots, gather_contents
from dsocr.evaluation.result_pages import (
    CHANGES,
    MOST_WRITERS,
    NUMBERS,
    PAGE,
    render_comparison_page,
    write_comparison,
    writers_plot,
)
from dsocr.evaluation.scores import load_lines
from dsocr.runs import History, RunFolder, elapsed_until, read_history
from tests.conftest import rendering
from tests.evaluation.making_runs import make_evaluated_run, misread, read_better, scored
from tests.html_pages import Page


def trained(step: int, loss: float, seconds: float = 0.0) -> str:
    row = {"kind": "train", "step": step, "loss": loss, "learning_rate": 1e-4, "elapsed_seconds": seconds}
    return json.dumps(row) + "\n"


def validated(step: int, cer: float) -> str:
    return json.dumps({"kind": "validation", "step": step, "loss": 0.5, "cer": cer}) + "\n"


def history_of(folder: Path, *rows: str) -> History:
    """Read the metrics of a run folder with these rows."""
    (folder / "metrics.jsonl").write_text("".join(rows), encoding="utf-8")
    return read_history(folder)


def test_curves_hold_the_numbers_of_the_run(tmp_path: Path) -> None:
    rows = (trained(10, 0.3), validated(10, 0.3), trained(20, 0.15), validated(20, 0.1), trained(30, 0.1))
    plots = {plot.title: plot for plot in curve_plots(history_of(tmp_path, *rows))}
    losses, rates = Figure().subplots(2)
    plots["training loss over steps"].paint(losses)
    assert np.array(losses.lines[0].get_data()).T.tolist() == [[10, 0.3], [20, 0.15], [30, 0.1]]
    plots["validation CER, % over steps"].paint(rates)
    assert [text.get_text() for text in rates.texts] == ["best 10"]
    assert len(plots) == 3


def test_a_flat_curve_is_drawn(tmp_path: Path) -> None:
    (plot,) = curve_plots(history_of(tmp_path, trained(1, 0.0)))
    assert "<svg" in plot.svg()


def test_rows_of_a_resumed_run_replace_earlier_ones_and_a_partial_line_is_skipped(tmp_path: Path) -> None:
    rows = (trained(20, 0.15, 120.0), validated(20, 0.1), trained(30, 0.1, 180.0), trained(30, 9.0, 500.0))
    history = history_of(tmp_path, *rows, '{"kind": "tra')
    assert [row["loss"] for row in history.training] == [0.15, 9.0]
    run, none = RunFolder(tmp_path), RunFolder(tmp_path / "none")
    assert (elapsed_until(run, 20), elapsed_until(run, 0), elapsed_until(none, 5)) == (120.0, 0.0, 0.0)


@pytest.mark.parametrize("content", [None, "", '{"loss": 1}\n{"kind": "train", "step": 1}\n'])
def test_a_run_without_readable_metrics_has_no_history(content: str | None, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "metrics.jsonl").write_text(content, encoding="utf-8")
    with pytest.raises(RunError):
        read_history(tmp_path)


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
        assert difference.summary[1:] in page.words
    assert all(f"note on {name}" in page.words for name in names)
    assert (page.tags.count("article"), page.tags.count("img"), page.tags.count("script")) == (4, 4, 1)
    assert page.values("class").count("name reading2") == len(names) - 2


def test_a_comparison_is_written_as_a_folder_or_a_page(tmp_path: Path) -> None:
    """No name and no text becomes code in it, whether it was read right, wrong, or not at all."""
    names = ["<script>", "w\x012", "$a$", "w4", "w5"]
    first, second = (scored(*(("<script>c", text),) * 5, writers=names) for text in ("<i>", "<script>"))
    found = compare([System("<base>", first), System("a & b", second)])
    with rendering():
        write_comparison(found, tmp_path / "out")
    assert {path.name for path in (tmp_path / "out").iterdir()} == {PAGE, NUMBERS, CHANGES}
    changes = [json.loads(line) for line in (tmp_path / "out" / CHANGES).read_text(encoding="utf-8").splitlines()]
    assert [change["errors_saved"] for change in changes] == [5] * 5
    content = (tmp_path / "out" / PAGE).read_text(encoding="utf-8")
    root = etree.fromstring(f"<svg{content.partition('<svg')[2].partition('</svg>')[0]}</svg>")
    assert not root.findall(".//{*}script")
    texts = {text for element in root.iter("{*}text") if (text := element.text)}
    assert {"<base>", "a & b", "<script> (1)", "w\ufffd2 (1)", "$a$ (1)"} <= texts
    write_comparison(found, tmp_path / "page.html")
    page = Page((tmp_path / "page.html").read_text(encoding="utf-8"))
    assert page.tags.count("script") == 1
    assert page.words.count("<script>c") >= 5


def test_the_plot_has_the_writers_that_changed_most() -> None:
    groups = [ComparedGroup(f"w{n}", 1, [ErrorRate(500, 1000), ErrorRate(100 + n, 1000)]) for n in range(500)]
    plot, axes = writers_plot(["a", "b"], groups, "writer"), Figure().subplots()
    plot.paint(axes)
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert (len(labels), labels[0], labels[-1]) == (MOST_WRITERS, "w0 (1)", "w499 (1)")
    assert "60 of 500" in plot.title
