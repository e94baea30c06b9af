"""The crops of pages: cut by several processes, recorded in a journal, and reused by a run that was interrupted."""

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from dsocr.data.dataset import SOURCES_FILE
from dsocr.document import Page, SkipReason
from dsocr.errors import DataError
from dsocr.formats.format import image_bytes
from dsocr.images import (
    MAX_PIXELS,
    CropFailure,
    CroppedLine,
    CroppedPage,
    crop_key,
    crop_page,
    upright_size,
)
from dsocr.io.files import inside
from dsocr.io.processes import Workers
from dsocr.io.work import Work

CROPS: TypeAdapter[CroppedPage | CropFailure] = TypeAdapter(CroppedPage | CropFailure)
"""Crops as JSON, in the journal and in `sources.jsonl`."""


def read_sources(dataset: Path) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Yield key, hash and crops of each source image of a dataset, files relative to it, up to any damage."""
    with (
        suppress(OSError, ValueError, LookupError, TypeError),
        (dataset / SOURCES_FILE).open(encoding="utf-8") as file,
    ):
        for row in map(json.loads, file):
            CROPS.validate_python(row["cut"])
            yield row["key"], row["sha256"], row["cut"]


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


@dataclass(slots=True)
class Cropper:
    """Crops pages into a work folder, reusing recorded crops, whose files may also be in the dataset `earlier`.

    Crops in Parquet files are not reused. Samples of more than `max_pixels` are refused.
    """

    work: Work
    earlier: Path
    workers: Workers
    max_pixels: int
    new: set[str] = field(default_factory=set)

    def start(self, page: Page) -> Callable[[], CropResult]:
        """Start to crop a page, in another process if that pays; the function that is returned waits for the result."""
        folder = self.work.parts
        try:
            data = image_bytes(page)
        except DataError as error:
            return partial(CropResult, page, CropFailure(SkipReason.BAD_IMAGE, error.message), folder)
        key, picture = crop_key(page, data, self.max_pixels), hashlib.sha256(data).hexdigest()
        if reusable := self._find_reusable(key):
            return partial(CropResult, page, *reusable, key, picture, key not in self.new)
        # 256 folders, because a single one with very many files is slow.
        (folder / key[:2]).mkdir(exist_ok=True)
        # Columns are not needed, and the content function could not be sent to another process.
        arguments = replace(page, content=None, columns={}), data, folder, f"{key[:2]}/{key[:40]}", self.max_pixels
        is_large = False
        with suppress(DataError):
            is_large = math.prod(upright_size(data)) > MAX_PIXELS
        if is_large:
            # One at a time and in this process: several at once would not fit into memory.
            result: Future[CroppedPage | CropFailure] = Future()
            result.set_result(crop_page(*arguments))
        else:
            result = self.workers.submit(crop_page, *arguments)
        return partial(self._finish, page, key, picture, result)

    def _finish(self, page: Page, key: str, picture: str, result: "Future[CroppedPage | CropFailure]") -> CropResult:
        crops = result.result()
        if isinstance(crops, CroppedPage):
            self.work.journal.add([(key, CROPS.dump_python(crops, mode="json"))])
            self.new.add(key)
        return CropResult(page, crops, self.work.parts, key, picture)

    def _find_reusable(self, key: str) -> tuple[CroppedPage, Path] | None:
        """Recorded crops whose files all exist unchanged, and the folder of the files."""
        recorded = self.work.journal.get(key)
        crops = CROPS.validate_python(recorded) if recorded else None
        if not isinstance(crops, CroppedPage):
            return None
        lines = [line for line in crops.lines if isinstance(line, CroppedLine)]
        for folder in (self.work.parts, self.earlier):
            with suppress(OSError, DataError):
                files = ((inside(folder, line.file).read_bytes(), line.sha256) for line in lines)
                if all(hashlib.sha256(content).hexdigest() == digest for content, digest in files):
                    return crops, folder
        return None
