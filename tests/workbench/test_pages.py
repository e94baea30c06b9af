"""From a source into the store, read by a model, corrected, and out again."""

import shutil
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from zipfile import ZipFile

import pytest
from PIL import Image, ImageDraw, ImageFont

from dsocr.data.dataset import Dataset
from dsocr.data.source_report import SourceReport
from dsocr.document import Outline, Page, Split
from dsocr.errors import DataError, DsocrError
from dsocr.formats.page import read_page
from dsocr.inference.confidence import Prediction
from dsocr.workbench.archive import Shelf, export, export_dataset, fill, opened_shelf
from dsocr.workbench.background import Reading
from dsocr.workbench.store import Line, State, Store
from tests.conftest import draw_line
from tests.data.making_pdf import image_object, write_pdf
from tests.workbench.making import TEXTS, FakeReader, make_pages

SHOWN = [text for texts in TEXTS for text in texts]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return make_pages(tmp_path / "box")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store.open(tmp_path / "work" / "corrections.sqlite")
    yield store
    store.close()


@pytest.fixture
def shelf(store: Store, source: Path, tmp_path: Path) -> Iterator[Shelf]:
    with opened_shelf(store, source, tmp_path / "work" / "unpacked") as shelf:
        assert fill(store, shelf, SourceReport(strict=True)) == 2
        yield shelf


def read_back(folder: Path) -> list[str]:
    images = [item for item in read_page(folder) if isinstance(item, Page)]
    return [line.text for image in images for line in image.lines]


def test_pages_come_with_their_lines_and_texts_once(store: Store, shelf: Shelf) -> None:
    assert [page.name for page in store.pages()] == ["scan-1", "scan-2"]
    assert [line.text for line in store.lines()] == SHOWN
    assert store.counts()[State.UNREAD] == 2
    assert store.lines()[0].outline.box == (40, 40, 641, 121)
    assert fill(store, shelf, SourceReport(strict=True)) == 0


def test_images_alone_come_with_the_lines_found_on_them(store: Store, tmp_path: Path) -> None:
    folder = make_pages(tmp_path / "box")
    shutil.rmtree(folder / "page")
    draw_line(folder / "line.png", "one line")
    (folder / "broken.png").write_bytes(b"no image")
    notes = SourceReport(strict=False)
    with opened_shelf(store, folder, tmp_path / "work" / "unpacked") as shelf:
        assert fill(store, shelf, notes) == 3
        assert [item.where for item in notes.skipped] == ["broken.png"]
        found = {page.name: store.lines(page.number) for page in store.pages()}
        assert {name: len(lines) for name, lines in found.items()} == {"line": 1, "scan-1": 3, "scan-2": 3}
        assert fill(store, shelf, notes) == 0
        page = store.pages()[1]
        assert all(isinstance(picture, Image.Image) for picture in shelf.cut(page, found[page.name]))


def test_texts_in_another_encoding_are_read_where_it_is_told(store: Store, tmp_path: Path) -> None:
    folder = tmp_path / "box"
    folder.mkdir()
    draw_line(folder / "line.png", "one line")
    (folder / "line.txt").write_bytes("одна строка".encode("cp1251"))
    with opened_shelf(store, folder, tmp_path / "work" / "unpacked") as shelf:
        assert fill(store, shelf, SourceReport(strict=True), encoding="cp1251") == 1
    assert [line.text for line in store.lines()] == ["одна строка"]


def test_an_archive_is_the_same_pages(store: Store, source: Path, tmp_path: Path) -> None:
    with ZipFile(tmp_path / "box.zip", "w") as archive:
        for path in sorted(source.rglob("*.*")):
            archive.write(path, path.relative_to(source).as_posix())
    with opened_shelf(store, tmp_path / "box.zip", tmp_path / "work" / "unpacked") as shelf:
        fill(store, shelf, SourceReport(strict=True))
        page = store.pages()[0]
        assert shelf.content(page) == (source / "scan-1.png").read_bytes()
    assert not (tmp_path / "work" / "unpacked").exists()
    assert [line.text for line in store.lines()] == SHOWN


