"""Images with a text file each: `x.png` with `x.gt.txt` or `x.txt`, beside it or in a folder beside (`words/x.txt`)."""

from collections.abc import Iterator
from pathlib import Path

from dsocr.document import Line, Page, Skipped, SkipReason
from dsocr.errors import DataError
from dsocr.images import IMAGE_SUFFIXES
from dsocr.io.encodings import read_text
from dsocr.io.files import list_files, relative, split_of_folder

_ENDINGS = (".gt.txt", ".txt")
_ABOUT = frozenset({"readme", "license", "licence", "license-cc-by-4.0", "copying", "notice", "changelog"})


def find_pairs(source: Path) -> list[Path]:
    """The images of a folder that have a text file."""
    return list(_paired(source)[0])


def read_pairs(source: Path) -> Iterator[Page | Skipped]:
    """Every image with its text; an image or a text that stands alone is left out."""
    paired, alone = _paired(source)
    yield from alone
    for image, text_file in paired.items():
        where = relative(text_file, source)
        try:
            line = Line(read_text(text_file), where)
        except DataError as error:
            yield Skipped(SkipReason.BAD_SOURCE, where, error.message)
            continue
        folder = image.parent.relative_to(source)
        yield Page(image, relative(image.with_suffix(""), source), where, (line,), split=split_of_folder(folder))


def _paired(source: Path) -> tuple[dict[Path, Path], list[Skipped]]:
    """Image -> text file, and what stands alone."""
    texts = _texts_by_stem(source)
    paired, alone = {}, []
    for image in list_files(source, IMAGE_SUFFIXES):
        text_file = _nearest(image, texts.get(image.stem, []))
        if text_file:
            paired[image] = text_file
        else:
            alone.append(Skipped(SkipReason.NO_TRANSCRIPTION, relative(image, source), "no text file has its name"))
    # A text may have been passed over for a better one of the same name; it is not alone then.
    stems = {(image.stem) for image in paired}
    for stem, files in texts.items():
        if stem not in stems and stem.lower() not in _ABOUT:
            alone += [Skipped(SkipReason.NO_IMAGE, relative(file, source), "no image has its name") for file in files]
    return paired, alone


def _texts_by_stem(source: Path) -> dict[str, list[Path]]:
    texts: dict[str, list[Path]] = {}
    for path in list_files(source, {".txt"}):
        ending = next(ending for ending in _ENDINGS if path.name.lower().endswith(ending))
        texts.setdefault(path.name[: -len(ending)], []).append(path)
    return texts


def _nearest(image: Path, texts: list[Path]) -> Path | None:
    """The text beside the image, `.gt.txt` before `.txt`; else the only one in a folder beside the image's."""
    beside = [text for text in texts if text.parent == image.parent]
    if beside:
        return min(beside, key=lambda text: not text.name.lower().endswith(_ENDINGS[0]))
    near = [text for text in texts if text.parent.parent == image.parent.parent]
    return near[0] if len(near) == 1 else None
