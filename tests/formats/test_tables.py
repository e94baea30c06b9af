"""Tables of images and texts, with the columns guessed or given."""

import csv
from pathlib import Path

import pytest

from dsocr.data.prepare import prepare
from dsocr.document import Item, Outline, SkipReason, Split
from dsocr.formats import tables
from dsocr.formats.tables import escape_formula, find_tables, read_tables, unescape_formula
from tests.data.making import picture, write
from tests.formats.reading import pages, read, skipped, texts
from tests.raising import raises_code


def table(folder: Path, name: str, content: str, columns: dict[str, str] | None = None) -> list[Item]:
    picture(folder / "a.png")
    write(folder / name, content)
    return read("table", folder, columns)


@pytest.mark.parametrize(
    ("name", "content", "text"),
    [
        pytest.param("t.tsv", "image\ttext\na.png\tдва слова\n", "два слова", id="TSV"),
        pytest.param("t.tsv", "a.png\tдва слова\n", "два слова", id="TSV without header"),
        pytest.param("t.tsv", 'a.png\t"так"\n', '"так"', id="quotes in TSV are text"),
        pytest.param("t.tsv", 'image\ttext\na.png\t"так"\n', '"так"', id="quotes where the header has none"),
        pytest.param("t.tsv", "image\ttext\r\na.png\tс\tтабом\r\n", "с\tтабом", id="tab in the last column"),
        pytest.param("t.tsv", '"image"\t"text"\n"a.png"\t"с\tтабом"\n', "с\tтабом", id="a quoted tab"),
        pytest.param("t.tsv", '"image"\t"text"\r\n"a.png"\t"две\nстроки"\r\n', "две\nстроки", id="quoted line end"),
        pytest.param("t.tsv", '"image"\t"text"\n"a.png"\t"""так"""\n', '"так"', id="quoted quotes"),
        pytest.param("t.tsv", '"image"\t"text"\n"a.png"\t""\n', "", id="quoted nothing"),
        pytest.param("t.tsv", '"a.png"\t"без, заголовка"\n', "без, заголовка", id="quoted without header"),
        pytest.param("t.csv", 'file_name,text\na.png,"раз, два"\n', "раз, два", id="CSV with quotes"),
        pytest.param("t.csv", "path;label\na.png;раз, два\n", "раз, два", id="CSV with semicolons"),
        pytest.param("t.csv", "\ufeffsep=;\r\npath;label\r\na.png;раз, два\r\n", "раз, два", id="CSV that names it"),
        pytest.param("t.csv", "\ufeffImage,Transcription\na.png,раз\n", "раз", id="byte order mark and capitals"),
        pytest.param("t.csv", 'image,text\na.png,"раз\nдва"\n', "раз\nдва", id="two lines in a cell"),
        pytest.param("t.csv", "a.png,раз\n", "раз", id="CSV without header"),
        pytest.param("t.csv", "image,text\na.png,раз, два,\n", "раз, два,", id="delimiters in the last column"),
        pytest.param("t.tsv", 'image\ttext\na.png\t"а ""б"""\tещё\n', '"а ""б"""\tещё', id="no quotes of a writer"),
        pytest.param("t.jsonl", '{"image": "a.png", "text": "раз\\u2028"}\n\n', "раз\u2028", id="JSONL"),
        pytest.param("t.jsonl", '{"image": "a.png", "text": 1917}\n', "1917", id="number as text"),
        pytest.param("t.tsv", "image\ttext\na.png\n", "", id="missing cell"),
    ],
)
def test_a_row_is_read(tmp_path: Path, name: str, content: str, text: str) -> None:
    (page,) = pages(table(tmp_path, name, content))
    assert (page.image.name, page.lines[0].text, page.lines[0].outline) == ("a.png", text, None)


def test_a_table_without_a_header_keeps_tabs_and_quotes_in_texts(tmp_path: Path) -> None:
    content = 'a.png\tтаб\tвнутри\r\na.png\t"кавычка\r\na.png\t№ 5, «да»\r\n'
    assert texts(table(tmp_path, "t.tsv", content)) == ["таб\tвнутри", '"кавычка', "№ 5, «да»"]


