"""Rulings and cells of tables are changed: lines follow, undo restores, and exports read back equal."""

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import astuple, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lxml import etree
from openpyxl import load_workbook

from dsocr.data.convert import convert
from dsocr.data.dataset import SourceReport
from dsocr.document import Table
from dsocr.errors import DsocrError
from dsocr.formats.page import NEWEST, TRANSKRIBUS, parse_page
from dsocr.registers.edits import nodes_of
from dsocr.workbench.archive import Archive, import_pages, open_archive
from dsocr.workbench.page_changes import carry_out, move_beside, put_tables, search_tables
from dsocr.workbench.page_export import export
from dsocr.workbench.store import CorrectionStore, StaleError, open_store
from dsocr.workbench.stored_lines import State, tables_of, version_of
from tests.raising import raises_code
from tests.workbench.fakes import TITLES, edit, make_register, opened

ROWS = [["№", "имя", "лет"], ["1", "Иванъ", "30"], ["2", "Анна", "25"]]


@pytest.fixture
def register(tmp_path: Path) -> Iterator[tuple[CorrectionStore, Archive]]:
    """A page with a table in its file."""
    with opened(make_register(tmp_path / "box", ROWS, NEWEST), tmp_path / "work") as register:
        yield register


@pytest.fixture(params=[NEWEST, TRANSKRIBUS])
def either(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[CorrectionStore, Archive]]:
    """The same in the words of the schema or of Transkribus."""
    with opened(make_register(tmp_path / "box", ROWS, request.param), tmp_path / "work") as either:
        yield either


def table_of(store: CorrectionStore) -> Table:
    (table,) = tables_of(store.regions(1))
    return table


def ruling(store: CorrectionStore, axis: str, place: int, by: tuple[int, int] = (0, 0)) -> list[tuple[int, int]]:
    nodes = nodes_of(table_of(store))
    points = nodes[place] if axis == "row" else nodes[:, place]
    return [(round(x) + by[0], round(y) + by[1]) for x, y in points]


def move(store: CorrectionStore, axis: str, place: int, by: tuple[int, int]) -> None:
    edit(store, "moveRuling", axis=axis, place=place, points=ruling(store, axis, place, by))


def texts(store: CorrectionStore) -> dict[tuple[int, int, int, int], str]:
    """The text of each cell by row, column, rows and columns."""
    cells = {int(cell.id): astuple(cell.place)[:4] for cell in table_of(store).cells}
    found = dict.fromkeys(cells.values(), "")
    for line in store.lines(1):
        if key := cells.get(line.region or 0):
            found[key] = f"{found[key]} {line.text}".strip()
    return found


def grid(store: CorrectionStore) -> list[list[str]]:
    """The texts of a table without spans."""
    found, (rows, columns) = texts(store), table_of(store).size
    return [[found[row, column, 1, 1] for column in range(columns)] for row in range(rows)]


def exported(store: CorrectionStore, archive: Archive, out: Path, to: str = "page") -> list[Table]:
    """The tables of the first page as an export has them, with their lines under the ids of their cells."""
    export(store, archive, out, to=to, accepted_only=False, overwrite=out.exists())
    (path,) = (out / "page").glob("*.xml")
    return list(parse_page(etree.parse(path).getroot()).tables)


def placed(tables: Sequence[Table]) -> list[Any]:
    """What two exports of a table have in common: ids may be others."""
    return [[(cell.place, cell.outline) for cell in table.cells] for table in tables]


def rows_of_csv(path: Path) -> list[dict[str, str]]:
    return [*csv.DictReader(io.StringIO(path.read_text(encoding="utf-8-sig"), newline=""))]


def test_a_file_that_has_a_table_shows_it_and_keeps_its_bytes(
    either: tuple[CorrectionStore, Archive], tmp_path: Path
) -> None:
    store, archive = either
    assert grid(store) == ROWS
    assert [[round(float(x)) for x in row] for row in nodes_of(table_of(store))[..., 0]] == [[40, 240, 440, 640]] * 4
    store.review(store.lines(1)[0], ROWS[0][0], State.ACCEPTED, who="anna")
    exported(store, archive, tmp_path / "out")
    for name in ("page/scan.xml", "scan.png"):
        assert (tmp_path / "out" / name).read_bytes() == (archive.root / name).read_bytes()


