"""Images for the browser: pages at several widths, a line between its neighbours, small images of pages."""

import io
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from pathlib import Path

from PIL import Image, ImageDraw

from dsocr.errors import DataError
from dsocr.images import crop_box, decode_image, paper_colour
from dsocr.io.files import rename
from dsocr.outlines import quarter_turns
from dsocr.workbench.archive import Archive
from dsocr.workbench.stored_lines import StoredLine, StoredPage

_CACHED_IMAGES = 24
_DECODED_PAGES = 2
_THUMBNAIL = (240, 300)
_NEIGHBOURS = 0.8
"""Share of a line's height that is shown above and below it."""
_SIDES = 0.4
"""Share of a line's height that is shown left and right of it."""
_FADED = 0.55
"""How much of the paper's colour covers what is not the line."""


class Pictures:
    """JPEG files of pages and lines; those requested lately are kept, small images of pages in the `folder`."""

    def __init__(self, archive: Archive, pages: Mapping[int, StoredPage], folder: Path) -> None:
        self._archive = archive
        self._pages = pages
        self._folder = folder
        self._files: OrderedDict[object, bytes] = OrderedDict()
        self._decoded: OrderedDict[int, Image.Image] = OrderedDict()
        self._lock = threading.Lock()
        self._thumbnails_lock = threading.Lock()

    def page(self, number: int, width: int = 0) -> bytes:
        """A page, upright, at a width at most; at its own with 0. Raises DataError if there is none."""
        page = self._page(number)

        def make() -> bytes:
            if not 0 < width < page.width:
                data = self._archive.image_bytes(page)
                decoded = decode_image(data, name=page.name)
                if decoded.as_stored and decoded.format == "JPEG":
                    return data
            image = self._decode(page)
            if 0 < width < page.width:
                size = (width, max(1, round(page.height * width / page.width)))
                image = image.resize(size, Image.Resampling.LANCZOS, reducing_gap=2.0)
            return _jpeg(image)

        return self._cached(("page", number, width), make)

    def line(self, line: StoredLine) -> bytes:
        """A line with its neighbours faded, turned if it is sideways. Raises DataError if it is not on its page."""
        page = self._page(line.page)

        def cut() -> bytes:
            image = self._decode(page)
            left, top, right, bottom = crop_box(line.outline, image.size)
            if min(right - left, bottom - top) <= 0:
                raise DataError("the line is outside the image", code="line-not-cut", where=page.name)
            turns = quarter_turns(line.outline)
            height = right - left if turns else bottom - top
            across, down = round(_SIDES * height), round(_NEIGHBOURS * height)
            if turns:
                across, down = down, across
            right_end, bottom_end = min(right + across, image.width), min(bottom + down, image.height)
            box = (max(left - across, 0), max(top - down, 0), right_end, bottom_end)
            around = image.crop(box).convert("RGB")
            paper = Image.new("RGB", around.size, paper_colour(around))
            mask = Image.new("1", around.size)
            margin = left - line.outline.box[0]
            drawing = ImageDraw.Draw(mask)
            drawn = [(x - box[0], y - box[1]) for x, y in line.outline.border]
            drawing.polygon(drawn, fill=1, outline=1, width=max(1, 2 * abs(margin)))
            strip = Image.composite(around, Image.blend(around, paper, _FADED), mask)
            return _jpeg(strip.rotate(90 * turns, expand=True) if turns else strip)

        return self._cached(("line", line.number, line.outline), cut)

    def thumbnail(self, number: int) -> bytes:
        """A small image of a page, from its file if it was made before. Raises DataError if there is none."""
        path = self._folder / f"{self._page(number).number}.jpg"
        if path.is_file():
            return path.read_bytes()
        with self._thumbnails_lock:  # one at a time, so that the page being worked on is not kept waiting
            image = self._archive.page_image(self._page(number))
            image.thumbnail(_THUMBNAIL, reducing_gap=2.0)
            content = _jpeg(image)
            path.parent.mkdir(exist_ok=True)
            draft = path.with_suffix(".tmp")
            draft.write_bytes(content)
            rename(draft, path)
        return content

    def _page(self, number: int) -> StoredPage:
        if number not in self._pages:
            raise DataError(f"there is no page {number}", code="no-such-page")
        return self._pages[number]

    def _decode(self, page: StoredPage) -> Image.Image:
        if page.number not in self._decoded:
            self._decoded[page.number] = self._archive.page_image(page)
        self._decoded.move_to_end(page.number)
        while len(self._decoded) > _DECODED_PAGES:
            self._decoded.popitem(last=False)
        return self._decoded[page.number]

    def _cached(self, key: object, make: Callable[[], bytes]) -> bytes:
        with self._lock:
            if key not in self._files:
                self._files[key] = make()
            self._files.move_to_end(key)
            while len(self._files) > _CACHED_IMAGES:
                self._files.popitem(last=False)
            return self._files[key]


def _jpeg(image: Image.Image) -> bytes:
    file = io.BytesIO()
    image.convert("RGB").save(file, "JPEG", quality=85)
    return file.getvalue()
