"""Tables of images and texts, with the columns guessed or given."""

import csv
import json
from pathlib import Path

import pytest

from dsocr.document import Note, Outline, Page, Skipped, SkipReason, Split
from dsocr.errors import DataError
from dsocr.formats.tables import find_tables, read_tables
from tests.data.making import picture, write


def read_one(folder: Path, name: str, content: str, columns: dict[str, str] | None = None) -> Page | Skipped:
    picture(folder / "a.png")
    write(folder / name, content)
    (item,) = read_tables(folder, columns or {})
    assert not isinstance(item, Note)
    return item


@pytest.mark.parametrize(
    ("name", "content", "text"),
    [
        pytest.param("t.tsv", "image\ttext\na.png\tдва слова\n", "два слова", id="TSV"),
        pytest.param("t.tsv", "a.png\tдва слова\n", "два слова", id="TSV without header"),
        pytest.param("t.tsv", 'a.png\t"так"\n', '"так"', id="quotes in TSV are text"),
        pytest.param("t.tsv", "image\ttext\r\na.png\tс\tтабом\r\n", "с\tтабом", id="tab in the last column"),
        pytest.param("t.csv", 'file_name,text\na.png,"раз, два"\n', "раз, два", id="CSV with quotes"),
        pytest.param("t.csv", "path;label\na.png;раз, два\n", "раз, два", id="CSV with semicolons"),
        pytest.param("t.csv", "\ufeffImage,Transcription\na.png,раз\n", "раз", id="byte order mark and capitals"),
        pytest.param("t.csv", 'image,text\na.png,"раз\nдва"\n', "раз\nдва", id="two lines in a cell"),
        pytest.param("t.csv", "a.png,раз\n", "раз", id="CSV without header"),
        pytest.param("t.jsonl", '{"image": "a.png", "text": "раз\\u2028"}\n\n', "раз\u2028", id="JSONL"),
        pytest.param("t.jsonl", '{"image": "a.png", "text": 1917}\n', "1917", id="number as text"),
        pytest.param("t.tsv", "image\ttext\na.png\n", "", id="missing cell"),
    ],
)
def test_a_row_is_read(tmp_path: Path, name: str, content: str, text: str) -> None:
    item = read_one(tmp_path, name, content)
    assert isinstance(item, Page)
    assert (item.image.name, item.lines[0].text, item.lines[0].outline) == ("a.png", text, None)


def test_columns_can_be_named(tmp_path: Path) -> None:
    content = "скан\tчтение\tрука\na.png\tда\tАнна\n"
    item = read_one(tmp_path, "t.tsv", content, {"image": "скан", "text": "чтение", "writer": "рука"})
    assert isinstance(item, Page)
    assert (item.lines[0].text, item.writer) == ("да", "Анна")


def test_writer_page_and_split_are_guessed(tmp_path: Path) -> None:
    row = {"file_name": "a.png", "text": "да", "writer_id": 7, "page": "п1", "split": "dev", "box": [1, 2]}
    item = read_one(tmp_path, "t.jsonl", json.dumps(row))
    assert isinstance(item, Page)
    assert (item.writer, item.page, item.split) == ("7", "п1", Split.VALIDATION)
    assert (item.where, item.name) == ("t.jsonl:1", "a")


def test_a_table_named_after_a_split_looks_into_its_own_folder(tmp_path: Path) -> None:
    for split in ("train", "test"):
        picture(tmp_path / split / "1.png")
        write(tmp_path / f"{split}.tsv", f"1.png\t{split}\n")
    items = [item for item in read_tables(tmp_path, {}) if isinstance(item, Page)]
    assert [(item.split, item.image.parent.name) for item in items] == [(Split.TEST, "test"), (Split.TRAIN, "train")]


def test_one_table_file_is_a_source(tmp_path: Path) -> None:
    picture(tmp_path / "a.png")
    write(tmp_path / "other.tsv", "a.png\tдругое\n")
    (item,) = read_tables(write(tmp_path / "t.tsv", "a.png\tда\n"), {})
    assert isinstance(item, Page)
    assert item.lines[0].text == "да"


