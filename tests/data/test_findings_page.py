"""The page of findings holds everything it shows, and nothing in a dataset can become part of its code."""

import base64
import io
import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import pytest
from PIL import Image

from dsocr.data.checking.page import render_page, write_page
from dsocr.data.checks import check_dataset
from dsocr.data.dataset import Dataset
from dsocr.errors import DataError

HOSTILE = "<script>alert('1')</script>\u00ad"


class Page(HTMLParser):
    """What stands in a page: its tags, its attributes, its words; every tag that is opened must be closed."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.words = ""
        self._open: list[str] = []
        self.feed(html)
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag not in {"meta", "img", "br"}:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words += data


@pytest.fixture
def folder(small_dataset: Path, tmp_path: Path) -> Path:
    """The small dataset with a hostile text in each of twelve lines, the first image of which is gone."""
    folder = tmp_path / "письма <b>"
    shutil.copytree(small_dataset, folder)
    metadata = folder / "train" / "metadata.jsonl"
    rows = [json.loads(line) for line in metadata.read_text(encoding="utf-8").splitlines()]
    for number, row in enumerate(rows[:12]):
        row["text"] = f"{HOSTILE}{number}"
    metadata.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    (folder / "train" / rows[0]["file_name"]).unlink()
    return folder


def test_the_page_shows_findings_fixes_images_and_counts(folder: Path) -> None:
    dataset = Dataset.open(folder)
    findings = check_dataset(dataset)
    page = Page(render_page(dataset, findings))
    assert page.tags.count("section") == len(findings)
    assert all(finding.message in page.words and finding.fix in page.words for finding in findings)
    assert {"train", "validation", "test"} <= set(re.findall(r"\w+", page.words))
    titles = [value for name, value in page.attributes if name == "title"]
    assert sum(int(re.findall(r": (\d+) texts", title)[0]) for title in titles) == 24
    invisible = next(finding for finding in findings if finding.code == "invisible-characters")
    assert (invisible.count, len(invisible.samples)) == (12, 10)


def test_the_page_is_one_file_and_runs_nothing(folder: Path) -> None:
    dataset = Dataset.open(folder)
    html = render_page(dataset, check_dataset(dataset))
    page = Page(html)
    assert HOSTILE in page.words
    assert not {"script", "link", "iframe", "b"} & set(page.tags)
    assert "http" not in html
    assert {name for name, _ in page.attributes} <= {"class", "style", "title", "src", "alt", "lang", "charset"}
    sources = [value for name, value in page.attributes if name == "src"]
    assert sources
    for source in sources:
        kind, _, data = source.partition(",")
        assert kind == "data:image/jpeg;base64"
        with Image.open(io.BytesIO(base64.b64decode(data))) as image:
            assert image.width <= 480


def test_a_dataset_without_findings_has_a_page_too(small_dataset: Path) -> None:
    page = Page(render_page(Dataset.open(small_dataset), []))
    assert "Nothing to complain about." in page.words


def test_where_a_page_cannot_be_written_is_said(small_dataset: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="the page cannot be written"):
        write_page(tmp_path / "nowhere" / "page.html", Dataset.open(small_dataset), [])
