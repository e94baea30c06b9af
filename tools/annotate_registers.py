"""Make the pages of `tests/real_data/registers`: shrunk pictures, and PAGE XML with lines in the cells of a table.

    python tools/annotate_registers.py COLLECTIONS tests/real_data/registers [--long 2000]

COLLECTIONS holds the clones of the repositories that README.md there names. `annotations.json` has an entry for each
page, made by eye; places are those on a picture of `width`, and numbers of lines count from 0 in the source's file:

- `x`: two lines, each a height and the borders of the columns there. `top` and `bottom`: the ends of the table.
- `head`: the height of the border inside the heading, and of that below it at its left and right end.
- `rows`: the first line of each row in the column `main`; a row begins above it and goes on until the next.
- `slope`: that of the borders between rows, if lines of `main` do not show it, as on the other page of an opening.
- `cells`: the row and column of lines that their place does not tell; `outside`: lines that are in no cell.
- `deep`: cells over several rows, each as row, column and number of rows.
"""

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from dsocr.document import CellPlace, Line, Outline, Page, Point, Region, Table, TableCell
from dsocr.formats import parse_xml_page
from dsocr.formats.page import page_document
from dsocr.formats.xml import XmlPage, serialize
from dsocr.text import TextPolicy

HEADS = {
    # Row, column, rows and columns of the cells of a heading.
    "repertoire": [(0, 0, 2, 1), (0, 1, 2, 1), (0, 2, 1, 2), (0, 4, 2, 1), (0, 5, 1, 2)]
    + [(1, column, 1, 1) for column in (2, 3, 5, 6)],
    "divorces": [(0, column, 1, 1) for column in range(7)],
}
ABOVE = 0.65
"""Share of the space between two lines by which a row begins above the baseline of its first line."""

REPAIRED = TextPolicy(mojibake="repair", unicode="keep", spaces="keep", invisible="keep")
"""The published files have signs that were escaped twice (`&amp;amp;`)."""

Span = tuple[int, int, int, int]


def middle(line: Line) -> tuple[float, float]:
    """The middle of a baseline, or of the box."""
    assert line.outline
    points = np.array(line.outline.baseline or line.outline.border, dtype=float)
    return float(points[:, 0].mean()), float(points[:, 1].mean())


def row_borders(page: XmlPage, note: dict[str, Any], scale: float) -> list[tuple[float, float, float]]:
    """A point and the slope of each border between rows of the body, and of the borders of the heading."""
    (above, *tops), (below, *bottoms) = note["x"]
    main = [tops[note["main"]], tops[note["main"] + 1]]
    shift = (bottoms[note["main"]] - tops[note["main"]]) / (below - above)
    found = []
    for line in page.lines:
        x, y = (value * scale for value in middle(line))
        moved = x - shift * (y - above)
        if main[0] - 5 < moved < main[1] + 5 and y > note["head"][2]:
            found.append((y, line))
    places = sorted(y for y, _ in found)
    usual = float(np.median(np.diff(places)))
    slopes = []
    for _, line in found:
        assert line.outline
        (x0, y0), (x1, y1) = line.outline.baseline[0], line.outline.baseline[-1]
        slopes.append((y1 - y0) / max(x1 - x0, 1))
    slope = float(note.get("slope", np.median(slopes)))
    inner, left, right = note["head"]
    heading = (right - left) / (tops[-1] - tops[0])
    borders = [(tops[0], float(note["top"]), heading)]
    if inner:
        borders.append(((tops[0] + tops[-1]) / 2, float(inner), heading))
    borders.append((tops[0], float(left), heading))
    for number in note["rows"][1:]:
        x, y = (value * scale for value in middle(page.lines[number]))
        gap = min(max(y - max((place for place in places if place < y - 3), default=0), 0.5 * usual), 1.3 * usual)
        borders.append((x, y - ABOVE * gap, slope))
    return [*borders, (tops[0], float(note["bottom"]), slope)]


