"""A workbench in another process, for a browser to open."""

import os
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import Locator, Page, expect

from dsocr.workbench.store import CorrectionStore
from tests.workbench.fakes import make_pages

FIELD = "Text of the line"

OpenWindow = Callable[[], Page]


@dataclass(frozen=True)
class Served:
    """A running workbench: its address, its work folder, and a copy of its initial corrections."""

    address: str
    work: Path
    initial: Path

    @property
    def corrections(self) -> Path:
        return self.work / "corrections.sqlite"

    def reset(self) -> None:
        """Restore all lines and forget all changes."""
        with closing(sqlite3.connect(self.corrections)) as connection:
            connection.execute("ATTACH ? AS initial", (str(self.initial),))
            with connection:
                for statement in (
                    "DELETE FROM line",
                    "INSERT INTO line SELECT * FROM initial.line",
                    "DELETE FROM region",
                    "INSERT INTO region SELECT * FROM initial.region",
                    "DELETE FROM change",
                    "INSERT INTO stamp DEFAULT VALUES",
                ):
                    connection.execute(statement)


@contextmanager
def running(folder: Path, *arguments: str, **environment: str) -> Iterator[str]:
    """The address of a workbench in another process; its output must not contain a traceback."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "dsocr", "workbench", *arguments, "--port", str(port), "--no-show", "--quiet"]
    with (folder / "output.txt").open("w", encoding="utf-8") as output:
        # otherwise NiceGUI believes that it is being tested
        kept = {name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"}
        server = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=kept | environment)
        try:
            until = time.monotonic() + 120
            while time.monotonic() < until:
                try:
                    socket.create_connection(("127.0.0.1", port), timeout=1).close()
                    break
                except OSError:
                    assert server.poll() is None, (folder / "output.txt").read_text(encoding="utf-8")
                    time.sleep(0.1)
            yield f"http://127.0.0.1:{port}/"
        finally:
            server.terminate()
            server.wait(30)
    assert "Traceback" not in (folder / "output.txt").read_text(encoding="utf-8")


@contextmanager
def serving(folder: Path) -> Iterator[Served]:
    """A workbench on two small pages."""
    with running(folder, str(make_pages(folder / "box")), "--run", "none") as address:
        served = Served(address, folder / "box.workbench", folder / "initial.sqlite")
        with (
            closing(sqlite3.connect(served.corrections)) as now,
            closing(sqlite3.connect(served.initial)) as kept,
        ):
            now.backup(kept)
        yield served
    if os.name == "posix":  # elsewhere a process is ended without a signal
        assert [path.name for path in served.work.glob("corrections.sqlite*")] == ["corrections.sqlite"]


def texts(store: CorrectionStore) -> list[str]:
    """The texts of all lines."""
    return [line.text for line in store.lines()]


def choose(window: Page, text: str) -> None:
    """Click the line with this text in the list."""
    window.get_by_role("list").get_by_text(text, exact=True).click()
    expect(window.get_by_label(FIELD)).to_have_value(text)


def press(field: Locator, key: str, text: str) -> None:
    """Press a key in the field, which has this text afterwards."""
    field.press(key)
    expect(field).to_have_value(text)


def eventually(window: Page, holds: Callable[[], bool]) -> None:
    """Wait until something holds that the server does after the browser has shown it."""
    until = time.monotonic() + 30
    while not holds() and time.monotonic() < until:
        window.wait_for_timeout(50)
    assert holds()
