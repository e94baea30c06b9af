"""Parquet files as `datasets` writes them to the Hub: line images as bytes, their texts, and where they come from.

`data/train-00000-of-00003.parquet`, a name for each split, and `unsplit` where the source says none. Rows go to disk
a few megabytes at a time, so the memory needed does not grow with the data.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dsocr.data.sources.layout import SourceImage, SourceLine, written
from dsocr.data.sources.outlines import read_box
from dsocr.data.targets.images import LineCutter, LineImage
from dsocr.data.targets.layout import Added

COLUMNS = ("image", "text", "writer", "page", "document", "source", "bbox", "polygon", "baseline")
ORIGIN = frozenset({"source", "bbox", "polygon", "baseline"})
"""What a source of line images may tell in columns of these names: where they were cut."""

SHARD_BYTES = 300_000_000
GROUP_BYTES = 16 * 1024 * 1024
GROUP_ROWS = 1000
UNSPLIT = "unsplit"

_CUT = ".cut"
_FOLDER = "data"

Row = dict[str, Any]


class ParquetWriter:
    """Writes shards; `columns` are the source's own, which follow ours."""

    def __init__(self, folder: Path, columns: Sequence[str]) -> None:
        self.folder = folder
        self.columns = columns
        self._schema = schema(columns)
        self._shards: dict[str, _Shards] = {}
        self._cut = folder / _CUT
        self._cutter = LineCutter(self._cut)
        (folder / _FOLDER).mkdir()

    def add(self, image: SourceImage, stem: str) -> Added:
        """Cuts the lines and takes their images into the shards of the image's split."""
        lines, left_out = self._cutter.cut(image, stem)
        name = image.split or UNSPLIT
        if name not in self._shards:
            self._shards[name] = _Shards(self.folder / _FOLDER, name, self._schema)
        for line in lines:
            content = (self._cut / line.file).read_bytes()
            self._shards[name].add(self._row(image, line, content), len(content))
        for line in lines:
            (self._cut / line.file).unlink(missing_ok=True)
        return Added(len(lines), left_out)

    def _row(self, image: SourceImage, line: LineImage, content: bytes) -> Row:
        return {
            "image": {"bytes": content, "path": line.file},
            "text": line.line.text,
            "writer": image.writer or "",
            "page": image.page or "",
            "document": image.document or "",
            **_origin(image, line.line),
            **{column: image.columns.get(column, "") for column in self.columns},
        }

    def close(self) -> None:
        """Writes what is left, and names the shards now that their number is known."""
        for shards in self._shards.values():
            shards.close()
        if self._cut.exists():
            self._cut.rmdir()


def _origin(image: SourceImage, line: SourceLine) -> Row:
    """Where the line was cut; of a line image, what the source tells of that in columns of these names."""
    outline = line.outline
    if outline is None:
        told = {name: image.columns.get(name, "") for name in ("polygon", "baseline")}
        box = read_box(image.columns.get("bbox", ""))
        return {"source": image.columns.get("source") or line.where, "bbox": box and list(box), **told}
    shape = {"polygon": written(outline.polygon), "baseline": written(outline.baseline)}
    return {"source": line.where, "bbox": list(outline.box), **shape}


def schema(columns: Sequence[str]) -> pa.Schema:
    """The columns and their types, with the note by which `datasets` knows that `image` is one."""
    image = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    types = {"image": image, "bbox": pa.list_(pa.int32())}
    names = [*COLUMNS, *columns]
    texts = {name: {"dtype": "string", "_type": "Value"} for name in names if name not in types}
    told = {"info": {"features": {"image": {"_type": "Image"}, **texts}}}
    fields = [(name, types.get(name, pa.string())) for name in names]
    return pa.schema(fields, metadata={"huggingface": json.dumps(told, ensure_ascii=False)})


class _Shards:
    """The files of one split, each closed when it has grown large enough."""

    def __init__(self, folder: Path, name: str, schema_: pa.Schema) -> None:
        self.folder = folder
        self.name = name
        self._schema = schema_
        self._drafts: list[Path] = []
        self._writer: pq.ParquetWriter | None = None
        self._rows: list[Row] = []
        self._held = 0
        self._written = 0

    def add(self, row: Row, size: int) -> None:
        """Takes a row whose image has so many bytes."""
        self._rows.append(row)
        self._held += size
        if self._held >= GROUP_BYTES or len(self._rows) >= GROUP_ROWS:
            self._flush()
        if self._written >= SHARD_BYTES:
            self._end()

    def _flush(self) -> None:
        if not self._rows:
            return
        if self._writer is None:
            self._drafts.append(self.folder / f".{self.name}-{len(self._drafts)}")
            # Images are compressed already and never alike: no dictionary and no statistics of theirs.
            self._writer = pq.ParquetWriter(
                self._drafts[-1], self._schema, use_dictionary=False, write_statistics=False
            )
        self._writer.write_table(pa.Table.from_pylist(self._rows, self._schema))
        self._written += self._held
        self._rows, self._held = [], 0

    def _end(self) -> None:
        if self._writer is not None:
            self._writer.close()
        self._writer, self._written = None, 0

    def close(self) -> None:
        self._flush()
        self._end()
        for place, draft in enumerate(self._drafts):
            draft.rename(self.folder / f"{self.name}-{place:05d}-of-{len(self._drafts):05d}.parquet")
