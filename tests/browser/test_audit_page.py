"""The page of an audit in a real browser: one key judges a line, and what was judged is counted as Python counts it."""

import os
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image
from playwright.sync_api import Page, expect

from dsocr.document import Sample, Split
from dsocr.evaluation.audit import (
    DRAWN,
    FIRST,
    JUDGED,
    PAGE,
    TABLE,
    Audit,
    ReadSample,
    rank_lines,
    texts_to_score,
    write_audit,
)
from tests.browser.conftest import Open, press_key
from tests.conftest import draw_line

LINES = 200


def rank(folder: Path) -> Audit:
    """Rank lines that were all read right but for one letter."""
    read = []
    for number in range(LINES):
        text = f"line {number}"
        sample = Sample(f"test/{number}.png", folder / "line.png", text, Split.TEST)
        likelihoods = dict.fromkeys(texts_to_score(f"lime {number}", text, [text]), -1.0)
        read.append(ReadSample(sample, f"lime {number}", text, [], likelihoods, {}))
    return rank_lines(read, name="letters", folder=folder)


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("audit")
    draw_line(folder / "line.png", "line")
    write_audit(replace(rank(folder), shown=FIRST))
    return folder


def current(page: Page) -> str:
    return page.locator("figure.current").get_attribute("data-id") or ""


def test_a_picture_keeps_its_shape_and_the_line_to_judge_is_shown_larger(tmp_path: Path, open_page: Open) -> None:
    draw_line(tmp_path / "small.png", "line " * 4)
    with Image.open(tmp_path / "small.png") as drawn:
        drawn.resize((2400, 2400 * drawn.height // drawn.width)).save(tmp_path / "line.png")
    write_audit(replace(rank(tmp_path), shown=FIRST))
    page = open_page(tmp_path / PAGE).page
    pictures = page.locator("figure img")
    for width in (1700, 500):
        page.set_viewport_size({"width": width, "height": 900})
        shown = [pictures.nth(place).evaluate("one => [one.clientWidth, one.clientHeight]") for place in (0, 1)]
        assert [w / h for w, h in shown] == pytest.approx([drawn.width / drawn.height] * 2, rel=0.03)
        assert (shown[0][0] > 1.3 * shown[1][0]) == (width == 1700)
        assert page.evaluate("document.documentElement.scrollWidth") == width, "nothing is beside the window"


def test_keys_judge_the_lines_and_the_file_is_counted(audited: Path, open_page: Open) -> None:
    page = open_page(audited / PAGE).page
    places = page.locator("figure[data-id]")
    assert places.count() == FIRST + DRAWN
    first, second = (places.nth(number).get_attribute("data-id") for number in (0, 1))
    page.keyboard.press("w")
    assert current(page) == second
    page.keyboard.press("u")
    assert current(page) == first
    expect(page.locator("#judging output")).to_have_text(f"0 of {FIRST + DRAWN} judged.")
    page.keyboard.press("Control+w")
    assert current(page) == first, "keys of the browser judge nothing"
    for key, code, place in (("ц", "KeyW", second), ("г", "KeyU", first), ("z", "KeyW", first)):
        press_key(page, key, code)
        assert current(page) == place, "as labelled; in the same place where no Latin letter is"
    page.get_by_role("button", name="wrong").click()
    assert current(page) == second
    page.keyboard.press("u")

    answers = ["w" if number % 7 == 0 else "r" for number in range(FIRST + DRAWN)]
    for answer in answers[:FIRST]:
        page.keyboard.press(answer)
    expect(page.locator("#count")).to_contain_text(f"3 of the first {FIRST} texts are wrong: 3 to ")
    for answer in answers[FIRST:-1]:
        page.keyboard.press(answer)
    page.reload()
    assert current(page) == places.last.get_attribute("data-id"), "what was judged is kept"
    page.keyboard.press(answers[-1])
    page.keyboard.press("u")
    assert current(page) == places.last.get_attribute("data-id"), "the last answer is taken back first"
    expect(page.locator("#judging output")).to_have_text(f"{FIRST + DRAWN - 1} of {FIRST + DRAWN} judged.")
    page.keyboard.press(answers[-1])
    with page.expect_download() as saved:
        page.get_by_role("button", name=f"Save {JUDGED}").click()
    saved.value.save_as(audited / JUDGED)

    counted = rank(audited)
    assert counted.count is not None
    assert [counted.count.first_wrong, counted.count.drawn_wrong] == [3, 5]
    expect(page.locator("#count")).to_have_text(str(counted.count))

    table = audited / TABLE
    table.write_text(f"id,wrong\n{first},no\n", encoding="utf-8")
    os.utime(audited / JUDGED, (0, 0))
    changed = rank(audited)
    assert changed.count is not None
    assert changed.count.first_wrong == 2, "it was written later than the other file"
    write_audit(replace(changed, shown=FIRST))
    page.reload()
    expect(page.locator("#count")).to_have_text(str(changed.count))
