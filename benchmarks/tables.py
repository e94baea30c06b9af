"""Measure how tables are found: cells in their row and column, entries of real registers, false alarms on prose.

    python tools/draw_registers.py data/registers --count 60            # pages whose cells are known
    python benchmarks/tables.py cells data/registers                    # by the true lines
    python benchmarks/tables.py cells data/registers --detect           # by the lines that the detector finds
    python benchmarks/tables.py cells tests/real_data/registers         # ten pages of real registers
    python benchmarks/tables.py texts tests/real_data/registers OUT     # OUT is what transcribe --tables wrote as PAGE
    python benchmarks/tables.py entries REPERTOIRES                     # ALTO with regions Col_1 ..., lines First_line
    python benchmarks/tables.py edits tests/real_data/registers         # corrections needed in the workbench
    python benchmarks/tables.py prose FOLDER...                         # pages without tables

A cell is in its place if all its lines, and no others, are in one cell with its row, column and spans. Rows of the body
count from the first one below the headings, those of headings from the first of all. An entry is the lines of a column
from a First_line to the next; it is whole if a cell has these lines and no others. Intervals are over pages.
A ruling is found if it is, on average, less than a line's height from where it truly is; a cell over several rows or
columns is found if it is between the rulings that it truly is between.
"""

import re
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass, replace
from itertools import islice
from pathlib import Path

import numpy as np
from PIL import Image

from dsocr.document import CellPlace, Line, Table, TableCell
from dsocr.evaluation.metrics import character_errors
from dsocr.formats import parse_xml_page
from dsocr.formats.registers import mark_headings
from dsocr.formats.xml import XmlPage
from dsocr.images import IMAGE_SUFFIXES
from dsocr.layout import detect_outlines
from dsocr.layout.lines import arrange_lines
from dsocr.outlines import contains
from dsocr.registers import find_tables
from dsocr.registers.edits import nodes_of
from runner import make_parser, parse, pooled_share

Pages = Iterator[tuple[Path, Image.Image, XmlPage]]
Place = tuple[int, CellPlace]
"""The table of a cell and its place there; rows count as the benchmark says."""


@dataclass(frozen=True)
class Score:
    """Of a page: cells with text, those in their place, and those in the right column and in the right row."""

    cells: int
    right: int
    columns: int
    rows: int
    tables: tuple[int, int]


def places(tables: Sequence[Table]) -> dict[str, Place]:
    """The place of each cell by its id."""
    known = {}
    for number, table in enumerate(tables):
        headings = max((cell.place.row + 1 for cell in table.cells if cell.place.is_heading), default=0)
        for cell in table.cells:
            is_heading = cell.place.row < headings
            row = cell.place.row if is_heading else cell.place.row - headings
            known[cell.id] = number, replace(cell.place, row=row, is_heading=is_heading)
    return known


def score_page(page: XmlPage, lines: Sequence[Line], tables: Sequence[Table], *, detected: bool) -> Score:
    """Compare tables with the truth; detected lines belong to the true cell that their middle is in."""
    truth, found = places(page.tables), places(tables)
    true_cells = [cell for table in page.tables for cell in table.cells]
    members: dict[str, list[str]] = {}
    contents: dict[str, set[str]] = {}
    by_id = {line.id: line for line in page.lines}
    for line in lines:
        if detected:
            true = cell_of(line, true_cells)
        else:
            region = by_id[line.id].region if line.id in by_id else None
            true = region.id if region and region.id in truth else ""
        mine = line.region.id if line.region and line.region.id in found else ""
        members.setdefault(true, []).append(mine)
        contents.setdefault(mine, set()).add(true)
    with_text = {line.region.id for line in page.lines if line.region and line.region.id in truth}
    right = columns = rows = 0
    for cell in with_text:
        into = set(members.get(cell, []))
        place = found.get(next(iter(into))) if len(into) == 1 else None
        if place:
            right += place == truth[cell] and contents[next(iter(into))] == {cell}
            (table, at), (true_table, expected) = place, truth[cell]
            columns += table == true_table and at.columns == expected.columns
            rows += (table, at.rows, at.is_heading) == (true_table, expected.rows, expected.is_heading)
    return Score(len(with_text), right, columns, rows, (len(page.tables), len(tables)))


def cell_of(line: Line, cells: Sequence[TableCell]) -> str:
    """The id of the cell that the middle of a line is in."""
    assert line.outline
    points = np.array(line.outline.baseline or line.outline.border, dtype=float)
    x, y = points[:, 0].mean(), points[:, 1].mean() - 4
    return next((cell.id for cell in cells if cell.outline and contains(cell.outline.border, x, y)), "")


def detect(image: Image.Image) -> list[Line]:
    """The lines that the detector finds."""
    lines = arrange_lines(detect_outlines(image), "")
    return [replace(line, id=f"d{line.index}") for line in lines]


