"""Exporting corrections: a source file keeps everything that was not changed."""

import csv
import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from lxml import etree

from dsocr.data.convert import convert
from dsocr.data.dataset import Dataset
from dsocr.document import SkipReason, Split
from dsocr.errors import DsocrError
from dsocr.formats import parse_xml_page
from dsocr.workbench.archive import Archive
from dsocr.workbench.page_changes import move_beside
from dsocr.workbench.page_export import export, export_dataset, export_log
from dsocr.workbench.store import CorrectionStore
from dsocr.workbench.stored_lines import State
from tests.data.making import write_pages
from tests.raising import raises_code
from tests.workbench.fakes import TEXTS, edit, opened

COPISTE = Path(__file__).parents[2] / "examples" / "copiste"

ALTO = """<?xml version="1.0" encoding="UTF-8"?>
<alto xmlns="http://www.loc.gov/standards/alto/ns-v4#"
      xmlns:x="urn:other">
  <Description><MeasurementUnit>pixel</MeasurementUnit>
    <sourceImageInformation><fileName>scan-1.png</fileName></sourceImageInformation></Description>
  <Tags><OtherTag ID="T1" LABEL="Main"/><OtherTag ID="L1" LABEL="default" x:more="kept"/></Tags>
  <Layout><Page WIDTH="350" HEIGHT="200" ID="p"><PrintSpace>
    <TextBlock ID="b1" TAGREFS="T1"><Shape><Polygon POINTS="1 1 340 1 340 190 1 190"/></Shape>
      <TextLine ID="l1"   TAGREFS="L1" HPOS="20" VPOS="20" WIDTH="300" HEIGHT="40" BASELINE="20 55 320 55">
        <Shape><Polygon POINTS="20 20 320 20 320 60 20 60"/></Shape>
        <String ID="s1" CONTENT="первая строка" HPOS="20" VPOS="20" WIDTH="300" HEIGHT="40"/>
      </TextLine>
      <TextLine ID="l2" TAGREFS="L1" HPOS="20" VPOS="75" WIDTH="300" HEIGHT="40" BASELINE="20 110 320 110">
        <Shape><Polygon POINTS="20 75 320 75 320 115 20 115"/></Shape>
        <String ID="s2" CONTENT="вторая" HPOS="20" VPOS="75" WIDTH="300" HEIGHT="40"/>
      </TextLine>
    </TextBlock>
    <TextBlock ID="empty" TAGREFS="T1"/>
  </PrintSpace></Page></Layout>
</alto>
"""
PAGE = """<?xml version="1.0" encoding="UTF-8"?>
<PcGts xmlns="http://schema.primaresearch.org/PAGE/gts/pagecontent/2019-07-15">
  <Metadata><Creator>eScriptorium</Creator><Created>2020-01-01T00:00:00</Created>
    <LastChange>2020-01-01T00:00:00</LastChange></Metadata>
  <Page imageFilename="scan-1.png" imageWidth="350" imageHeight="200">
    <TextRegion id="r1" type="heading" custom="structure {type:heading;}"><Coords points="1,1 340,1 340,190 1,190"/>
      <TextLine id="l1" custom="readingOrder {index:0;}"><Coords points="20,20 320,20 320,60 20,60"/>
        <Baseline points="20,55 320,55"/>
        <TextEquiv><Unicode>первая строка</Unicode></TextEquiv></TextLine>
      <TextLine id="l2"><Coords points="20,75 320,75 320,115 20,115"/>
        <Baseline points="20,110 320,110"/>
        <TextEquiv><Unicode>вторая</Unicode></TextEquiv></TextLine>
    </TextRegion>
    <TableRegion id="t"><Coords points="1,1 2,1 2,2"/></TableRegion>
  </Page>
</PcGts>
"""
MARKUP = {"alto": ALTO, "page": PAGE}


