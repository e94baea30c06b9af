"""A table of lines, `lines.tsv`, with the images they stand on in `images/`.

Every cell is quoted, so that tabs, line ends and quotes in a text stay what they are: our reader, Python's `csv`,
pandas and Excel read such a table alike. `bbox` is `left,top right,bottom`, `polygon` and `baseline` are `x,y x,y ...`,
all in pixels of the image and empty where they are not known.
"""

import csv
import re
from collections.abc import Sequence
from pathlib import Path

from dsocr.data.sources.layout import LeftOut, Outline, SourceImage, SourceLine, written
from dsocr.data.targets.images import WholeImage, copy_image
from dsocr.data.targets.layout import HALF, IMAGES, Added

FORBIDDEN = re.compile(f"[\0{HALF}]")
COLUMNS = ("image", "text", "writer", "page", "document", "split", "bbox", "polygon", "baseline")
TABLE = "lines.tsv"


class TsvWriter:
    """Writes the table row by row; `columns` are the source's own, which follow ours."""

    def __init__(self, folder: Path, columns: Sequence[str]) -> None:
        self.folder = folder
        self.columns = columns
        self._file = (folder / TABLE).open("w", encoding="utf-8", newline="")
        self._table = csv.writer(self._file, "excel-tab", quoting=csv.QUOTE_ALL, lineterminator="\n")
        self._table.writerow([*COLUMNS, *columns])

    def add(self, image: SourceImage, stem: str) -> Added:
        """Copies the image and writes a row for each of its lines."""
        whole = copy_image(image, self.folder / IMAGES, stem)
        if isinstance(whole, LeftOut):
            return Added(0, [whole])
        self._table.writerows(self._row(line, whole, image) for line in whole.lines)
        return Added(len(whole.lines))

    def _row(self, line: SourceLine, whole: WholeImage, image: SourceImage) -> list[str]:
        known = [image.writer or "", image.page or "", image.document or "", image.split or ""]
        others = [image.columns.get(column, "") for column in self.columns]
        return [f"{IMAGES}/{whole.file}", line.text, *known, *_outline(line.outline), *others]

    def close(self) -> None:
        """Closes the table."""
        self._file.close()


def _outline(outline: Outline | None) -> list[str]:
    if outline is None:
        return ["", "", ""]
    left, top, right, bottom = outline.box
    return [written(((left, top), (right, bottom))), written(outline.polygon), written(outline.baseline)]
