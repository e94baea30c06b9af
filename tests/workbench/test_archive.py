"""From a source into the store."""

import shutil
from pathlib import Path

import pytest
from PIL import Image

from dsocr.data.dataset import SourceReport
from dsocr.data.prepare import prepare
from dsocr.document import Line, Outline
from dsocr.errors import DataError
from dsocr.workbench.archive import Archive, ListedText, find_lines, import_pages, open_archive, read_sources
from dsocr.workbench.page_export import export
from dsocr.workbench.session import DATASET, LOG, Session
from dsocr.workbench.store import CorrectionStore
from dsocr.workbench.stored_lines import State
from tests.conftest import draw_line
from tests.data.making import picture
from tests.formats.making_pdf import image_object, write_pdf
from tests.raising import raises_code
from tests.workbench.fakes import TEXTS, make_pages


def test_pages_are_imported_once_with_their_lines_and_texts(store: CorrectionStore, archive: Archive) -> None:
    assert [(page.name, page.markup) for page in store.pages()] == [
        ("scan-1", "page/scan-1.xml"),
        ("scan-2", "page/scan-2.xml"),
    ]
    assert [line.text for line in store.lines()] == [text for texts in TEXTS for text in texts]
    assert [line.elements for line in store.lines()] == [(0,), (1,), (2,)] * 2
    assert store.counts()[State.UNREAD] == 2
    assert store.lines()[0].outline.box == (40, 40, 641, 121)
    assert import_pages(store, archive, SourceReport(strict=True)) == 0


def test_lines_are_detected_on_images_alone(empty_store: CorrectionStore, source: Path, tmp_path: Path) -> None:
    shutil.rmtree(source / "page")
    (source / "scan-2.png").unlink()
    draw_line(source / "line.png", "one line")
    (source / "broken.png").write_bytes(b"no image")
    notes = SourceReport(strict=False)
    with open_archive(empty_store, source, tmp_path / "work" / "unpacked") as archive:
        assert import_pages(empty_store, archive, notes) == 2
        assert [item.where for item in notes.skipped] == ["broken.png"]
        found = {page.name: empty_store.lines(page.number) for page in empty_store.pages()}
        assert {name: len(lines) for name, lines in found.items()} == {"line": 1, "scan-1": 3}
        assert import_pages(empty_store, archive, notes) == 0
        page = empty_store.pages()[1]
        assert all(isinstance(image, Image.Image) for image in archive.cut(page, found[page.name]))


def test_texts_in_another_encoding(empty_store: CorrectionStore, tmp_path: Path) -> None:
    folder = tmp_path / "box"
    folder.mkdir()
    draw_line(folder / "line.png", "one line")
    (folder / "line.txt").write_bytes("одна строка".encode("cp1251"))
    with open_archive(empty_store, folder, tmp_path / "work" / "unpacked") as archive:
        assert import_pages(empty_store, archive, SourceReport(strict=True), encoding="cp1251") == 1
    assert [line.text for line in empty_store.lines()] == ["одна строка"]


def test_a_store_belongs_to_one_source(store: CorrectionStore, tmp_path: Path) -> None:
    other = make_pages(tmp_path / "other")
    with raises_code("other-source") as error, open_archive(store, other, tmp_path / "u"):
        pass
    assert error.value.where == str(tmp_path)


def test_a_single_image_is_not_a_source(empty_store: CorrectionStore, source: Path, tmp_path: Path) -> None:
    folder = tmp_path / "work" / "unpacked"
    with raises_code("source-not-supported"), open_archive(empty_store, source / "scan-1.png", folder):
        pass


@pytest.fixture
def scans(tmp_path: Path) -> Path:
    """A PDF of two pages."""
    (tmp_path / "box").mkdir()
    scan = image_object(Image.new("RGB", (700, 1000), (240, 235, 220)))
    return write_pdf(tmp_path / "box" / "scans.pdf", [scan, scan], box=(70, 100), draw="q 70 0 0 100 0 0 cm /Im Do Q")


def find_three_lines(content: bytes, where: str) -> list[Line]:
    """Three lines on each page; none on a page that is named blank."""
    if "blank" in where:
        raise DataError("page has no lines that can be found", code="no-lines-found")
    return [Line("", where, Outline((60, top, 600, top + 60))) for top in (80, 190, 300)]


@pytest.mark.parametrize("whole_folder", [pytest.param(True, id="a folder"), pytest.param(False, id="the file itself")])
def test_lines_are_detected_on_pdf_pages(
    empty_store: CorrectionStore, scans: Path, tmp_path: Path, whole_folder: bool
) -> None:
    draw_line(scans.with_name("other.png"), "beside it")
    counts: list[tuple[int, int]] = []
    pages = 3 if whole_folder else 2
    source = scans.parent if whole_folder else scans
    with open_archive(empty_store, source, tmp_path / "u", detect=find_three_lines) as archive:
        report = SourceReport(strict=True)
        assert import_pages(empty_store, archive, report, progress=lambda *count: counts.append(count)) == pages
        assert counts == [(done, pages) for done in range(pages - 1, pages + 1)], "an image of a line needs no search"
        page = empty_store.pages()[-1]
        assert (page.name, page.document, page.image.as_posix()) == ("scans_0002", "scans", "scans.pdf#2")
        lines = empty_store.lines(page.number)
        assert len(lines) == 3
        assert all(isinstance(image, Image.Image) for image in archive.cut(page, lines))
        assert archive.page_image(page).size == (page.width, page.height) == (700, 1000)
        for line in lines:
            empty_store.review(line, "прочитано", State.ACCEPTED, who="anna")
        exported = export(empty_store, archive, tmp_path / "out", to="page", accepted_only=True)
        assert (exported.pages, exported.texts, exported.skipped) == (pages, 3, [])
        assert import_pages(empty_store, archive, SourceReport(strict=True)) == 0


