"""Draw the views of the workbench that the guide shows.

    python tools/draw_workbench.py pictures                   # English, light and dark, at 1400, 800 and 2560 pixels
    python tools/draw_workbench.py pictures --widths 390 4000 --languages ru
    python tools/draw_workbench.py pictures --docs            # and replace the pictures in docs/pictures

The views are of `examples/copiste`, whose first pages `small` reads (a minute on two cores); some of their lines are
accepted with their true texts. That of tables is of a page as `draw_registers.py` draws it.
"""

import argparse
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from html import unescape
from itertools import product
from pathlib import Path
from typing import Literal

from PIL import Image
from playwright.sync_api import Browser, Page, ViewportSize, sync_playwright

from draw_registers import Look, draw_register
from dsocr.formats.page import page_document
from dsocr.formats.xml import serialize
from dsocr.language import Language, localized
from dsocr.workbench.store import CorrectionStore
from dsocr.workbench.stored_lines import State

EXAMPLES = Path(__file__).parents[1] / "examples" / "copiste"
DOCS = Path(__file__).parents[1] / "docs" / "pictures"
PAGES, UNREAD_PAGES, ACCEPTED = 12, 3, 24
HEIGHTS = {390: 844, 800: 1100, 1400: 900, 2560: 1440, 4000: 2200}
PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "chrome", "msedge")
REGISTER, SEED = Look("revision", "full", rows=7, skew=1.5, titled=False), 5

Scheme = Literal["light", "dark"]
Text = Callable[[str], str]


def press(keys: str) -> Callable[[Page, Text], None]:
    """A view that keys in the text field open."""

    def open_(page: Page, text: Text) -> None:
        for key in keys.split():
            page.get_by_label(text("text"), exact=True).press(key)

    return open_


def click(name: str) -> Callable[[Page, Text], None]:
    """A view that a button opens."""
    return lambda page, text: page.get_by_role("button", name=text(name), exact=True).click()


def tables(page: Page, text: Text) -> None:
    """The table of a register, a ruling of it chosen."""
    press("Alt+v Alt+f Alt+b")(page, text)
    page.locator(".ruling-hit").nth(3).focus()


def search(page: Page, text: Text) -> None:
    """Find and replace, with its changes."""
    press("Alt+r")(page, text)
    page.get_by_label(text("find"), exact=True).fill("commune")
    page.get_by_label(text("replace_with"), exact=True).fill("Commune")


def other_readings(page: Page, text: Text) -> None:
    """Other readings of the second word of the line."""
    field = page.get_by_label(text("text"), exact=True)
    field.evaluate("field => { const at = field.value.indexOf(' ') + 1; field.setSelectionRange(at, at) }")
    field.press("Alt+a")
    page.get_by_text(re.compile(r"“|«")).first.wait_for()


VIEWS: dict[str, Callable[[Page, Text], None]] = {
    "workbench": lambda page, text: None,
    "shapes": press("Alt+e"),
    "tables": tables,
    "overview": click("view_pages"),
    "other_readings": other_readings,
    "search": search,
}


def copy_pages(source: Path) -> dict[str, list[str]]:
    """Copy the first pages, some of them without texts; returns the texts of these by the name of their page."""
    texts = {}
    for kind in ("alto", "jpg"):
        (source / kind).mkdir(parents=True)
    for number, path in enumerate(sorted((EXAMPLES / "alto").glob("*.xml"))[:PAGES]):
        shutil.copy(EXAMPLES / "jpg" / f"{path.stem}.jpg", source / "jpg")
        alto = path.read_text(encoding="utf-8")
        if number < UNREAD_PAGES:
            texts[path.stem] = [unescape(text) for text in re.findall(r'CONTENT="([^"]*)"', alto)]
            alto = re.sub(r'CONTENT="[^"]*"', 'CONTENT=""', alto)
        (source / "alto" / path.name).write_text(alto, encoding="utf-8")
    return texts


