"""Lines that nobody read, read by a model while people correct others."""

import logging
import threading
from collections.abc import Callable, Iterator
from itertools import groupby
from typing import Protocol

from PIL import Image

from dsocr.data.cutting import Refusal
from dsocr.data.sources.layout import Reason
from dsocr.errors import DataError, DsocrError
from dsocr.inference.prediction import Prediction
from dsocr.workbench.lines import Line, Page, State
from dsocr.workbench.opening import Shelf
from dsocr.workbench.store import Store

_LOG = logging.getLogger(__name__)


class Reads(Protocol):
    """Reads pictures, as a Transcriber does."""

    def read(self, images: list[tuple[str, Image.Image]]) -> Iterator[Prediction]:
        """A prediction for every (id, image), in their order."""


class Reading:
    """A thread that reads all unread lines, page by page.

    `left_out` says of lines that have no picture why, a sentence each; `fault` why it ended early.
    """

    def __init__(self, store: Store, shelf: Shelf, open_reader: Callable[[], Reads]) -> None:
        self._store = store
        self._shelf = shelf
        self._open_reader = open_reader
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._work, name="dsocr-reading", daemon=True)
        self.done = 0
        self.total = sum(line.state is State.UNREAD for line in store.lines())
        self.left_out: list[str] = []
        self.fault: str | None = None

    def start(self) -> None:
        """Begin, if there is anything to read."""
        if self.total:
            self._thread.start()

    def end(self) -> None:
        """Stop after the page at hand."""
        self._ending.set()
        if self._thread.is_alive():
            self._thread.join(60)

    @property
    def is_at_work(self) -> bool:
        """True while lines are being read."""
        return self._thread.is_alive()

    def _work(self) -> None:
        try:
            reader = self._open_reader()
            pages = {page.number: page for page in self._store.pages()}
            unread = [line for line in self._store.lines() if line.state is State.UNREAD]
            for number, lines in groupby(unread, key=lambda line: line.page):
                if self._ending.is_set():
                    return
                self._read_page(reader, pages[number], list(lines))
        except DsocrError as error:
            self.fault = str(error)
        except Exception as error:  # noqa: BLE001 - no memory left, say: windows tell it, else people would wait
            self.fault = f"{type(error).__name__}: {error}"
            _LOG.exception("reading ended by a fault")

    def _read_page(self, reader: Reads, page: Page, lines: list[Line]) -> None:
        by_id = {str(line.number): line for line in lines}
        images = [(id_, picture) for id_, picture in zip(by_id, self._cut(page, lines), strict=True) if picture]
        for prediction in reader.read(images):
            line = by_id[prediction.id]
            self._store.read_by_machine(line, prediction.text, prediction.characters, prediction.confidence)
        self.done += len(lines)

    def _cut(self, page: Page, lines: list[Line]) -> list[Image.Image | None]:
        """The pictures of lines, None where there is none, which is told."""
        try:
            found = self._shelf.cut(page, lines)
        except DataError as error:
            found = [Refusal(Reason.BAD_IMAGE, error.message)] * len(lines)
        self.left_out += [f"{page.name}: {one.message}" for one in found if isinstance(one, Refusal)]
        return [None if isinstance(one, Refusal) else one for one in found]
