"""PDF files of scans with their transcriptions beside them, page by page.

`NAME.pdf` goes with `NAME.txt`, its pages parted by form feeds as `pdftotext` writes them, or with a text for each
page: `NAME_1.txt`, `NAME-2.txt`, `NAME_0003.txt`.
"""

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from dsocr.data.paths import list_files, relative
from dsocr.data.pdf import PDF_SUFFIXES, count_pages, page_image
from dsocr.data.sources.layout import LeftOut, Reason, SourceImage, SourceLine
from dsocr.data.sources.texts import read_text
from dsocr.data.splits import split_of_folder
from dsocr.errors import DataError

_NUMBERED = re.compile(r"(?P<name>.+)[_-]0*(?P<page>\d{1,9})")


def find_pdf(source: Path) -> list[Path]:
    """The PDF files of a folder that have a text beside them, or the one that was named."""
    if source.is_file():
        return [source] if source.suffix.lower() in PDF_SUFFIXES else []
    return [path for path, texts in _paired(source).items() if texts]


def read_pdf(source: Path) -> Iterator[SourceImage | LeftOut]:
    """Every page of every PDF with its text; a file without texts, and texts without a page, are left out."""
    root = source.parent if source.is_file() else source
    for path, texts in _paired(root).items():
        if source.is_file() and path != source:
            continue
        where = relative(path, root)
        if not texts:
            yield LeftOut(Reason.NO_TRANSCRIPTION, where, "no text file has its name")
            continue
        try:
            yield from _pages(path, texts, root)
        except DataError as error:
            yield LeftOut(Reason.BAD_SOURCE, where, error.message)


def _paired(root: Path) -> dict[Path, list[Path]]:
    """PDF -> its texts: the one that has its name, and those that have its name and a number."""
    paired: dict[Path, list[Path]] = {path: [] for path in list_files(root, PDF_SUFFIXES)}
    by_name = {path.with_suffix(""): path for path in paired}
    for text in list_files(root, {".txt"}):
        numbered = _NUMBERED.fullmatch(text.stem)
        names = [text.with_suffix("")] + ([text.with_name(numbered["name"])] if numbered else [])
        if pdf := next((by_name[name] for name in names if name in by_name), None):
            paired[pdf].append(text)
    return paired


def _pages(path: Path, texts: list[Path], root: Path) -> Iterator[SourceImage | LeftOut]:
    count = count_pages(path)
    found = _texts_of_pages(path, texts, count, root)
    split = split_of_folder(path.parent.relative_to(root))
    for page in range(1, count + 1):
        name = f"{relative(path.with_suffix(''), root)}_{page:04d}"
        if page not in found:
            yield LeftOut(Reason.NO_TRANSCRIPTION, f"{relative(path, root)}#{page}", "the page has no text file")
            continue
        text, where = found.pop(page)
        content = partial(page_image, path, page)
        yield SourceImage(path, name, where, (SourceLine(text, where),), page=name, split=split, content=content)
    for _, where in found.values():
        yield LeftOut(Reason.NO_IMAGE, where, f"the PDF has {count} pages")


def _texts_of_pages(path: Path, texts: list[Path], count: int, root: Path) -> dict[int, tuple[str, str]]:
    """Page -> its text and where that stands."""
    whole = [text for text in texts if text.stem == path.stem]
    if whole and len(texts) > 1:
        raise DataError(f"it has one text for all pages and others for single ones: {texts[-1].name}")
    if whole:
        return _of_one_file(whole[0], count, relative(whole[0], root))
    pages: dict[int, tuple[str, str]] = {}
    for text in texts:
        number = int(_NUMBERED.fullmatch(text.stem)["page"])  # type: ignore[index]
        if number in pages:
            raise DataError(f"two texts are called page {number}: {pages[number][1]} and {relative(text, root)}")
        pages[number] = (read_text(text), relative(text, root))
    return pages


def _of_one_file(path: Path, count: int, where: str) -> dict[int, tuple[str, str]]:
    pages = read_text(path).split("\f")
    if len(pages) == count + 1 and not pages[-1].strip():
        # pdftotext ends every page with a form feed, the last one too.
        del pages[-1]
    if len(pages) != count:
        raise DataError(f"the PDF has {count} pages, and its text {len(pages)}, parted by form feeds")
    return {number: (text, f"{where}#{number}") for number, text in enumerate(pages, start=1)}
