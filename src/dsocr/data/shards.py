"""Parquet files as `datasets` writes them to the Hub: images as bytes in a column, with their texts beside them.

`train-00000-of-00003.parquet`, a name for each split. Rows go to disk a few at a time, so the memory needed does not
grow with the data.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

SHARD_BYTES = 300_000_000
GROUP_BYTES = 1_000_000
"""A row group is what is read at once for a single image, so it is small."""

_TYPES = {"bbox": pa.list_(pa.int32()), "fold": pa.int32()}


def schema(columns: Sequence[str]) -> pa.Schema:
    """`image` and then `columns`, with the note by which `datasets` knows that `image` is one."""
    types = {name: _TYPES.get(name, pa.string()) for name in columns}
    features: dict[str, Any] = {"image": {"_type": "Image"}}
    features |= {name: {"dtype": "string", "_type": "Value"} for name in columns if name not in _TYPES}
    image = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    told = json.dumps({"info": {"features": features}}, ensure_ascii=False)
    return pa.schema([("image", image), *types.items()], metadata={"huggingface": told})


class Shards:
    """The files of one split in `folder`, each closed when it has grown large enough; `close` names them."""

    def __init__(self, folder: Path, name: str, columns: Sequence[str]) -> None:
        self._folder = folder
        self._name = name
        self._schema = schema(columns)
        self._drafts: list[Path] = []
        self._writer: pq.ParquetWriter | None = None
        self._rows: list[Mapping[str, Any]] = []
        self._held = 0
        self._written = 0

    def add(self, path: str, content: bytes, row: Mapping[str, Any]) -> None:
        """An image with the path it is known by, and the other columns."""
        self._rows.append({"image": {"bytes": content, "path": path}, **row})
        self._held += len(content)
        if self._held >= GROUP_BYTES:
            self._flush()
        if self._written >= SHARD_BYTES:
            self._end()

    def close(self) -> None:
        """Writes what is left, and names the files now that their number is known."""
        self._flush()
        self._end()
        for place, draft in enumerate(self._drafts):
            draft.rename(self._folder / f"{self._name}-{place:05d}-of-{len(self._drafts):05d}.parquet")

    def _flush(self) -> None:
        if not self._rows:
            return
        if self._writer is None:
            self._drafts.append(self._folder / f".{self._name}-{len(self._drafts)}")
            # Images are compressed already and never alike: no dictionary and no statistics of theirs.
            self._writer = pq.ParquetWriter(
                self._drafts[-1], self._schema, compression="none", use_dictionary=False, write_statistics=False
            )
        self._writer.write_table(pa.Table.from_pylist(self._rows, self._schema))
        self._written += self._held
        self._rows, self._held = [], 0

    def _end(self) -> None:
        if self._writer is not None:
            self._writer.close()
        self._writer, self._written = None, 0
