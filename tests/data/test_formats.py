"""A folder's format is detected from its content, or given."""

from pathlib import Path

import pytest

from dsocr.errors import DataError
from dsocr.formats import SOURCE_FORMATS, detect_format
from tests.data.making import alto, page_xml, pair, write, write_parquet


def make_alto(folder: Path) -> None:
    write(folder / "alto" / "p.xml", alto(""))


def make_page(folder: Path) -> None:
    write(folder / "page" / "p.xml", page_xml(""))
    write(folder / "mets.xml", '<mets xmlns="http://www.loc.gov/METS/"/>')


def make_pairs(folder: Path) -> None:
    pair(folder, "a", "а")


def make_table(folder: Path) -> None:
    write(folder / "t.csv", "image,text\n")


def make_parquet(folder: Path) -> None:
    write_parquet(folder / "train-00000-of-00001.parquet", [{"image": b"", "text": "а"}])


def make_coco(folder: Path) -> None:
    write(folder / "annotations.json", '{"images": [], "annotations": []}')
    write(folder / "about.json", '{"name": "a", "description": "b"}')


def make_hkr(folder: Path) -> None:
    write(folder / "ann" / "0_0_0.json", '{"name": "0_0_0", "description": "да"}')


def make_iam(folder: Path) -> None:
    write(folder / "ascii" / "lines.txt", "# head\na01-000u-00 ok 154 19 408 746 1661 89 A|MOVE\n")


def make_rimes(folder: Path) -> None:
    write(folder / "training_2011.xml", '<DocumentList><SinglePage FileName="p.png"/></DocumentList>')


def make_messages(folder: Path) -> None:
    write(folder / "m.jsonl", '{"messages": [{"role": "assistant", "content": "да"}], "images": ["a.png"]}\n{broken\n')


def make_label_studio(folder: Path) -> None:
    write(folder / "project.json", '[{"id": 1, "annotations": [{"result": []}], "data": {"image": "a.png"}}]')


def make_pdf(folder: Path) -> None:
    write(folder / "scan.pdf", "%PDF-1.4")
    write(folder / "scan.txt", "да")


MAKERS = {
    "alto": make_alto,
    "page": make_page,
    "pairs": make_pairs,
    "table": make_table,
    "parquet": make_parquet,
    "coco": make_coco,
    "hkr": make_hkr,
    "iam": make_iam,
    "rimes": make_rimes,
    "messages": make_messages,
    "pdf": make_pdf,
    "label-studio": make_label_studio,
}


@pytest.mark.parametrize("name", SOURCE_FORMATS)
def test_a_format_is_recognized(tmp_path: Path, name: str) -> None:
    MAKERS[name](tmp_path)
    assert detect_format(tmp_path, None, {}).name == name


@pytest.mark.parametrize("name", SOURCE_FORMATS)
def test_a_format_can_be_asked_for(tmp_path: Path, name: str) -> None:
    for make in MAKERS.values():
        make(tmp_path)
    assert detect_format(tmp_path, name, {}).name == name


def test_two_formats_are_a_question(tmp_path: Path) -> None:
    make_alto(tmp_path)
    make_page(tmp_path)
    with pytest.raises(DataError, match=r"1 ALTO XML files \(alto\), 1 PAGE XML files \(page\)") as error:
        detect_format(tmp_path, None, {})
    assert error.value.hint == "name one as the format"


def test_columns_mean_a_table(tmp_path: Path) -> None:
    make_pairs(tmp_path)
    write(tmp_path / "t.csv", "скан,чтение\n")
    assert detect_format(tmp_path, None, {"image": "скан"}).name == "table"


def test_a_single_file_determines_its_format(tmp_path: Path) -> None:
    make_parquet(tmp_path)
    make_table(tmp_path)
    assert detect_format(tmp_path / "train-00000-of-00001.parquet", None, {}).name == "parquet"
    assert detect_format(tmp_path / "t.csv", None, {}).name == "table"


@pytest.mark.parametrize(
    ("name", "columns", "message"),
    [
        pytest.param(None, {}, "nothing in this folder can be read", id="empty folder"),
        pytest.param(
            "tei",
            {},
            "unknown source format 'tei'; the formats are: alto, page, table, parquet, coco, hkr, iam, rimes, ",
            id="format",
        ),
        pytest.param(None, {"txt": "a"}, "unknown column role 'txt'", id="column role"),
    ],
)
def test_an_unreadable_source_is_an_error(
    tmp_path: Path, name: str | None, columns: dict[str, str], message: str
) -> None:
    with pytest.raises(DataError, match=message):
        detect_format(tmp_path, name, columns)


def test_a_missing_source_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="does not exist"):
        detect_format(tmp_path / "gone", None, {})
