"""The appearance of a window: small and dark screens, two languages, accessibility."""

import sqlite3
from contextlib import closing

from playwright.sync_api import Page, expect

from dsocr.workbench.store import CorrectionStore
from dsocr.workbench.stored_lines import State
from tests.browser.workbench import FIELD, Served


def test_a_line_without_an_image_says_why(window: Page, served: Served, store: CorrectionStore) -> None:
    with closing(sqlite3.connect(served.corrections)) as connection, connection:
        connection.execute("UPDATE line SET outline = '{\"box\": [9000, 1, 9100, 9]}' WHERE number = 2")
    window.get_by_label(FIELD).press("Alt+ArrowDown")
    expect(window.get_by_text("This line cannot be shown")).to_be_visible()
    window.get_by_label(FIELD).press("Alt+ArrowUp")
    expect(window.get_by_text("This line cannot be shown")).to_be_hidden()


def test_nothing_moves_when_a_line_has_a_remark(window: Page, store: CorrectionStore) -> None:
    page, remark = window.locator(".page-view-window"), window.get_by_text("the ink has run")
    line = store.annotate(store.lines()[0], "the ink has run " * 9, who="another")
    expect(remark).to_be_visible()
    with_remark = page.bounding_box()
    store.annotate(line, "", who="another")
    expect(remark).to_have_count(0)
    assert page.bounding_box() == with_remark


def test_the_image_of_another_line_is_hidden_while_its_own_is_loaded(window: Page) -> None:
    strip = window.get_by_role("img", name="Image of the line").locator("img")
    expect(strip).to_be_visible()
    with window.expect_request("**/picture/line/2?*"):
        window.route("**/picture/line/2?*", lambda route: None)
        window.get_by_label(FIELD).press("Alt+ArrowDown")
    for image in strip.all():
        expect(image).to_be_hidden()
    window.unroute_all(behavior="ignoreErrors")
    window.get_by_label(FIELD).press("Alt+ArrowUp")
    expect(strip.and_(window.locator("[src*='/picture/line/1?']")).first).to_be_visible()


def test_a_line_from_right_to_left_is_aligned_right(window: Page, store: CorrectionStore) -> None:
    store.review(store.lines()[0], "שלום.", State.READ, who="another")
    for shown in (window.get_by_label(FIELD), window.get_by_role("list").get_by_text("שלום.")):
        expect(shown).to_have_css("direction", "rtl")


IS_IN_VIEW = """() => {
    const box = document.querySelector("[aria-current]").getBoundingClientRect();
    const seen = document.elementFromPoint(box.x + box.width / 2, box.y + box.height / 2);
    return seen?.closest("[aria-current]") !== null && box.bottom < innerHeight;
}"""


def test_the_selected_row_is_scrolled_into_view(window: Page, store: CorrectionStore) -> None:
    words = [str(number) for number in range(14)]
    line = store.review(store.lines()[0], " ".join(words), State.READ, who="another")
    for number in reversed(range(1, 14)):
        line, _ = store.split(line, len(" ".join(words[:number])) + 1, who="another")
    window.set_viewport_size({"width": 1100, "height": 600})  # half of the rows fit
    window.reload()
    field, rows = window.get_by_label(FIELD), window.get_by_role("list")
    expect(field).to_have_value("0")
    for key, end in (("Alt+ArrowDown", "13"), ("Alt+ArrowUp", "0")):
        for _ in range(13):
            field.press(key)
        expect(field).to_have_value(end)
        expect(rows.locator("[aria-current]")).to_contain_text(end)
        window.wait_for_function(IS_IN_VIEW)

    window.keyboard.press("Alt+z")  # its answer comes after the image's effects
    expect(window.get_by_text("Nothing to undo in this window")).to_be_visible()
    rows.evaluate("list => list.parentElement.scrollTop = 50")  # the user scrolls while somebody else works
    store.review(store.lines()[10], "changed elsewhere", State.READ, who="another")
    expect(rows.get_by_text("changed elsewhere")).to_have_count(1)
    window.wait_for_timeout(100)
    assert rows.evaluate("list => list.parentElement.scrollTop") == 50