@pytest.fixture(params=["alto", "page"])
def markup(
    request: pytest.FixtureRequest, source: Path, tmp_path: Path
) -> Iterator[tuple[str, CorrectionStore, Archive]]:
    """The first page as a rich file of a format, whose coordinates are at half the size of the image."""
    for path in (source / "page").iterdir():
        path.unlink()
    (source / "scan-2.png").unlink()
    (source / "page" / "scan-1.xml").write_text(MARKUP[request.param], encoding="utf-8", newline="\n")
    with opened(source, tmp_path / "work") as (store, archive):
        yield request.param, store, archive


def exported(store: CorrectionStore, archive: Archive, out: Path, to: str, *, accepted_only: bool = True) -> str:
    export(store, archive, out, to=to, accepted_only=accepted_only, overwrite=out.exists())
    assert (out / "scan-1.png").read_bytes() == (archive.root / "scan-1.png").read_bytes()
    return (out / "page" / "scan-1.xml").read_text(encoding="utf-8")


def test_only_accepted_texts_are_changed(markup: tuple[str, CorrectionStore, Archive], tmp_path: Path) -> None:
    format_, store, archive = markup
    first, second = store.lines()
    store.review(first, "исправлено", State.ACCEPTED, who="anna")
    store.add_reading(second, "машина", (0.5,) * 6, 0.5)
    accepted = exported(store, archive, tmp_path / "out", format_)
    everything = exported(store, archive, tmp_path / "all", format_, accepted_only=False)
    assert ("машина" in accepted, "машина" in everything) == (False, True)
    if format_ == "alto":
        expected = re.sub(r"\s*</Description>", "</Description>", ALTO.replace("первая строка", "исправлено"))
        assert re.sub(r"\s*<Processing .*</Processing>\s*", "", accepted) == expected
    else:
        without_step = re.sub(r"\s*<MetadataItem.*</MetadataItem>", "", accepted)
        dated = re.sub(r"<LastChange>[^<]*", "<LastChange>2020-01-01T00:00:00", without_step)
        assert dated == PAGE.replace("первая строка", "исправлено")
        assert "<LastChange>2020" not in accepted
    assert "dsocr" in accepted


def test_what_only_a_program_has_read_stays_in_the_file(source: Path, tmp_path: Path) -> None:
    """It is no transcription, as a line of another page has one, so the workbench shows an empty line."""
    for number, index in ((1, 1), (2, 0)):
        document = PAGE.replace("scan-1", f"scan-{number}").replace("<TextEquiv>", f'<TextEquiv index="{index}">')
        (source / "page" / f"scan-{number}.xml").write_text(document, encoding="utf-8", newline="\n")
    with opened(source, tmp_path / "work") as (store, archive):
        assert [line.text for line in store.lines()] == ["", "", "первая строка", "вторая"]
        for accepted_only in (True, False):
            kept = exported(store, archive, tmp_path / "out", "page", accepted_only=accepted_only)
            assert kept == PAGE.replace("<TextEquiv>", '<TextEquiv index="1">')


def test_a_reading_of_a_line_that_somebody_drew_waits_until_it_is_accepted(
    markup: tuple[str, CorrectionStore, Archive], tmp_path: Path
) -> None:
    format_, store, archive = markup
    number = edit(store, "addBox", polygon=[(40, 260), (600, 260), (600, 330), (40, 330)])
    (line,) = (line for line in store.lines() if line.number == number)
    store.add_reading(line, "машина", (0.5,) * 6, 0.5)
    accepted = text_lines(exported(store, archive, tmp_path / "out", format_))
    assert [text for _, text in accepted] == ["первая строка", "вторая", ""]
    assert "машина" in exported(store, archive, tmp_path / "all", format_, accepted_only=False)


