"""A workbench as its users have it: pages opened, corrected, walked and exported in a real browser."""

import os
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, WebSocketRoute, expect

from dsocr.data.sources.layout import SourceImage
from dsocr.data.sources.page import read_page
from dsocr.workbench.lines import State
from dsocr.workbench.store import Store
from tests.workbench.making import TEXTS, make_pages

FIELD = "Text of the line"


@dataclass(frozen=True)
class Served:
    """A workbench in a process of its own: where it answers, what it works in, and its corrections as they began."""

    address: str
    work: Path
    beginning: Path

    @property
    def corrections(self) -> Path:
        return self.work / "corrections.sqlite"

    def begin_again(self) -> None:
        """Put all lines back as they were when the workbench was opened."""
        with closing(sqlite3.connect(self.corrections)) as connection:
            connection.execute("ATTACH ? AS beginning", (str(self.beginning),))
            with connection:
                for statement in (
                    "DELETE FROM line",
                    "INSERT INTO line SELECT * FROM beginning.line",
                    "DELETE FROM change",
                    "INSERT INTO stamp DEFAULT VALUES",
                ):
                    connection.execute(statement)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("bench")
    source = make_pages(folder / "box")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "dsocr", "workbench", str(source), "--port", str(port), "--no-show", "--quiet"]
    with (folder / "said.txt").open("w", encoding="utf-8") as said:
        # NiceGUI would take it for a test of its own kind.
        environment = {name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"}
        server = subprocess.Popen(command, stdout=said, stderr=subprocess.STDOUT, env=environment)
        try:
            until = time.monotonic() + 120
            while time.monotonic() < until:
                try:
                    socket.create_connection(("127.0.0.1", port), timeout=1).close()
                    break
                except OSError:
                    assert server.poll() is None, (folder / "said.txt").read_text(encoding="utf-8")
                    time.sleep(0.1)
            served = Served(f"http://127.0.0.1:{port}/", folder / "box.workbench", folder / "beginning.sqlite")
            with (
                closing(sqlite3.connect(served.corrections)) as now,
                closing(sqlite3.connect(served.beginning)) as kept,
            ):
                now.backup(kept)
            yield served
        finally:
            server.terminate()
            server.wait(30)
    assert "Traceback" not in (folder / "said.txt").read_text(encoding="utf-8")
    if os.name == "posix":  # elsewhere a process that is ended is not asked
        assert [path.name for path in served.work.glob("corrections.sqlite*")] == ["corrections.sqlite"]


@pytest.fixture
def store(served: Served) -> Iterator[Store]:
    """What the workbench keeps, at its beginning."""
    served.begin_again()
    store = Store.open(served.corrections)
    yield store
    store.close()


OpenWindow = Callable[[], Page]


@pytest.fixture
def new_window(browser: Browser, served: Served, store: Store) -> Iterator[OpenWindow]:
    """The function that gives a window of a visitor of its own, not opened yet; a fault in one fails the test."""
    contexts: list[BrowserContext] = []
    complaints: list[str] = []

    def new() -> Page:
        contexts.append(browser.new_context(viewport={"width": 1500, "height": 900}, base_url=served.address))
        contexts[-1].set_default_timeout(60_000)
        page = contexts[-1].new_page()
        page.on("pageerror", lambda error: complaints.append(str(error)))
        return page

    yield new
    for context in contexts:
        context.close()
    assert complaints == []


@pytest.fixture
def window(new_window: OpenWindow) -> Page:
    page = new_window()
    page.goto("/")
    expect(page.get_by_label(FIELD)).to_have_value(TEXTS[0][0])
    return page


def texts(store: Store) -> list[str]:
    return [line.text for line in store.lines()]


def choose(window: Page, text: str) -> None:
    window.get_by_role("list").get_by_text(text, exact=True).click()
    expect(window.get_by_label(FIELD)).to_have_value(text)


def test_a_line_is_corrected_accepted_and_taken_back(window: Page, store: Store) -> None:
    field = window.get_by_label(FIELD)
    expect(field).to_have_value(TEXTS[0][0])
    field.fill("исправленная строка")
    field.press("Enter")
    expect(field).to_have_value(TEXTS[0][1])
    expect(window.get_by_text("1 of 6 lines settled")).to_be_visible()
    assert store.lines()[0].text == "исправленная строка"
    assert store.lines()[0].state is State.ACCEPTED
    window.keyboard.press("Alt+z")
    expect(field).to_have_value(TEXTS[0][0])
    expect(window.get_by_text("0 of 6 lines settled")).to_be_visible()
    assert texts(store)[0] == TEXTS[0][0]


def test_lines_are_walked_clicked_parted_joined_and_marked(window: Page, store: Store) -> None:
    field = window.get_by_label(FIELD)
    field.press("Alt+ArrowDown")
    expect(field).to_have_value(TEXTS[0][1])
    field.press("Alt+ArrowUp")
    expect(field).to_have_value(TEXTS[0][0])
    picture = window.locator('img[src*="picture/page"]').bounding_box()
    assert picture is not None
    window.mouse.click(picture["x"] + picture["width"] / 2, picture["y"] + picture["height"] * 190 / 400)
    expect(field).to_have_value(TEXTS[0][1])

    field.press("Home")
    for _ in range(7):
        field.press("ArrowRight")
    field.press("Alt+s")
    expect(field).to_have_value("вторая")
    assert texts(store)[1:3] == ["вторая", "строка"]
    field.press("Alt+j")
    expect(field).to_have_value("вторая строка")
    field.press("Alt+u")
    expect(window.get_by_text("1 of 6 lines settled")).to_be_visible()
    window.keyboard.press("Alt+z")
    expect(window.get_by_text("0 of 6 lines settled")).to_be_visible()
    window.keyboard.press("Alt+z")
    expect(field).to_have_value("вторая")
    window.keyboard.press("Alt+z")
    expect(field).to_have_value("вторая строка")
    assert texts(store) == [text for page in TEXTS for text in page]


def test_what_was_written_is_not_lost_by_looking_elsewhere(window: Page, store: Store) -> None:
    field = window.get_by_label(FIELD)
    field.fill("ещё не принято")
    field.press("Alt+ArrowDown")
    expect(field).to_have_value(TEXTS[0][1])
    field.press("Alt+ArrowUp")
    expect(field).to_have_value("ещё не принято")
    assert texts(store)[0] == TEXTS[0][0]
    field.fill("𝛼𝛽 дальше")  # letters that take two places in a browser's texts
    field.press("Home")
    for _ in range(3):
        field.press("ArrowRight")
    field.press("Alt+s")
    expect(field).to_have_value("𝛼𝛽")
    assert texts(store)[:2] == ["𝛼𝛽", "дальше"]
    field.fill("начало")
    field.press("Alt+j")
    expect(field).to_have_value("начало дальше")
    for _ in range(2):
        window.keyboard.press("Alt+z")
    expect(field).to_have_value(TEXTS[0][0])
    assert texts(store)[0] == TEXTS[0][0]


def test_two_windows_do_not_overwrite_each_other(window: Page, new_window: OpenWindow, store: Store) -> None:
    other = new_window()
    other.goto("/")
    expect(other.get_by_label(FIELD)).to_have_value(TEXTS[0][0])
    window.get_by_label(FIELD).fill("from here, not sent yet")
    other.get_by_label(FIELD).fill("from the other")
    other.get_by_label(FIELD).press("Enter")
    expect(other.get_by_label(FIELD)).to_have_value(TEXTS[0][1])
    window.get_by_label(FIELD).press("Enter")
    expect(window.get_by_text("somebody changed this line meanwhile: «from the other»")).to_be_visible()
    expect(window.get_by_label(FIELD)).to_have_value("from here, not sent yet")
    assert texts(store)[0] == "from the other"
    window.get_by_label(FIELD).press("Enter")  # it was told, and means it
    expect(window.get_by_label(FIELD)).to_have_value(TEXTS[0][1])
    assert texts(store)[0] == "from here, not sent yet"


TIMERS_IN_ANOTHER_ORDER = """(() => {
    // what waits for the connection, ten milliseconds at a time, goes out when it is there: here the last to wait first
    const wait = window.setTimeout.bind(window), held = [];
    window.setTimeout = (go, ms, ...rest) => {
        if (ms !== 10 || window.did_handshake) return wait(go, ms, ...rest);
        held.push(go);
        return 0;
    };
    const look = () => (window.did_handshake ? held.reverse().forEach((go) => go()) : wait(look, 5));
    look();
})()"""


def test_what_was_typed_before_the_connection_is_what_is_accepted(new_window: OpenWindow, store: Store) -> None:
    window = new_window()
    window.add_init_script(TIMERS_IN_ANOTHER_ORDER)
    held: list[WebSocketRoute] = []
    window.route_web_socket("**/*", lambda route: held.append(route))
    window.goto("/")
    field = window.get_by_label(FIELD)
    field.fill("раньше соединения")
    field.press("Enter")
    assert texts(store)[0] == TEXTS[0][0]
    while not held:
        window.wait_for_timeout(10)
    held[0].connect_to_server()
    expect(field).to_have_value(TEXTS[0][1])
    assert texts(store)[0] == "раньше соединения"
    assert [line.state for line in store.lines()].count(State.ACCEPTED) == 1


def test_what_was_written_is_there_when_the_page_is_loaded_again(window: Page, store: Store) -> None:
    field = window.get_by_label(FIELD)
    field.press("Alt+ArrowDown")
    expect(field).to_have_value(TEXTS[0][1])
    field.fill("не принято")
    window.reload()
    expect(field).to_have_value("не принято")
    window.get_by_text("Русский").click()
    field = window.get_by_label("Текст строки")
    expect(field).to_have_value("не принято")
    expect(window.locator("html")).to_have_attribute("lang", "ru")
    field.press("Enter")
    expect(field).to_have_value("")
    assert texts(store)[:3] == [TEXTS[0][0], "не принято", ""]


def test_what_was_written_on_the_next_line_is_joined_with_it(window: Page, store: Store) -> None:
    field = window.get_by_label(FIELD)
    field.press("Alt+ArrowDown")
    expect(field).to_have_value(TEXTS[0][1])
    field.fill("конец")
    field.press("Alt+ArrowUp")
    expect(field).to_have_value(TEXTS[0][0])
    field.fill("начало")
    field.press("Alt+j")
    expect(field).to_have_value("начало конец")
    assert texts(store)[0] == "начало конец"
    window.keyboard.press("Alt+z")
    expect(field).to_have_value(TEXTS[0][0])


def test_what_was_written_stays_where_another_window_removed_the_line(window: Page, store: Store) -> None:
    field = window.get_by_label(FIELD)
    field.press("Alt+ArrowDown")
    expect(field).to_have_value(TEXTS[0][1])
    field.fill("написано напрасно")
    store.join(store.lines()[0], who="another")
    expect(window.get_by_text("somebody removed this line meanwhile")).to_be_visible()
    field.press("Enter")
    expect(window.locator(".q-notification__badge")).to_have_text("2")  # told again
    expect(field).to_have_value("написано напрасно")
    field.fill("вторая строка")  # as it was: nothing is written there
    field.press("Alt+ArrowDown")
    expect(field).to_have_value("")
    store.undo("another")


def test_from_a_removed_line_where_nothing_was_written_one_goes_on(window: Page, store: Store) -> None:
    field = window.get_by_label(FIELD)
    field.press("Alt+ArrowDown")
    expect(field).to_have_value(TEXTS[0][1])
    store.join(store.lines()[0], who="another")
    expect(field).to_have_value("")


def test_what_somebody_wrote_takes_the_place_of_what_a_machine_read_meanwhile(window: Page, store: Store) -> None:
    field = window.get_by_label(FIELD)
    choose(window, TEXTS[0][1])
    field.press("Alt+ArrowDown")
    expect(field).to_have_value("")
    field.fill("самой прочитано")
    line = store.lines()[2]
    assert store.read_by_machine(line, "машиной прочитано", [0.9] * 17, 0.9)
    expect(window.get_by_role("list").get_by_text("машиной прочитано")).to_be_visible()
    expect(field).to_have_value("самой прочитано")
    field.press("Enter")
    expect(field).to_have_value(TEXTS[1][0])
    assert texts(store)[2] == "самой прочитано"


def test_words_parted_by_a_line_break_are_not_run_together(window: Page, store: Store) -> None:
    field = window.get_by_label(FIELD)
    store.settle(store.lines()[1], "раз\nдва", State.READ, who="another")
    field.press("Alt+ArrowDown")
    expect(field).to_have_value("раз два")
    field.press("End")
    field.press("!")
    field.press("Enter")
    expect(field).to_have_value("")
    assert texts(store)[1] == "раз два!"


def test_letters_typed_before_the_next_line_is_there_belong_to_it(new_window: OpenWindow, store: Store) -> None:
    window = new_window()
    held: list[Callable[[], None]] = []
    is_slow = False

    def connect(route: WebSocketRoute) -> None:
        server = route.connect_to_server()
        server.on_message(lambda said: held.append(lambda: route.send(said)) if is_slow else route.send(said))

    window.route_web_socket("**/*", connect)
    window.goto("/")
    field = window.get_by_label(FIELD)
    field.press("Alt+ArrowDown")
    expect(field).to_have_value(TEXTS[0][1])
    is_slow = True
    field.press("Enter")
    window.keyboard.type("дальше")
    field.press("Enter")  # nobody has seen yet what it would accept
    expect(field).to_have_value(TEXTS[0][1])
    while not held:
        window.wait_for_timeout(10)
    is_slow = False
    for send in held:
        send()
    expect(field).to_have_value("дальше")
    assert texts(store)[:3] == [TEXTS[0][0], TEXTS[0][1], ""]
    assert [line.state for line in store.lines()].count(State.ACCEPTED) == 1


def test_what_was_lost_on_its_way_is_told_again_and_done_once(new_window: OpenWindow, store: Store) -> None:
    """Takes three seconds, after which the window says again what nobody answered."""
    window = new_window()
    lost: list[str | bytes] = []

    def connect(route: WebSocketRoute) -> None:
        server = route.connect_to_server()

        def pass_on(said: str | bytes) -> None:
            is_act = "turn" in str(said)
            if is_act and not lost:
                lost.append(said)
            else:
                for _ in range(2 if is_act else 1):
                    server.send(said)

        route.on_message(pass_on)

    window.route_web_socket("**/*", connect)
    window.goto("/")
    field = window.get_by_label(FIELD)
    field.fill("дважды сказано")
    field.press("Enter")
    expect(field).to_have_value(TEXTS[0][1])
    assert lost
    assert [change.what for change in store.history()] == ["accepted"]
    assert texts(store)[0] == "дважды сказано"


def test_a_key_that_is_held_accepts_one_line(window: Page, store: Store) -> None:
    field = window.get_by_label(FIELD)
    for _ in range(5):
        window.keyboard.down("Enter")
    expect(field).to_have_value(TEXTS[0][1])
    for _ in range(5):
        window.keyboard.down("Enter")
    window.keyboard.up("Enter")
    field.press("Alt+ArrowDown")
    expect(field).to_have_value("")
    assert [line.state for line in store.lines()].count(State.ACCEPTED) == 1


def test_letters_that_a_keyboard_writes_with_control_and_alt_are_no_commands(window: Page, store: Store) -> None:
    field = window.get_by_label(FIELD)
    field.press("Control+Alt+u")
    field.press("Alt+ArrowDown")
    expect(field).to_have_value(TEXTS[0][1])
    assert store.history() == []


def test_each_tab_takes_back_what_was_changed_in_it(window: Page, store: Store) -> None:
    field = window.get_by_label(FIELD)
    field.press("Enter")
    expect(field).to_have_value(TEXTS[0][1])
    beside = window.context.new_page()
    beside.goto("/")
    expect(beside.get_by_label(FIELD)).to_have_value(TEXTS[0][1])
    beside.keyboard.press("Alt+z")
    expect(beside.get_by_text("nothing was changed in this window")).to_be_visible()
    assert store.lines()[0].state is State.ACCEPTED
    window.reload()
    window.keyboard.press("Alt+z")
    expect(window.get_by_text("0 of 6 lines settled")).to_be_visible()
    assert store.lines()[0].state is State.READ


def test_a_line_without_a_picture_says_why(window: Page, served: Served, store: Store) -> None:
    with closing(sqlite3.connect(served.corrections)) as connection, connection:
        connection.execute("UPDATE line SET outline = '[[9000, 1, 9100, 9], [], []]' WHERE number = 2")
    window.get_by_label(FIELD).press("Alt+ArrowDown")
    expect(window.get_by_text("no picture of this line: the line lies outside the image")).to_be_visible()
    window.get_by_label(FIELD).press("Alt+ArrowUp")
    expect(window.get_by_text("no picture of this line")).to_be_hidden()


@pytest.mark.parametrize(
    ("width", "columns"),
    [
        pytest.param(390, 1, id="telephone"),
        pytest.param(800, 1, id="half of a screen"),
        pytest.param(1100, 2, id="small screen"),
    ],
)
def test_page_and_text_stand_where_there_is_room(window: Page, width: int, columns: int) -> None:
    window.set_viewport_size({"width": width, "height": 900})
    page = window.get_by_role("img", name="Page").bounding_box()
    field = window.get_by_label(FIELD).bounding_box()
    assert page is not None
    assert field is not None
    assert (field["x"] > page["x"] + page["width"]) == (columns == 2)
    assert window.evaluate("document.documentElement.scrollWidth") <= width


def test_the_most_doubtful_comes_first_and_work_can_be_written_out(window: Page, served: Served) -> None:
    window.get_by_text("by doubt").click()
    expect(window.get_by_label(FIELD)).to_have_value(TEXTS[0][0])
    window.get_by_label(FIELD).fill("выгруженная строка")
    window.get_by_label(FIELD).press("Enter")
    expect(window.get_by_label(FIELD)).to_have_value(TEXTS[0][1])
    window.get_by_role("button", name="Export").click()
    window.get_by_role("button", name="Write").click()
    expect(window.get_by_text("written: 2 pages, 1 texts")).to_be_visible()
    out = served.work / "export"
    lines = [line.text for image in read_page(out) if isinstance(image, SourceImage) for line in image.lines]
    assert sorted(lines) == ["", "", "", "", "", "выгруженная строка"]


def test_pictures_and_pages_have_names_for_those_who_do_not_see_them(window: Page) -> None:
    expect(window.get_by_role("img", name="Picture of the line")).to_be_visible()
    expect(window.get_by_role("combobox", name="Page")).to_be_visible()


def test_it_speaks_russian(window: Page) -> None:
    window.get_by_text("Русский").click()
    expect(window.get_by_label("Текст строки")).to_have_value(TEXTS[0][0])
    expect(window.get_by_role("button", name="Принять (Enter)")).to_be_visible()


def test_a_name_made_to_point_here_is_not_answered(window: Page) -> None:
    assert window.request.get("/", headers={"Host": "evil.example"}).status == 400


def test_buttons_can_be_read_on_a_dark_screen(window: Page) -> None:
    window.emulate_media(color_scheme="dark")
    button = window.get_by_role("button", name="Export")
    expect(button).to_have_css("color", "rgb(147, 197, 253)")  # 9.9 to 1 on the ground; the light one has 2.7 to 1