@pytest.mark.parametrize(
    ("texts", "found", "notes"),
    [
        pytest.param("раз\nдва\n\nтри\f\fраз\nдва\nтри", None, 1, id="another number of pages"),
        pytest.param("раз\nдва\n\nтри\fа\nб\nв", ["раз", "два", "три", "а", "б", "в"], 0, id="as many lines as found"),
        pytest.param("раз\nдва\fа\nб\nв", ["", "", "", "а", "б", "в"], 1, id="fewer lines"),
    ],
)
def test_a_text_beside_a_pdf_is_used_if_it_matches(
    empty_store: CorrectionStore, scans: Path, tmp_path: Path, texts: str, found: list[str] | None, notes: int
) -> None:
    scans.with_suffix(".txt").write_text(texts, encoding="utf-8", newline="\n")
    all_notes = SourceReport(strict=False)
    with open_archive(empty_store, scans, tmp_path / "u", detect=find_three_lines) as archive:
        import_pages(empty_store, archive, all_notes)
    assert [line.text for line in empty_store.lines()] == (found or [""] * 6)
    assert len(all_notes.skipped) == notes


def test_lines_of_a_list_are_reviewed_in_its_order(
    store: CorrectionStore, archive: Archive, source: Path, tmp_path: Path
) -> None:
    samples = list(prepare(source, tmp_path / "data", split="1/0/0"))
    listed = [samples[-1], samples[0]]
    table = tmp_path / "audit.csv"
    rows = [f"{rank},{one.id},{one.source},{one.text}" for rank, one in enumerate(listed, 1)]
    table.write_text("\n".join(["rank,id,source,text", *rows]) + "\n", encoding="utf-8")
    found = find_lines(store, archive, read_sources(table))
    lines = [store.line(number) for number in found]
    assert [line.text for line in lines if line] == [sample.text for sample in listed]
    session = Session("scans", store, archive, tmp_path, only=found, audited=2)
    first = session.next_line("doubt")
    assert first is not None
    assert first == lines[0]
    store.review(first, first.text, State.ACCEPTED, who="anna")
    following = session.next_line("doubt")
    assert following is not None
    assert following == lines[1]
    assert session.next_line("doubt", following) is None
    assert session.wrong_texts() is None, "the second is not judged"
    store.review(following, "another text", State.ACCEPTED, who="anna")
    count = session.wrong_texts()
    assert count is not None
    assert (count.first_wrong, count.interval) == (1, (1, 1)), "what was corrected was wrong"
    with raises_code("nothing-matches"):
        find_lines(store, archive, [ListedText("elsewhere.xml:1", "text")])


def test_a_shared_workbench_writes_into_its_own_folder_only(
    store: CorrectionStore, archive: Archive, source: Path, tmp_path: Path
) -> None:
    store, work = store, tmp_path / "work"
    for line in store.lines():
        store.review(line, line.text or "text", State.ACCEPTED, who="anna")
    dataset = prepare(source, tmp_path / "data", split="1/0/0").folder
    before = sorted(path.name for path in dataset.rglob("*"))
    shared = Session("scans", store, archive, work, is_shared=True)
    for out in (dataset, work, work / "exports" / ".." / ".." / "data", Path("data")):
        for kind in ("page", "tsv", DATASET, LOG):
            with raises_code("export-outside"):
                shared.export(kind, str(out), accepted_only=True)
    assert sorted(path.name for path in dataset.rglob("*")) == before
    for kind in ("page", "page", DATASET, DATASET, LOG):
        assert shared.export(kind, str(work / "exports" / kind), accepted_only=True).out.exists()
    alone = Session("scans", store, archive, work)
    assert alone.export("page", str(tmp_path / "anywhere"), accepted_only=True).pages == 2


def test_numbers_without_a_line_or_page_are_not_shown(store: CorrectionStore, archive: Archive, tmp_path: Path) -> None:
    session = Session("scans", store, archive, tmp_path)
    for show in (session.line_jpeg, session.pictures.page, session.pictures.thumbnail):
        for number in (0, -1, 999, 10**26, -(10**26)):
            with raises_code("no-such-place"):
                show(number)


def test_a_page_without_lines_does_not_keep_the_others_out(empty_store: CorrectionStore, tmp_path: Path) -> None:
    for name in ("blank", "written"):
        picture(tmp_path / "scans" / f"{name}.png", size=(700, 1000))
    report = SourceReport(strict=False)
    with open_archive(empty_store, tmp_path / "scans", tmp_path / "u", detect=find_three_lines) as archive:
        assert import_pages(empty_store, archive, report) == 1
    assert [page.name for page in empty_store.pages()] == ["written"]
    assert [item.where for item in report.skipped] == ["blank.png"]