def test_columns_can_be_named(tmp_path: Path) -> None:
    content = "скан\tчтение\tрука\na.png\tда\tАнна\n"
    (page,) = pages(table(tmp_path, "t.tsv", content, {"image": "скан", "text": "чтение", "writer": "рука"}))
    assert (page.lines[0].text, page.writer) == ("да", "Анна")


def test_a_table_named_after_a_split_looks_into_its_own_folder(tmp_path: Path) -> None:
    for split in ("train", "test"):
        picture(tmp_path / split / "1.png")
        write(tmp_path / f"{split}.tsv", f"1.png\t{split}\n")
    found = [(page.split, page.image.parent.name) for page in pages(read("table", tmp_path))]
    assert found == [(Split.TEST, "test"), (Split.TRAIN, "train")]


@pytest.mark.parametrize(
    ("name", "row", "reason"),
    [
        pytest.param("t.tsv", "../a.png\tда", SkipReason.NO_IMAGE, id="one level up"),
        pytest.param("t.tsv", "\tда", SkipReason.NO_IMAGE, id="empty cell"),
        pytest.param("t.csv", "раз, два,a.png", SkipReason.BAD_SOURCE, id="surplus cells"),
        pytest.param("t.csv", "ы" * 300 + ".png,раз", SkipReason.NO_IMAGE, id="a name that no disk can have"),
    ],
)
def test_a_row_that_cannot_be_read_is_skipped(tmp_path: Path, name: str, row: str, reason: SkipReason) -> None:
    header, last = ("image,text", "a.png,три") if name == "t.csv" else ("image\ttext", "a.png\tтри")
    if reason == SkipReason.BAD_SOURCE:
        header, last = "text,image", "три,a.png"
    items = table(tmp_path, name, f"{header}\n{row}\n{last}\n")
    assert (skipped(items), texts(items)) == ([(reason, f"{name}:2")], ["три"])


@pytest.mark.parametrize(
    ("name", "content"),
    [
        pytest.param("t.jsonl", '{"image": "a.png"', id="broken JSON"),
        pytest.param("t.jsonl", "[1]", id="a list"),
        pytest.param("t.jsonl", "", id="empty JSONL"),
        pytest.param("t.tsv", "\n", id="blank TSV"),
    ],
)
def test_a_table_that_cannot_be_read_is_skipped(tmp_path: Path, name: str, content: str) -> None:
    assert skipped(table(tmp_path, name, content)) == [(SkipReason.BAD_SOURCE, name)]


def test_rows_of_one_image_without_outlines_are_a_page_and_no_lines(tmp_path: Path) -> None:
    table(tmp_path / "s", "t.csv", "image,text,n\na.png,раз,1\nb.png,один,1\na.png,два,2\n")
    picture(tmp_path / "s" / "b.png", colour="red")
    lines = prepare(tmp_path / "s", tmp_path / "lines", split="1/0/0", split_by="text")
    assert [sample.text for sample in lines] == ["один"]
    assert lines.card.skipped["line without outline"].count == 2
    whole = prepare(tmp_path / "s", tmp_path / "pages", unit="page", split="1/0/0", split_by="text")
    assert [sample.text for sample in whole] == ["раз\nдва", "один"]


def test_unknown_columns_are_an_error(tmp_path: Path) -> None:
    write(tmp_path / "t.csv", "скан,чтение\nx,y\n")
    assert find_tables(tmp_path, {}) == []
    with raises_code("column-role-unknown", "t.csv") as error:
        read_tables(tmp_path, {})
    assert "скан, чтение" in str(error.value)


@pytest.mark.parametrize("name", ["metadata.jsonl", "metadata.csv"])
def test_an_imagefolder_made_elsewhere_keeps_its_splits(tmp_path: Path, name: str) -> None:
    for split in ("train", "validation", "test"):
        picture(tmp_path / split / "scans" / "1.png")
        row = {"metadata.jsonl": f'{{"file_name": "scans/1.png", "text": "{split}"}}\n'}
        write(tmp_path / split / name, row.get(name, f"file_name,text\nscans/1.png,{split}\n"))
    found = {page.split: (page.lines[0].text, page.name) for page in pages(read("table", tmp_path))}
    assert found == {split: (str(split), f"{split}/scans/1") for split in Split}


