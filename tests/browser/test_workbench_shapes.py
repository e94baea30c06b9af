"""Zooming a page, and drawing, moving, cutting and ordering its lines and regions, in a real browser."""

import re
from functools import partial

import pytest
from playwright.sync_api import Page, expect

from dsocr.workbench.store import CorrectionStore
from dsocr.workbench.stored_lines import State
from tests.browser.workbench import FIELD, choose, eventually, texts
from tests.workbench.fakes import TEXTS, edit


def point(window: Page, x: float, y: float) -> tuple[float, float]:
    """Where a point of the page, which has 700 times 400 pixels, is in the window."""
    box = window.get_by_role("img", name="Page").bounding_box()
    assert box is not None
    return box["x"] + x * box["width"] / 700, box["y"] + y * box["height"] / 400


def wait_for_place(window: Page) -> None:
    """Wait until the page has its place, which the image of the line above it moves when it is loaded."""
    window.wait_for_function("""async () => {
        const place = () => JSON.stringify(document.querySelector(".page-view-layer").getBoundingClientRect());
        const before = place();
        await new Promise(next => requestAnimationFrame(() => requestAnimationFrame(next)));
        return [...document.images].every(image => image.complete) && place() === before;
    }""")


def drag(window: Page, start: tuple[float, float], end: tuple[float, float]) -> None:
    wait_for_place(window)
    window.mouse.move(*point(window, *start))
    window.mouse.down()
    window.mouse.move(*point(window, *end), steps=4)
    window.mouse.up()


@pytest.fixture
def shaping(window: Page) -> Page:
    """A window in which shapes are changed, the whole page visible."""
    window.keyboard.press("Alt+e")
    window.keyboard.press("Alt+f")
    expect(window.get_by_role("toolbar", name="Change shapes (Alt+E)")).to_be_visible()
    wait_for_place(window)
    return window


def test_zoom_pan_and_turn(window: Page) -> None:
    picture = window.get_by_role("img", name="Page")
    window.keyboard.press("Alt+f")
    wait_for_place(window)
    whole = picture.bounding_box()
    view = window.locator(".page-view-window").bounding_box()
    assert whole is not None
    assert view is not None
    assert whole["width"] <= view["width"] + 1
    assert whole["height"] <= view["height"] + 1
    window.mouse.move(view["x"] + 50, view["y"] + 50)
    window.mouse.wheel(0, -400)
    expect(window.get_by_label(FIELD)).to_have_value(TEXTS[0][0])
    window.wait_for_function(
        f"document.querySelector('.page-view-layer').getBoundingClientRect().width > {whole['width'] * 1.5}"
    )
    window.keyboard.press("Alt+f")
    window.keyboard.press("Alt+t")
    wait_for_place(window)
    turned = picture.bounding_box()
    assert turned is not None
    assert turned["height"] > turned["width"], "the page lies on its side"
    window.keyboard.press("Alt+c")
    expect(picture).to_have_css("filter", "invert(1)")
    window.keyboard.press("Alt+c")


def test_pages_are_shown_small_with_their_progress(window: Page, store: CorrectionStore) -> None:
    window.get_by_role("button", name="All pages").click()
    pages = window.get_by_role("navigation", name="All pages").get_by_role("button")
    expect(pages).to_have_count(2)
    expect(pages.nth(0)).to_contain_text("0 of 3")
    window.get_by_label(FIELD).press("Enter")
    expect(pages.nth(0)).to_contain_text("1 of 3")
    pages.nth(1).click()
    expect(window.get_by_label(FIELD)).to_have_value(TEXTS[1][0])


def test_lines_are_drawn_reshaped_cut_merged_and_deleted(shaping: Page, store: CorrectionStore) -> None:
    field = shaping.get_by_label(FIELD)
    shaping.keyboard.press("b")
    for x in (300, 500):
        shaping.mouse.click(*point(shaping, x, 385))
    shaping.keyboard.press("Enter")
    expect(field).to_have_value("")
    eventually(shaping, lambda: len(store.lines(1)) == 4)
    drawn = store.lines(1)[3]
    (left, height), (right, _) = drawn.outline.baseline
    assert (left, height, right) == pytest.approx((300, 385, 500), abs=3)
    assert drawn.state is State.UNREAD

    choose(shaping, TEXTS[0][0])
    expect(shaping.locator(".handle.polygon")).to_have_count(4)
    drag(shaping, (40, 40), (20, 30))
    eventually(shaping, lambda: store.lines(1)[0].outline.polygon[0] == pytest.approx((20, 30), abs=3))

    shaping.locator(".page-view-window").focus()
    box = store.lines(1)[0].outline.box
    for _ in range(12):  # faster than they are answered
        shaping.keyboard.press("ArrowDown")
    eventually(shaping, lambda: store.lines(1)[0].outline.box[1] == box[1] + 12)
    expect(shaping.get_by_text("changed this meanwhile")).to_have_count(0)
    for _ in range(12):
        shaping.keyboard.press("Alt+z")
    eventually(shaping, lambda: store.lines(1)[0].outline.box == box)
    shaping.keyboard.press("k")
    drag(shaping, (300, 20), (300, 140))
    expect(field).to_have_value("первая")
    assert texts(store)[:3] == ["первая", "строка", "вторая строка"]

    wait_for_place(shaping)
    shaping.mouse.click(*point(shaping, 400, 80))
    expect(field).to_have_value("строка")
    shaping.keyboard.down("Shift")
    wait_for_place(shaping)
    shaping.mouse.click(*point(shaping, 100, 80))
    shaping.keyboard.up("Shift")
    shaping.keyboard.press("m")
    expect(field).to_have_value("первая строка")
    shaping.keyboard.press("Delete")
    expect(field).to_have_value("вторая строка")
    for _ in range(5):
        shaping.keyboard.press("Alt+z")
    expect(shaping.get_by_role("listitem")).to_have_count(3)
    everything = [text for page in TEXTS for text in page]
    eventually(shaping, lambda: texts(store) == everything)


