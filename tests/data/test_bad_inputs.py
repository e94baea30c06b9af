"""What people give by mistake: each has an error with a code and a remedy, and the remedy, followed, works."""

import io
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pikepdf
import pytest

from dsocr.data.prepare import prepare
from dsocr.errors import DataError
from tests.data.making import alto, alto_line, page_xml, picture, png, write, write_pages
from tests.formats.making_sources import make_pdf
from tests.formats.test_sheets import workbook

Files = Mapping[str, Any]
"""By their paths: texts, bytes, and functions that make them."""


def zipped(files: Mapping[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def locked(archive: bytes) -> bytes:
    content = bytearray(archive)
    for sign, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        at = -1
        while (at := content.find(sign, at + 1)) >= 0:
            content[at + offset] |= 1
    return bytes(content)


def locked_pdf(folder: Path) -> None:
    make_pdf(folder)
    with pikepdf.open(folder / "a.pdf", allow_overwriting_input=True) as document:
        document.save(folder / "a.pdf", encryption=pikepdf.Encryption(owner="b", user="a"))


def pdf_without_texts(folder: Path) -> None:
    make_pdf(folder)
    for path in folder.glob("*.txt"):
        path.unlink()


def two_pages(folder: Path) -> None:
    write_pages(folder, ["1", "2"])


def full_workbook(path: Path) -> None:
    workbook(path, [["image", "text"], ["a.png", "строка"]])


def empty_workbook(path: Path) -> None:
    workbook(path, [])


IMAGE = {"a.png": picture}
LINE = IMAGE | {"a.txt": "строка"}
SCANS = {"scans/a.png": picture, "scans/a.txt": "строка"}
ANNA = {"anna_1.png": picture, "anna_1.txt": "строка"}
ALTO = alto(alto_line("строка"))
XML = {"p.png": picture, "p.xml": ALTO}
TABLE = {"t.csv": "image,text\na.png,строка\n"}
BOX = 'image,text,bbox\np.png,строка,"10,10 60,30"\n'
ROW = '{"image": "a.png", "text": "строка"}\n'
OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(2048)
HEIC = b"\0\0\0\x18ftypheic\0\0\0\0mif1heic"
NO_ANNOTATIONS = '[{"id": 1, "data": {"image": "a.png"}, "annotations": []}]'
METS = "<mets xmlns='http://www.loc.gov/METS/'/>"
SHARES = "0.8/0.1/0.1"
ZIP = zipped({"a.png": png(), "a.txt": "строка".encode()})


def at(source: str, **options: Any) -> dict[str, Any]:
    return {"source": source, **options}


NOTHING: Files = {}
Case = tuple[str, Files, Mapping[str, Any], Files, Mapping[str, Any]]


def mistake(
    code: str,
    files: Files,
    options: Mapping[str, Any] = NOTHING,
    more: Files = NOTHING,
    right: Mapping[str, Any] = NOTHING,
) -> Case:
    """The error of files and options, and the files and options that mend it."""
    return code, files, options, more, right


XLSX = {"a.xlsx": full_workbook}
CASES: dict[str, Case] = {
    "a wrong folder": mistake("input-missing", SCANS, at("scnas"), right=at("scans")),
    "a file in place of its folder": mistake("source-is-image", LINE, at("a.png")),
    "nothing but images": mistake("no-format-found", IMAGE, more=LINE),
    "nothing transcribed": mistake("not-transcribed", LINE | {"a.txt": " "}, more=LINE),
    "an empty folder": mistake("no-format-found", {}, more=LINE),
    "an image that is a text": mistake("no-samples", LINE | {"a.png": "404 Not Found"}, more=LINE),
    "XML that is HTML": mistake("no-format-found", XML | {"p.xml": "<html><body>Sign in</body></html>"}, more=XML),
    "XML cut off": mistake("no-samples", XML | {"p.xml": ALTO[:-60]}, more=XML),
    "millimetres": mistake("no-samples", XML | {"p.xml": alto(alto_line("строка"), unit="mm10")}, more=XML),
    "images left elsewhere": mistake("no-samples", {"s/p.xml": ALTO}, at("s"), {"s/p.png": picture}, at("s")),
    "two formats": mistake("formats-mixed", XML | {"page/p.xml": page_xml("")}, right={"format": "alto"}),
    "another layer": mistake("layer-unknown", XML, {"layer": "kraken"}),
    "a Word document": mistake("file-kind-unread", IMAGE | {"a.docx": "PK"}, at("a.docx"), XLSX, at("a.xlsx")),
    "a locked workbook": mistake("no-samples", IMAGE | {"a.xlsx": OLE}, at("a.xlsx"), XLSX, at("a.xlsx")),
    "an empty workbook": mistake("no-samples", IMAGE | {"a.xlsx": empty_workbook}, at("a.xlsx"), XLSX, at("a.xlsx")),
    "columns of other names": mistake(
        "column-role-unknown",
        IMAGE | {"t.csv": "scan,words\na.png,строка\n"},
        at("t.csv", columns={"image": "picture"}),
        right=at("t.csv", columns={"image": "scan", "text": "words"}),
    ),
    "an unknown role": mistake(
        "column-role-unknown", IMAGE | TABLE, at("t.csv", columns={"picture": "image"}), right=at("t.csv")
    ),
    "another encoding": mistake(
        "no-samples",
        IMAGE | {"t.csv": "image,text\na.png,строка о чём-то\n".encode("cp1251")},
        at("t.csv", columns={"text": "text"}),
        right=at("t.csv", encoding="cp1251"),
    ),
    "an unknown encoding": mistake("encoding-unknown", LINE, {"encoding": "windows"}, right={"encoding": "cp1251"}),
    "two bytes a letter": mistake(
        "no-samples", LINE | {"a.txt": "строка о чём-то".encode("utf-16")}, right={"encoding": "utf-16"}
    ),
    "another archive": mistake("archive-unsupported", {"a.rar": "Rar!"}, at("a.rar"), SCANS, at("scans")),
    "half an archive": mistake("archive-damaged", {"s.zip": ZIP[: len(ZIP) // 2]}, at("s.zip"), SCANS, at("scans")),
    "a locked archive": mistake("archive-encrypted", {"l.zip": locked(ZIP)}, at("l.zip"), SCANS, at("scans")),
    "an archive in an archive": mistake(
        "no-format-found", {"o.zip": zipped({"s.zip": ZIP})}, at("o.zip"), {"s.zip": ZIP}, at("s.zip")
    ),
    "a locked PDF": mistake("no-samples", {"s": locked_pdf}, at("s"), SCANS, at("scans")),
    "a PDF without texts": mistake("no-format-found", {"s": pdf_without_texts}, at("s"), SCANS, at("scans")),
    "a DjVu book": mistake("file-kind-unread", {"b/b.djvu": "AT&TFORM"}, at("b/b.djvu"), SCANS, at("scans")),
    "a folder of DjVu books": mistake("no-format-found", {"b/b.djvu": "AT&TFORM"}, at("b"), SCANS, at("scans")),
    "a pattern without matches": mistake(
        "pattern-matches-nothing", ANNA, {"writer": r"(\d+)-"}, right={"writer": r"(\w+)_"}
    ),
    "a broken pattern": mistake("bad-pattern", ANNA, {"writer": "(anna"}, right={"writer": "(anna)"}),
    "fractions of more than all": mistake("bad-fractions", ANNA, {"split": "0.8/0.2/0.2"}),
    "too few pages": mistake("too-few-groups", {"": two_pages}, {"split": SHARES}),
    "no regions": mistake("option-without-regions", {"p.png": picture, "t.csv": BOX}, {"unit": "region"}),
    "output into the source": mistake(
        "output-overlaps-source", SCANS, at("scans", output=""), right=at("scans", output="new")
    ),
    "output over something else": mistake(
        "output-occupied",
        SCANS | {"thesis/chapter.txt": "text"},
        at("scans", output="thesis", overwrite=True),
        right=at("scans", output="new"),
    ),
    "an output that is a file": mistake(
        "output-occupied", SCANS | {"mine": "text"}, at("scans", output="mine"), right=at("scans", output="new")
    ),
    "JSON lines cut off": mistake(
        "no-samples", IMAGE | {"t.jsonl": ROW + ROW[:12]}, at("t.jsonl"), {"t.jsonl": ROW}, at("t.jsonl")
    ),
    "JSON of something else": mistake(
        "column-role-unknown", IMAGE | {"t.json": '{"hello": 1}'}, at("t.json"), TABLE, at("t.csv")
    ),
    "hOCR files": mistake("no-format-found", {"p.hocr": "<html><div class='ocr_page'/></html>"}, more=XML),
    "pages without lines": mistake("not-transcribed", XML | {"p.xml": page_xml('<TextRegion id="r"/>')}, more=XML),
    "an empty table": mistake("no-samples", IMAGE | {"t.csv": ""}, at("t.csv"), TABLE, at("t.csv")),
    "a table of its first row": mistake(
        "not-transcribed", IMAGE | {"t.csv": "image,text\n"}, at("t.csv"), TABLE, at("t.csv")
    ),
    "an unknown format": mistake("format-unknown", LINE, {"format": "transkribus"}, right={"format": "pairs"}),
    "an unknown unit of splits": mistake("unit-unknown", LINE, {"split_by": "folder"}, right={"split_by": "text"}),
    "a book in one text": mistake("no-samples", LINE | {"a.txt": "x" * 200_000}, more=LINE),
    "an export without annotations": mistake(
        "not-transcribed", IMAGE | {"p.json": NO_ANNOTATIONS}, at("p.json"), LINE, {"format": "pairs"}
    ),
    "a damaged Parquet file": mistake("no-samples", {"d/d.parquet": b"PAR1xxxx"}, at("d"), SCANS, at("scans")),
    "an image of a telephone under another name": mistake(
        "no-samples", {"a.jpg": HEIC, "a.txt": "строка"}, more={"a.jpg": picture}
    ),
    "METS of no pages": mistake("mets-empty", {"m.xml": METS}, at("m.xml"), SCANS, at("scans")),
}


def make(folder: Path, files: Files) -> None:
    for name, content in files.items():
        path = folder / name
        if callable(content):
            content(path)
        elif isinstance(content, bytes):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        else:
            write(path, content)


@pytest.mark.parametrize("case", CASES)
def test_a_mistake_has_a_remedy_that_works(case: str, tmp_path: Path) -> None:
    code, before, wrong, after, right = CASES[case]
    folder = tmp_path / "here"
    folder.mkdir()

    def arguments(options: Mapping[str, Any]) -> dict[str, Any]:
        paths = {name: folder / options[name] for name in ("source", "output") if name in options}
        return {"source": folder, "output": tmp_path / "out", "split": "1/0/0", "workers": 1, **options, **paths}

    make(folder, before)
    with pytest.raises(DataError) as caught:
        prepare(**arguments(wrong))
    error = caught.value
    assert error.code == code
    assert error.where or error.hint or "\n" in str(error), "it is said where, or what to do"
    assert code not in {"no-format-found", "file-kind-unread"} or error.hint
    assert not (tmp_path / "out").exists()
    make(folder, after)
    assert len(list(prepare(**arguments(right)))) >= 1
