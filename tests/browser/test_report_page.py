"""The report in a real browser: it fetches nothing, filters, walks from line to line, and can be read everywhere."""

import io
from pathlib import Path
from typing import Literal

import pytest
from PIL import Image, ImageStat
from playwright.sync_api import Page

from dsocr.evaluation.report import report as write_report
from tests.browser.conftest import Open, press_key
from tests.conftest import rendering
from tests.evaluation.making_runs import make_evaluated_run, misread, read_better


@pytest.fixture(scope="module")
def report(small_dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four lines by three writers; the adapter reads two of them wrong."""
    folder = tmp_path_factory.mktemp("report") / "run"
    run = make_evaluated_run(folder, small_dataset, {"base": misread, "adapter": read_better})
    with rendering():
        return write_report(run.path).path


def shown(page: Page) -> list[str]:
    """The numbers of the lines that can be seen."""
    return [line.get_attribute("id") or "" for line in page.locator("article.line").all() if line.is_visible()]


def focused(page: Page) -> str:
    return str(page.evaluate("document.activeElement.id"))


def test_lines_are_filtered_by_kind_writer_and_words(report: Path, open_page: Open) -> None:
    page = open_page(report).page
    assert len(shown(page)) == 4
    page.select_option("select[name=kind]", "worst")
    assert shown(page) == ["l1", "l3"]
    assert page.locator("#filter output").inner_text() == "2 of 4 lines"
    page.select_option("select[name=kind]", "")
    page.select_option("select[name=writer]", "new")
    assert shown(page) == ["l3", "l4"]
    page.fill("input[name=words]", "ЁЖИК")
    assert shown(page) == []
    page.select_option("select[name=writer]", "")
    assert shown(page) == ["l2"]
    assert page.locator(".chapter:visible").count() == 1, "a chapter without lines goes with them"


def test_the_keyboard_walks_through_the_lines_that_are_shown(report: Path, open_page: Open) -> None:
    page = open_page(report).page
    page.keyboard.press("j")
    assert focused(page) == "l1"
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid", "one sees where one is"
    page.keyboard.press("ArrowDown")
    assert focused(page) == "l2"
    page.keyboard.press("k")
    page.keyboard.press("k")
    assert focused(page) == "l1", "before the first there is none"
    press_key(page, "о", "KeyJ")
    assert focused(page) == "l2", "on a Russian layout too"
    press_key(page, "л", "KeyK")
    assert focused(page) == "l1"
    press_key(page, ".", "Slash")
    page.keyboard.type("jk")
    assert page.input_value("input[name=words]") == "jk", "a search is no walk"
    page.fill("input[name=words]", "")
    page.keyboard.press("Escape")
    page.select_option("select[name=kind]", "worst")
    page.locator("#l1").focus()
    page.keyboard.press("j")
    assert focused(page) == "l3", "hidden lines are passed"


def test_without_a_script_everything_can_be_read(report: Path, open_page: Open) -> None:
    page = open_page(report, script=False).page
    assert page.locator("article.line:visible").count() == 4
    assert page.locator("article.line img:visible").count() == 4
    assert page.locator("#filter").is_hidden()


@pytest.mark.parametrize("width", [pytest.param(360, id="phone"), pytest.param(1600, id="wide screen")])
def test_nothing_is_wider_than_the_screen(report: Path, open_page: Open, width: int) -> None:
    page = open_page(report, width=width).page
    assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize(
    ("scheme", "media", "bright"),
    [
        pytest.param("light", "screen", True, id="light"),
        pytest.param("dark", "screen", False, id="dark"),
        pytest.param("dark", "print", True, id="printed from a dark screen: paper is white"),
    ],
)
def test_it_suits_light_dark_and_paper(
    report: Path, open_page: Open, scheme: Literal["light", "dark"], media: Literal["screen", "print"], bright: bool
) -> None:
    page = open_page(report, scheme=scheme, media=media).page
    with Image.open(io.BytesIO(page.screenshot())) as image:
        (mean,) = ImageStat.Stat(image.convert("L")).mean
    assert (mean > 200) if bright else (mean < 60)
    assert page.locator("#filter").is_visible() == (media == "screen")
