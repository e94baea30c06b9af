"""Where the archive has a line comes first: its page, and the line of the file that describes it."""

import shutil
from pathlib import Path

import pytest

from dsocr.data.check import check_dataset
from dsocr.data.dataset import SourceReport
from dsocr.data.prepare import prepare
from dsocr.document import describe_place
from dsocr.text import TextPolicy
from dsocr.workbench.archive import import_pages, open_archive
from dsocr.workbench.session import Session
from dsocr.workbench.store import open_store
from tests.data.making import write_pages


@pytest.mark.parametrize(
    ("source", "page", "place"),
    [
        pytest.param("0008.xml:43", "0008", "page 0008, line 43 of 0008.xml", id="a page"),
        pytest.param("a/b.xml:7", None, "line 7 of a/b.xml", id="a page without a name"),
        pytest.param("lines.tsv:12", "f. 3v", "page f. 3v, line 12 of lines.tsv", id="a row of a table"),
        pytest.param("a.txt", "", "a.txt", id="a file for a line"),
        pytest.param(None, None, "", id="unknown"),
    ],
)
def test_a_place_is_described(source: str | None, page: str | None, place: str) -> None:
    assert describe_place(source, page) == place


def test_findings_name_the_page_first_and_link_to_its_line(tmp_path: Path) -> None:
    source = write_pages(tmp_path / "s", ["0007", "0008", "0009"])
    shutil.copy(source / "0008.png", source / "0009.png")
    text = (source / "0009.xml").read_text("utf-8").replace("0009 строка 1", "0009 \u0431\u0431\u0431\u200bх")
    (source / "0009.xml").write_text(text, encoding="utf-8")
    dataset = prepare(source, tmp_path / "out", split="1/0/0", text_policy=TextPolicy(invisible="keep"))
    findings = check_dataset(dataset, workers=1)
    examples = [example for finding in findings for example in finding.examples if example.sample]
    assert examples
    for example in examples:
        assert example.place.startswith("page 000")
        assert f"line {example.source.rpartition(':')[2]} of " in example.place
    page = findings.to_html()
    with open_store(tmp_path / "c.sqlite") as store, open_archive(store, source, tmp_path / "unpacked") as archive:
        import_pages(store, archive, SourceReport())
        session = Session("s", store, archive, tmp_path / "work")
        for example in examples:
            assert example.source.replace(":", "%3A") in page
            line = session.find(example.source)
            assert line is not None
            assert session.pages[line.page].name == example.source.partition(".")[0]
        assert session.find("nowhere.xml:3") is None
