"""The crops of pages: cut by several processes, recorded in a journal, and reused by a run that was interrupted."""

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

from dsocr.data.dataset import SOURCES_FILE
from dsocr.document import Page, SkipReason, Split
from dsocr.errors import DataError
from dsocr.images import (
    MAX_PIXELS,
    CropFailure,
    CroppedLine,
    CroppedPage,
    crop_key,
    crop_page,
    packed_images,
    read_bytes,
    read_packed,
    upright_size,
)
from dsocr.io.files import inside
from dsocr.io.processes import Workers
from dsocr.io.work import Work

_DAMAGED = (OSError, ValueError, LookupError, TypeError)
"""Errors of a missing or damaged `sources.jsonl`, whose pages are cropped again."""


def read_earlier_crops(dataset: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the recorded crops of an existing dataset by their keys, with files relative to it."""
    with suppress(*_DAMAGED), (dataset / SOURCES_FILE).open(encoding="utf-8") as file:
        for row in map(json.loads, file):
            if crops_from_json(row["cut"]) is not None:
                yield row["key"], row["cut"]


def source_pictures(dataset: Path) -> Iterator[tuple[str, set[str]]]:
    """Yield the hash of each source image of a dataset, and the ids of the samples that were cut from it."""
    with suppress(*_DAMAGED), (dataset / SOURCES_FILE).open(encoding="utf-8") as file:
        for row in [json.loads(line) for line in file]:
            yield row["picture"], {line[0] for line in row["cut"].get("lines", ()) if isinstance(line, list)}


def hash_picture(content: bytes) -> str:
    """Return the hash of an image file in `sources.jsonl`."""
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def crops_to_json(crops: CroppedPage | CropFailure) -> dict[str, Any]:
    """Crops as stored in the journal and in `sources.jsonl`."""
    if isinstance(crops, CropFailure):
        return {"refused": [crops.reason, crops.message]}
    lines = [[line.file, line.sha256] if isinstance(line, CroppedLine) else crops_to_json(line) for line in crops.lines]
    return {"size": crops.size, "lines": lines}


def crops_from_json(content: Mapping[str, Any]) -> CroppedPage | None:
    """The inverse of `crops_to_json`; None for a page that could not be cropped."""
    if "refused" in content:
        return None
    width, height = content["size"]
    lines = (
        CropFailure(SkipReason(line["refused"][0]), line["refused"][1])
        if isinstance(line, dict)
        else CroppedLine(*line)
        for line in content["lines"]
    )
    return CroppedPage((width, height), tuple(lines))


@dataclass(frozen=True, slots=True)
class CropResult:
    """The crops of a page, with file names relative to `folder`.

    `key` is empty if the image could not be read; `is_reused` if an earlier run had cropped it. `picture` is a hash
    of the image's file.
    """

    page: Page
    crops: CroppedPage | CropFailure
    folder: Path
    key: str = ""
    picture: str = ""
    is_reused: bool = False


class Cropper:
    """Crops pages into a work folder, reusing recorded crops, whose files may also be in the dataset `earlier`.

    Samples of more than `max_pixels` are refused.
    """

    def __init__(self, work: Work, earlier: Path, workers: Workers, max_pixels: int = MAX_PIXELS) -> None:
        self._journal, self._folder = work.journal, work.parts
        self._earlier = earlier
        self._workers = workers
        self._max_pixels = max_pixels
        self._packed: dict[str, dict[str, Any]] = {}
        self._new: set[str] = set()

    def crop_all(self, pages: Iterable[Page]) -> Iterator[CropResult]:
        """The crops of each page in order; only a few pages are held at a time."""
        return self._workers.in_order(map(self._start, pages))

    def _start(self, page: Page) -> Callable[[], CropResult]:
        try:
            data = page.content() if page.content else read_bytes(page.image)
        except DataError as error:
            return partial(CropResult, page, CropFailure(SkipReason.BAD_IMAGE, error.message), self._folder)
        key, picture = crop_key(page, data, self._max_pixels), hash_picture(data)
        if reusable := self._find_reusable(key):
            return partial(CropResult, page, *reusable, key, picture, key not in self._new)
        # 256 folders, because a single one with very many files is slow.
        (self._folder / key[:2]).mkdir(exist_ok=True)
        # Columns are not needed, and the content function could not be sent to another process.
        stem = f"{key[:2]}/{key[:40]}"
        arguments = replace(page, content=None, columns={}), data, self._folder, stem, self._max_pixels
        is_large = False
        with suppress(DataError):
            is_large = math.prod(upright_size(data)) > MAX_PIXELS
        if is_large:
            # One at a time and in this process: several at once would not fit into memory.
            result: Future[CroppedPage | CropFailure] = Future()
            result.set_result(crop_page(*arguments))
        else:
            result = self._workers.submit(crop_page, *arguments)
        return partial(self._finish, page, key, picture, result)

    def _finish(self, page: Page, key: str, picture: str, result: "Future[CroppedPage | CropFailure]") -> CropResult:
        crops = result.result()
        if isinstance(crops, CroppedPage):
            self._journal.add([(key, crops_to_json(crops))])
            self._new.add(key)
        return CropResult(page, crops, self._folder, key, picture)

    def _find_reusable(self, key: str) -> tuple[CroppedPage, Path] | None:
        """Recorded crops whose files all exist unchanged, and the folder of the files."""
        recorded = self._journal.get(key)
        crops = crops_from_json(recorded) if recorded else None
        if crops is None:
            return None
        lines = [line for line in crops.lines if isinstance(line, CroppedLine)]
        for folder in (self._folder, self._earlier):
            if all(_is_unchanged(folder, line) for line in lines):
                return crops, folder
        return self._unpack(key, crops)

    def _unpack(self, key: str, crops: CroppedPage) -> tuple[CroppedPage, Path] | None:
        """Recorded crops that are in the Parquet files of the earlier dataset, written to files."""
        (self._folder / key[:2]).mkdir(exist_ok=True)
        lines: list[CroppedLine | CropFailure] = []
        for line in crops.lines:
            if isinstance(line, CroppedLine):
                content = self._read_packed(line.file)
                if hashlib.sha256(content).hexdigest() != line.sha256:
                    return None
                line = CroppedLine(f"{key[:2]}/{key[:40]}_{PurePosixPath(line.file).name}", line.sha256)
                (self._folder / line.file).write_bytes(content)
            lines.append(line)
        unpacked = CroppedPage(crops.size, tuple(lines))
        self._journal.add([(key, crops_to_json(unpacked))])
        return unpacked, self._folder

    def _read_packed(self, file: str) -> bytes:
        """The image that would be the file `train/images/a.png`; empty if it cannot be read."""
        split, _, name = file.partition("/")
        try:
            if split not in self._packed:
                self._packed[split] = dict(packed_images(self._earlier, Split(split)))
            return read_packed(self._packed[split][name])
        except (DataError, ValueError, KeyError):
            return b""


def _is_unchanged(folder: Path, line: CroppedLine) -> bool:
    try:
        return hashlib.sha256(inside(folder, line.file).read_bytes()).hexdigest() == line.sha256
    except (OSError, DataError):
        return False