def annotate(page: XmlPage, note: dict[str, Any], name: str, size: tuple[int, int], shrink: float) -> Page:
    """The page with its lines in cells, on a picture of this size."""
    assert page.size
    scale = note["width"] / page.size[0]
    borders = row_borders(page, note, scale)
    (above, *tops), (below, *bottoms) = note["x"]

    def across(column: int, y: float) -> float:
        return float(tops[column] + (bottoms[column] - tops[column]) * (y - above) / (below - above))

    def down(row: int, x: float) -> float:
        at, y, slope = borders[row]
        return y + slope * (x - at)

    def corner(row: int, column: int) -> Point:
        x = across(column, borders[row][1])
        y = down(row, x)
        factor = shrink / scale
        return round(across(column, y) * factor), round(y * factor)

    headings = 2 if note["head"][0] else 1
    spans: list[Span] = [*HEADS[note["heads"]]]
    deep = {(row + headings, column): rows for row, column, rows in note.get("deep", [])}
    hidden = {(row + more, column) for (row, column), rows in deep.items() for more in range(1, rows)}
    for row in range(headings, len(borders) - 1):
        spans += [
            (row, column, deep.get((row, column), 1), 1)
            for column in range(len(tops) - 1)
            if (row, column) not in hidden
        ]
    cells = {}
    for row, column, rows, columns in spans:
        far, right = row + rows, column + columns
        quad = (corner(row, column), corner(far, column), corner(far, right), corner(row, right))
        outline = Outline.of_polygon(quad)
        cells[row, column] = TableCell(
            f"t1_{row}_{column}", outline, CellPlace(row, column, rows, columns, row < headings)
        )
    owner = {(row, column): cell for cell in cells.values() for row in cell.place.rows for column in cell.place.columns}
    given = {int(number): (row + headings, column) for number, (row, column) in note.get("cells", {}).items()}
    lines = []
    for number, line in enumerate(page.lines):
        x, y = (value * scale for value in middle(line))
        y -= 4
        place = given.get(
            number,
            (
                sum(down(row, x) <= y for row in range(len(borders))) - 1,
                sum(across(column, y) <= x for column in range(len(tops))) - 1,
            ),
        )
        cell = None if number in note.get("outside", ()) else owner.get(place)
        assert line.outline
        moved = Outline.of_polygon(shrunk(line.outline.border, shrink), shrunk(line.outline.baseline, shrink))
        lines.append(
            replace(line, outline=moved, region=Region(cell.id, cell.outline) if cell else None, id=f"l{number}")
        )
    whole = (corner(0, 0), corner(-1, 0), corner(-1, -1), corner(0, -1))
    ordered = sorted(lines, key=lambda line: line.region is not None)
    tables = (Table("t1", Outline.of_polygon(whole), tuple(cells[key] for key in sorted(cells))),)
    return Page(Path(f"{name}.jpg"), name, name, tuple(ordered), size=size, tables=tables)


def shrunk(points: tuple[Point, ...], scale: float) -> tuple[Point, ...]:
    """Points on the smaller picture."""
    return tuple((round(x * scale), round(y * scale)) for x, y in points)


def main() -> None:
    """Parse the command line and write the pages."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("collections", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--long", type=int, default=2000, help="pixels of the longer side")
    parser.add_argument("--quality", type=int, default=60)
    options = parser.parse_args()
    notes = json.loads((options.output / "annotations.json").read_text(encoding="utf-8"))
    for name, note in notes.items():
        source = next(options.collections.rglob(f"{name}.xml"))
        page = parse_xml_page(source)
        page = replace(page, lines=[replace(line, text=REPAIRED.apply(line.text)) for line in page.lines])
        with Image.open(source.with_suffix(".jpg")) as image:
            shrink = options.long / max(image.size)
            size = round(image.width * shrink), round(image.height * shrink)
            small = image.convert("L").resize(size, Image.Resampling.LANCZOS)
        small.save(options.output / f"{name}.jpg", quality=options.quality, optimize=True)
        annotated = annotate(replace(page, size=page.size or image.size), note, name, size, shrink)
        (options.output / f"{name}.xml").write_bytes(serialize(page_document(annotated)[0]))


if __name__ == "__main__":
    main()