@pytest.mark.parametrize(
    "image",
    [
        pytest.param("gone.png", id="no such image"),
        pytest.param("../a.png", id="one level up"),
        pytest.param("/etc/passwd.png", id="absolute"),
        pytest.param("", id="empty cell"),
    ],
)
def test_a_row_without_a_usable_image_is_skipped(tmp_path: Path, image: str) -> None:
    item = read_one(tmp_path, "t.tsv", f"image\ttext\n{image}\tда\n")
    assert isinstance(item, Skipped)
    assert (item.reason, item.where) == (SkipReason.NO_IMAGE, "t.tsv:2")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        pytest.param("t.jsonl", '{"image": "a.png"', "line 1 is not JSON", id="broken JSON"),
        pytest.param("t.jsonl", "[1]", "line 1 is not a JSON object", id="a list"),
        pytest.param("t.jsonl", "", "the table is empty", id="empty JSONL"),
        pytest.param("t.tsv", "\n", "the table is empty", id="blank TSV"),
        pytest.param("t.csv", 'image,text\n"' + "x" * 200_000, "line 2 cannot be read", id="a cell without end"),
    ],
)
def test_an_unreadable_table_is_skipped(tmp_path: Path, name: str, content: str, message: str) -> None:
    item = read_one(tmp_path, name, content)
    assert isinstance(item, Skipped)
    assert item.reason == SkipReason.BAD_SOURCE
    assert message in item.message


def test_unknown_columns_are_listed(tmp_path: Path) -> None:
    write(tmp_path / "t.csv", "скан,чтение\nx,y\n")
    assert find_tables(tmp_path, {}) == []
    with pytest.raises(DataError, match="no column is known to hold: image, text; the columns are: скан, чтение"):
        list(read_tables(tmp_path, {}))


def test_a_table_without_a_requested_column_is_skipped(tmp_path: Path) -> None:
    item = read_one(tmp_path, "t.csv", "image,text\na.png,y\n", {"writer": "hand"})
    assert isinstance(item, Skipped)
    assert "no column is known to hold: writer ('hand')" in item.message


@pytest.mark.parametrize("name", ["metadata.jsonl", "metadata.csv"])
def test_an_imagefolder_made_elsewhere_keeps_its_splits(tmp_path: Path, name: str) -> None:
    for split in ("train", "validation", "test"):
        picture(tmp_path / split / "scans" / "1.png")
        row = {"metadata.jsonl": f'{{"file_name": "scans/1.png", "text": "{split}"}}\n'}
        write(tmp_path / split / name, row.get(name, f"file_name,text\nscans/1.png,{split}\n"))
    items = [item for item in read_tables(tmp_path, {}) if isinstance(item, Page)]
    found = {item.split: (item.lines[0].text, item.name) for item in items}
    assert found == {split: (str(split), f"{split}/scans/1") for split in Split}


@pytest.mark.parametrize(
    ("content", "text"),
    [
        pytest.param('"image"\t"text"\n"a.png"\t"с\tтабом"\n', "с\tтабом", id="a tab"),
        pytest.param('"image"\t"text"\r\n"a.png"\t"две\nстроки"\r\n', "две\nстроки", id="a line end"),
        pytest.param('"image"\t"text"\n"a.png"\t"""так"""\n', '"так"', id="quotes"),
        pytest.param('"image"\t"text"\n"a.png"\t""\n', "", id="nothing"),
        pytest.param('"a.png"\t"без, заголовка"\n', "без, заголовка", id="without header"),
        pytest.param('image\ttext\na.png\t"так"\n', '"так"', id="a first line without quotes has none that mean it"),
    ],
)
def test_a_tab_separated_table_is_quoted_where_its_first_line_is(tmp_path: Path, content: str, text: str) -> None:
    item = read_one(tmp_path, "t.tsv", content)
    assert isinstance(item, Page)
    assert (item.image.name, item.lines[0].text) == ("a.png", text)


OUTLINED = "image\ttext\tbbox\tpolygon\tbaseline\tnote\n"


def lines_of(folder: Path, *rows: str, name: str = "t.tsv", columns: dict[str, str] | None = None) -> list[object]:
    picture(folder / "a.png")
    write(folder / name, OUTLINED + "".join(f"a.png\t{row}\n" for row in rows))
    items = list(read_tables(folder, columns or {}))
    assert not any(isinstance(item, Note) for item in items)
    return [outlined(item) if isinstance(item, Page) else getattr(item, "reason", None) for item in items]


