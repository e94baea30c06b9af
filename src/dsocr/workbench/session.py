"""Everything a workbench works with, and the pictures it shows; knows nothing of windows."""

import io
import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from PIL import Image

from dsocr.errors import DataError
from dsocr.io.cropping import CropFailure
from dsocr.workbench.archive import Shelf
from dsocr.workbench.background import Reading, Tally, Training
from dsocr.workbench.store import Line, Page, Store

_KEPT = 24
"""Pictures that are kept in memory as files."""


@dataclass(slots=True)
class Workbench:
    """One source on the bench: `reading` is None without a model, `training` without settings to train with."""

    name: str
    store: Store
    shelf: Shelf
    work: Path
    reading: Reading | None = None
    training: Training | None = None
    pages: dict[int, Page] = field(default_factory=dict)
    id: str = ""
    """What no other workbench is called, as those of two sources of one name."""
    _pictures: OrderedDict[object, bytes] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _tally: tuple[int, Tally] | None = None
    _lock_of_tally: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.pages = {page.number: page for page in self.store.pages()}
        self.id = self.store.setting("id") or secrets.token_hex(8)
        self.store.set_setting("id", self.id)

    def page_picture(self, number: int) -> bytes:
        """A page as a JPEG file, upright and as large as it is. Raises DataError where there is none."""
        page = self._page(number)
        return self._kept(("page", number), lambda: _jpeg(self.shelf.whole(page)))

    def line_picture(self, number: int) -> bytes:
        """A line as a JPEG file, as the model is shown it. Raises DataError where there is none."""
        line = self.store.line(number)
        if line is None:
            raise DataError(f"there is no line {number}")
        page = self._page(line.page)

        def cut() -> bytes:
            (picture,) = self.shelf.cut(page, [line])
            if isinstance(picture, CropFailure):
                raise DataError(picture.message, where=page.name)
            return _jpeg(picture)

        return self._kept(("line", number, line.outline), cut)

    def why_not_shown(self, number: int) -> str:
        """Why a line has no picture, in a sentence; empty where it has one."""
        try:
            self.line_picture(number)
        except DataError as error:
            return error.message
        return ""

    def tally(self) -> Tally:
        """How far the work is; counted once for all windows after each change."""
        stamp = self.store.stamp()
        with self._lock_of_tally:
            if self._tally is None or self._tally[0] != stamp:
                self._tally = (stamp, Tally.of(self.store))
            return self._tally[1]

    def next_in_doubt(self, line: Line | None) -> Line | None:
        """The most doubtful line that nobody settled, other than this one; None where all are."""
        numbers = [number for number in self.store.by_doubt() if line is None or number != line.number]
        return self.store.line(numbers[0]) if numbers else None

    def _page(self, number: int) -> Page:
        if number not in self.pages:
            raise DataError(f"there is no page {number}")
        return self.pages[number]

    def _kept(self, key: object, make: Callable[[], bytes]) -> bytes:
        with self._lock:
            if key not in self._pictures:
                self._pictures[key] = make()
            self._pictures.move_to_end(key)
            while len(self._pictures) > _KEPT:
                self._pictures.popitem(last=False)
            return self._pictures[key]


def _jpeg(picture: Image.Image) -> bytes:
    file = io.BytesIO()
    picture.save(file, "JPEG", quality=85)
    return file.getvalue()