def test_keys_stay_with_the_page_until_somebody_writes(shaping: Page, store: CorrectionStore) -> None:
    field, view = shaping.get_by_label(FIELD), shaping.locator(".page-view-window")
    shaping.mouse.click(*point(shaping, 300, 190))
    expect(field).to_have_value(TEXTS[0][1])
    expect(view).to_be_focused()
    shaping.get_by_role("button", name="Add a line below").click()
    expect(field).to_have_value("")
    expect(view).to_be_focused()
    shaping.keyboard.press("Enter")
    expect(field).to_be_focused()
    shaping.keyboard.type("новая")
    shaping.keyboard.press("Enter")
    expect(field).to_have_value(TEXTS[0][2])
    expect(field).to_be_focused()
    assert [line.text for line in store.lines(1)] == [*TEXTS[0][:2], "новая", TEXTS[0][2]]
    view.focus()
    shaping.keyboard.press("Alt+z")
    expect(field).to_have_value("")
    expect(view).to_be_focused()
    shaping.keyboard.press("Alt+e")
    expect(field).to_be_focused()


def test_two_people_are_warned_of_changes_to_one_shape(shaping: Page, store: CorrectionStore) -> None:
    shaping.mouse.click(*point(shaping, 300, 80))
    expect(shaping.locator(".line.selected.chosen")).to_have_count(1)
    view, warning = shaping.locator(".page-view-window"), shaping.get_by_text("changed this meanwhile")
    for right in range(3):  # unless the window has just asked what is new
        line = store.lines(1)[0]
        left, top, _, bottom = line.outline.box
        theirs = ((left, top), (600 + right, top), (600 + right, bottom), (left, bottom))
        edit(store, "reshape", [line], shapes=[{"number": line.number, "polygon": theirs, "baseline": []}])
        view.press("ArrowDown")
        is_answered = partial(lambda top: bool(warning.count()) or store.lines(1)[0].outline.box[1] != top, top)
        eventually(shaping, is_answered)
        if warning.count():
            break
    expect(warning.first).to_be_visible()
    assert store.lines(1)[0].outline.polygon == theirs
    expect(shaping.locator(".line.selected")).to_have_attribute("points", re.compile(rf"\b{theirs[1][0]},{top}\b"))


def test_regions_and_reading_order(shaping: Page, store: CorrectionStore) -> None:
    shaping.keyboard.press("g")
    drag(shaping, (20, 140), (680, 250))
    expect(shaping.locator(".region")).to_have_count(2)
    second = store.regions(1)[1]
    assert [line.region == second.number for line in store.lines(1)] == [False, True, False]
    shaping.locator("g[data-region] text").nth(1).click()
    shaping.get_by_label("Type of region").select_option("heading")
    expect(shaping.locator("g[data-region] text").nth(1)).to_contain_text("heading")
    shaping.locator(".page-view-window").focus()
    shaping.keyboard.press("3")
    expect(shaping.locator("g[data-region] text").nth(1)).to_contain_text("marginalia")
    rows = shaping.get_by_role("listitem")
    shaping.keyboard.press("[")
    expect(rows.nth(0)).to_contain_text(TEXTS[0][1])
    shaping.keyboard.press("Alt+z")
    expect(rows.nth(0)).to_contain_text(TEXTS[0][0])
    shaping.locator("g[data-region] text").nth(1).click()
    expect(shaping.locator(".region.chosen")).to_have_count(1)
    rows.nth(0).click()  # the line that is selected already, which Delete would now delete
    expect(shaping.locator(".line.selected.chosen")).to_have_count(1)
    expect(shaping.locator(".region.chosen")).to_have_count(0)
    rows.nth(1).drag_to(rows.nth(0), target_position={"x": 50, "y": 3})
    expect(rows.nth(0)).to_contain_text(TEXTS[0][1])
    assert texts(store)[:2] == [TEXTS[0][1], TEXTS[0][0]]
    assert store.regions(1)[1].kind == "marginalia"
