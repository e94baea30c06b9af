"""Images of samples made small for a page, as long as the page has room for them."""

from dataclasses import dataclass, field
from pathlib import Path

from dsocr.data.images import open_image
from dsocr.errors import DataError
from dsocr.html import image_tag
from dsocr.samples import PackedImage


@dataclass
class Thumbnails:
    """Thumbnails of one page: none larger than `largest` (width, height in pixels); each file is opened once.

    Once the page holds `most_bytes` of them, only a sentence stands where a further one would.
    """

    largest: tuple[int, int]
    most_bytes: int
    bytes: int = 0
    known: dict[Path | PackedImage, str] = field(default_factory=dict)

    @property
    def full(self) -> bool:
        """True where there is no room for another one."""
        return self.bytes > self.most_bytes

    def of(self, path: Path | PackedImage, *, alt: str = "", missing: str = "") -> str:
        """The image as HTML; `missing`, itself HTML, where it cannot be opened."""
        if self.full:
            return '<p class="quiet">no room for its image in this page</p>'
        if path not in self.known:
            self.known[path] = self._made(path, alt) or missing
        self.bytes += len(self.known[path])
        return self.known[path]

    def _made(self, path: Path | PackedImage, alt: str) -> str:
        try:
            image = open_image(path)
        except DataError:
            return ""
        image.thumbnail(self.largest)
        return image_tag(image, alt=alt)