def test_lines_follow_a_ruling_that_moves_over_them(register: tuple[CorrectionStore, Archive]) -> None:
    store, _ = register
    before = store.lines(), store.regions()
    move(store, "column", 1, (70, 0))  # over the start of names, not over their middle
    assert grid(store) == ROWS
    move(store, "column", 1, (20, 0))
    assert grid(store) == [["№ имя", "", "лет"], ["1 Иванъ", "", "30"], ["2 Анна", "", "25"]]
    assert {line.state for line in store.lines(1)} == {State.READ}
    assert [line.text for line in store.lines(1)] == [text for row in ROWS for text in row]
    move(store, "row", 1, (0, 90))
    assert grid(store)[0] == ["№ имя 1 Иванъ", "", "лет 30"]
    for _ in range(3):
        store.undo("anna")
    assert (store.lines(), store.regions()) == before


def test_only_cells_beside_a_ruling_change_with_it(register: tuple[CorrectionStore, Archive]) -> None:
    store, _ = register
    before = set(table_of(store).cells)
    edit(store, "moveRuling", axis="column", place=3, points=[(650, 40), (655, 140), (660, 240), (665, 340)])
    assert {cell.place.column for cell in set(table_of(store).cells) - before} == {2}
    assert [round(float(x)) for x in nodes_of(table_of(store))[:, 3, 0]] == [650, 655, 660, 665]
    assert ruling(store, "column", 2) == [(440, y) for y in (40, 140, 240, 340)]


def test_a_ruling_is_added_and_removed(register: tuple[CorrectionStore, Archive]) -> None:
    store, _ = register
    before = store.lines(), store.regions()
    edit(store, "addRuling", axis="row", at=(100, 300))
    assert table_of(store).size == (4, 3)
    assert grid(store) == [*ROWS, ["", "", ""]], "the texts are above it"
    edit(store, "addRuling", axis="column", at=(260, 100))
    assert grid(store)[1] == ["1", "", "Иванъ", "30"]
    edit(store, "removeRuling", axis="column", place=2)
    edit(store, "removeRuling", axis="row", place=3)
    assert grid(store) == ROWS
    edit(store, "removeRuling", axis="row", place=1)
    assert grid(store)[0] == ["№ 1", "имя Иванъ", "лет 30"]
    edit(store, "removeRuling", axis="column", place=3)
    assert grid(store) == [["№ 1", "имя Иванъ"], ["2", "Анна"]]
    assert [line.text for line in store.lines(1) if line.region is None] == ["лет", "30", "25"]
    for _ in range(6):
        store.undo("anna")
    assert (store.lines(), store.regions()) == before


def test_cells_are_joined_and_split(register: tuple[CorrectionStore, Archive]) -> None:
    store, _ = register
    before = store.lines(), store.regions()
    edit(store, "joinCells", cells=[0, 1, 1, 2])
    assert texts(store)[0, 1, 1, 2] == "имя лет"
    edit(store, "joinCells", cells=[0, 0, 2, 2])
    assert texts(store)[0, 0, 2, 3] == "№ имя лет 1 Иванъ 30", "a cell that reaches among them is one with them"
    edit(store, "addRuling", axis="column", at=(500, 300))
    assert [*texts(store)] == [(0, 0, 2, 4), (2, 0, 1, 1), (2, 1, 1, 1), (2, 2, 1, 1), (2, 3, 1, 1)]
    edit(store, "removeRuling", axis="column", place=3)
    edit(store, "splitCells", cells=[0, 0, 1, 1])
    assert grid(store) == ROWS
    order = [line.text for line in store.lines(1)]
    assert order == [text for row in ROWS for text in row]
    for _ in range(5):
        store.undo("anna")
    assert (store.lines(), store.regions()) == before


def test_a_line_that_somebody_put_into_a_cell_stays_there(register: tuple[CorrectionStore, Archive]) -> None:
    store, _ = register
    line, cell = store.lines(1)[4], table_of(store).cells[8]
    edit(store, "assign", [line], region=int(cell.id))
    move(store, "column", 2, (10, 0))
    edit(store, "addRuling", axis="row", at=(100, 110))
    assert texts(store)[3, 2, 1, 1] == "Иванъ 25"


