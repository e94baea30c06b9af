"""Parquet files as `datasets` writes them to the Hub: line images as bytes, their texts, and where they come from.

`data/train-00000-of-00003.parquet`, a name for each split, and `unsplit` where the source says none.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dsocr.data.shards import Shards
from dsocr.data.sources.layout import SourceImage, SourceLine, written
from dsocr.data.sources.outlines import read_box
from dsocr.data.targets.images import LineCutter, LineImage
from dsocr.data.targets.layout import Added

COLUMNS = ("image", "text", "writer", "page", "document", "source", "bbox", "polygon", "baseline")
ORIGIN = frozenset({"source", "bbox", "polygon", "baseline"})
"""What a source of line images may tell in columns of these names: where they were cut."""

UNSPLIT = "unsplit"

_CUT = ".cut"
_FOLDER = "data"

Row = dict[str, Any]


class ParquetWriter:
    """Writes shards; `columns` are the source's own, which follow ours."""

    def __init__(self, folder: Path, columns: Sequence[str]) -> None:
        self.folder = folder
        self.columns = columns
        self._shards: dict[str, Shards] = {}
        self._cut = folder / _CUT
        self._cutter = LineCutter(self._cut)
        (folder / _FOLDER).mkdir()

    def add(self, image: SourceImage, stem: str) -> Added:
        """Cuts the lines and takes their images into the shards of the image's split."""
        lines, left_out = self._cutter.cut(image, stem)
        name = image.split or UNSPLIT
        if name not in self._shards:
            self._shards[name] = Shards(self.folder / _FOLDER, name, [*COLUMNS[1:], *self.columns])
        for line in lines:
            content = (self._cut / line.file).read_bytes()
            self._shards[name].add(line.file, content, self._row(image, line))
        for line in lines:
            (self._cut / line.file).unlink(missing_ok=True)
        return Added(len(lines), left_out)

    def _row(self, image: SourceImage, line: LineImage) -> Row:
        return {
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