def accept_lines(store: CorrectionStore, texts: dict[str, list[str]]) -> None:
    """Wait until the model has read all lines, and accept the first with the texts they had."""
    until = time.monotonic() + 600
    while store.counts()[State.UNREAD]:
        if time.monotonic() > until:
            raise TimeoutError("lines are still unread after ten minutes")
        time.sleep(1)
    names = {page.number: page.name for page in store.pages()}
    accepted = 0
    for page, name in names.items():
        for line, text in zip(store.lines(page), texts.get(name, ()), strict=False):
            if accepted < ACCEPTED and text:
                store.review(line, text, State.ACCEPTED, who="example/1", name="A. Martin")
                accepted += 1


@contextmanager
def serving(source: Path, run: str, accept: Callable[[CorrectionStore], None]) -> Iterator[str]:
    """A workbench over a source that `run` reads; yields its address when `accept` has done with its lines."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "dsocr", "workbench", str(source), "--run", run]
    server = subprocess.Popen([*command, "--port", str(port), "--no-show", "--quiet"])  # noqa: S603
    try:
        while not (database := Path(f"{source}.workbench") / "corrections.sqlite").exists() or not answers(port):
            if server.poll() is not None:
                raise RuntimeError("the workbench has ended")
            time.sleep(0.5)
        with closing(CorrectionStore.open(database)) as store:
            accept(store)
        yield f"http://127.0.0.1:{port}/"
    finally:
        server.terminate()
        server.wait(60)


def draw_register_page(source: Path) -> None:
    """Draw a page of a register and its table."""
    image, page = draw_register(REGISTER, SEED)
    source.mkdir()
    image.save(source / page.image, quality=90)
    (source / f"{page.name}.xml").write_bytes(serialize(page_document(page)[0]))


def answers(port: int) -> bool:
    """Whether a server listens there."""
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def draw(browser: Browser, address: str, out: Path, name: str, width: int, scheme: Scheme, language: Language) -> None:
    """Draw one view in a window of its own."""
    size: ViewportSize = {"width": width, "height": HEIGHTS.get(width, 900)}
    with closing(browser.new_context(viewport=size, color_scheme=scheme)) as context:
        page = context.new_page()

        def text(name: str) -> str:
            return localized(language, name)

        page.goto(f"{address}{language}")
        page.get_by_label(text("text"), exact=True).wait_for()
        page.wait_for_load_state("networkidle")
        VIEWS[name](page, text)
        page.wait_for_timeout(1000)  # dialogs slide in, images load
        page.screenshot(path=out / f"{name}-{width}-{scheme}-{language}.png")


def main() -> None:
    """Draw what the arguments name."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--widths", type=int, nargs="+", default=[1400, 800, 2560])
    parser.add_argument("--schemes", nargs="+", default=["light", "dark"])
    parser.add_argument("--languages", nargs="+", default=["en"])
    parser.add_argument("--views", nargs="+", default=list(VIEWS), choices=list(VIEWS))
    parser.add_argument("--docs", action="store_true", help="replace the pictures of the documentation too")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        texts = copy_pages(folder / "copiste")
        draw_register_page(folder / "register")
        letters = serving(folder / "copiste", "small", lambda store: accept_lines(store, texts))
        register = serving(folder / "register", "none", lambda store: None)
        addresses = dict.fromkeys(VIEWS, stack.enter_context(letters)) | {"tables": stack.enter_context(register)}
        program = next(filter(None, map(shutil.which, PROGRAMS)), None)
        browser = stack.enter_context(sync_playwright()).chromium.launch(executable_path=program, args=["--no-sandbox"])
        stack.callback(browser.close)
        for name, *window in product(options.views, options.widths, options.schemes, options.languages):
            draw(browser, addresses[name], options.out, name, *window)
    if options.docs:
        for name in options.views:
            picture = Image.open(options.out / f"{name}-1400-light-en.png").convert("RGB")
            target = DOCS / f"{name if name == 'workbench' else f'workbench_{name}'}.png"
            picture.quantize(96, Image.Quantize.MAXCOVERAGE, 2, dither=Image.Dither.NONE).save(target, optimize=True)


if __name__ == "__main__":
    main()
