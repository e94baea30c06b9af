"""The images of a dataset that lie in Parquet files instead of files of their own: finding one, and reading it."""

from functools import lru_cache
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from dsocr.errors import DataError
from dsocr.samples import PackedImage, Split

SHARDS = "shards"
"""The folder of a dataset that they lie in."""

_HELD_FILES = 16
_HELD_GROUPS = 4
_DAMAGE = (OSError, ValueError, KeyError, IndexError)  # pyarrow's own errors are of these kinds


def shard_files(dataset: Path, split: Split) -> list[Path]:
    """The Parquet files of a split, in order."""
    return sorted((dataset / SHARDS).glob(f"{split}-*.parquet"))


def packed_images(dataset: Path, split: Split) -> dict[str, PackedImage]:
    """File name in the metadata -> where the image of this name lies."""
    found: dict[str, PackedImage] = {}
    for file in shard_files(dataset, split):
        try:
            with pq.ParquetFile(file) as content:
                paths = _field(content.read(columns=["image.path"]), "path")
        except _DAMAGE as error:
            raise DataError(f"the Parquet file cannot be read: {error}", where=file) from error
        found |= {path: PackedImage(file, row) for row, path in enumerate(paths.to_pylist())}
    return found


def read_packed(image: PackedImage) -> bytes:
    """The bytes of the image file; the rows beside it are read with it, and kept for a while."""
    try:
        state = image.file.stat()
        file = _opened(image.file, state.st_mtime_ns, state.st_size)
        group, row = file.find(image.row)
        content: bytes | None = _group(file, group)[row].as_py()
    except _DAMAGE as error:
        raise DataError(f"the image cannot be read: {error}", where=image) from error
    if not content:
        raise DataError("there is no image in this row", where=image)
    return content


class _File:
    """An open Parquet file that knows where its row groups begin."""

    def __init__(self, path: Path) -> None:
        self.content = pq.ParquetFile(path)
        footer = self.content.metadata
        self._sizes = [footer.row_group(group).num_rows for group in range(footer.num_row_groups)]

    def find(self, row: int) -> tuple[int, int]:
        """The row group that holds a row, and which of its rows it is."""
        for group, size in enumerate(self._sizes):
            if row < size:
                return group, row
            row -= size
        raise IndexError(f"it has {sum(self._sizes)} rows")


@lru_cache(maxsize=_HELD_FILES)
def _opened(path: Path, changed: int, size: int) -> _File:
    """The file; `changed` and `size` are there so that one that was written anew is not mistaken for the old one."""
    return _File(path)


@lru_cache(maxsize=_HELD_GROUPS)
def _group(file: _File, group: int) -> pa.Array:
    return _field(file.content.read_row_group(group, columns=["image.bytes"]), "bytes")


def _field(table: pa.Table, name: str) -> pa.Array:
    return table.column("image").combine_chunks().field(name)


class PackedFiles:
    """The packed images of a dataset by the names they would have as files, `train/images/a.png`."""

    def __init__(self, dataset: Path) -> None:
        self._dataset = dataset
        self._images: dict[str, dict[str, PackedImage]] = {}

    def read(self, file: str) -> bytes:
        """The image's bytes; nothing where there is none, or none that can be read."""
        split, _, name = file.partition("/")
        try:
            if split not in self._images:
                self._images[split] = packed_images(self._dataset, Split(split))
            return read_packed(self._images[split][name])
        except (DataError, ValueError, KeyError):
            return b""
