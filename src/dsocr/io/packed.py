"""Images in the Parquet files of a dataset folder: which row holds which image, and its bytes."""

from functools import lru_cache
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from dsocr.document import PackedImage, Split
from dsocr.errors import DataError

SHARDS_FOLDER = "shards"

_OPEN_FILES = 16
_CACHED_GROUPS = 4
_READ_ERRORS = (OSError, ValueError, KeyError, IndexError)
"""Base classes of pyarrow's own errors."""


def shard_files(dataset: Path, split: Split) -> list[Path]:
    """The Parquet files of a split, in order."""
    return sorted((dataset / SHARDS_FOLDER).glob(f"{split}-*.parquet"))


def packed_images(dataset: Path, split: Split) -> dict[str, PackedImage]:
    """File name in the metadata -> the row that holds the image."""
    found: dict[str, PackedImage] = {}
    for file in shard_files(dataset, split):
        try:
            with pq.ParquetFile(file) as content:
                paths = _image_field(content.read(columns=["image.path"]), "path")
        except _READ_ERRORS as error:
            raise DataError(f"the Parquet file cannot be read: {error}", code="shard-unreadable", where=file) from error
        found |= {path: PackedImage(file, row) for row, path in enumerate(paths.to_pylist())}
    return found


def read_packed(image: PackedImage) -> bytes:
    """The bytes of an image file; its row group is cached for a while, since samples are often read in order."""
    try:
        state = image.file.stat()
        file, starts = _open(image.file, state.st_mtime_ns, state.st_size)
        group = max(group for group, start in enumerate(starts) if start <= image.row)
        content: bytes | None = _read_group(file, group)[image.row - starts[group]].as_py()
    except _READ_ERRORS as error:
        raise DataError(f"the image cannot be read: {error}", code="image-unreadable", where=image) from error
    if not content:
        raise DataError("the row holds no image", code="image-unreadable", where=image)
    return content


@lru_cache(maxsize=_OPEN_FILES)
def _open(path: Path, changed: int, size: int) -> tuple[pq.ParquetFile, tuple[int, ...]]:
    """The file and the first row of each group. `changed` and `size` keep a rewritten file from being mistaken."""
    file = pq.ParquetFile(path)
    starts = [0]
    for group in range(file.metadata.num_row_groups):
        starts.append(starts[-1] + file.metadata.row_group(group).num_rows)
    return file, tuple(starts[:-1])


@lru_cache(maxsize=_CACHED_GROUPS)
def _read_group(file: pq.ParquetFile, group: int) -> pa.Array:
    return _image_field(file.read_row_group(group, columns=["image.bytes"]), "bytes")


def _image_field(table: pa.Table, name: str) -> pa.Array:
    return table.column("image").combine_chunks().field(name)