@pytest.mark.parametrize("refs", ["l2 l1", "b2 b1"])
def test_an_order_that_alto_states_stays_until_it_is_changed(refs: str, source: Path, tmp_path: Path) -> None:
    listed = "".join(f'<ElementRef REF="{ref}"/>' for ref in refs.split())
    stated = ALTO.replace("  <Layout>", f"  <ReadingOrder><OrderedGroup>{listed}</OrderedGroup></ReadingOrder><Layout>")
    if refs == "b2 b1":
        stated = stated.replace('      <TextLine ID="l2"', '    </TextBlock><TextBlock ID="b2"><TextLine ID="l2"')
    (source / "page" / "scan-1.xml").write_text(stated, encoding="utf-8", newline="\n")
    (source / "page" / "scan-2.xml").unlink()
    with opened(source, tmp_path / "work") as (store, archive):
        first, second = store.lines(1)
        assert exported(store, archive, tmp_path / "same", "alto") == stated
        move_beside(store, second.number, first.number, after=False, who="anna")
        exported(store, archive, tmp_path / "out", "alto")
    page = parse_xml_page(tmp_path / "out" / "page" / "scan-1.xml")
    assert [line.text for line in page.lines] == [second.text, first.text] == ["первая строка", "вторая"]


def test_an_aligned_text_is_marked_until_somebody_accepts_it(source: Path, tmp_path: Path) -> None:
    marked = PAGE.replace("{index:0;}", "{index:0;} alignment {text:sure;}")
    marked = marked.replace('<TextLine id="l2">', '<TextLine id="l2" custom="alignment {text:doubt;}">')
    marked = marked.replace("<TextEquiv><Unicode>п", '<TextEquiv conf="0.9"><Unicode>п')
    marked = marked.replace("<TextEquiv><Unicode>в", '<TextEquiv conf="0.4"><Unicode>в')
    (source / "page" / "scan-1.xml").write_text(marked, encoding="utf-8", newline="\n")
    with opened(source, tmp_path / "work") as (store, archive):
        first, second = store.lines()[:2]
        assert (first.confidence, second.confidence) == (0.9, 0.4)
        order = store.by_doubt()
        assert order.index(second.number) < order.index(first.number)
        store.review(second, second.text, State.ACCEPTED, who="anna")
        content = exported(store, archive, tmp_path / "out", "page")
    assert "alignment {text:sure;}" in content
    assert "alignment {text:doubt;}" not in content


def test_a_line_that_was_not_imported_stays_where_it_is(source: Path, tmp_path: Path) -> None:
    unusable = '  <TextLine id="l3"><TextEquiv><Unicode>without an outline</Unicode></TextEquiv></TextLine>\n'
    described = PAGE.replace("    </TextRegion>", f"    {unusable}    </TextRegion>")
    (source / "page" / "scan-1.xml").write_text(described, encoding="utf-8", newline="\n")
    with opened(source, tmp_path / "work", strict=False) as (store, archive):
        assert exported(store, archive, tmp_path / "out", "page") == described
        first, second = store.lines(1)
        move_beside(store, second.number, first.number, after=False, who="anna")
        content = exported(store, archive, tmp_path / "moved", "page")
    assert [id_ for id_, _ in text_lines(content)] == ["l2", "l3", "l1"]


def test_unreadable_lines_lose_their_text_and_keep_their_place(
    markup: tuple[str, CorrectionStore, Archive], tmp_path: Path
) -> None:
    format_, store, archive = markup
    store.review(store.lines()[0], "?", State.UNREADABLE, who="anna")
    content = exported(store, archive, tmp_path / "out", format_)
    assert "первая" not in content
    assert len(text_lines(content)) == 2


def text_lines(content: str) -> list[tuple[str, str]]:
    """(id, text) of each line in the file's order."""
    root = etree.fromstring(content.encode())
    lines = []
    for line in root.iter("{*}TextLine"):
        texts = [part.text or part.get("CONTENT") or "" for part in line.iter("{*}Unicode", "{*}String")]
        lines.append((line.get("ID") or line.get("id") or "", " ".join(texts).strip()))
    return lines


