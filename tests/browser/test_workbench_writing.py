"""Writing with marks, shorthands and letters, searching, remarks, and a second look."""

from playwright.sync_api import Page, expect

from dsocr.workbench.store import CorrectionStore
from dsocr.workbench.stored_lines import State
from tests.browser.workbench import FIELD, OpenWindow, press, texts
from tests.workbench.fakes import TEXTS


def test_marks_and_shorthands(window: Page, store: CorrectionStore) -> None:
    field = window.get_by_label(FIELD)
    field.press("End")
    press(field, "Alt+q", f"{TEXTS[0][0]}[?]")
    field.press("Home")
    for _ in range(6):
        field.press("Shift+ArrowRight")
    press(field, "Alt+x", "~~первая~~ строка[?]")
    field.press("End")
    field.press_sequentially(r" в\e")
    expect(field).to_have_value("~~первая~~ строка[?] вѣ")
    field.press("Alt+i")
    window.keyboard.type("к")
    expect(field).to_have_value("~~первая~~ строка[?] вѣ\\к/")
    press(field, "Enter", TEXTS[0][1])
    assert texts(store)[0] == "~~первая~~ строка[?] вѣ\\к/"
    field.press("Home")
    field.press_sequentially(r"\e\i-")
    expect(field).to_have_value(f"ѣі-{TEXTS[0][1]}")


def test_letters_to_click(window: Page) -> None:
    field, option = window.get_by_label(FIELD), window.get_by_role("option", name="Church Slavonic")
    expect(field).to_be_focused()  # taking the focus later, it would close the list
    window.get_by_role("combobox", name="Letters").click()
    option.click()
    field.press("Home")
    window.get_by_role("button", name="ѿ", exact=True).click()
    expect(field).to_have_value(f"ѿ{TEXTS[0][0]}")
    expect(field).to_be_focused()


def test_find_and_replace_on_all_pages(window: Page, store: CorrectionStore) -> None:
    field = window.get_by_label(FIELD)
    field.press("Alt+r")
    window.get_by_role("textbox", name="Find", exact=True).fill("СТРОКА")
    expect(window.get_by_text("2 matches in 2 lines")).to_be_visible()
    expect(window.get_by_role("button", name="Replace in 2 lines")).to_be_enabled()
    window.get_by_text("Match case").click()
    expect(window.get_by_text("0 matches in 0 lines")).to_be_visible()
    window.get_by_text("Match case").click()
    window.get_by_label("Replace with").fill("линия")
    window.get_by_role("button", name="Replace in 2 lines").click()
    expect(field).to_have_value("первая линия")
    assert texts(store)[:2] == ["первая линия", "вторая линия"]
    expect(window.locator(".q-dialog")).to_have_count(0)
    window.keyboard.press("Alt+z")
    expect(field).to_have_value(TEXTS[0][0])
    assert texts(store)[:2] == TEXTS[0][:2]


def test_remarks(window: Page, store: CorrectionStore) -> None:
    window.get_by_label(FIELD).press("Alt+n")
    window.get_by_role("textbox", name="Remark on this line").fill("чернила выцвели")
    window.get_by_role("button", name="Save").click()
    expect(window.get_by_text("чернила выцвели")).to_be_visible()
    assert store.lines()[0].note == "чернила выцвели"


def name_oneself(window: Page, name: str) -> None:
    expect(window.get_by_label(FIELD)).to_be_focused()  # taking the focus later, it would close the menu
    window.get_by_role("button", name="Menu").click()
    window.get_by_text("Your name").click()
    window.get_by_role("textbox", name="Your name").fill(name)
    window.get_by_role("button", name="Save").click()
    expect(window.get_by_role("textbox", name="Your name")).to_have_count(0)


def test_a_second_person_looks_at_what_the_first_accepted_and_is_not_sent_to_her_line(
    window: Page, new_window: OpenWindow, store: CorrectionStore
) -> None:
    name_oneself(window, "Анна")
    press(window.get_by_label(FIELD), "Enter", TEXTS[0][1])
    other = new_window()
    other.goto("/")
    name_oneself(other, "Борис")
    other.get_by_text("Second look").click()
    seen = other.get_by_label(FIELD)
    expect(seen).to_have_value(TEXTS[0][0])
    expect(other.get_by_text("Анна, 20")).to_be_visible()
    seen.fill("первая строка!")
    seen.press("Enter")
    expect(other.get_by_text("Nothing is left to check")).to_be_visible()
    line = store.lines()[0]
    assert (line.author, line.checked_by, line.text) == ("Анна", "Борис", "первая строка!")
    other.get_by_text("Most doubtful first").click()
    expect(seen).to_have_value(TEXTS[1][0])  # the second line is Anna's
    seen.press("Alt+ArrowUp")
    seen.press("Alt+ArrowUp")
    expect(other.get_by_text("Анна is at this line too")).to_be_visible()
    assert store.counts()[State.ACCEPTED] == 1
