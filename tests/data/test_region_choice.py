"""Lines are taken for a dataset by the types of their regions."""

import json
from pathlib import Path

import pytest

from dsocr.data.dataset import Dataset
from dsocr.data.layouts import read_layout
from dsocr.data.prepare import prepare
from dsocr.document import SampleUnit
from tests.data.making import page_line, page_xml, picture, write
from tests.raising import raises_code

PAGES = (
    (("marginalia", "a note"), ("paragraph", "first line"), ("paragraph", "second line"), ("", "untyped")),
    (("page-number", "12"), ("marginalia", "another note")),
    (("paragraph", "third line"), ("page-number", "13")),
)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "source"
    for number, lines in enumerate(PAGES):
        picture(folder / f"p{number}.png", (200, 200))
        regions = []
        for index, (kind, text) in enumerate(lines):
            points = f"10,{10 + 40 * index} 150,{10 + 40 * index} 150,{40 + 40 * index} 10,{40 + 40 * index}"
            type_ = f'type="{kind}"' if kind else ""
            coords = f'<Coords points="{points}"/>'
            regions.append(f'<TextRegion id="r{index}" {type_}>{coords}{page_line(text, points=points)}</TextRegion>')
        write(folder / f"p{number}.xml", page_xml("".join(regions), image=f"p{number}.png", size=(200, 200)))
    return folder


def texts_of(dataset: Dataset) -> list[str]:
    return sorted(sample.text for sample in dataset.samples("train"))


@pytest.mark.parametrize(
    ("unit", "texts"),
    [
        pytest.param("line", ["first line", "second line", "third line", "untyped"], id="lines"),
        pytest.param("region", ["first line", "second line", "third line", "untyped"], id="regions"),
        pytest.param("page", ["first line\nsecond line\nuntyped", "third line"], id="pages"),
    ],
)
def test_lines_in_regions_of_other_types_are_dropped_and_listed(
    unit: SampleUnit, texts: list[str], source: Path, tmp_path: Path
) -> None:
    dataset = prepare(source, tmp_path / "data", unit=unit, regions="Paragraph", split="1/0/0", workers=1)
    assert texts_of(dataset) == texts
    assert dataset.card.regions == ["Paragraph"]
    assert dataset.card.skipped["region of another type"].count == 4
    rows = (tmp_path / "data" / "skipped.jsonl").read_text(encoding="utf-8").splitlines()
    assert {json.loads(row)["reason"] for row in rows} == {"region of another type"}


def test_several_types_are_taken(source: Path, tmp_path: Path) -> None:
    types = ["page-number", "marginalia"]
    dataset = prepare(source, tmp_path / "data", regions=types, split="1/0/0", workers=1, strict=True)
    assert texts_of(dataset) == ["12", "13", "a note", "another note", "untyped"]


def test_a_layout_has_only_lines_of_the_types_chosen(source: Path, tmp_path: Path) -> None:
    dataset = prepare(source, tmp_path / "data", unit="layout", regions="paragraph", split="1/0/0", workers=1)
    layouts = [read_layout(sample) for sample in dataset.samples("train")]
    assert sorted(len(layout.lines) for layout in layouts) == [1, 3]


def test_a_type_that_no_region_has_is_refused_with_those_that_there_are(source: Path, tmp_path: Path) -> None:
    with raises_code("region-type-unknown") as caught:
        prepare(source, tmp_path / "data", regions=["paragraph", "MainZone"], split="1/0/0", workers=1)
    assert "paragraph (3 lines)" in str(caught.value.hint)
    assert not (tmp_path / "data").exists()
