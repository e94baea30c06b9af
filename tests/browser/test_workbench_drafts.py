"""Texts that are typed and not accepted: with several windows, reloads, and slow or bad connections."""

from collections.abc import Callable

from playwright.sync_api import Page, WebSocketRoute, expect

from dsocr.workbench.store import CorrectionStore
from dsocr.workbench.stored_lines import State
from tests.browser.workbench import FIELD, OpenWindow, choose, press, texts
from tests.workbench.fakes import TEXTS


def test_drafts_survive_moving_between_lines(window: Page, store: CorrectionStore) -> None:
    field = window.get_by_label(FIELD)
    field.fill("ещё не принято")
    press(field, "Alt+ArrowDown", TEXTS[0][1])
    press(field, "Alt+ArrowUp", "ещё не принято")
    assert texts(store)[0] == TEXTS[0][0]
    field.fill("𝛼𝛽 дальше")  # letters that take two places in a browser's texts
    field.press("Home")
    for _ in range(3):
        field.press("ArrowRight")
    press(field, "Alt+s", "𝛼𝛽")
    assert texts(store)[:2] == ["𝛼𝛽", "дальше"]
    field.fill("начало")
    press(field, "Alt+j", "начало дальше")
    for _ in range(2):
        window.keyboard.press("Alt+z")
    expect(field).to_have_value(TEXTS[0][0])
    assert texts(store)[0] == TEXTS[0][0]


def test_two_windows_do_not_overwrite_each_other(window: Page, new_window: OpenWindow, store: CorrectionStore) -> None:
    other = new_window()
    other.goto("/")
    expect(other.get_by_label(FIELD)).to_have_value(TEXTS[0][0])
    window.get_by_label(FIELD).fill("from here, not sent yet")
    other.get_by_label(FIELD).fill("from the other")
    press(other.get_by_label(FIELD), "Enter", TEXTS[0][1])
    window.get_by_label(FIELD).press("Enter")
    expect(window.get_by_text("Somebody else changed this line to “from the other”")).to_be_visible()
    expect(window.get_by_label(FIELD)).to_have_value("from here, not sent yet")
    assert texts(store)[0] == "from the other"
    press(window.get_by_label(FIELD), "Enter", TEXTS[0][1])  # a second time, on purpose
    assert texts(store)[0] == "from here, not sent yet"


TIMERS_IN_ANOTHER_ORDER = """(() => {
    // NiceGUI polls every 10 ms for the connection before it sends; here the last message goes out first
    const wait = window.setTimeout.bind(window), held = [];
    window.setTimeout = (go, ms, ...rest) => {
        if (ms !== 10 || window.did_handshake) return wait(go, ms, ...rest);
        held.push(go);
        return 0;
    };
    const look = () => (window.did_handshake ? held.reverse().forEach((go) => go()) : wait(look, 5));
    look();
})()"""


def test_text_typed_before_the_connection_is_accepted(new_tab: OpenWindow, store: CorrectionStore) -> None:
    window = new_tab()
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


def test_drafts_survive_a_reload_and_another_language(window: Page, store: CorrectionStore) -> None:
    field = window.get_by_label(FIELD)
    press(field, "Alt+ArrowDown", TEXTS[0][1])
    field.fill("не принято")
    window.reload()
    expect(field).to_have_value("не принято")
    window.get_by_text("Русский").click()
    field = window.get_by_label("Текст строки")
    expect(field).to_have_value("не принято")
    expect(window.locator("html")).to_have_attribute("lang", "ru")
    expect(window.get_by_role("button", name="Принять (Enter)")).to_be_visible()
    press(field, "Enter", "")
    assert texts(store)[:3] == [TEXTS[0][0], "не принято", ""]


def test_the_draft_of_a_removed_line_stays(window: Page, store: CorrectionStore) -> None:
    field = window.get_by_label(FIELD)
    press(field, "Alt+ArrowDown", TEXTS[0][1])
    field.fill("написано напрасно")
    store.join(store.lines()[0], who="another")
    expect(window.get_by_text("Somebody else removed this line")).to_be_visible()
    field.press("Enter")
    expect(window.locator(".q-notification__badge")).to_have_text("2")  # notified again
    expect(field).to_have_value("написано напрасно")
    field.fill("вторая строка")  # as stored: no draft any more
    press(field, "Alt+ArrowDown", "")
    store.undo("another")


def test_a_removed_line_without_a_draft_is_left(window: Page, store: CorrectionStore) -> None:
    field = window.get_by_label(FIELD)
    press(field, "Alt+ArrowDown", TEXTS[0][1])
    store.join(store.lines()[0], who="another")
    expect(field).to_have_value("")


def test_a_typed_text_replaces_what_a_model_read_meanwhile(window: Page, store: CorrectionStore) -> None:
    field = window.get_by_label(FIELD)
    choose(window, TEXTS[0][1])
    press(field, "Alt+ArrowDown", "")
    field.fill("самой прочитано")
    line = store.lines()[2]
    assert store.add_reading(line, "машиной прочитано", [0.9] * 17, 0.9)
    expect(window.get_by_role("list").get_by_text("машиной прочитано")).to_be_visible()
    expect(field).to_have_value("самой прочитано")
    press(field, "Enter", TEXTS[1][0])
    assert texts(store)[2] == "самой прочитано"


def test_letters_typed_ahead_belong_to_the_next_line(new_tab: OpenWindow, store: CorrectionStore) -> None:
    window = new_tab()
    held: list[Callable[[], None]] = []
    is_slow = False

    def connect(route: WebSocketRoute) -> None:
        server = route.connect_to_server()
        server.on_message(lambda said: held.append(lambda: route.send(said)) if is_slow else route.send(said))

    window.route_web_socket("**/*", connect)
    window.goto("/")
    field = window.get_by_label(FIELD)
    press(field, "Alt+ArrowDown", TEXTS[0][1])
    is_slow = True
    field.press("Enter")
    window.keyboard.type("дальше")
    press(field, "Enter", TEXTS[0][1])  # the next line is not visible yet
    while not held:
        window.wait_for_timeout(10)
    is_slow = False
    for send in held:
        send()
    expect(field).to_have_value("дальше")
    assert texts(store)[:3] == [TEXTS[0][0], TEXTS[0][1], ""]
    assert [line.state for line in store.lines()].count(State.ACCEPTED) == 1


def test_lost_messages_are_sent_again_and_carried_out_once(new_tab: OpenWindow, store: CorrectionStore) -> None:
    """Takes three seconds, after which the browser sends again what was not answered."""
    window = new_tab()
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
    press(field, "Enter", TEXTS[0][1])
    assert lost
    assert [change.what for change in store.history()] == ["accepted"]
    assert texts(store)[0] == "дважды сказано"


def test_each_tab_undoes_its_own_changes(window: Page, store: CorrectionStore) -> None:
    field = window.get_by_label(FIELD)
    press(field, "Enter", TEXTS[0][1])
    beside = window.context.new_page()
    beside.goto("/")
    expect(beside.get_by_label(FIELD)).to_have_value(TEXTS[0][1])
    beside.keyboard.press("Alt+z")
    expect(beside.get_by_text("Nothing to undo in this window")).to_be_visible()
    assert store.lines()[0].state is State.ACCEPTED
    beside.close()  # a tab behind another is drawn once a second, in all tests that follow
    window.reload()
    window.keyboard.press("Alt+z")
    expect(window.get_by_text("0 of 6 lines reviewed")).to_be_visible()
    assert store.lines()[0].state is State.READ
