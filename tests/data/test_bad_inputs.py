"""What people give by mistake: each has an error with a code and a remedy, and the remedy, followed, works.

Each case is a generator: it yields the arguments of a wrong call, repairs what the error says, and yields those of the
call that then works.
"""

import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pikepdf
import pytest

from dsocr.data.prepare import prepare
from dsocr.errors import DataError
from tests.data.making import alto, alto_line, page_xml, pair, picture, write, write_pages
from tests.formats.making_sources import make_pdf
from tests.formats.test_sheets import workbook

Case = Iterator[dict[str, Any]]
ROWS: list[list[Any]] = [["image", "text"], ["a.png", "строка"]]


def wrong_folder(folder: Path) -> Case:
    pair(folder / "scans", "a", "строка")
    yield {"source": folder / "scnas"}
    yield {"source": folder / "scans"}


def a_file_in_place_of_its_folder(folder: Path) -> Case:
    pair(folder, "a", "строка")
    yield {"source": folder / "a.png"}
    yield {"source": folder}


def nothing_but_images(folder: Path) -> Case:
    picture(folder / "a.png")
    yield {"source": folder}
    write(folder / "a.txt", "строка")
    yield {"source": folder}


def nothing_transcribed(folder: Path) -> Case:
    pair(folder, "a", " ")
    yield {"source": folder}
    write(folder / "a.txt", "строка")
    yield {"source": folder}


def an_empty_folder(folder: Path) -> Case:
    yield {"source": folder}
    pair(folder, "a", "строка")
    yield {"source": folder}


def an_empty_image(folder: Path) -> Case:
    pair(folder, "a", "строка")
    (folder / "a.png").write_bytes(b"")
    yield {"source": folder}
    picture(folder / "a.png")
    yield {"source": folder}


def an_image_that_is_a_text(folder: Path) -> Case:
    pair(folder, "a", "строка")
    write(folder / "a.png", "404 Not Found")
    yield {"source": folder}
    picture(folder / "a.png")
    yield {"source": folder}


def xml_that_is_html(folder: Path) -> Case:
    picture(folder / "p.png")
    write(folder / "p.xml", "<html><body>Sign in</body></html>")
    yield {"source": folder}
    write(folder / "p.xml", alto(alto_line("строка")))
    yield {"source": folder}


def xml_cut_off(folder: Path) -> Case:
    picture(folder / "p.png")
    write(folder / "p.xml", alto(alto_line("строка"))[:-60])
    yield {"source": folder}
    write(folder / "p.xml", alto(alto_line("строка")))
    yield {"source": folder}


def millimetres(folder: Path) -> Case:
    picture(folder / "p.png")
    write(folder / "p.xml", alto(alto_line("строка"), unit="mm10"))
    yield {"source": folder}
    write(folder / "p.xml", alto(alto_line("строка")))
    yield {"source": folder}


def images_left_elsewhere(folder: Path) -> Case:
    write(folder / "s" / "p.xml", alto(alto_line("строка")))
    picture(folder / "elsewhere" / "p.png")
    yield {"source": folder / "s"}
    (folder / "elsewhere" / "p.png").rename(folder / "s" / "p.png")
    yield {"source": folder / "s"}


def two_formats(folder: Path) -> Case:
    picture(folder / "p.png")
    write(folder / "alto" / "p.xml", alto(alto_line("строка")))
    write(folder / "page" / "p.xml", page_xml(""))
    yield {"source": folder}
    yield {"source": folder, "format": "alto"}


def another_layer(folder: Path) -> Case:
    write_pages(folder, ["1"])
    yield {"source": folder, "layer": "kraken"}
    yield {"source": folder}


def a_word_document(folder: Path) -> Case:
    picture(folder / "a.png")
    write(folder / "letters.docx", "PK")
    yield {"source": folder / "letters.docx"}
    yield {"source": workbook(folder / "letters.xlsx", ROWS)}


def an_old_workbook(folder: Path) -> Case:
    picture(folder / "a.png")
    write(folder / "lines.xls", "")
    yield {"source": folder / "lines.xls"}
    yield {"source": workbook(folder / "lines.xlsx", ROWS)}


def a_locked_workbook(folder: Path) -> Case:
    picture(folder / "a.png")
    (folder / "lines.xlsx").write_bytes(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(2048))
    yield {"source": folder / "lines.xlsx"}
    yield {"source": workbook(folder / "lines.xlsx", ROWS)}


def columns_of_other_names(folder: Path) -> Case:
    picture(folder / "a.png")
    write(folder / "t.csv", "scan,words\na.png,строка\n")
    yield {"source": folder / "t.csv", "columns": {"image": "picture"}}
    yield {"source": folder / "t.csv", "columns": {"image": "scan", "text": "words"}}


