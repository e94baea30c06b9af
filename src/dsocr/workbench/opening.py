"""Where the pictures of a workbench's pages lie as long as it is open."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Self

from PIL import Image

from dsocr.data.cutting import LineFile, Refusal, cut_lines
from dsocr.data.images import decode_image, read_bytes
from dsocr.data.opening import opened
from dsocr.data.paths import inside
from dsocr.data.pdf import PDF_SUFFIXES, page_image
from dsocr.data.sources.layout import SourceImage, SourceLine
from dsocr.errors import DataError, typed
from dsocr.workbench.lines import Line, Page, State
from dsocr.workbench.store import Store

_SOURCE = "source"
_PAGE_OF_PDF = re.compile(r"(.+\.pdf)#([1-9]\d*)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Picture:
    """An image file of a source, or the page of a PDF with a `number`, the first being 1."""

    file: str
    number: int | None = None

    @classmethod
    def named(cls, name: Path) -> Self:
        """The picture that a page of a store names."""
        page = _PAGE_OF_PDF.fullmatch(name.as_posix())
        return cls(page[1], int(page[2])) if page else cls(name.as_posix())

    @property
    def name(self) -> str:
        """`scan.png`, `scans.pdf#3`."""
        return self.file if self.number is None else f"{self.file}#{self.number}"

    @property
    def stem(self) -> str:
        """What a page is called by it, as when pages are transcribed: `scan`, `scans_0003`."""
        stem = Path(self.file).with_suffix("").as_posix()
        return stem if self.number is None else f"{stem}_{self.number:04d}"

    @property
    def document(self) -> str | None:
        """The PDF's name without suffix."""
        return None if self.number is None else Path(self.file).with_suffix("").as_posix()


@dataclass(frozen=True, slots=True)
class Shelf:
    """Where the pictures lie: below `root`; `source` is that folder, or the one PDF in it that is worked on."""

    root: Path
    source: Path

    def content(self, page: Page) -> bytes:
        """The image file of a page. Raises DataError where it is gone."""
        return self.stored(Picture.named(page.image))

    def stored(self, picture: Picture) -> bytes:
        """A picture as an image file. Raises DataError where it is gone, or cannot be had."""
        path = inside(self.root, picture.file)
        return read_bytes(path) if picture.number is None else _page_of_pdf(path, picture.number)

    def whole(self, page: Page) -> Image.Image:
        """The picture of a page, upright."""
        return decode_image(self.content(page), name=page.name).image

    def image(self, page: Page, lines: list[Line]) -> SourceImage:
        """A page of the store with its lines, as sources yield it."""
        found = tuple(
            SourceLine("" if line.state is State.UNREADABLE else line.text, f"{page.name}:{line.number}", line.outline)
            for line in lines
        )
        picture = Picture.named(page.image)
        return SourceImage(
            inside(self.root, picture.file),
            page.name,
            page.name,
            found,
            (page.width, page.height),
            writer=page.writer,
            page=page.name,
            document=page.document,
            content=None if picture.number is None else partial(self.content, page),
        )

    def cut(self, page: Page, lines: list[Line]) -> list[Image.Image | Refusal]:
        """The pictures of lines, with the pixels that `prepare` would cut and training would see, or why there is none.

        Raises DataError where the page has no picture.
        """
        found = cut_lines(self.image(page, lines), self.content(page))
        if isinstance(found, Refusal):
            raise DataError(found.message, where=page.name)
        return [_picture(file, page) for file in found[1]]


@contextmanager
def opened_shelf(store: Store, source: Path, folder: Path) -> Iterator[Shelf]:
    """The images of a source until the block ends; archives are unpacked into `folder` for as long.

    Raises DataError where the store is of another source, or the source is a single file and no PDF.
    """
    known = store.setting(_SOURCE)
    if known is not None and known != source.resolve().name:
        hint = "give it a folder of its own with --work"
        raise DataError(f"holds corrections of {known}, not of {source.name}", where=folder.parent, hint=hint)
    store.set_setting(_SOURCE, source.resolve().name)
    with opened(source, folder) as held:
        if held.path.is_dir():
            yield Shelf(held.path, held.path)
        elif held.path.suffix.lower() in PDF_SUFFIXES:
            yield Shelf(held.path.parent, held.path)
        else:
            hint = f"open the folder it lies in: dsocr workbench {typed(source.parent.as_posix())}"
            raise DataError("is a single file, and no PDF and no archive", where=source, hint=hint)


@lru_cache(maxsize=2)
def _page_of_pdf(path: Path, number: int) -> bytes:
    """A page as an image file; the last ones are kept, since a page's lines are asked for one after another."""
    return page_image(path, number)


def _picture(file: LineFile | Refusal, page: Page) -> Image.Image | Refusal:
    return file if isinstance(file, Refusal) else decode_image(file.content, name=page.name).image
