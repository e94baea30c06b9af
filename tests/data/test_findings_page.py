"""Pages for people to look at: charts, contact sheets, and the findings of a check."""

import base64
import hashlib
import io
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from PIL import Image

from dsocr.data.check import Findings, check_dataset
from dsocr.data.check import findings_page as page_module
from dsocr.data.check.findings_page import bar_chart, histogram
from dsocr.data.contact_sheet import SheetRow, sheet_writer
from dsocr.data.dataset import Dataset
from dsocr.data.prepare import prepare
from tests.conftest import rendering
from tests.data.making import alto, alto_line, write
from tests.html_pages import Page
from tests.raising import raises_code


@example([5])
@example([5, 5, 5])
@example([0, 0])
@example([1, 1_000_000])
@settings(max_examples=25)
@given(st.lists(st.one_of(st.integers(0, 10_000), st.floats(0, 1e6, allow_nan=False)), min_size=1, max_size=60))
def test_a_histogram_counts_every_value(values: list[float]) -> None:
    chart = histogram(values, "Width", "pixels")
    assert chart is not None
    axes = Figure().subplots()
    chart.paint(axes)
    bars = [patch for patch in axes.patches if isinstance(patch, Rectangle)]
    assert sum(bar.get_height() for bar in bars) == len(values)
    assert len(bars) <= 80
    assert axes.get_xlabel() == "pixels"


def test_nothing_to_count_is_no_chart() -> None:
    assert (histogram([], "a", "b"), bar_chart([], "a", "b")) == (None, None)


@pytest.mark.usefixtures("rendered_plots")
def test_an_svg_escapes_names_is_repeatable_and_fetches_nothing() -> None:
    chart = bar_chart([("<", 3), ("$x^2$", 2), ("漢", 1)], '<b> "', "")
    assert chart is not None
    drawn = chart.svg()
    assert drawn == chart.svg()
    assert {"&lt;", "$x^2$", "漢"} <= {text.rpartition(">")[2] for text in drawn.split("</text>")}
    assert "<b>" not in drawn
    assert "http" not in drawn
    assert "var(--bar" in drawn


ROWS = [
    SheetRow("<b>ёж & Ко</b>", "train/1.png, writer <i>", [("original", Image.new("L", (300, 60), 200))] * 3),
    SheetRow("line\nbreak", "train/2.png", [("original", Image.new("RGB", (3000, 90), "navy"))] * 3),
]


def test_a_page_holds_every_picture_and_every_text_escaped(tmp_path: Path) -> None:
    sheet_writer(tmp_path / "s.html")("Письма <1>", ROWS)
    page = (tmp_path / "s.html").read_text(encoding="utf-8")
    assert "&lt;b&gt;ёж &amp; Ко&lt;/b&gt;" in page
    assert "writer &lt;i&gt;" in page
    assert "<title>Письма &lt;1&gt;</title>" in page
    assert "<script" not in page
    assert not re.search("https?:", page)
    pictures = [
        Image.open(io.BytesIO(base64.b64decode(data))) for data in re.findall(r"data:image/jpeg;base64,([^\"]+)", page)
    ]
    assert [picture.width for picture in pictures] == [300] * 3 + [720] * 3


@pytest.mark.parametrize(
    ("name", "code"),
    [("sheet.png", "sheet-format"), ("sheet", "sheet-format"), ("nowhere/sheet.html", "output-folder-missing")],
)
def test_wrong_path_is_an_error_before_images_are_made(name: str, code: str, tmp_path: Path) -> None:
    with raises_code(code):
        sheet_writer(tmp_path / name)


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
    with rendering():
        return findings.to_html()


def test_page_shows_findings_remedies_charts_and_every_place(findings: Findings, html: str) -> None:
    page = Page(html)
    assert page.values("class").count("charts") == 1
    assert page.tags.count("svg") == 7
    assert len(page.values("data-code")) == len(findings)
    assert all(finding.message in page.words and finding.remedy in page.words for finding in findings)
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


def test_page_and_table_without_findings(findings: Findings) -> None:
    clean = Findings(findings.dataset, findings.samples)
    page = Page(clean.to_html())
    assert "No problems found." in page.words
    assert "svg" in page.tags
    assert (str(clean), clean.summary()) == ("no findings", "no findings")
    assert "no findings" in clean._repr_html_()


def test_notebook_table_is_escaped(findings: Findings) -> None:
    table = findings._repr_html_()
    assert "invisible-characters" in table
    assert "<script" not in table


def test_page_shows_where_on_its_page_a_line_is(tmp_path: Path) -> None:
    source = tmp_path / "source"
    lines = [
        alto_line(f"строка {number}", f"20 {top} 380 {top} 380 {top + 40} 20 {top + 40}")
        for number, top in enumerate((100, 300))
    ]
    write(source / "p.xml", alto("".join(lines), size=(400, 500)))
    image = Image.new("RGB", (400, 500), "white")
    image.paste((0, 0, 255), (50, 170, 60, 200))  # near the first line, not on it
    image.save(source / "p.png")
    prepare(source, tmp_path / "dataset", split="1/0/0")
    findings = check_dataset(Dataset.open(tmp_path / "dataset"), workers=1)
    assert "blank-image" in {finding.code for finding in findings}

    def colours(html: str) -> set[str]:
        """What the images of the blank lines show: the blue mark beside the line, and its frame."""
        (figure,) = re.findall(r'data-code="blank-image".*?(<figure.*?</figure>)', html, re.DOTALL)
        seen = set()
        for data in re.findall(r'base64,([^"]+)"', figure):
            pixels = np.asarray(Image.open(io.BytesIO(base64.b64decode(data))).convert("RGB")).astype(int)
            red, green, blue = (pixels[:, :, channel] for channel in range(3))
            seen |= {name for name, mask in (("mark", blue - red > 150), ("frame", red - green > 100)) if mask.any()}
        return seen

    assert colours(findings.to_html()) == set()
    assert colours(findings.to_html(source=source)) == {"mark", "frame"}
    with raises_code("source-differs"):
        write(tmp_path / "other/q.xml", alto(alto_line("иное", "1 1 9 1 9 9 1 9")))
        findings.to_html(source=tmp_path / "other")