@pytest.mark.parametrize("to", ["page", "page-2013"])
def test_a_changed_table_is_read_back_as_it_was_left(
    either: tuple[CorrectionStore, Archive], to: str, tmp_path: Path
) -> None:
    store, archive = either
    move(store, "column", 1, (30, 0))
    move(store, "row", 3, (0, 12))
    edit(store, "addRuling", axis="row", at=(100, 300))
    edit(store, "joinCells", cells=[0, 0, 1, 2])
    tables = exported(store, archive, tmp_path / "out", to)
    assert placed(tables) == placed(tables_of(store.regions(1)))
    (table,) = tables
    assert table.outline == table_of(store).outline
    with opened(tmp_path / "out", tmp_path / "again") as (again, _):
        assert texts(again) == texts(store)
        assert [line.text for line in again.lines(1)] == [line.text for line in store.lines(1)]
    for _ in range(4):
        store.undo("anna")
    exported(store, archive, tmp_path / "undone")
    assert (tmp_path / "undone" / "page" / "scan.xml").read_bytes() == (archive.root / "page/scan.xml").read_bytes()


def test_the_order_of_lines_in_cells_is_that_of_the_workbench(
    either: tuple[CorrectionStore, Archive], tmp_path: Path
) -> None:
    store, archive = either
    order = [line.number for line in store.lines(1)]
    move_beside(store, order[8], order[0], after=False, who="anna")
    expected = [line.text for line in store.lines(1)]
    assert expected[:2] == ["25", "№"]
    for step in range(2):
        exported(store, archive, tmp_path / f"out-{step}")
        with opened(tmp_path / f"out-{step}", tmp_path / f"again-{step}") as (again, _):
            assert [line.text for line in again.lines(1)] == expected
            assert grid(again) == grid(store)
        move(store, "column", 1, (5, 0))


def test_the_schema_accepts_a_changed_table(tmp_path: Path) -> None:
    schema = etree.XMLSchema(etree.parse(Path(__file__).parents[1] / "formats" / "schemas" / "page-2019-lines.xsd"))
    source = make_register(tmp_path / "box", ROWS, NEWEST)
    with opened(source, tmp_path / "work") as (store, archive):
        edit(store, "addRuling", axis="column", at=(300, 100))
        edit(store, "joinCells", cells=[0, 0, 1, 2])
        edit(store, "removeRuling", axis="row", place=3)  # its lines are in no region then
        exported(store, archive, tmp_path / "out")
    schema.assertValid(etree.parse(tmp_path / "out" / "page" / "scan.xml"))
    (element,) = etree.parse(tmp_path / "out" / "page" / "scan.xml").getroot().iter("{*}TableRegion")
    assert (element.get("rows"), element.get("columns")) == ("2", "4")


@pytest.mark.parametrize("version", [TRANSKRIBUS, None])
def test_rows_of_the_register_are_those_of_the_grid(version: str | None, tmp_path: Path) -> None:
    with opened(make_register(tmp_path / "box", TITLES, version), tmp_path / "work") as (store, archive):
        if version is None:
            put_tables(store, 1, search_tables(archive.page_image(store.pages()[0]), store.lines(1)), who="anna")
        edit(store, "removeRuling", axis="row", place=3)
        export(store, archive, tmp_path / "csv", to="csv", accepted_only=False)
        export(store, archive, tmp_path / "xlsx", to="xlsx", accepted_only=False)
        exported(store, archive, tmp_path / "page")
    convert(tmp_path / "page", tmp_path / "converted", to="csv")
    rows, converted = (rows_of_csv(tmp_path / name / "transcription.csv") for name in ("csv", "converted"))
    expected = [("1", "1", "Иванъ", "30"), ("2", "2\n3", "Анна\nПетръ", "25\n41"), ("3", "4", "Марья", "7")]
    columns = ("row", *TITLES[0])
    assert [tuple(row[name] for name in columns) for row in rows] == expected
    assert [tuple(row[name] for name in columns) for row in converted] == expected
    sheet = [*load_workbook(tmp_path / "xlsx" / "transcription.xlsx")["register"].values]
    at = [sheet[0].index(name) for name in columns]
    assert [tuple(str(row[place]) for place in at) for row in sheet[1:]] == expected


@pytest.mark.parametrize(
    ("what", "details", "code"),
    [
        pytest.param("moveRuling", {"axis": "column", "place": 1, "points": [(450, 40)] * 4}, "edit-invalid", id="x"),
        pytest.param("addRuling", {"axis": "row", "at": (690, 200)}, "edit-invalid", id="beside the table"),
        pytest.param("addRuling", {"axis": "row", "at": (300, 140)}, "edit-invalid", id="on another ruling"),
        pytest.param("joinCells", {"cells": [0, 0, 1, 1]}, "edit-invalid", id="a cell alone"),
        pytest.param("splitCells", {"cells": [0, 0, 1, 1]}, "edit-invalid", id="nothing to split"),
        pytest.param("addTable", {"polygon": [(5, 5), (6, 6)]}, "edit-invalid", id="a table without area"),
    ],
)
def test_what_makes_no_table_is_refused_and_changes_nothing(
    register: tuple[CorrectionStore, Archive], what: str, details: dict[str, object], code: str
) -> None:
    store, _ = register
    before = store.lines(), store.regions(), store.stamp()
    with raises_code(code):
        edit(store, what, **details)
    assert (store.lines(), store.regions(), store.stamp()) == before