def with_texts(lines: Sequence[Line], page: XmlPage) -> list[Line]:
    """Give each line the text of the true line that is nearest."""
    middles = np.array([middle(line) for line in page.lines])
    near = [int(np.argmin(np.hypot(*(middles - middle(line)).T))) for line in lines]
    return [replace(line, text=page.lines[place].text) for line, place in zip(lines, near, strict=True)]


def middle(line: Line) -> tuple[float, float]:
    """The middle of a line's box."""
    assert line.outline
    left, top, right, bottom = line.outline.box
    return (left + right) / 2, (top + bottom) / 2


def read_pages(folder: Path) -> Pages:
    """The pages of a folder of ALTO or PAGE files beside their images."""
    for path in sorted(folder.rglob("*.xml")):
        page = parse_xml_page(path)
        image = next(
            (path.with_suffix(suffix) for suffix in (".jpg", ".png") if path.with_suffix(suffix).is_file()), None
        )
        if image and page.lines:
            with Image.open(image) as opened:
                yield path, opened.convert("RGB"), page


def measure_cells(pages: Pages, *, detected: bool, verbose: bool) -> None:
    """Print the share of cells in their place."""
    scores, seconds = [], 0.0
    for path, image, page in pages:
        lines = detect(image) if detected else page.lines
        start = time.process_time()
        found, tables = find_tables(image, lines, detect=detect_outlines if detected else None)
        seconds += time.process_time() - start
        # Headings are recognised by their texts, so these are given.
        read = with_texts(found, page) if detected else found
        score = score_page(page, found, [mark_headings(table, read) for table in tables], detected=detected)
        scores.append(score)
        if verbose:
            print(path.name, score)
    for name in ("right", "columns", "rows"):
        print(f"cells {name}: {pooled_share([(getattr(score, name), score.cells) for score in scores])}")
    print(f"{len(scores)} pages, {seconds / max(len(scores), 1):.2f} s each")


def cells_of_lines(image: Image.Image, page: XmlPage, *, detected: bool) -> tuple[dict[int | None, str], list[Table]]:
    """The found cell of each true line by its index, that which its middle is in if lines are detected; the tables."""
    if detected:
        _, tables = find_tables(image, detect(image), detect=detect_outlines)
        cells = [cell for table in tables for cell in table.cells]
        return {line.index: cell_of(line, cells) for line in page.lines if line.outline}, tables
    found, tables = find_tables(image, page.lines, split=False)
    return {line.index: line.region.id if line.region else "" for line in found}, tables


def measure_entries(pages: Pages, *, detected: bool, verbose: bool) -> None:
    """Print the share of entries that are exactly one cell."""
    shares = []
    for path, image, page in pages:
        types, kinds = types_of(path, "TextBlock"), types_of(path, "TextLine")
        firsts = [line for line in page.lines if kinds.get(line.id) == "First_line" and line.region]
        columns = Counter(types.get(line.region.id, "") for line in firsts if line.region)
        if len(firsts) < 3 or not columns.most_common(1)[0][0].startswith("Col_"):
            continue
        column = columns.most_common(1)[0][0]
        entries: list[set[int | None]] = []
        known = [line for line in page.lines if line.region and types.get(line.region.id) == column]
        for line in sorted(known, key=lambda line: middle(line)[1]):
            kind = kinds.get(line.id, "")
            if kind in ("First_line", "Main_date"):
                entries.append(set())
            if entries and kind != "printed":
                entries[-1].add(line.index)
        by_line, tables = cells_of_lines(image, page, detected=detected)
        cells = {cell.id for table in tables for cell in table.cells}
        contents: dict[str, set[int | None]] = {}
        for index, cell in by_line.items():
            if cell in cells:
                contents.setdefault(cell, set()).add(index)
        entries = [entry for entry in entries if entry]
        whole = sum(entry in contents.values() for entry in entries)
        shares.append((whole, len(entries)))
        if verbose:
            print(f"{path.name} {whole}/{len(entries)} tables {len(tables)}")
    print(f"whole entries: {pooled_share(shares)}; {len(shares)} pages")


def measure_texts(folder: Path, transcribed: Path) -> None:
    """Print the CER of cells with text and the share read exactly, end to end; a cell that is not found has no text."""
    exact, errors = [], []
    for path in sorted(transcribed.rglob("*.xml")):
        truth, found = (parse_xml_page(file) for file in (folder / path.name, path))
        true, read = texts_by_place(truth, truth.tables), texts_by_place(found, found.tables)
        pairs = [(text, read.get(place, "")) for place, text in true.items() if text]
        rates = [character_errors(text, prediction) for text, prediction in pairs]
        exact.append((sum(text == prediction for text, prediction in pairs), len(pairs)))
        errors.append((sum(rate.errors for rate in rates), sum(rate.length for rate in rates)))
    print(f"cells read exactly: {pooled_share(exact)}; {len(exact)} pages")
    print(f"characters wrong: {pooled_share(errors)}")


