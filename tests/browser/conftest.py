"""A real browser, Chromium as the system has it; nothing is downloaded."""

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Browser, Page, ViewportSize, expect, sync_playwright

from dsocr.workbench.store import CorrectionStore
from tests.browser.workbench import FIELD, OpenWindow, Served, serving
from tests.workbench.fakes import TEXTS

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome", "msedge")
expect.set_options(timeout=60_000)  # the most that is waited for, on a machine that has much else to do
SIZE: ViewportSize = {"width": 1500, "height": 900}
MISSING = "there is no Chromium on PATH: install it (Debian: apt-get install chromium)"


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Chromium; where there is none, tests are skipped, or fail where DSOCR_REQUIRE_BROWSER is set."""
    program = next(filter(None, map(shutil.which, NAMES)), None)
    if program is None and os.environ.get("DSOCR_REQUIRE_BROWSER"):
        pytest.fail(MISSING)
    if program is None:
        pytest.skip(MISSING)
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield started
        started.close()


@dataclass
class Opened:
    """A page, and what it did that no page of ours may do."""

    page: Page
    complaints: list[str] = field(default_factory=list)
    """What stood in the console, what was fetched, what asked for an answer."""


Open = Callable[..., Opened]


@pytest.fixture
def open_page(browser: Browser) -> Iterator[Open]:
    """The function that opens a file of ours without a network; whatever it complains of fails the test."""
    all_opened = []

    def open_(
        path: Path,
        *,
        width: int = 1200,
        scheme: Literal["light", "dark"] = "light",
        script: bool = True,
        media: Literal["screen", "print"] = "screen",
    ) -> Opened:
        context = browser.new_context(
            viewport={"width": width, "height": 800}, color_scheme=scheme, java_script_enabled=script, offline=True
        )
        opened = Opened(context.new_page())
        all_opened.append(opened)
        opened.page.emulate_media(media=media, color_scheme=scheme)
        opened.page.on("console", lambda message: opened.complaints.append(f"console: {message.text}"))
        opened.page.on("pageerror", lambda error: opened.complaints.append(f"error: {error}"))
        opened.page.on("dialog", lambda dialog: opened.complaints.append(f"dialog: {dialog.message}"))
        opened.page.on(
            "request",
            lambda request: (
                opened.complaints.append(f"request: {request.url[:200]}")
                if request.url != path.as_uri() and not request.url.startswith("data:")
                else None
            ),
        )
        opened.page.goto(path.as_uri())
        return opened

    yield open_
    for opened in all_opened:
        opened.page.context.close()
        assert opened.complaints == []


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One workbench for all tests; `store` resets it."""
    with serving(tmp_path_factory.mktemp("bench")) as served:
        yield served


@pytest.fixture
def store(served: Served) -> Iterator[CorrectionStore]:
    """The workbench's store in its initial state."""
    served.reset()
    store = CorrectionStore.open(served.corrections)
    yield store
    store.close()


def open_tab(browser: Browser, served: Served, complaints: list[str]) -> Page:
    """A tab of a new visitor, without a page yet; script errors are added to the complaints."""
    context = browser.new_context(viewport=SIZE, base_url=served.address, reduced_motion="reduce")
    context.set_default_timeout(60_000)
    context.on("weberror", lambda error: complaints.append(str(error.error)))
    return context.new_page()


def forget(tab: Page) -> None:
    """Clear what a browser has kept of its visitor, and leave the workbench."""
    tab.goto("/picture/line/0")  # there is none; a workbench that is still open would store again what is cleared
    tab.evaluate("localStorage.clear(); sessionStorage.clear()")
    tab.goto("about:blank")
    tab.context.clear_cookies()


@pytest.fixture
def new_window(browser: Browser, served: Served, store: CorrectionStore) -> Iterator[OpenWindow]:
    """A function that makes a window of a new visitor, without a page yet; a script error fails the test."""
    tabs: list[Page] = []
    complaints: list[str] = []

    def new() -> Page:
        tabs.append(open_tab(browser, served, complaints))
        return tabs[-1]

    yield new
    for tab in tabs:
        tab.context.close()
    assert complaints == []


@pytest.fixture
def new_tab(shared_tab: Opened, store: CorrectionStore) -> Iterator[OpenWindow]:
    """A function that makes a tab in the browser of `window`, without a page yet; a script error fails the test."""
    tabs: list[Page] = []

    def new() -> Page:
        tabs.append(shared_tab.page.context.new_page())
        return tabs[-1]

    yield new
    for tab in tabs:
        forget(tab)
        tab.close()
    assert shared_tab.complaints == []


@pytest.fixture(scope="session")
def shared_tab(browser: Browser, served: Served) -> Iterator[Opened]:
    """A tab for all tests: in a new one the same page takes three times as long."""
    complaints: list[str] = []
    tab = open_tab(browser, served, complaints)
    yield Opened(tab, complaints)
    tab.context.close()


@pytest.fixture
def window(shared_tab: Opened, store: CorrectionStore) -> Iterator[Page]:
    """A window as a new visitor sees it first; a script error fails the test."""
    page, complaints = shared_tab.page, shared_tab.complaints
    page.goto("/")
    expect(page.get_by_label(FIELD)).to_have_value(TEXTS[0][0])
    yield page
    for key in ("Enter", "Shift"):
        page.keyboard.up(key)
    forget(page)
    page.set_viewport_size(SIZE)
    page.emulate_media(color_scheme="light")
    assert complaints == []


def press_key(page: Page, key: str, code: str) -> None:
    """Press a key of another layout, by what it types and by its place."""
    page.evaluate(
        "init => document.activeElement.dispatchEvent(new KeyboardEvent('keydown', {...init, bubbles: true}))",
        {"key": key, "code": code},
    )