def test_corrections_of_another_source_are_not_mixed_up(store: Store, shelf: Shelf, tmp_path: Path) -> None:
    other = make_pages(tmp_path / "other")
    with pytest.raises(DataError, match="corrections of box, not of other"), opened_shelf(store, other, tmp_path / "u"):
        pass


def test_what_nobody_read_a_model_reads(store: Store, shelf: Shelf) -> None:
    reading = Reading(store, shelf, FakeReader)
    assert reading.total == 2
    reading.start()
    reading.end()
    while reading.is_at_work:
        pass
    again = Reading(store, shelf, FakeReader)
    again.start()
    while again.is_at_work:
        pass
    assert store.counts()[State.UNREAD] == 0
    read = [line for line in store.lines() if line.machine == "не точно"]
    assert [line.confidence for line in read] == [0.7, 0.7]
    assert len(read[0].characters) == len(read[0].text)


def test_a_reader_that_fails_is_told(store: Store, shelf: Shelf) -> None:
    class Failing(FakeReader):
        def read(self, *_: object) -> Iterator[Prediction]:
            raise MemoryError("no room")

    fill(store, shelf, SourceReport(strict=True))
    reading = Reading(store, shelf, Failing)
    reading.start()
    while reading.is_at_work:
        time.sleep(0.01)
    assert reading.fault == "MemoryError: no room"


def test_lines_without_a_picture_are_told_and_the_others_read(store: Store, shelf: Shelf) -> None:
    (shelf.root / "scan-1.png").unlink()
    beyond = Line(0, 0, 0, Outline((9000, 10, 9400, 90)))
    store.add_page(replace(store.pages()[1], name="again"), [beyond])
    reading = Reading(store, shelf, FakeReader)
    reading.start()
    while reading.is_at_work:
        time.sleep(0.01)
    assert reading.fault is None
    gone, outside = reading.left_out
    assert gone.startswith("scan-1: ")
    assert outside == "again: the line lies outside the image"
    assert [line.text for line in store.lines() if line.machine] == ["не точно"], "the one on the page that is there"
    assert reading.done == reading.total == 3


@pytest.mark.parametrize("to", ["page", "alto", "tsv"])
def test_exported_it_is_what_was_corrected(store: Store, shelf: Shelf, tmp_path: Path, to: str) -> None:
    first, second = store.lines()[:2]
    store.settle(first, "исправлено", State.ACCEPTED, who="anna")
    store.settle(second, "?", State.UNREADABLE, who="anna")
    done = export(store, shelf, tmp_path / "out", to=to, accepted_only=False)
    assert (done.pages, done.texts, done.skipped) == (2, 3, [])
    assert (tmp_path / "out" / "conversion.json").is_file()
    with pytest.raises(DsocrError):
        export(store, shelf, tmp_path / "out", to=to, accepted_only=False)
    export(store, shelf, tmp_path / "out", to=to, accepted_only=True, overwrite=True)
    if to == "page":
        assert read_back(tmp_path / "out") == ["исправлено", "", "", "", "", ""]


def test_a_character_that_xml_cannot_hold_is_told(store: Store, shelf: Shelf, tmp_path: Path) -> None:
    store.settle(store.lines()[0], "a\x07b", State.ACCEPTED, who="anna")
    done = export(store, shelf, tmp_path / "out", to="page", accepted_only=False)
    assert [item.reason for item in done.skipped] == ["no place in the target format"]


