"""Drawing a table, and moving, adding and removing its rulings, joining and splitting its cells, in a real browser."""

import re

import pytest
from playwright.sync_api import Page, expect

from dsocr.document import Table
from dsocr.registers.edits import nodes_of
from dsocr.workbench.store import CorrectionStore
from dsocr.workbench.stored_lines import tables_of
from tests.browser.test_workbench_shapes import drag, point, wait_for_place
from tests.browser.workbench import FIELD, eventually
from tests.workbench.fakes import TEXTS


@pytest.fixture
def gridding(window: Page) -> Page:
    """A window in which tables are changed, the whole page visible."""
    window.keyboard.press("Alt+b")
    window.keyboard.press("Alt+f")
    expect(window.get_by_role("toolbar", name="Change tables (Alt+B)")).to_be_visible()
    wait_for_place(window)
    return window


def table_of(store: CorrectionStore) -> Table | None:
    return next(iter(tables_of(store.regions(1))), None)


def size(store: CorrectionStore) -> tuple[int, int]:
    table = table_of(store)
    return table.size if table else (0, 0)


def places(store: CorrectionStore, axis: int) -> list[int]:
    """Where the rulings are at the left, or at the top."""
    table = table_of(store)
    assert table
    nodes = nodes_of(table)
    return [round(float(place)) for place in (nodes[0, :, 0] if axis == 0 else nodes[:, 0, 1])]


def rows(store: CorrectionStore) -> list[list[str]]:
    """The texts of each row, column by column."""
    table = table_of(store)
    texts = {line.region: line.text for line in store.lines(1)}
    count = table.size[0] if table else 0
    found: list[list[str]] = [[] for _ in range(count)]
    for cell in table.cells if table else ():
        found[cell.place.row].append(texts.get(int(cell.id), ""))
    return found


def draw_table(window: Page, store: CorrectionStore) -> None:
    """Draw a table of three rows and two columns around the lines of the page."""
    window.keyboard.press("g")
    drag(window, (30, 30), (670, 370))
    expect(window.locator(".table-grid .cell")).to_have_count(1)
    for start, end, expected in (
        ((100, 138), (500, 139), (2, 1)),
        ((100, 245), (500, 247), (3, 1)),
        ((200, 60), (203, 300), (3, 2)),
    ):
        window.keyboard.press("r")
        drag(window, start, end)
        eventually(window, lambda expected=expected: size(store) == expected)  # type: ignore[misc]
    expect(window.locator(".table-grid .ruling")).to_have_count(7)


def test_a_table_is_drawn_and_its_rulings_are_moved(gridding: Page, store: CorrectionStore) -> None:
    expect(gridding.get_by_role("status").filter(has_text="No table here")).to_be_visible()
    draw_table(gridding, store)
    assert rows(store) == [["", TEXTS[0][0]], ["", TEXTS[0][1]], ["", TEXTS[0][2]]]
    assert places(store, 0) == pytest.approx([30, 201, 670], abs=4)

    drag(gridding, (201, 90), (400, 95))
    eventually(gridding, lambda: places(store, 0)[1] == pytest.approx(400, abs=4))
    assert rows(store) == [[TEXTS[0][0], ""], [TEXTS[0][1], ""], [TEXTS[0][2], ""]]
    expect(gridding.locator(".ruling.chosen")).to_have_count(1)

    before = places(store, 0)[1]
    for _ in range(8):  # faster than they are answered
        gridding.keyboard.press("ArrowLeft")
    gridding.keyboard.press("Shift+ArrowRight")
    eventually(gridding, lambda: places(store, 0)[1] == before + 2)
    expect(gridding.get_by_text("changed this meanwhile")).to_have_count(0)

    drag(gridding, (before, 90), (900, 90))  # not farther than the next ruling
    eventually(gridding, lambda: places(store, 0)[1] > 660)
    assert places(store, 0)[1] < places(store, 0)[2]
    for _ in range(10):
        gridding.keyboard.press("Alt+z")
    eventually(gridding, lambda: places(store, 0)[1] == before)
    # the browser must know it too: an edit of a table that it saw before the undoing is refused
    expect(gridding.locator(".ruling").nth(1)).to_have_attribute("d", re.compile(rf"^M{before}(\.\d)?,"))

    gridding.locator(".ruling-hit").nth(1).focus()  # as with Tab
    gridding.keyboard.press("Insert")
    eventually(gridding, lambda: size(store) == (3, 3))
    gridding.keyboard.press("Delete")
    eventually(gridding, lambda: size(store) == (3, 2))
    assert rows(store) == [[TEXTS[0][0], ""], [TEXTS[0][1], ""], [TEXTS[0][2], ""]]

    gridding.reload()
    expect(gridding.get_by_label(FIELD)).to_have_value(TEXTS[0][0])
    gridding.keyboard.press("Alt+b")
    expect(gridding.locator(".table-grid .cell")).to_have_count(6)
    gridding.get_by_role("button", name="Remove the table").click()
    expect(gridding.locator(".table-grid .cell")).to_have_count(0)
    gridding.keyboard.press("Alt+z")
    expect(gridding.locator(".table-grid .cell")).to_have_count(6)


def test_cells_are_joined_and_split(gridding: Page, store: CorrectionStore) -> None:
    draw_table(gridding, store)
    join = gridding.get_by_role("button", name="Join the chosen cells")
    expect(join).to_be_disabled()
    gridding.mouse.click(*point(gridding, 100, 190))
    gridding.keyboard.press("Shift+ArrowRight")
    expect(gridding.locator(".cell.chosen")).to_have_count(2)
    expect(join).to_be_enabled()
    gridding.keyboard.press("m")
    expect(gridding.locator(".table-grid .cell")).to_have_count(5)
    eventually(gridding, lambda: rows(store)[1] == [TEXTS[0][1]])
    gridding.keyboard.down("Shift")
    gridding.mouse.click(*point(gridding, 400, 330))
    gridding.keyboard.up("Shift")
    expect(gridding.locator(".cell.chosen")).to_have_count(3)
    expect(gridding.get_by_label(FIELD)).to_have_value(TEXTS[0][2])
    gridding.keyboard.press("k")
    expect(gridding.locator(".table-grid .cell")).to_have_count(6)
    eventually(gridding, lambda: rows(store)[1] == ["", TEXTS[0][1]])
    gridding.keyboard.press("Enter")
    expect(gridding.get_by_label(FIELD)).to_be_focused()
