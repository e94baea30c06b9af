"""Correcting, splitting, joining and exporting lines in a real browser."""

import http.client
from contextlib import closing
from urllib.parse import quote, urlsplit

from playwright.sync_api import Page, expect

from dsocr import document
from dsocr.formats.page import read_page
from dsocr.workbench.store import CorrectionStore
from dsocr.workbench.stored_lines import State
from tests.browser.workbench import FIELD, OpenWindow, Served, press, texts
from tests.workbench.fakes import TEXTS


def test_a_link_of_a_finding_opens_its_line(new_tab: OpenWindow) -> None:
    for place, text in {"page/scan-2.xml:3": TEXTS[1][2], "nowhere.xml:3": TEXTS[0][0]}.items():
        window = new_tab()  # a tab remembers its line
        window.goto(f"/?at={quote(place)}")
        expect(window.get_by_label(FIELD)).to_have_value(text)


def test_select_split_join_and_mark_lines(window: Page, store: CorrectionStore) -> None:
    field = window.get_by_label(FIELD)
    press(field, "Alt+ArrowDown", TEXTS[0][1])
    press(field, "Alt+ArrowUp", TEXTS[0][0])
    picture = window.get_by_role("img", name="Page").bounding_box()
    assert picture is not None
    window.mouse.click(picture["x"] + picture["width"] / 2, picture["y"] + picture["height"] * 190 / 400)
    expect(field).to_have_value(TEXTS[0][1])

    field.press("Home")
    for _ in range(7):
        field.press("ArrowRight")
    press(field, "Alt+s", "вторая")
    assert texts(store)[1:3] == ["вторая", "строка"]
    press(field, "Alt+j", "вторая строка")
    field.press("Alt+u")
    expect(window.get_by_text("1 of 6 lines reviewed")).to_be_visible()
    window.keyboard.press("Alt+z")
    expect(window.get_by_text("0 of 6 lines reviewed")).to_be_visible()
    window.keyboard.press("Alt+z")
    expect(field).to_have_value("вторая")
    window.keyboard.press("Alt+z")
    expect(field).to_have_value("вторая строка")
    assert texts(store) == [text for page in TEXTS for text in page]


def test_joining_takes_the_draft_of_the_next_line(window: Page, store: CorrectionStore) -> None:
    field = window.get_by_label(FIELD)
    press(field, "Alt+ArrowDown", TEXTS[0][1])
    field.fill("конец")
    press(field, "Alt+ArrowUp", TEXTS[0][0])
    field.fill("начало")
    press(field, "Alt+j", "начало конец")
    assert texts(store)[0] == "начало конец"
    window.keyboard.press("Alt+z")
    expect(field).to_have_value(TEXTS[0][0])


def test_a_held_key_accepts_one_line_and_ctrl_alt_types_letters(window: Page, store: CorrectionStore) -> None:
    field = window.get_by_label(FIELD)
    field.press("Control+Alt+u")
    for _ in range(5):
        window.keyboard.down("Enter")
    expect(field).to_have_value(TEXTS[0][1])
    for _ in range(5):
        window.keyboard.down("Enter")
    window.keyboard.up("Enter")
    press(field, "Alt+ArrowDown", "")
    assert [change.what for change in store.history()] == [State.ACCEPTED]


def test_order_by_doubt_and_export(window: Page, served: Served) -> None:
    window.get_by_text("Most doubtful first").click()
    expect(window.get_by_label(FIELD)).to_have_value(TEXTS[0][0])
    window.get_by_label(FIELD).fill("выгруженная строка")
    press(window.get_by_label(FIELD), "Enter", TEXTS[0][1])
    window.get_by_role("button", name="Export").click()
    window.get_by_role("button", name="Save to the folder").click()
    expect(window.get_by_text("2 pages, 4 lines with text")).to_be_visible()
    out = served.work / "exports" / "page"
    lines = [line.text for image in read_page(out) if isinstance(image, document.Page) for line in image.lines]
    assert lines == ["выгруженная строка", *TEXTS[0][1:], *TEXTS[1]]
    window.get_by_role("button", name="Export").click()
    window.get_by_label("Format").click()
    window.get_by_role("option", name="Training dataset").click()
    expect(window.get_by_label("Output folder")).to_have_value(str(served.work / "exports" / "dataset"))


def test_other_host_names_frames_and_origins_of_websockets_are_rejected(served: Served) -> None:
    address = served.address.removesuffix("/")

    def get(path: str, headers: dict[str, str]) -> http.client.HTTPResponse:
        with closing(http.client.HTTPConnection(urlsplit(address).netloc, timeout=60)) as connection:
            connection.request("GET", path, headers=headers)
            return connection.getresponse()

    def handshake(**origin: str) -> int:
        headers = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13"}
        headers |= {"Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==", **origin}
        return get("/_nicegui_ws/socket.io/?EIO=4&transport=websocket", headers).status

    assert get("/", {"Host": "evil.example"}).status == 421
    answer = get("/", {})
    assert answer.headers["x-frame-options"] == "DENY"
    assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
    assert [handshake(Origin="http://evil.example"), handshake(Origin="null"), handshake()] == [403] * 3
    assert handshake(Origin=address) == 101
