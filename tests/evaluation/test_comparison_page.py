"""The page of a comparison says what the comparison found, and shows the lines that changed."""

from pathlib import Path

import pytest

from dsocr.evaluation.compare import System, compare
from dsocr.evaluation.report.comparison import render_comparison_page
from dsocr.evaluation.report.contents import gather_contents
from dsocr.evaluation.scores import load_lines
from tests.evaluation.making_runs import make_evaluated_run, misread, read_better
from tests.html_pages import Page


@pytest.mark.parametrize(
    ("names", "title"),
    [
        pytest.param(["base", "adapter"], "adapter compared with base", id="two readings"),
        pytest.param(["base", "<i>kraken</i>", "adapter"], "2 readings compared with base", id="three readings"),
    ],
)
def test_a_page_holds_the_sentences_the_readings_and_their_lines(
    small_dataset: Path, tmp_path: Path, names: list[str], title: str
) -> None:
    run = make_evaluated_run(tmp_path / "run", small_dataset, {"base": misread, "adapter": read_better})
    lines = load_lines(run.lines)
    readings = [System(name, lines.get(name, lines["base"]), [f"remark on {name}"]) for name in names]
    found = compare(readings, images=gather_contents(run).images, about={"split": "test"})
    page = Page(render_comparison_page(found))
    assert title in page.words
    for difference in found.differences:
        assert difference.summary[1:] in page.words
    assert all(f"remark on {name}" in page.words for name in names)
    assert (page.tags.count("article"), page.tags.count("img"), page.tags.count("script")) == (4, 4, 1)
    assert page.values("class").count("name reading2") == len(names) - 2
