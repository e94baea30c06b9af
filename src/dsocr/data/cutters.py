"""Cutting all images of a source, in its order, with workers, and without what has been cut before."""

import hashlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path, PurePosixPath

from dsocr.data.cutting import Cut, CutLine, CutTask, Refusal, cut_image, task_key
from dsocr.data.images import read_bytes
from dsocr.data.journal import Journal
from dsocr.data.packed import PackedFiles
from dsocr.data.paths import inside
from dsocr.data.processes import Workers
from dsocr.data.sources.layout import Reason, SourceImage
from dsocr.errors import DataError

_FOLDER_NAME = 2
"""Characters of a key: 256 folders, because one with very many files is slow."""


@dataclass(frozen=True, slots=True)
class CutImage:
    """An image of the source with what it was cut into, and the folder that the files are named from.

    `key` is empty where the image could not be read; `recalled` is true where nothing had to be cut.
    """

    image: SourceImage
    cut: Cut | Refusal
    folder: Path
    key: str = ""
    recalled: bool = False


class Cutters:
    """Cuts images into `folder`; what the journal knows may also lie in the folder `earlier`, a former dataset."""

    def __init__(self, journal: Journal, folder: Path, earlier: Path, workers: Workers) -> None:
        self._journal = journal
        self._folder = folder
        self._earlier = earlier
        self._former = PackedFiles(earlier)
        self._workers = workers

    def cut_all(self, images: Iterable[SourceImage]) -> Iterator[CutImage]:
        """What became of each image, in order; few are held at any time."""
        begun: deque[Callable[[], CutImage]] = deque()
        for image in images:
            begun.append(self._begin(image))
            while len(begun) > self._workers.backlog:
                yield begun.popleft()()
        while begun:
            yield begun.popleft()()

    def _begin(self, image: SourceImage) -> Callable[[], CutImage]:
        try:
            data = image.content() if image.content else read_bytes(image.image)
        except DataError as error:
            return partial(CutImage, image, Refusal(Reason.BAD_IMAGE, error.message), self._folder)
        key = task_key(image, data)
        if found := self._recall(key):
            return partial(CutImage, image, *found, key, recalled=True)
        folder = self._folder / key[:_FOLDER_NAME]
        folder.mkdir(exist_ok=True)
        # Columns are not needed to cut, and what reads the content could not be sent to another process.
        task = CutTask(replace(image, content=None, columns={}), data, folder, key[:40])
        return partial(self._finish, image, key, self._workers.submit(cut_image, task))

    def _recall(self, key: str) -> tuple[Cut, Path] | None:
        """An earlier cut whose files are all still there, unchanged, and the folder they are named from."""
        cut = self._journal.recall(key)
        if not isinstance(cut, Cut):
            return None
        lines = [line for line in cut.lines if isinstance(line, CutLine)]
        for folder in (self._folder, self._earlier):
            if all(_is_unchanged(folder, line) for line in lines):
                return cut, folder
        return self._unpack(key, cut)

    def _unpack(self, key: str, cut: Cut) -> tuple[Cut, Path] | None:
        """An earlier cut whose images lie in the Parquet files of the former dataset, laid out as files."""
        folder = self._folder / key[:_FOLDER_NAME]
        lines: list[CutLine | Refusal] = []
        for line in cut.lines:
            if isinstance(line, CutLine):
                content = self._former.read(line.file)
                if hashlib.sha256(content).hexdigest() != line.digest:
                    return None
                folder.mkdir(exist_ok=True)
                line = CutLine(f"{folder.name}/{key[:40]}_{PurePosixPath(line.file).name}", line.digest)
                (self._folder / line.file).write_bytes(content)
            lines.append(line)
        unpacked = Cut(cut.size, tuple(lines))
        self._journal.remember(key, unpacked)
        return unpacked, self._folder

    def _finish(self, image: SourceImage, key: str, answer: "Future[Cut | Refusal]") -> CutImage:
        cut = self._workers.result(answer)
        if isinstance(cut, Cut):
            cut = Cut(cut.size, tuple(_within(key[:_FOLDER_NAME], line) for line in cut.lines))
            self._journal.remember(key, cut)
        return CutImage(image, cut, self._folder, key)


def _within(folder: str, line: CutLine | Refusal) -> CutLine | Refusal:
    return replace(line, file=f"{folder}/{line.file}") if isinstance(line, CutLine) else line


def _is_unchanged(folder: Path, line: CutLine) -> bool:
    try:
        return hashlib.sha256(inside(folder, line.file).read_bytes()).hexdigest() == line.digest
    except (OSError, DataError):
        return False
