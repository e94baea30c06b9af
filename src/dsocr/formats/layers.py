"""One file for each scan, where several ALTO or PAGE files describe it.

HTR-United keeps a normalised copy beside the original (`x.chocomufin.xml`), and eScriptorium exports each layer of
transcriptions by itself. Read as two pages, one of them could be trained on and the other tested on.
"""

import hashlib
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from html import unescape
from pathlib import Path, PurePosixPath

from dsocr.document import Skipped, SkipReason
from dsocr.errors import DataError, option, typed
from dsocr.images import IMAGE_SUFFIXES, read_bytes
from dsocr.io.encodings import head
from dsocr.io.files import relative, split_of_folder

_IMAGE = re.compile(r'\bimageFilename\s*=\s*["\']([^"\']+)|<(?:[\w.-]+:)?fileName>\s*([^<]+?)\s*<')

_layer: ContextVar[str | None] = ContextVar("part of the path of the file to take for a scan", default=None)


@contextmanager
def preferred_layer(name: str | None) -> Iterator[None]:
    """Take the files with this in their path inside the block, where several describe one scan.

    A context rather than an argument, since only the formats with such files need it.
    """
    token = _layer.set(name)
    try:
        yield
    finally:
        _layer.reset(token)


def image_stem(file: Path) -> str:
    """Return the name, without folders and suffix, of the image that an XML file names at its beginning, else its own.

    Files are brought together by it without being parsed.
    """
    match = _IMAGE.search(head(file).replace(b"\0", b"").decode("utf-8", "replace"))
    name = unescape(match[1] or match[2]).replace("\\", "/").rpartition("/")[2] if match else file.stem
    path = PurePosixPath(name)
    return (path.stem if path.suffix.lower() in IMAGE_SUFFIXES else name).casefold()


def choose_files(
    files: Sequence[Path], root: Path, find_image: Callable[[Path], Path], count_texts: Callable[[Path], int]
) -> tuple[list[Path], list[Skipped]]:
    """Return one file for each scan, in their order, and the files skipped in favour of each.

    A file for which a function raises DataError is returned, and its reader says why.
    Taken is the file that `preferred_layer` names, else the one that is named as its image, else the one with most
    transcribed lines, else the first by its path. Two images are one scan if they have the same name and content and
    are in the same split. Raises DataError if no file is of the preferred layer.
    """
    layer, others = (_layer.get() or "").casefold(), dict[Path, Path]()
    groups = [group for group in _group(files, root, find_image) if len(group) > 1]

    def rank(file: Path) -> tuple[bool, bool, int, str]:
        where, has_name_of_image = relative(file, root), find_image(file).stem.casefold() == file.stem.casefold()
        return layer not in where.casefold(), not has_name_of_image, -count_texts(file), where

    for group in groups:
        taken = min(group, key=rank)
        others |= {file: taken for file in group if file != taken}
    if layer and not any(layer in relative(file, root).casefold() for group in groups for file in group):
        named = " and ".join(relative(file, root) for file in groups[0][:2]) if groups else ""
        hint = f"one scan has {named}: name a part of either" if named else f"leave {option('layer', ...)} out"
        message = f"of the files that describe the same scan, none has {_layer.get()!r} in its path"
        raise DataError(message, code="layer-unknown", hint=hint)
    skipped = [
        Skipped(
            SkipReason.OTHER_LAYER,
            relative(file, root),
            f"{relative(taken, root)} describes the same scan; --layer {typed(_difference(file, taken))} takes this",
        )
        for file, taken in others.items()
    ]
    return [file for file in files if file not in others], skipped


def _group(files: Sequence[Path], root: Path, find_image: Callable[[Path], Path]) -> Iterator[list[Path]]:
    """Yield the files that may be of the same scan by the names of their images, those of one scan together."""
    by_name: dict[str, list[Path]] = defaultdict(list)
    for file in files:
        by_name[image_stem(file)].append(file)
    for same_name in (group for group in by_name.values() if len(group) > 1):
        images: dict[Path, Path] = {}
        for file in same_name:
            with suppress(DataError):
                images[file] = find_image(file)
        by_scan: dict[object, list[Path]] = defaultdict(list)
        several = len(set(images.values())) > 1
        for file, image in images.items():
            split = split_of_folder(image.parent.relative_to(root))
            by_scan[(image.name.casefold(), split, _digest(image)) if several else image].append(file)
        yield from by_scan.values()


def _digest(image: Path) -> object:
    try:
        return hashlib.sha256(read_bytes(image)).digest()
    except DataError:  # reported when the page is read
        return image


def _difference(file: Path, other: Path) -> str:
    """Return a part of a path that the other does not have."""
    if file.parent != other.parent:
        pairs = zip(reversed(file.parent.parts), reversed(other.parent.parts), strict=False)
        return next((mine for mine, theirs in pairs if mine != theirs and mine not in other.as_posix()), file.name)
    rest = file.stem.removeprefix(other.stem).strip("._- ")
    return rest if rest and rest not in other.name else file.name
