"""Everything one workbench works with, and the images it shows; knows nothing of windows."""

import io
import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from dsocr.errors import DataError
from dsocr.evaluation.metrics import ErrorRate, character_errors
from dsocr.io.cropping import CropFailure
from dsocr.workbench.archive import Archive
from dsocr.workbench.background import BackgroundReader, BackgroundTraining
from dsocr.workbench.store import CorrectionStore, State, StoredLine, StoredPage

_CACHED_IMAGES = 24


@dataclass(frozen=True, slots=True)
class Statistics:
    """Lines by state, and the pooled errors of the model on the `judged` lines: accepted ones that it had read."""

    counts: Mapping[State, int]
    errors: ErrorRate
    judged: int

    @property
    def reviewed(self) -> int:
        """The number of lines that are accepted or unreadable."""
        return self.counts[State.ACCEPTED] + self.counts[State.UNREADABLE]


class Session:
    """One source with its corrections; `reader` is None without a model, `training` without settings to train with."""

    def __init__(
        self,
        name: str,
        store: CorrectionStore,
        archive: Archive,
        work: Path,
        *,
        reader: BackgroundReader | None = None,
        training: BackgroundTraining | None = None,
    ) -> None:
        self.name = name
        self.store = store
        self.archive = archive
        self.work = work
        self.reader = reader
        self.training = training
        self.pages = {page.number: page for page in store.pages()}
        self.id = store.setting("id") or secrets.token_hex(8)  # tells sources of the same name apart
        store.set_setting("id", self.id)
        self._images: OrderedDict[object, bytes] = OrderedDict()
        self._images_lock = threading.Lock()
        self._statistics: tuple[int, Statistics] | None = None
        self._statistics_lock = threading.Lock()

    def page_jpeg(self, number: int) -> bytes:
        """A page as a JPEG file, upright, in full size. Raises DataError if there is none."""
        page = self._page(number)
        return self._cached(("page", number), lambda: _jpeg(self.archive.page_image(page)))

    def line_jpeg(self, number: int) -> bytes:
        """A line as a JPEG file, cut as for the model. Raises DataError if there is none."""
        line = self.store.line(number)
        if line is None:
            raise DataError(f"there is no line {number}", code="no-such-line")
        page = self._page(line.page)

        def cut() -> bytes:
            (image,) = self.archive.cut(page, [line])
            if isinstance(image, CropFailure):
                raise DataError(image.message, code="line-not-cut", where=page.name)
            return _jpeg(image)

        return self._cached(("line", number, line.outline), cut)

    def why_no_image(self, number: int) -> str:
        """Why a line cannot be shown; empty if it can."""
        try:
            self.line_jpeg(number)
        except DataError as error:
            return error.message
        return ""

    def statistics(self) -> Statistics:
        """Counts and the model's errors, computed once after each change for all windows."""
        stamp = self.store.stamp()
        with self._statistics_lock:
            if self._statistics is None or self._statistics[0] != stamp:
                pairs = self.store.judged()
                errors = sum((character_errors(*pair) for pair in pairs), ErrorRate())
                self._statistics = (stamp, Statistics(self.store.counts(), errors, len(pairs)))
            return self._statistics[1]

    def most_doubtful(self, except_for: StoredLine | None = None) -> StoredLine | None:
        """The most doubtful line that is not reviewed; None if there is no other."""
        numbers = (number for number in self.store.by_doubt() if except_for is None or number != except_for.number)
        number = next(numbers, None)
        return None if number is None else self.store.line(number)

    def _page(self, number: int) -> StoredPage:
        if number not in self.pages:
            raise DataError(f"there is no page {number}", code="no-such-page")
        return self.pages[number]

    def _cached(self, key: object, make: Callable[[], bytes]) -> bytes:
        with self._images_lock:
            if key not in self._images:
                self._images[key] = make()
            self._images.move_to_end(key)
            while len(self._images) > _CACHED_IMAGES:
                self._images.popitem(last=False)
            return self._images[key]


def _jpeg(image: Image.Image) -> bytes:
    file = io.BytesIO()
    image.save(file, "JPEG", quality=85)
    return file.getvalue()
