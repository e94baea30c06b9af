"""Find the images that a source names."""

import re
import unicodedata
from collections import defaultdict
from pathlib import Path, PurePosixPath
from urllib.parse import unquote

from dsocr.errors import DataError
from dsocr.images import IMAGE_SUFFIXES
from dsocr.io.files import inside, list_files, relative

_USUAL_FOLDERS = ("images", "image", "img", "imgs", "jpg", "jpeg", "png", "tif", "tiff", "scans", "pages")


class ImageFinder:
    """Index of the images of a folder, to find them by name; never returns a file outside the folder."""

    def __init__(self, source: Path) -> None:
        self.source = source
        self._by_stem: dict[str, list[Path]] = defaultdict(list)
        for path in list_files(source, IMAGE_SUFFIXES):
            self._by_stem[_fold(path.stem)].append(path)

    def find(self, name: str, *, near: Path, folder: str = "") -> Path:
        """Return the image called `name`, as seen from the folder `near`.

        Folders of another machine are ignored, and the name may be percent-encoded. Prefers a file of exactly this name
        over one that differs in case or suffix, one beside `near` over one farther away, and one in `folder` or a
        folder with a usual name over any other. Raises DataError if there is none, or two equally good ones.
        """
        spellings = list(dict.fromkeys((_without_foreign_folders(name), _without_foreign_folders(unquote(name)))))
        for spelling in spellings:
            direct = inside(near, spelling)
            if direct.is_file():
                return direct
        for spelling in spellings:
            wanted = PurePosixPath(spelling.replace("\\", "/"))
            ranked = sorted(self._rank(wanted, near, folder), key=lambda pair: pair[0])
            if len(ranked) > 1 and ranked[0][0] == ranked[1][0]:
                both = " and ".join(relative(path, self.source) for _, path in ranked[:2])
                raise DataError(f"more than one image could be {name!r}: {both}", code="image-ambiguous")
            if ranked:
                return inside(self.source, relative(ranked[0][1], self.source))
        message = f"no image {name!r} beside it, one level up or in a folder like images/"
        raise DataError(message, code="image-not-found")

    def _rank(self, wanted: PurePosixPath, near: Path, folder: str) -> list[tuple[tuple[int, int, int], Path]]:
        stem = wanted.stem if wanted.suffix.lower() in IMAGE_SUFFIXES else wanted.name
        ranked = []
        for path in self._by_stem.get(_fold(stem), ()):
            if _compose(wanted.parent.name) not in {"", _compose(path.parent.name)}:
                continue
            distance = _distance(path.parent, near)
            if distance is not None:
                ranked.append(((_name_rank(path.name, wanted.name), distance, _folder_rank(path, folder)), path))
        return ranked


def _without_foreign_folders(name: str) -> str:
    """Return only the file name of an absolute path or a file address, which come from another machine."""
    path = name.replace("\\", "/")
    is_elsewhere = path.startswith(("/", "file:")) or re.match(r"[A-Za-z]:/", path)
    return path.rpartition("/")[2] if is_elsewhere else name


def _distance(folder: Path, near: Path) -> int | None:
    """0 beside, 1 one level up, 2 in a folder below or beside; None if farther away."""
    if folder == near:
        return 0
    if folder == near.parent:
        return 1
    return 2 if folder.parent in {near, near.parent} else None


def _name_rank(found: str, wanted: str) -> int:
    return 0 if _compose(found) == _compose(wanted) else 1 if _fold(found) == _fold(wanted) else 2


def _compose(name: str) -> str:
    """A Mac writes й as two characters in file names, and other systems as one."""
    return unicodedata.normalize("NFC", name)


def _fold(name: str) -> str:
    return _compose(name).casefold()


def _folder_rank(path: Path, folder: str) -> int:
    name = path.parent.name.lower()
    if folder and name == folder.lower():
        return 0
    return 1 if name in _USUAL_FOLDERS else 2
