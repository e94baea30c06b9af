"""The format of a source is detected or given, and so are the formats of a transcription."""

from pathlib import Path
from typing import Any

import pytest

from dsocr.formats import SOURCE_FORMATS, detect_format, output_formats, target_format
from dsocr.formats.pdf import count_pages
from dsocr.formats.tables import read_rows
from tests.data.making import alto, page_xml, pair, write, write_parquet
from tests.raising import raises_code

FILES = {
    "alto": {"alto/p.xml": alto("")},
    "page": {"page/p.xml": page_xml(""), "mets.xml": '<mets xmlns="http://www.loc.gov/METS/"/>'},
    "table": {"t.csv": "image,text\n"},
    "coco": {
        "annotations.json": '{"images": [], "annotations": []}',
        "about.json": '{"name": "a", "description": "b"}',
    },
    "hkr": {"ann/0_0_0.json": '{"name": "0_0_0", "description": "да"}'},
    "iam": {"ascii/lines.txt": "# head\na01-000u-00 ok 154 19 408 746 1661 89 A|MOVE\n"},
    "rimes": {"training_2011.xml": '<DocumentList><SinglePage FileName="p.png"/></DocumentList>'},
    "messages": {"m.jsonl": '{"messages": [{"role": "assistant", "content": "да"}], "images": ["a.png"]}\n{broken\n'},
    "label-studio": {"project.json": '[{"id": 1, "annotations": [{"result": []}], "data": {"image": "a.png"}}]'},
    "pdf": {"scan.pdf": "%PDF-1.4", "scan.txt": "да"},
}
"""Format -> the files of a small source."""


def make(name: str, folder: Path) -> None:
    if name == "pairs":
        pair(folder, "a", "а")
    elif name == "parquet":
        write_parquet(folder / "train-00000-of-00001.parquet", [{"image": b"", "text": "а"}])
    else:
        for file, content in FILES[name].items():
            write(folder / file, content)


@pytest.mark.parametrize("name", SOURCE_FORMATS)
def test_a_format_is_recognized(tmp_path: Path, name: str) -> None:
    make(name, tmp_path)
    assert detect_format(tmp_path, None, {}).name == name


def test_a_format_can_be_asked_for_among_all(tmp_path: Path) -> None:
    for name in SOURCE_FORMATS:
        make(name, tmp_path)
    assert [detect_format(tmp_path, name, {}).name for name in SOURCE_FORMATS] == [*SOURCE_FORMATS]
    with raises_code("formats-mixed") as error:
        detect_format(tmp_path, None, {})
    assert {"(alto)", "(page)"} <= set(str(error.value).replace(",", " ").split())


@pytest.mark.parametrize(
    ("file", "content"),
    [
        pytest.param("a.json", '[{"images": [1]}]', id="not COCO"),
        pytest.param("a.json", '{"messages": [], "images": ["a.png"]}', id="not COCO, but a single conversation"),
        pytest.param("a.json", '{"@context": "http://iiif.io/", "annotations": [1]}', id="not COCO, but IIIF"),
        pytest.param("package.json", '{"name": "a", "description": "b"}', id="not HKR, in another folder"),
        pytest.param("ann/a.json", '{"name": "a", "objects": []}', id="not HKR, without a description"),
        pytest.param("ann/b.json", '[{"name": "a", "description": "b"}]', id="not HKR, but a list"),
        pytest.param("a.json", "[]", id="not Label Studio"),
        pytest.param("lines.txt", "first line\nsecond line\n", id="not IAM"),
        pytest.param("t.json", '[{"picture": "a.png", "words": "да"}, {"messages": 1}]', id="not conversations"),
    ],
)
def test_other_files_have_no_format(tmp_path: Path, file: str, content: str) -> None:
    write(tmp_path / file, content)
    with raises_code("no-format-found"):
        detect_format(tmp_path, None, {})


def test_columns_mean_a_table(tmp_path: Path) -> None:
    make("pairs", tmp_path)
    write(tmp_path / "t.csv", "скан,чтение\n")
    assert detect_format(tmp_path, None, {"image": "скан"}).name == "table"


@pytest.mark.parametrize(("file", "name"), [("train-00000-of-00001.parquet", "parquet"), ("t.csv", "table")])
def test_a_single_file_determines_its_format(tmp_path: Path, file: str, name: str) -> None:
    make("parquet", tmp_path)
    make("table", tmp_path)
    assert detect_format(tmp_path / file, None, {}).name == name


@pytest.mark.parametrize(
    ("source", "name", "columns", "code"),
    [
        pytest.param(".", None, {}, "no-format-found", id="empty folder"),
        pytest.param(".", "tei", {}, "format-unknown", id="format"),
        pytest.param(".", None, {"txt": "a"}, "column-role-unknown", id="column role"),
        pytest.param("gone", None, {}, "input-missing", id="no such folder"),
        pytest.param("a.png", None, {}, "source-is-image", id="an image"),
    ],
)
def test_an_unreadable_source_is_an_error(
    tmp_path: Path, source: str, name: str | None, columns: dict[str, str], code: str
) -> None:
    if source == "a.png":
        make("pairs", tmp_path)
    with raises_code(code):
        detect_format(tmp_path / source, name, columns)


@pytest.mark.parametrize(
    ("out", "names", "all_xml", "chosen"),
    [
        pytest.param("a.txt", [], False, (["text"], False), id="by its ending"),
        pytest.param("a", [], True, (["filled"], True), id="ALTO and PAGE come back"),
        pytest.param("a", [], False, (["page"], True), id="a folder without a format: PAGE"),
        pytest.param("a.xml", [], True, (["filled"], False), id="a single one"),
        pytest.param("a.xml", ["alto"], False, (["alto"], False), id="a single page"),
        pytest.param("a", ["alto", "pdf"], False, (["alto", "pdf"], True), id="two formats"),
        pytest.param("box.1905", ["text"], False, (["text"], True), id="a folder with a point in its name"),
    ],
)
def test_output_formats_are_chosen(out: str, names: list[str], all_xml: bool, chosen: tuple[list[str], bool]) -> None:
    formats, is_folder = output_formats(Path("nowhere") / out, names, all_xml=all_xml)
    assert ([format_.name for format_ in formats], is_folder) == chosen


@pytest.mark.parametrize(
    ("out", "names", "code"),
    [
        pytest.param("a.xml", [], "output-ambiguous", id="XML of either kind"),
        pytest.param("a.odt", [], "output-suffix-unknown", id="unknown ending"),
        pytest.param("a.txt", ["text", "jsonl"], "output-not-folder", id="two formats in a file"),
        pytest.param("a", ["word"], "format-unknown", id="unknown format"),
    ],
)
def test_conflicting_output_formats_are_an_error(out: str, names: list[str], code: str) -> None:
    with raises_code(code):
        output_formats(Path("nowhere") / out, names, all_xml=False)


@pytest.mark.parametrize(
    ("package", "use"),
    [
        ("pikepdf", lambda folder: output_formats(folder, ["pdf"], all_xml=False)),
        ("docx", lambda folder: target_format("docx")),
        ("openpyxl", lambda folder: read_rows(folder / "a.xlsx", {})),
        ("pypdfium2", lambda folder: count_pages(folder / "a.pdf")),
    ],
)
def test_a_missing_extra_is_named(package: str, use: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dsocr.errors.find_spec", lambda name: None if name == package else object())
    with raises_code("package-missing") as error:
        use(tmp_path)
    assert package in error.value.message
    assert "dsocr-hw[documents]" in str(error.value.hint)