def texts_by_place(page: XmlPage, tables: Sequence[Table]) -> dict[Place, str]:
    """The text of each cell by its place, lines joined by spaces."""
    known = places([mark_headings(table, page.lines) for table in tables])
    texts: dict[Place, list[str]] = {}
    for line in page.lines:
        if line.region and line.region.id in known and line.text:
            texts.setdefault(known[line.region.id], []).append(line.text)
    return {place: " ".join(parts) for place, parts in texts.items()}


def types_of(path: Path, tag: str) -> dict[str, str]:
    """Return the type of each block or line of an ALTO file by its id."""
    text = path.read_text(encoding="utf-8")
    labels = dict(re.findall(r'<OtherTag ID="(\w+)" LABEL="([^"]*)"', text))
    found = re.findall(rf'<{tag}\b[^>]*?\bID="([^"]+)"[^>]*?TAGREFS="([^"]*)"', text, re.DOTALL)
    return {id_: " ".join(labels.get(tag, tag) for tag in tags.split()) for id_, tags in found}


@dataclass(frozen=True)
class Edits:
    """Of a table: its rulings, its cells over several rows or columns, and the edits until its grid is the true one."""

    rulings: int
    spans: int
    added: int
    removed: int
    joined: int
    split: int


def edits_of(true: Table, found: Table, near: float) -> Edits:
    """Compare a table with the truth."""
    added = removed = rulings = 0
    match: list[dict[int, int]] = []
    for axis in (0, 1):
        truth, mine = (ruling_places(table, axis) for table in (true, found))
        pairs = sorted((abs(place - other), n, m) for n, place in enumerate(truth) for m, other in enumerate(mine))
        known: dict[int, int] = {}
        for distance, n, m in pairs:
            if distance < near and n not in known and m not in known.values():
                known[n] = m
        added += len(truth) - len(known)
        removed += len(mine) - len(known)
        rulings += len(truth)
        match.append({m: n for n, m in known.items()})
    spans, mine_over = (
        {(cell.place.row, cell.place.column, cell.place.rows.stop, cell.place.columns.stop) for cell in table.cells}
        for table in (true, found)
    )
    rows, columns = match[1], match[0]
    moved = {
        (rows.get(top, -1), columns.get(left, -1), rows.get(bottom, -1), columns.get(right, -1))
        for top, left, bottom, right in mine_over
        if bottom - top > 1 or right - left > 1
    }
    over = {span for span in spans if span[2] - span[0] > 1 or span[3] - span[1] > 1}
    return Edits(rulings, len(over), added, removed, len(over - moved), len(moved - over))


def ruling_places(table: Table, axis: int) -> list[float]:
    """Where the rulings between columns (axis 0) or rows are, on average."""
    return [float(place) for place in nodes_of(table)[..., axis].mean(axis=axis)]


def measure_edits(pages: Pages, *, detected: bool, verbose: bool) -> None:
    """Print the corrections needed until the grids are the true ones."""
    counted: list[Edits] = []
    for path, image, page in pages:
        lines = detect(image) if detected else page.lines
        _, tables = find_tables(image, lines, detect=detect_outlines if detected else None)
        if len(tables) != len(page.tables):
            print(f"{path.name} is left out: it has {len(page.tables)} tables, and {len(tables)} are found")
            continue
        near = float(np.median([line.outline.box[3] - line.outline.box[1] for line in lines if line.outline]))
        edits = [edits_of(true, found, near) for true, found in zip(page.tables, tables, strict=True)]
        counted += edits
        if verbose:
            print(path.name, *edits)
    for name, total in zip(Edits.__annotations__, np.sum([astuple(edits) for edits in counted], axis=0), strict=True):
        print(f"{name}: {total}")
    print(f"{sum(not any(astuple(edits)[2:]) for edits in counted)} of {len(counted)} tables need nothing")


def measure_prose(folders: Sequence[Path]) -> None:
    """Print the pages without tables that one is found on."""
    for folder in folders:
        images = [path for path in sorted(folder.rglob("*")) if path.suffix.lower() in IMAGE_SUFFIXES]
        alarms = []
        for path in images:
            with Image.open(path) as opened:
                image = opened.convert("RGB")
            if find_tables(image, detect(image), detect=detect_outlines)[1]:
                alarms.append(path.name)
        print(f"{folder}: tables on {len(alarms)} of {len(images)} pages {' '.join(alarms)}")


def main() -> None:
    """Measure."""
    parser = make_parser(__doc__)
    measures = {"cells": measure_cells, "entries": measure_entries, "edits": measure_edits}
    parser.add_argument("what", choices=(*measures, "texts", "prose"))
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--detect", action="store_true", help="by detected lines")
    parser.add_argument("--every", type=int, default=1, help="take every Nth page")
    parser.add_argument("--start", type=int, default=0, help="from this page on")
    parser.add_argument("--verbose", action="store_true", help="a line for each page")
    options = parse(parser)
    if options.what == "texts":
        measure_texts(*options.folders)
    elif options.what == "prose":
        measure_prose(options.folders)
    else:
        pages = islice(read_pages(options.folders[0]), options.start, None, options.every)
        measures[options.what](pages, detected=options.detect, verbose=options.verbose)


if __name__ == "__main__":
    main()