def test_split_and_joined_lines_change_the_structure_of_their_file_only_there(
    markup: tuple[str, CorrectionStore, Archive], tmp_path: Path
) -> None:
    format_, store, archive = markup
    first, second = store.split(store.lines()[0], 7, who="anna")
    content = exported(store, archive, tmp_path / "split", format_)
    lines = text_lines(content)
    assert [text for _, text in lines] == ["первая", "строка", "вторая"]
    assert (lines[0][0], lines[2][0], len({id_ for id_, _ in lines})) == ("l1", "l2", 3)
    with opened(tmp_path / "split", tmp_path / "again") as (again, _):
        boxes = [line.outline.box for line in again.lines()]
    assert boxes[0][2] == pytest.approx(first.outline.box[2], abs=2), "in pixels of the image"
    assert boxes[1][0] == pytest.approx(second.outline.box[0], abs=2)
    store.undo("anna")
    assert exported(store, archive, tmp_path / "undone", format_) == MARKUP[format_]
    store.join(store.lines()[0], who="anna")
    joined = exported(store, archive, tmp_path / "joined", format_)
    assert text_lines(joined) == [("l1", "первая строка вторая")]
    with opened(tmp_path / "joined", tmp_path / "once more") as (again, _):
        (line,) = again.lines()
    assert line.outline.box[3] >= 228


def test_a_text_that_xml_cannot_hold_is_reported(markup: tuple[str, CorrectionStore, Archive], tmp_path: Path) -> None:
    format_, store, archive = markup
    store.review(store.lines()[0], "a\x07b", State.ACCEPTED, who="anna")
    report = export(store, archive, tmp_path / "out", to=format_, accepted_only=False)
    assert [item.reason for item in report.skipped] == [SkipReason.UNWRITABLE]
    assert "первая строка" in (tmp_path / "out" / "page" / "scan-1.xml").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("to", "every"),
    [("alto", 24), pytest.param("alto", 1, marks=pytest.mark.slow), pytest.param("page", 1, marks=pytest.mark.slow)],
)
def test_real_pages_without_changes_are_exported_byte_for_byte(tmp_path: Path, to: str, every: int) -> None:
    source = tmp_path / "copiste"
    if to == "page":
        convert(COPISTE, source, to="page")
    else:
        for kind in ("alto", "jpg"):
            (source / kind).mkdir(parents=True)
            for file in sorted((COPISTE / kind).iterdir())[::every]:
                shutil.copy(file, source / kind)
    with opened(source, tmp_path / "work") as (store, archive):
        for line in store.lines():
            if line.text:
                store.review(line, line.text, State.ACCEPTED, who="anna")
        export(store, archive, tmp_path / "out", to=to, accepted_only=True)
    files = sorted(path.relative_to(source) for path in source.rglob("*.xml"))
    assert len(files) == 72 // every
    assert [file for file in files if (tmp_path / "out" / file).read_bytes() != (source / file).read_bytes()] == []


@pytest.mark.parametrize("to", ["page-2013", "alto", "tsv", "docx"])
def test_other_formats_get_new_files(store: CorrectionStore, archive: Archive, tmp_path: Path, to: str) -> None:
    first, second = store.lines()[:2]
    store.review(first, "исправлено", State.ACCEPTED, who="anna")
    store.review(second, "?", State.UNREADABLE, who="anna")
    report = export(store, archive, tmp_path / "out", to=to, accepted_only=False)
    assert (report.pages, report.texts, report.skipped) == (2, 3, [])
    assert (tmp_path / "out" / "conversion.json").is_file()
    with pytest.raises(DsocrError):
        export(store, archive, tmp_path / "out", to=to, accepted_only=False)
    report = export(store, archive, tmp_path / "out", to=to, accepted_only=True, overwrite=True)
    assert report.texts == 1


def test_a_region_without_lines_is_reported_where_a_new_file_cannot_hold_it(
    store: CorrectionStore, archive: Archive, tmp_path: Path
) -> None:
    edit(store, "addRegion", polygon=[(0, 390), (20, 390), (20, 399), (0, 399)], kind="marginalia")
    (skipped,) = export(store, archive, tmp_path / "alto", to="alto", accepted_only=False).skipped
    assert (skipped.reason, skipped.where) == (SkipReason.UNWRITABLE, "scan-1")
    assert "marginalia" in skipped.message
    assert (
        export(store, archive, tmp_path / "page", to="page", accepted_only=False).skipped == []
    )  # the file's own, filled
    assert "marginalia" in (tmp_path / "page" / "page" / "scan-1.xml").read_text(encoding="utf-8")
    assert (
        export(store, archive, tmp_path / "tsv", to="tsv", accepted_only=False).skipped == []
    )  # which has no regions at all