def test_accepted_lines_are_a_dataset(store: Store, shelf: Shelf, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no line is accepted"):
        export_dataset(store, shelf, tmp_path / "dataset")
    for line in store.lines():
        if line.text:
            store.settle(line, line.text, State.ACCEPTED, who="anna")
    export_dataset(store, shelf, tmp_path / "dataset")
    dataset = Dataset.open(tmp_path / "dataset")
    samples = [sample for split in Split for sample in dataset.samples(split)]
    assert sorted(sample.text for sample in samples) == sorted(filter(None, SHOWN))
    assert {sample.page for sample in samples} == {"scan-1", "scan-2"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["box", "dataset", "work"]
    shutil.rmtree(tmp_path / "dataset")


def a_page(count: int = 3) -> Image.Image:
    """A page of so many drawn lines."""
    page = Image.new("RGB", (700, 1000), (240, 235, 220))
    for place in range(count):
        text = f"line {place + 1} of the page"
        ImageDraw.Draw(page).text((60, 80 + 110 * place), text, fill=(40, 40, 90), font=ImageFont.load_default(48))
    return page


@pytest.fixture
def scans(tmp_path: Path) -> Path:
    """A PDF of two pages of three lines."""
    (tmp_path / "box").mkdir()
    scan = image_object(a_page())
    return write_pdf(tmp_path / "box" / "scans.pdf", [scan, scan], box=(70, 100), draw="q 70 0 0 100 0 0 cm /Im Do Q")


@pytest.mark.parametrize("whole_folder", [pytest.param(True, id="a folder"), pytest.param(False, id="the file itself")])
def test_pages_of_a_pdf_come_with_the_lines_found_on_them(
    store: Store, scans: Path, tmp_path: Path, whole_folder: bool
) -> None:
    draw_line(scans.with_name("other.png"), "beside it")
    told: list[tuple[int, int]] = []
    pages = 3 if whole_folder else 2
    with opened_shelf(store, scans.parent if whole_folder else scans, tmp_path / "work" / "unpacked") as shelf:
        assert fill(store, shelf, SourceReport(strict=True), tell=lambda *done: told.append(done)) == pages
        assert told == [(done, pages) for done in range(1, pages + 1)]
        page = store.pages()[-1]
        assert (page.name, page.document, page.image.as_posix()) == ("scans_0002", "scans", "scans.pdf#2")
        lines = store.lines(page.number)
        assert len(lines) == 3
        assert all(isinstance(picture, Image.Image) for picture in shelf.cut(page, lines))
        assert shelf.whole(page).size == (page.width, page.height) == (700, 1000)
        for line in lines:
            store.settle(line, "прочитано", State.ACCEPTED, who="anna")
        export(store, shelf, tmp_path / "out", to="page", accepted_only=True)
        assert read_back(tmp_path / "out").count("прочитано") == 3
        assert fill(store, shelf, SourceReport(strict=True)) == 0


@pytest.mark.parametrize(
    ("texts", "found", "notes"),
    [
        pytest.param("раз\nдва\n\nтри\f\fраз\nдва\nтри", None, ["pages"], id="another number of pages is told"),
        pytest.param("раз\nдва\n\nтри\fа\nб\nв", ["раз", "два", "три", "а", "б", "в"], [], id="as many lines as found"),
        pytest.param("раз\nдва\fа\nб\nв", ["", "", "", "а", "б", "в"], ["its text has 2 lines"], id="fewer are told"),
    ],
)
def test_a_text_beside_a_pdf_is_that_of_the_lines_where_it_fits(
    store: Store, scans: Path, tmp_path: Path, texts: str, found: list[str] | None, notes: list[str]
) -> None:
    scans.with_suffix(".txt").write_text(texts, encoding="utf-8", newline="\n")
    all_notes = SourceReport(strict=False)
    with opened_shelf(store, scans, tmp_path / "work" / "unpacked") as shelf:
        fill(store, shelf, all_notes)
    assert [line.text for line in store.lines()] == (found or [""] * 6)
    assert len(all_notes.skipped) == len(notes)
    assert all(part in left.message for part, left in zip(notes, all_notes.skipped, strict=True))


def test_another_single_file_is_refused(store: Store, source: Path, tmp_path: Path) -> None:
    with (
        pytest.raises(DataError, match="no PDF and no archive"),
        opened_shelf(store, source / "scan-1.png", tmp_path / "work" / "unpacked"),
    ):
        pass
