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
ZIP = zipped({"a.png": png(), "a.txt": "строка".encode()})


def at(source: str, **options: Any) -> dict[str, Any]:
    return {"source": source, **options}


CASES: dict[str, tuple[str, Files, Mapping[str, Any], Files, Mapping[str, Any]]] = {
    "a wrong folder": ("input-missing", SCANS, at("scnas"), {}, at("scans")),
    "a file in place of its folder": ("source-is-image", LINE, at("a.png"), {}, {}),
    "nothing but images": ("no-format-found", IMAGE, {}, LINE, {}),
    "nothing transcribed": ("not-transcribed", LINE | {"a.txt": " "}, {}, LINE, {}),
    "an empty folder": ("no-format-found", {}, {}, LINE, {}),
    "an empty image": ("no-samples", LINE | {"a.png": ""}, {}, LINE, {}),
    "an image that is a text": ("no-samples", LINE | {"a.png": "404 Not Found"}, {}, LINE, {}),
    "XML that is HTML": ("no-format-found", XML | {"p.xml": "<html><body>Sign in</body></html>"}, {}, XML, {}),
    "XML cut off": ("no-samples", XML | {"p.xml": ALTO[:-60]}, {}, XML, {}),
    "millimetres": ("no-samples", XML | {"p.xml": alto(alto_line("строка"), unit="mm10")}, {}, XML, {}),
    "images left elsewhere": (
        "no-samples",
        {"s/p.xml": ALTO, "t/p.png": picture},
        at("s"),
        {"s/p.png": picture},
        at("s"),
    ),
    "two formats": ("formats-mixed", XML | {"page/p.xml": page_xml("")}, {}, {}, {"format": "alto"}),
    "another layer": ("layer-unknown", XML, {"layer": "kraken"}, {}, {}),
    "a Word document": (
        "file-kind-unread",
        IMAGE | {"a.docx": "PK"},
        at("a.docx"),
        {"a.xlsx": full_workbook},
        at("a.xlsx"),
    ),
    "an old workbook": (
        "file-kind-unread",
        IMAGE | {"a.xls": ""},
        at("a.xls"),
        {"a.xlsx": full_workbook},
        at("a.xlsx"),
    ),
    "a locked workbook": ("no-samples", IMAGE | {"a.xlsx": OLE}, at("a.xlsx"), {"a.xlsx": full_workbook}, at("a.xlsx")),
    "columns of other names": (
        "column-role-unknown",
        IMAGE | {"t.csv": "scan,words\na.png,строка\n"},
        at("t.csv", columns={"image": "picture"}),
        {},
        at("t.csv", columns={"image": "scan", "text": "words"}),
    ),
    "an unknown role": (
        "column-role-unknown",
        IMAGE | TABLE,
        at("t.csv", columns={"picture": "image"}),
        {},
        at("t.csv"),
    ),
    "another encoding": (
        "no-samples",
        IMAGE | {"t.csv": "image,text\na.png,строка о чём-то\n".encode("cp1251")},
        at("t.csv", columns={"text": "text"}),
        {},
        at("t.csv", encoding="cp1251"),
    ),
    "an unknown encoding": ("encoding-unknown", LINE, {"encoding": "windows"}, {}, {"encoding": "cp1251"}),
    "another archive": ("archive-unsupported", {"a.rar": "Rar!"}, at("a.rar"), SCANS, at("scans")),
    "half an archive": ("archive-damaged", {"s.zip": ZIP[: len(ZIP) // 2]}, at("s.zip"), {"s.zip": ZIP}, at("s.zip")),
    "a locked PDF": ("no-samples", {"locked": locked_pdf, "plain": make_pdf}, at("locked"), {}, at("plain")),
    "a pattern without matches": ("pattern-matches-nothing", ANNA, {"writer": r"(\d+)-"}, {}, {"writer": r"(\w+)_"}),
    "a broken pattern": ("bad-pattern", ANNA, {"writer": "(anna"}, {}, {"writer": "(anna)"}),
    "fractions of more than all": ("bad-fractions", ANNA, {"split": "0.8/0.2/0.2"}, {}, {"split": "1/0/0"}),
    "too few pages": (
        *("too-few-groups", {"": two_pages}, {"split": "0.8/0.1/0.1"}, {}),
        {"split": "0.8/0.1/0.1", "split_by": "text"},
    ),
    "no regions": (
        "option-without-regions",
        {"p.png": picture, "t.csv": BOX},
        {"unit": "region"},
        {},
        {"unit": "line"},
    ),
    "output into the source": (
        *("output-overlaps-source", SCANS, at("scans", output=""), {}),
        at("scans", output="new"),
    ),
    "output over something else": (
        "output-occupied",
        SCANS | {"thesis/chapter.txt": "text"},
        at("scans", output="thesis", overwrite=True),
        {},
        at("scans", output="new"),
    ),
    "a locked archive": ("archive-encrypted", {"l.zip": locked(ZIP)}, at("l.zip"), SCANS, at("scans")),
    "an archive in an archive": (
        "no-format-found",
        {"o.zip": zipped({"s.zip": ZIP})},
        at("o.zip"),
        {"s.zip": ZIP},
        at("s.zip"),
    ),
    "two bytes a letter": (
        *("no-samples", LINE | {"a.txt": "строка о чём-то".encode("utf-16")}, {}, {}),
        {"encoding": "utf-16"},
    ),
    "JSON lines cut off": (
        "no-samples",
        IMAGE | {"t.jsonl": ROW + ROW[:12]},
        at("t.jsonl"),
        {"t.jsonl": ROW},
        at("t.jsonl"),
    ),
    "JSON of something else": (
        "column-role-unknown",
        IMAGE | {"t.json": '{"hello": 1}'},
        at("t.json"),
        TABLE,
        at("t.csv"),
    ),
    "hOCR files": (
        "no-format-found",
        {"p.png": picture, "p.hocr": "<html><div class='ocr_page'/></html>"},
        {},
        XML,
        {},
    ),
    "a DjVu book": ("file-kind-unread", {"b/b.djvu": "AT&TFORM"}, at("b/b.djvu"), {"saved": make_pdf}, at("saved")),
    "a folder of DjVu books": ("no-format-found", {"b/b.djvu": "AT&TFORM"}, at("b"), {"saved": make_pdf}, at("saved")),
    "a shortcut": ("file-kind-unread", SCANS | {"scans.lnk": "L"}, at("scans.lnk"), {}, at("scans")),
    "a PDF without texts": ("no-format-found", {"s": pdf_without_texts}, at("s"), {"s": make_pdf}, at("s")),
    "pages without lines": ("not-transcribed", XML | {"p.xml": page_xml('<TextRegion id="r"/>')}, {}, XML, {}),
    "a split in words": ("bad-fractions", LINE, {"split": "all"}, {}, {"split": "1/0/0"}),
    "an output that is a file": (
        *("output-occupied", SCANS | {"mine": "text"}, at("scans", output="mine"), {}),
        at("scans", output="new"),
    ),
    "an empty table": ("no-samples", IMAGE | {"t.csv": ""}, at("t.csv"), TABLE, at("t.csv")),
    "a table of its first row": ("not-transcribed", IMAGE | {"t.csv": "image,text\n"}, at("t.csv"), TABLE, at("t.csv")),
    "a table without texts": (
        "not-transcribed",
        IMAGE | {"t.csv": "image,text\na.png,\n"},
        at("t.csv"),
        TABLE,
        at("t.csv"),
    ),
    "an empty workbook": (
        "no-samples",
        IMAGE | {"a.xlsx": empty_workbook},
        at("a.xlsx"),
        {"a.xlsx": full_workbook},
        at("a.xlsx"),
    ),
    "an unknown format": ("format-unknown", LINE, {"format": "transkribus"}, {}, {"format": "pairs"}),
    "an unknown unit of splits": ("unit-unknown", LINE, {"split_by": "folder"}, {}, {"split_by": "text"}),
    "a book in one text": ("no-samples", LINE | {"a.txt": "x" * 200_000}, {}, LINE, {}),
    "an export without annotations": (
        *("not-transcribed", IMAGE | {"p.json": NO_ANNOTATIONS}, at("p.json"), LINE),
        {"format": "pairs"},
    ),
    "a damaged Parquet file": ("no-samples", {"d/d.parquet": b"PAR1xxxx"}, at("d"), SCANS, at("scans")),
    "an image of a telephone under another name": (
        "no-samples",
        {"a.jpg": HEIC, "a.txt": "строка"},
        {},
        {"a.jpg": picture},
        {},
    ),
    "METS of no pages": (
        *("mets-empty", {"m.xml": "<mets xmlns='http://www.loc.gov/METS/'/>"}, at("m.xml"), SCANS),
        at("scans"),
    ),
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