OUTLINED = "image\ttext\tbbox\tpolygon\tbaseline\tnote\n"


def lines_of(folder: Path, *rows: str, name: str = "t.tsv") -> list[list[tuple[str, Outline | None]]]:
    items = table(folder, name, OUTLINED + "".join(f"a.png\t{row}\n" for row in rows))
    return [[(line.text, line.outline) for line in page.lines] for page in pages(items)]


def test_rows_with_outlines_on_one_image_are_its_lines(tmp_path: Path) -> None:
    rows = (
        "раз\t10,10 61,31\t10,10 60,10 60,30 10,30\t10,25 60,25\t",
        "два\t5,8 70,40\t\t\t",
        "три\t\t10,10 60,10 60,30 10,30\t\t",
        "другой\t5,8 70,40\t\t\tдругое",
    )
    polygon = ((10, 10), (60, 10), (60, 30), (10, 30))
    assert lines_of(tmp_path, *rows) == [
        [
            ("раз", Outline((10, 10, 61, 31), polygon, ((10, 25), (60, 25)))),
            ("два", Outline((5, 8, 70, 40))),
            ("три", Outline((10, 10, 61, 31), polygon)),
        ],
        [("другой", Outline((5, 8, 70, 40)))],
    ]


def test_an_outline_of_an_imagefolder_is_where_its_sample_was_cut(tmp_path: Path) -> None:
    assert lines_of(tmp_path, "раз\t10,10 61,31\t\t\t", name="metadata.tsv") == [[("раз", None)]]


def test_a_box_in_an_unknown_notation_and_a_missing_one_are_skipped(tmp_path: Path) -> None:
    rows = ("раз\t10,10 61,31\t\t\t", "два\t10,10,50\t\t\t", "три\t\t\t\t")
    items = table(tmp_path, "t.tsv", OUTLINED + "".join(f"a.png\t{row}\n" for row in rows))
    assert skipped(items) == [(SkipReason.BAD_SOURCE, "t.tsv:3"), (SkipReason.NO_OUTLINE, "t.tsv:4")]
    assert [[line.text for line in page.skipped] for page in pages(items)] == [["два"]]
    assert texts(items) == ["раз"]


AWKWARD = ['he said "yes"', "two\nlines", "a\ttab", '"quoted"', "plain, with comma", "ё"]


@pytest.mark.parametrize("suffix", [".tsv", ".csv"])
def test_tables_written_by_the_csv_module_round_trip(tmp_path: Path, suffix: str) -> None:
    picture(tmp_path / "a.png")
    with (tmp_path / f"t{suffix}").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, delimiter="\t" if suffix == ".tsv" else ",")
        writer.writerows([("image", "text", "writer"), *(("a.png", text, "anna") for text in AWKWARD)])
    items = read("table", tmp_path)
    assert texts(items) == AWKWARD
    assert {page.writer for page in pages(items)} == {"anna"}


@pytest.mark.parametrize("text", ["=cmd|' /C calc'!A0", "+1", "-1,5", "@SUM(A1)", "\tа", "\rа", "'=1", "''=1"])
def test_what_a_spreadsheet_would_calculate_is_escaped_and_comes_back(text: str) -> None:
    cell = escape_formula(text)
    assert (cell[0], unescape_formula(cell)) == ("'", text)


@pytest.mark.parametrize("text", ["", "-", "'", "' quoted'", "— тире", "a=b", "а"])
def test_other_cells_stay_as_they_are(text: str) -> None:
    assert escape_formula(text) == unescape_formula(text) == text


def test_no_other_module_writes_a_table() -> None:
    source = Path(tables.__file__).parents[1]
    writing = [path.name for path in source.rglob("*.py") if "csv.writer(" in path.read_text(encoding="utf-8")]
    assert writing == ["tables.py"]