def test_a_change_of_what_somebody_else_changed_is_refused(register: tuple[CorrectionStore, Archive]) -> None:
    store, _ = register
    seen, version = table_of(store), version_of("table", store.regions(1))
    move(store, "column", 1, (5, 0))
    message = {
        "what": "removeRuling",
        "lines": [],
        "region": None,
        "table": [seen.id, version],
        "axis": "column",
        "place": 1,
    }
    with pytest.raises(StaleError):
        carry_out(store, store.pages()[0], message, who="boris")
    edit(store, "removeTable")
    with pytest.raises(StaleError):
        carry_out(store, store.pages()[0], message, who="boris")


def test_a_removed_table_leaves_its_lines_on_the_page(either: tuple[CorrectionStore, Archive], tmp_path: Path) -> None:
    store, archive = either
    edit(store, "removeTable")
    assert store.regions(1) == []
    assert exported(store, archive, tmp_path / "out") == []
    content = (tmp_path / "out" / "page" / "scan.xml").read_text(encoding="utf-8")
    assert "TableRegion" not in content
    with opened(tmp_path / "out", tmp_path / "again") as (again, _):
        assert [line.text for line in again.lines(1)] == [text for row in ROWS for text in row]


def test_tables_are_found_drawn_and_undone(tmp_path: Path) -> None:
    """A page whose file has its lines in one region: found cells take their place."""
    source = make_register(tmp_path / "box", TITLES, None)
    with opened(source, tmp_path / "work") as (store, archive):
        before = store.lines(), store.regions()
        found = search_tables(archive.page_image(store.pages()[0]), store.lines(1))
        assert put_tables(store, 1, found, who="anna") == 1
        assert grid(store) == TITLES
        assert all(region.cell for region in store.regions(1)), "the region that had all lines is gone"
        tables = exported(store, archive, tmp_path / "out")
        assert placed(tables) == placed(tables_of(store.regions(1)))
        move(store, "column", 1, (9, 0))
        assert put_tables(store, 1, found._replace(lines=tuple(store.lines(1))), who="anna")
        for _ in range(3):
            store.undo("anna")
        assert (store.lines(), store.regions()) == before
        edit(store, "addTable", polygon=[(40, 40), (640, 40), (640, 440), (40, 440)])
        for x in (240, 440):
            edit(store, "addRuling", axis="column", at=(x, 100))
        for y in (120, 200, 280, 360):
            edit(store, "addRuling", axis="row", at=(100, y))
        assert grid(store) == TITLES
        assert placed(exported(store, archive, tmp_path / "out")) == placed(tables_of(store.regions(1)))
    with opened(source, tmp_path / "work") as (store, _):
        assert grid(store) == TITLES, "as it was left"


@pytest.mark.parametrize("has_file", [True, False])
def test_tables_are_found_when_pages_are_opened_first(has_file: bool, tmp_path: Path) -> None:
    source = make_register(tmp_path / "box", TITLES, None)
    lines = [replace(line, text="") for line in parse_page(etree.parse(source / "page" / "scan.xml").getroot()).lines]
    if not has_file:
        (source / "page" / "scan.xml").unlink()
    with (
        open_store(tmp_path / "work" / "corrections.sqlite") as store,
        open_archive(store, source, tmp_path / "u", detect=lambda data, name: lines) as archive,
    ):
        import_pages(store, archive, SourceReport(strict=True), tables=True)
        assert grid(store) == (TITLES if has_file else [[""] * 3] * len(TITLES))
        cells = {int(cell.id) for cell in table_of(store).cells}
        assert [line.region in cells for line in store.lines(1)] == [True] * 15
        assert all(region.cell for region in store.regions(1))
        assert store.history() == []
        assert placed(exported(store, archive, tmp_path / "out")) == placed(tables_of(store.regions(1)))


def test_a_page_without_a_table_says_so(store: CorrectionStore, archive: Archive) -> None:
    page = store.pages()[0]
    with raises_code("no-tables"):
        search_tables(archive.page_image(page), store.lines(page.number))


