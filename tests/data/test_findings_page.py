"""The page of findings."""

import base64
import hashlib
import io
import json
import re
import shutil
from pathlib import Path

import pytest
from PIL import Image

from dsocr.cli.printing import checked
from dsocr.console import Printer
from dsocr.data import check as page_module
from dsocr.data.check import Findings, check_dataset
from dsocr.data.dataset import Dataset
from dsocr.html import counted
from dsocr.training.preview import CheckReport
from tests.html_pages import Page

HOSTILE = "<script>alert('1')</script>"


@pytest.fixture(scope="module")
def findings(small_dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> Findings:
    """The small dataset with a hostile text in twelve lines, the first image gone, and the last two alike."""
    folder = shutil.copytree(small_dataset, tmp_path_factory.mktemp("page") / "письма <b>")
    metadata = folder / "train" / "metadata.jsonl"
    rows = [json.loads(line) for line in metadata.read_text(encoding="utf-8").splitlines()]
    for number, row in enumerate(rows[:12]):
        row["text"] = f"{HOSTILE}\u00ad{number}"
    metadata.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    (folder / "train" / rows[0]["file_name"]).unlink()
    shutil.copyfile(folder / "train" / rows[-1]["file_name"], folder / "train" / rows[-2]["file_name"])
    return check_dataset(Dataset.open(folder), workers=1)


@pytest.fixture(scope="module")
def html(findings: Findings) -> str:
    return findings.to_html()


def test_page_shows_findings_remedies_and_every_place(findings: Findings, html: str) -> None:
    page = Page(html)
    assert len(page.values("data-code")) == len(findings)
    assert all(finding.message in page.words and finding.remedy in page.words for finding in findings)
    assert findings.summary() in page.words
    assert "while dsocr workbench " in page.words
    assert "In more than one split" in page.words
    assert {"train", "validation", "test"} <= set(re.findall(r"\w+", page.words))
    (section,) = re.findall(r'data-code="invisible-characters".*?</details>\s*</details>', html, re.DOTALL)
    assert section.count("<figure") == 12
    assert section.partition("Show all 12")[2].count("<figure") == 2
    assert "<mark>U+00AD</mark>" in section
    assert "\u00ad" not in html.partition("<body>")[2].replace("&shy;", "")


def test_page_is_one_file_and_runs_only_its_own_script(html: str) -> None:
    page = Page(html)
    assert HOSTILE in page.words
    assert page.tags.count("script") == 1
    assert not {"link", "iframe", "object", "embed"} & set(page.tags)
    assert not re.search(r"https?:(?!//127\.0\.0\.1:8080/\?at=)", html), "nothing but the workbench on this machine"
    assert {name for name, _ in page.attributes if name.startswith("on")} == set()
    sources = page.values("src")
    assert sources
    for source in sources:
        kind, _, data = source.partition(",")
        assert kind == "data:image/jpeg;base64"
        with Image.open(io.BytesIO(base64.b64decode(data))) as image:
            assert image.width <= 800
    (script,) = re.findall(r"<script>(.*?)</script>", html, flags=re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    (policy,) = [value for value in page.values("content") if "script-src" in value]
    assert policy.startswith("default-src 'none'; img-src data:;")
    assert policy.endswith(f"script-src 'sha256-{digest}'")


def test_page_has_a_limit_for_images(findings: Findings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_module, "MAX_BYTES", 1)
    assert Page(findings.to_html()).tags.count("img") == 1


def test_the_terminal_has_the_verdict_and_the_first_places(
    findings: Findings, capsys: pytest.CaptureFixture[str]
) -> None:
    assert findings.dataset is not None
    urgent = [finding for finding in findings if finding.severity != "note"]
    assert len(urgent) > 3
    checked(Printer(), CheckReport(findings.dataset, findings))
    printed = "".join(capsys.readouterr()).splitlines()
    assert len(printed) <= 12
    verdict = printed[0]
    errors, places = len(findings.of("error")), {each.where for found in urgent for each in found.examples}
    assert verdict.endswith(
        f": {counted(errors, 'error')} to correct before training; {len(places)} places to look at, "
        f"{counted(len(findings.of('note')), 'note')}"
    )
    assert printed[1:7:2] == [str(finding) for finding in urgent[:3]]
    assert printed[2] == f"    fix: {urgent[0].remedy}"
    assert printed[7] == f"and {counted(len(urgent) - 3, 'other kind')} of problems"
    assert all(f"{finding.code} ({finding.count})" in printed[8] for finding in findings.of("note"))


def test_page_and_table_without_findings(findings: Findings) -> None:
    clean = Findings(findings.dataset, findings.samples)
    page = Page(clean.to_html())
    assert "No findings." in page.words
    assert (str(clean), clean.summary()) == ("no findings", "no findings")
    assert "no findings" in clean._repr_html_()


def test_notebook_table_is_escaped(findings: Findings) -> None:
    table = findings._repr_html_()
    assert "invisible-characters" in table
    assert "<script" not in table
