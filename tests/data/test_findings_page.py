"""The page of findings holds everything it shows, and nothing in a dataset can become part of its code."""

import base64
import hashlib
import io
import json
import re
import shutil
from pathlib import Path

import pytest
from PIL import Image

from dsocr.data.check import Survey, survey_dataset
from dsocr.data.check import findings_page as page_module
from dsocr.data.check.findings_page import render_page, write_page
from dsocr.data.dataset import Dataset
from dsocr.document import Split
from dsocr.errors import DataError
from tests.data.making import file_of
from tests.pages.html import Page

HOSTILE = "<script>alert('1')</script>"


@pytest.fixture
def folder(small_dataset: Path, tmp_path: Path) -> Path:
    """The small dataset with a hostile text in each of twelve lines, the first image of which is gone."""
    folder = tmp_path / "письма <b>"
    shutil.copytree(small_dataset, folder)
    metadata = folder / "train" / "metadata.jsonl"
    rows = [json.loads(line) for line in metadata.read_text(encoding="utf-8").splitlines()]
    for number, row in enumerate(rows[:12]):
        row["text"] = f"{HOSTILE}\u00ad{number}"
    metadata.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    (folder / "train" / rows[0]["file_name"]).unlink()
    return folder


def test_the_page_shows_findings_fixes_images_and_counts(folder: Path) -> None:
    dataset = Dataset.open(folder)
    survey = survey_dataset(dataset)
    html = render_page(dataset, survey)
    page = Page(html)
    assert page.values("class").count("charts") == 1
    assert len(page.values("data-code")) == len(survey.findings)
    assert all(finding.message in page.words and finding.fix in page.words for finding in survey.findings)
    assert {"train", "validation", "test"} <= set(re.findall(r"\w+", page.words))
    assert page.tags.count("svg") == 7
    invisible = next(finding for finding in survey.findings if finding.code == "invisible-characters")
    assert (invisible.count, len(invisible.samples)) == (12, 10)
    assert "and 2 more" in page.words


def test_what_nobody_sees_is_shown(folder: Path) -> None:
    dataset = Dataset.open(folder)
    html = render_page(dataset, survey_dataset(dataset))
    assert "<mark>U+00AD</mark>" in html
    assert "\u00ad" not in html.partition("<body>")[2].replace("&shy;", "")


def test_a_finding_shows_both_images_it_compares(small_dataset: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(small_dataset, tmp_path / "copy")
    first, second = Dataset.open(folder).samples(Split.TRAIN)[:2]
    shutil.copyfile(file_of(first), file_of(second))
    dataset = Dataset.open(folder)
    html = render_page(dataset, survey_dataset(dataset))
    (figure,) = re.findall(r'data-code="texts-disagree".*?<figure.*?</figure>', html, flags=re.DOTALL)
    assert figure.count("<img") == 2
    assert first.text in figure
    assert second.text in figure


def test_the_page_is_one_file_and_runs_nothing_but_its_own_script(folder: Path) -> None:
    dataset = Dataset.open(folder)
    html = render_page(dataset, survey_dataset(dataset))
    page = Page(html)
    assert HOSTILE in page.words
    assert page.tags.count("script") == 1
    assert not {"link", "iframe", "object", "embed"} & set(page.tags)
    assert not re.search("https?:", html)
    assert {name for name, _ in page.attributes if name.startswith("on")} == set()
    sources = page.values("src")
    assert sources
    for source in sources:
        kind, _, data = source.partition(",")
        assert kind == "data:image/jpeg;base64"
        with Image.open(io.BytesIO(base64.b64decode(data))) as image:
            assert image.width <= 800


def test_the_policy_allows_that_script_alone(folder: Path) -> None:
    dataset = Dataset.open(folder)
    html = render_page(dataset, survey_dataset(dataset))
    (script,) = re.findall(r"<script>(.*?)</script>", html, flags=re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    (policy,) = [value for value in Page(html).values("content") if "script-src" in value]
    assert policy.startswith("default-src 'none'; img-src data:;")
    assert policy.endswith(f"script-src 'sha256-{digest}'")


def test_a_page_holds_no_more_images_than_it_may(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_module, "MOST_BYTES", 1)
    dataset = Dataset.open(folder)
    page = Page(render_page(dataset, survey_dataset(dataset)))
    assert page.tags.count("img") == 1
    assert "no room for its image" in page.words


def test_a_dataset_without_findings_has_a_page_too(small_dataset: Path) -> None:
    dataset = Dataset.open(small_dataset)
    page = Page(render_page(dataset, Survey([], survey_dataset(dataset).samples)))
    assert "No problems found." in page.words
    assert "svg" in page.tags


def test_where_a_page_cannot_be_written_is_said(small_dataset: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError):
        write_page(tmp_path / "nowhere" / "page.html", Dataset.open(small_dataset), Survey([], []))