def test_found_columns_cut_lines_that_nobody_reviewed(tmp_path: Path) -> None:
    source = make_register(tmp_path / "box", TITLES, None, long={2: "2222 Анна 2525"})
    with opened(source, tmp_path / "work") as (store, archive):
        image, long = archive.page_image(store.pages()[0]), next(line for line in store.lines(1) if " " in line.text)
        put_tables(store, 1, search_tables(image, store.lines(1)), who="anna")
        assert [len(row) for row in grid(store)] == [3] * len(TITLES)
        assert grid(store)[2] == ["2222", "Анна", "2525"]
        store.undo("anna")
        store.review(store.line(long.number) or long, long.text, State.ACCEPTED, who="anna")
        put_tables(store, 1, search_tables(image, store.lines(1)), who="anna")
        assert long.text in grid(store)[2]
        assert store.line(long.number).state is State.ACCEPTED  # type: ignore[union-attr]


def test_formats_without_tables_say_so_once(register: tuple[CorrectionStore, Archive], tmp_path: Path) -> None:
    store, archive = register
    (skipped,) = export(store, archive, tmp_path / "alto", to="alto", accepted_only=False).skipped
    assert skipped.where == "scan"
    assert export(store, archive, tmp_path / "csv", to="csv", accepted_only=False).skipped == []


@pytest.mark.parametrize(
    ("row", "columns"),
    [pytest.param("x", "1", id="no number"), pytest.param("19000", "99", id="too large to show")],
)
def test_a_table_that_is_no_grid_stays_as_its_file_has_it(row: str, columns: str, tmp_path: Path) -> None:
    source = make_register(tmp_path / "box", ROWS, NEWEST)
    path = source / "page" / "scan.xml"
    stated = path.read_text(encoding="utf-8").replace('rowIndex="2"', f'rowIndex="{row}"')
    path.write_text(stated.replace('colSpan="1"', f'colSpan="{columns}"'), encoding="utf-8")
    with opened(source, tmp_path / "work") as (store, archive):
        assert sum(len(table.cells) for table in tables_of(store.regions(1))) == (6 if row == "x" else 0)
        exported(store, archive, tmp_path / "out")
    assert (tmp_path / "out" / "page" / "scan.xml").read_bytes() == path.read_bytes()


edits = st.tuples(
    st.sampled_from(["moveRuling", "addRuling", "removeRuling", "joinCells", "splitCells", "undo"]),
    st.sampled_from(["row", "column"]),
    st.integers(0, 5),
    st.integers(0, 5),
    st.integers(-40, 40),
)


def perform(store: CorrectionStore, what: str, axis: str, first: int, second: int, by: int) -> None:
    """Carry out a random edit; what does not make sense in the table as it is does nothing."""
    rows, columns = table_of(store).size
    place = first % ((rows if axis == "row" else columns) + 1)
    try:
        if what == "undo":
            store.undo("anna")
        elif what == "moveRuling":
            move(store, axis, place, (by, by))
        elif what == "addRuling":
            edit(store, what, axis=axis, at=(40 + 100 * first + by, 40 + 55 * second))
        elif what == "removeRuling":
            edit(store, what, axis=axis, place=place)
        else:
            edit(store, what, cells=[first % rows, second % columns, 1 + abs(by) % 2, 1 + abs(by) % 3])
    except DsocrError:
        pass


def require_tiles(table: Table) -> None:
    """Assert that each place of a table is in one cell."""
    places = [(row, column) for cell in table.cells for row in cell.place.rows for column in cell.place.columns]
    rows, columns = table.size
    assert sorted(places) == [(row, column) for row in range(rows) for column in range(columns)]


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_register(tmp_path_factory.mktemp("register") / "box", ROWS, NEWEST)


@given(all_edits=st.lists(edits, max_size=8))
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_edits_leave_a_table_that_is_exported_as_it_is_and_undone(
    box: Path, all_edits: list[tuple[str, str, int, int, int]]
) -> None:
    with TemporaryDirectory() as folder, opened(box, Path(folder) / "w") as (store, archive):
        before = store.lines(), store.regions()
        for each in all_edits:
            perform(store, *each)
            require_tiles(table_of(store))
            assert [line.place for line in store.lines(1)] == sorted({line.place for line in store.lines(1)})
        tables = exported(store, archive, Path(folder) / "out")
        assert placed(tables) == placed(tables_of(store.regions(1)))
        with opened(Path(folder) / "out", Path(folder) / "again") as (again, _):
            assert texts(again) == texts(store)
        while store.undo("anna"):
            pass
        assert (store.lines(), store.regions()) == before
