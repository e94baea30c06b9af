"""What is written in a workbench and not accepted, in one window and in several, on slow and bad connections."""

from collections.abc import Callable

from playwright.sync_api import Page, WebSocketRoute, expect

from dsocr.workbench.store import State, Store
from tests.browser.workbench import FIELD, OpenWindow, choose, texts
from tests.workbench.fakes import TEXTS


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
    expect(window.get_by_text("Somebody else changed this line to “from the other”")).to_be_visible()
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


def test_what_was_written_stays_where_another_window_removed_the_line(window: Page, store: Store) -> None:
    field = window.get_by_label(FIELD)
    field.press("Alt+ArrowDown")
    expect(field).to_have_value(TEXTS[0][1])
    field.fill("написано напрасно")
    store.join(store.lines()[0], who="another")
    expect(window.get_by_text("Somebody else removed this line")).to_be_visible()
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
    assert store.add_reading(line, "машиной прочитано", [0.9] * 17, 0.9)
    expect(window.get_by_role("list").get_by_text("машиной прочитано")).to_be_visible()
    expect(field).to_have_value("самой прочитано")
    field.press("Enter")
    expect(field).to_have_value(TEXTS[1][0])
    assert texts(store)[2] == "самой прочитано"


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
            is_act = "sequence" in str(said)
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


def test_each_tab_takes_back_what_was_changed_in_it(window: Page, store: Store) -> None:
    field = window.get_by_label(FIELD)
    field.press("Enter")
    expect(field).to_have_value(TEXTS[0][1])
    beside = window.context.new_page()
    beside.goto("/")
    expect(beside.get_by_label(FIELD)).to_have_value(TEXTS[0][1])
    beside.keyboard.press("Alt+z")
    expect(beside.get_by_text("Nothing to undo in this window")).to_be_visible()
    assert store.lines()[0].state is State.ACCEPTED
    window.reload()
    window.keyboard.press("Alt+z")
    expect(window.get_by_text("0 of 6 lines reviewed")).to_be_visible()
    assert store.lines()[0].state is State.READ