@pytest.mark.parametrize("content", [pytest.param(None, id="missing"), pytest.param(PAGE, id="changed meanwhile")])
def test_a_page_whose_file_cannot_be_filled_gets_a_new_one(
    store: CorrectionStore, archive: Archive, source: Path, tmp_path: Path, content: str | None
) -> None:
    (source / "page" / "scan-1.xml").unlink()
    if content is not None:
        (source / "page" / "scan-1.xml").write_text(content, encoding="utf-8")
    report = export(store, archive, tmp_path / "out", to="page", accepted_only=False)
    assert [item.where for item in report.skipped] == ["page/scan-1.xml"]
    files = {path.relative_to(tmp_path / "out").as_posix() for path in (tmp_path / "out").rglob("*.*")}
    assert files == {"page/scan-1.xml", "page/scan-2.xml", "scan-1.png", "scan-2.png", "conversion.json"}
    assert "первая строка" in (tmp_path / "out" / "page" / "scan-1.xml").read_text(encoding="utf-8")


def test_accepted_lines_become_a_dataset(store: CorrectionStore, archive: Archive, tmp_path: Path) -> None:
    with raises_code("nothing-accepted"):
        export_dataset(store, archive, tmp_path / "dataset")
    for line in store.lines():
        if line.text:
            store.review(line, line.text, State.ACCEPTED, who="anna")
    export_dataset(store, archive, tmp_path / "dataset")
    dataset = Dataset.open(tmp_path / "dataset")
    samples = [sample for split in Split for sample in dataset.samples(split)]
    assert sorted(sample.text for sample in samples) == sorted(text for texts in TEXTS for text in texts if text)
    assert {sample.page for sample in samples} == {"scan-1", "scan-2"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["box", "dataset", "work"]


@pytest.mark.parametrize(
    ("lines", "pages"),
    [
        pytest.param((6, 16, 16), {"a"}, id="a page that is worth its lines"),
        pytest.param((16, 16, 5), {"a", "b", "c"}, id="too few to tell"),
        pytest.param((9, 9), {"a", "b"}, id="too much to lose"),
        pytest.param((6, 3, 3, 3, 3), None, id="many pages"),
    ],
)
def test_a_page_that_can_be_spared_validates(lines: Sequence[int], pages: set[str] | None, tmp_path: Path) -> None:
    for name, count in zip("abcde", lines, strict=False):
        write_pages(tmp_path / "scans", [name], lines=count)
    with opened(tmp_path / "scans", tmp_path / "work") as (store, archive):
        for line in store.lines():
            store.review(line, line.text, State.ACCEPTED, who="anna")
        dataset = export_dataset(store, archive, tmp_path / "dataset")
    learnt, kept = (dataset.samples(split) for split in (Split.TRAIN, Split.VALIDATION))
    assert len(learnt) + len(kept) == sum(lines)
    assert pages is None or pages >= {sample.page for sample in kept}
    is_apart = {sample.page for sample in learnt}.isdisjoint(sample.page for sample in kept)
    assert is_apart == (pages is None or len(pages) == 1 < len(lines))


def test_the_log_names_everybody_and_every_change(store: CorrectionStore, tmp_path: Path) -> None:
    first, second, *_ = store.lines()
    store.name_person("v1", "=Анна")
    store.review(first, "-исправлено", State.ACCEPTED, who="v1/tab", name="=Анна")
    store.split(second, 7, who="v2/tab")
    store.review(store.lines()[3], "отменено", State.ACCEPTED, who="v1/tab")
    store.undo("v1/tab")
    path = export_log(store, tmp_path / "log")
    rows = [*csv.DictReader(path.read_text(encoding="utf-8-sig").splitlines())]
    assert [(row["who"], row["what"], row["before"], row["after"]) for row in rows] == [
        ("'=Анна", "accepted", TEXTS[0][0], "'-исправлено"),  # no formulas for a spreadsheet
        ("", "split", TEXTS[0][1], "вторая"),
        ("", "split", "", "строка"),
    ]
    assert rows[0]["page"] == "scan-1"
