"""Show where on their pages the lines of a dataset are, from the source that it was prepared from."""

import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from PIL import Image, ImageDraw

from dsocr.data.sources import open_source
from dsocr.document import Page
from dsocr.errors import DataError
from dsocr.formats import detect_format
from dsocr.images import MAX_PAGE_PIXELS, open_image
from dsocr.io.cropping import scale_outline

_HEIGHTS = 3
"""Heights of the line that are shown above and below it."""
_WIDTH = 900
"""Pixels of the page's width as it is shown."""
_COLOUR = (214, 39, 40)


class Surroundings:
    """Draws lines on their pages; `places` says which line, by its place in the source, is where."""

    def __init__(self, pages: dict[str, tuple[Page, int]]) -> None:
        self._pages = pages
        self._opened: tuple[Path | None, Image.Image | None] = (None, None)

    def of(self, source: str | None) -> Image.Image | None:
        """Return the part of the page around a line, which is framed; None if the source has no such line."""
        page, number = self._pages.get(source or "", (None, 0))
        if page is None:
            return None
        try:
            image = self._open(page.image)
            outline = scale_outline(page.lines[number].outline, page, image.size)
        except DataError:  # named in the findings themselves
            return None
        if outline is None:
            return None
        _, top, _, bottom = outline.box
        margin = _HEIGHTS * (bottom - top)
        part = image.crop((0, max(top - margin, 0), image.width, min(bottom + margin, image.height))).convert("RGB")
        scale = min(_WIDTH / part.width, 1.0)
        part = part.resize((round(part.width * scale), max(round(part.height * scale), 1)))
        border = outline.border
        frame = [(x * scale, (y - max(top - margin, 0)) * scale) for x, y in (*border, border[0])]
        ImageDraw.Draw(part).line(frame, fill=_COLOUR, width=3)
        return part

    def _open(self, path: Path) -> Image.Image:
        """The page, which is kept for its other lines."""
        known, image = self._opened
        if image is None or known != path:
            image = open_image(path, max_pixels=MAX_PAGE_PIXELS)
            self._opened = path, image
        return image


@contextmanager
def find_surroundings(source: Path, source_format: str | None, wanted: Collection[str]) -> Iterator[Surroundings]:
    """Find the lines with these places in a source, for the duration of the block.

    Raises DataError if the source cannot be read, or has none of the lines.
    """
    pages: dict[str, tuple[Page, int]] = {}
    with (
        tempfile.TemporaryDirectory(prefix="dsocr-check-") as folder,
        open_source(source, Path(folder, "unpacked")) as opened,
    ):
        for page in detect_format(opened.path, source_format, {}).read(opened.path, {}):
            if isinstance(page, Page):
                found = ((line.where, number) for number, line in enumerate(page.lines) if line.outline)
                pages |= {where: (page, number) for where, number in found if where in wanted}
        if wanted and not pages:
            message = "the source has none of the lines of the findings"
            hint = "name the folder or archive that the dataset was prepared from"
            raise DataError(message, code="source-differs", where=source, hint=hint)
        yield Surroundings(pages)