def outlined(image: Page) -> list[tuple[str, Outline | None]]:
    return [(line.text, line.outline) for line in image.lines]


def test_rows_with_outlines_on_one_image_are_its_lines(tmp_path: Path) -> None:
    rows = (
        "раз\t10,10 61,31\t10,10 60,10 60,30 10,30\t10,25 60,25\t",
        "два\t5,8 70,40\t\t\t",
        "три\t\t10,10 60,10 60,30 10,30\t\t",
        "весь\t\t\t\t",
        "другой\t5,8 70,40\t\t\tдругое",
    )
    polygon = ((10, 10), (60, 10), (60, 30), (10, 30))
    assert lines_of(tmp_path, *rows) == [
        [
            ("раз", Outline((10, 10, 61, 31), polygon, ((10, 25), (60, 25)))),
            ("два", Outline((5, 8, 70, 40))),
            ("три", Outline((10, 10, 61, 31), polygon)),
        ],
        [("весь", None)],
        [("другой", Outline((5, 8, 70, 40)))],
    ]


@pytest.mark.parametrize(
    ("bbox", "name"),
    [
        pytest.param("10,10,50,20", "t.tsv", id="another notation"),
        pytest.param("[10, 10, 61, 31]", "t.tsv", id="JSON"),
        pytest.param("10 10 61 31", "t.tsv", id="no commas"),
        pytest.param("10,10 61,31", "metadata.tsv", id="where an imagefolder's sample was cut"),
    ],
)
def test_outlines_of_others_are_not_read(tmp_path: Path, bbox: str, name: str) -> None:
    assert lines_of(tmp_path, f"раз\t{bbox}\t\t\t", name=name) == [[("раз", None)]]


def test_outlines_that_are_asked_for_must_be_readable(tmp_path: Path) -> None:
    rows = ("раз\t10,10 61,31\t\t\t", "два\t10,10,50,20\t\t\t")
    found = lines_of(tmp_path, *rows, columns={"bbox": "bbox"})
    assert found == [[("раз", Outline((10, 10, 61, 31)))], SkipReason.BAD_SOURCE]


AWKWARD = ['he said "yes"', "two\nlines", "a\ttab", '"quoted"', "plain, with comma", "ё"]


@pytest.mark.parametrize("suffix", [".tsv", ".csv"])
def test_tables_written_by_the_csv_module_round_trip(tmp_path: Path, suffix: str) -> None:
    picture(tmp_path / "a.png")
    with (tmp_path / f"t{suffix}").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, delimiter="\t" if suffix == ".tsv" else ",")
        writer.writerows([("image", "text", "writer"), *(("a.png", text, "anna") for text in AWKWARD)])
    pages = [item for item in read_tables(tmp_path, {}) if isinstance(item, Page)]
    assert [page.lines[0].text for page in pages] == AWKWARD
    assert {page.writer for page in pages} == {"anna"}


@pytest.mark.parametrize(
    ("name", "content"),
    [
        pytest.param("t.csv", "image,text\na.png,один, два\na.png,три\n", id="unquoted comma"),
        pytest.param("t.tsv", 'image\ttext\na.png\t"а ""б"""\tлишнее\na.png\tтри\n', id="quoted TSV"),
    ],
)
def test_a_row_with_surplus_cells_is_skipped(tmp_path: Path, name: str, content: str) -> None:
    picture(tmp_path / "a.png")
    write(tmp_path / name, content)
    skipped, page = read_tables(tmp_path, {})
    assert isinstance(skipped, Skipped)
    assert (skipped.reason, skipped.where) == (SkipReason.BAD_SOURCE, f"{name}:2")
    assert isinstance(page, Page)
    assert page.lines[0].text == "три"


def test_empty_surplus_cells_are_ignored(tmp_path: Path) -> None:
    item = read_one(tmp_path, "t.csv", "image,text\na.png,раз,,\n")
    assert isinstance(item, Page)
    assert item.lines[0].text == "раз"