def a_role_that_is_none(folder: Path) -> Case:
    picture(folder / "a.png")
    write(folder / "t.csv", "image,text\na.png,строка\n")
    yield {"source": folder / "t.csv", "columns": {"picture": "image"}}
    yield {"source": folder / "t.csv"}


def another_encoding(folder: Path) -> Case:
    picture(folder / "a.png")
    write(folder / "t.csv", "image,text\na.png,строка о чём-то\n", "cp1251")
    yield {"source": folder / "t.csv", "columns": {"text": "text"}}
    yield {"source": folder / "t.csv", "encoding": "cp1251"}


def an_encoding_that_is_none(folder: Path) -> Case:
    pair(folder, "a", "строка")
    yield {"source": folder, "encoding": "windows"}
    yield {"source": folder, "encoding": "cp1251"}


def another_archive(folder: Path) -> Case:
    write(folder / "scans.rar", "Rar!")
    yield {"source": folder / "scans.rar"}
    pair(folder / "scans", "a", "строка")
    yield {"source": folder / "scans"}


def half_an_archive(folder: Path) -> Case:
    pair(folder / "s", "a", "строка")
    with zipfile.ZipFile(folder / "s.zip", "w") as archive:
        for path in (folder / "s").iterdir():
            archive.write(path, path.name)
    whole = (folder / "s.zip").read_bytes()
    (folder / "s.zip").write_bytes(whole[: len(whole) // 2])
    yield {"source": folder / "s.zip"}
    (folder / "s.zip").write_bytes(whole)
    yield {"source": folder / "s.zip"}


def a_locked_pdf(folder: Path) -> Case:
    make_pdf(folder / "plain")
    (folder / "locked").mkdir()
    with pikepdf.open(folder / "plain" / "a.pdf") as document:
        document.save(folder / "locked" / "a.pdf", encryption=pikepdf.Encryption(owner="b", user="a"))
    write(folder / "locked" / "a.txt", "первая\fвторая")
    yield {"source": folder / "locked"}
    yield {"source": folder / "plain"}


def a_pattern_that_matches_nothing(folder: Path) -> Case:
    pair(folder, "anna_1", "строка")
    yield {"source": folder, "writer": r"(\d+)-"}
    yield {"source": folder, "writer": r"(\w+)_"}


def a_pattern_that_is_none(folder: Path) -> Case:
    pair(folder, "anna_1", "строка")
    yield {"source": folder, "writer": "(anna"}
    yield {"source": folder, "writer": "(anna)"}


def fractions_of_more_than_all(folder: Path) -> Case:
    pair(folder, "anna_1", "строка")
    yield {"source": folder, "split": "0.8/0.2/0.2"}
    yield {"source": folder, "split": "1/0/0"}


def too_few_pages(folder: Path) -> Case:
    write_pages(folder, ["1", "2"])
    yield {"source": folder, "split": "0.8/0.1/0.1"}
    yield {"source": folder, "split": "0.8/0.1/0.1", "split_by": "text"}


def regions_where_there_are_none(folder: Path) -> Case:
    picture(folder / "p.png")
    write(folder / "t.csv", 'image,text,bbox\np.png,строка,"10,10 60,30"\n')
    yield {"source": folder, "unit": "region"}
    yield {"source": folder, "unit": "line"}


def output_into_the_source(folder: Path) -> Case:
    pair(folder / "s", "a", "строка")
    yield {"source": folder / "s", "output": folder}
    yield {"source": folder / "s", "output": folder / "new"}


def output_over_something_else(folder: Path) -> Case:
    pair(folder / "s", "a", "строка")
    write(folder / "thesis" / "chapter.txt", "text")
    yield {"source": folder / "s", "output": folder / "thesis", "overwrite": True}
    yield {"source": folder / "s", "output": folder / "new"}


def zipped(folder: Path, name: str = "s.zip") -> Path:
    """An archive of a line with its text."""
    pair(folder / "s", "a", "строка")
    with zipfile.ZipFile(folder / name, "w") as archive:
        for path in sorted((folder / "s").iterdir()):
            archive.write(path, path.name)
    return folder / name


def a_locked_archive(folder: Path) -> Case:
    path = zipped(folder)
    locked = bytearray(path.read_bytes())
    for sign, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        at = -1
        while (at := locked.find(sign, at + 1)) >= 0:
            locked[at + offset] |= 1
    (folder / "locked.zip").write_bytes(locked)
    yield {"source": folder / "locked.zip"}
    yield {"source": folder / "s"}


def an_archive_in_an_archive(folder: Path) -> Case:
    inner = zipped(folder)
    with zipfile.ZipFile(folder / "outer.zip", "w") as archive:
        archive.write(inner, inner.name)
    yield {"source": folder / "outer.zip"}
    yield {"source": inner}


def a_text_of_two_bytes_a_letter(folder: Path) -> Case:
    picture(folder / "a.png")
    write(folder / "a.txt", "строка о чём-то", "utf-16")
    yield {"source": folder}
    yield {"source": folder, "encoding": "utf-16"}


def json_lines_cut_off(folder: Path) -> Case:
    picture(folder / "a.png")
    row = '{"image": "a.png", "text": "строка"}\n'
    yield {"source": write(folder / "t.jsonl", row + row[:12])}
    yield {"source": write(folder / "t.jsonl", row)}


def json_of_something_else(folder: Path) -> Case:
    picture(folder / "a.png")
    yield {"source": write(folder / "t.json", '{"hello": 1}')}
    yield {"source": write(folder / "t.csv", "image,text\na.png,строка\n")}


def hocr_files(folder: Path) -> Case:
    picture(folder / "p.png")
    write(folder / "p.hocr", "<html><body><div class='ocr_page'/></body></html>")
    yield {"source": folder}
    write(folder / "p.xml", alto(alto_line("строка")))
    yield {"source": folder}


def a_djvu_book(folder: Path) -> Case:
    write(folder / "book" / "book.djvu", "AT&TFORM")
    yield {"source": folder / "book" / "book.djvu"}
    make_pdf(folder / "saved")
    yield {"source": folder / "saved"}


def a_folder_of_djvu_books(folder: Path) -> Case:
    write(folder / "book" / "book.djvu", "AT&TFORM")
    yield {"source": folder / "book"}
    make_pdf(folder / "saved")
    yield {"source": folder / "saved"}


def a_shortcut(folder: Path) -> Case:
    pair(folder / "scans", "a", "строка")
    yield {"source": write(folder / "scans.lnk", "L")}
    yield {"source": folder / "scans"}


def a_pdf_without_texts(folder: Path) -> Case:
    make_pdf(folder)
    texts = {path: path.read_text(encoding="utf-8") for path in folder.glob("*.txt")}
    for path in texts:
        path.unlink()
    yield {"source": folder}
    for path, text in texts.items():
        write(path, text)
    yield {"source": folder}


def pages_without_lines(folder: Path) -> Case:
    picture(folder / "p.png")
    write(folder / "p.xml", page_xml('<TextRegion id="r"/>'))
    yield {"source": folder}
    write(folder / "p.xml", alto(alto_line("строка")))
    yield {"source": folder}


def a_split_in_words(folder: Path) -> Case:
    pair(folder, "a", "строка")
    yield {"source": folder, "split": "all"}
    yield {"source": folder, "split": "1/0/0"}


def an_output_that_is_a_file(folder: Path) -> Case:
    pair(folder / "s", "a", "строка")
    yield {"source": folder / "s", "output": write(folder / "mine", "text")}
    yield {"source": folder / "s", "output": folder / "new"}


def an_empty_table(folder: Path) -> Case:
    picture(folder / "a.png")
    yield {"source": write(folder / "t.csv", "")}
    yield {"source": write(folder / "t.csv", "image,text\na.png,строка\n")}


def a_table_of_its_first_row(folder: Path) -> Case:
    picture(folder / "a.png")
    yield {"source": write(folder / "t.csv", "image,text\n")}
    yield {"source": write(folder / "t.csv", "image,text\na.png,строка\n")}


def a_table_without_texts(folder: Path) -> Case:
    picture(folder / "a.png")
    yield {"source": write(folder / "t.csv", "image,text\na.png,\n")}
    yield {"source": write(folder / "t.csv", "image,text\na.png,строка\n")}


def an_empty_workbook(folder: Path) -> Case:
    picture(folder / "a.png")
    yield {"source": workbook(folder / "t.xlsx", [])}
    yield {"source": workbook(folder / "t.xlsx", ROWS)}


def a_format_that_is_none(folder: Path) -> Case:
    pair(folder, "a", "строка")
    yield {"source": folder, "format": "transkribus"}
    yield {"source": folder, "format": "pairs"}


def a_unit_of_splits_that_is_none(folder: Path) -> Case:
    pair(folder, "a", "строка")
    yield {"source": folder, "split_by": "folder"}
    yield {"source": folder, "split_by": "text"}


def a_book_in_one_text(folder: Path) -> Case:
    picture(folder / "a.png")
    write(folder / "a.txt", "x" * 200_000)
    yield {"source": folder}
    write(folder / "a.txt", "строка")
    yield {"source": folder}


def an_export_without_annotations(folder: Path) -> Case:
    picture(folder / "a.png")
    yield {"source": write(folder / "p.json", '[{"id": 1, "data": {"image": "a.png"}, "annotations": []}]')}
    write(folder / "a.txt", "строка")
    yield {"source": folder, "format": "pairs"}


def a_damaged_parquet_file(folder: Path) -> Case:
    (folder / "d").mkdir()
    (folder / "d" / "d.parquet").write_bytes(b"PAR1xxxx")
    yield {"source": folder / "d"}
    pair(folder / "whole", "a", "строка")
    yield {"source": folder / "whole"}


def an_image_of_a_telephone_under_another_name(folder: Path) -> Case:
    (folder / "a.jpg").write_bytes(b"\0\0\0\x18ftypheic\0\0\0\0mif1heic")
    write(folder / "a.txt", "строка")
    yield {"source": folder}
    (folder / "a.jpg").unlink()
    picture(folder / "a.jpg", format="JPEG")
    yield {"source": folder}


def mets_of_no_pages(folder: Path) -> Case:
    yield {"source": write(folder / "mets.xml", "<mets xmlns='http://www.loc.gov/METS/'/>")}
    pair(folder / "scans", "a", "строка")
    yield {"source": folder / "scans"}


CASES: list[tuple[Callable[[Path], Case], str]] = [
    (wrong_folder, "input-missing"),
    (a_file_in_place_of_its_folder, "source-is-image"),
    (nothing_but_images, "no-format-found"),
    (nothing_transcribed, "not-transcribed"),
    (an_empty_folder, "no-format-found"),
    (an_empty_image, "no-samples"),
    (an_image_that_is_a_text, "no-samples"),
    (xml_that_is_html, "no-format-found"),
    (xml_cut_off, "no-samples"),
    (millimetres, "no-samples"),
    (images_left_elsewhere, "no-samples"),
    (two_formats, "formats-mixed"),
    (another_layer, "layer-unknown"),
    (a_word_document, "file-kind-unread"),
    (an_old_workbook, "file-kind-unread"),
    (a_locked_workbook, "no-samples"),
    (columns_of_other_names, "columns-unknown"),
    (a_role_that_is_none, "column-role-unknown"),
    (another_encoding, "no-samples"),
    (an_encoding_that_is_none, "encoding-unknown"),
    (another_archive, "archive-unsupported"),
    (half_an_archive, "archive-damaged"),
    (a_locked_pdf, "no-samples"),
    (a_pattern_that_matches_nothing, "pattern-matches-nothing"),
    (a_pattern_that_is_none, "bad-pattern"),
    (fractions_of_more_than_all, "bad-fractions"),
    (too_few_pages, "too-few-groups"),
    (regions_where_there_are_none, "no-regions"),
    (output_into_the_source, "output-overlaps-source"),
    (output_over_something_else, "output-occupied"),
    (a_locked_archive, "archive-encrypted"),
    (an_archive_in_an_archive, "no-format-found"),
    (a_text_of_two_bytes_a_letter, "no-samples"),
    (json_lines_cut_off, "no-samples"),
    (json_of_something_else, "columns-unknown"),
    (hocr_files, "no-format-found"),
    (a_djvu_book, "file-kind-unread"),
    (a_folder_of_djvu_books, "no-format-found"),
    (a_shortcut, "file-kind-unread"),
    (a_pdf_without_texts, "no-format-found"),
    (pages_without_lines, "not-transcribed"),
    (a_split_in_words, "bad-fractions"),
    (an_output_that_is_a_file, "output-occupied"),
    (an_empty_table, "no-samples"),
    (a_table_of_its_first_row, "not-transcribed"),
    (a_table_without_texts, "not-transcribed"),
    (an_empty_workbook, "no-samples"),
    (a_format_that_is_none, "format-unknown"),
    (a_unit_of_splits_that_is_none, "unit-unknown"),
    (a_book_in_one_text, "no-samples"),
    (an_export_without_annotations, "not-transcribed"),
    (a_damaged_parquet_file, "no-samples"),
    (an_image_of_a_telephone_under_another_name, "no-samples"),
    (mets_of_no_pages, "mets-empty"),
]


@pytest.mark.parametrize(("case", "code"), [pytest.param(*row, id=row[0].__name__) for row in CASES])
def test_a_mistake_has_a_remedy_that_works(case: Callable[[Path], Case], code: str, tmp_path: Path) -> None:
    folder = tmp_path / "here"
    folder.mkdir()
    calls = case(folder)
    usual: dict[str, Any] = {"output": tmp_path / "out", "split": "1/0/0", "workers": 1}
    with pytest.raises(DataError) as caught:
        prepare(**(usual | next(calls)))
    error = caught.value
    assert error.code == code
    assert error.where or error.hint or "\n" in str(error), "it is said where, or what to do"
    assert code not in {"no-format-found", "file-kind-unread"} or error.hint
    assert not (tmp_path / "out").exists()
    assert len(list(prepare(**(usual | next(calls))))) >= 1
