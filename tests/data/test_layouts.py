"""Pages prepared with their lines and regions: what is kept, what is checked, and what a reader may not learn from."""

from collections.abc import Sequence
from itertools import cycle
from pathlib import Path

import pytest
from PIL import Image

from dsocr.data.check import check_dataset
from dsocr.data.dataset import Dataset
from dsocr.data.layouts import read_layout
from dsocr.data.prepare import prepare
from dsocr.document import Line, Sample, SampleUnit
from tests.data.making import page_xml, pair, picture, write
from tests.raising import raises_code


def box(left: int, top: int, right: int, bottom: int) -> str:
    return f"{left},{top} {right},{top} {right},{bottom} {left},{bottom}"


def line(id_: str, points: str, text: str = "", custom: str = "", baseline: str = "") -> str:
    drawn = f'<Baseline points="{baseline}"/>' if baseline else ""
    said = f"<TextEquiv><Unicode>{text}</Unicode></TextEquiv>" if text else ""
    coords = f'<Coords points="{points}"/>' if points else ""
    return f'<TextLine id="{id_}" custom="{custom}">{coords}{drawn}{said}</TextLine>'


HEADING = line("l1", box(10, 10, 80, 20), "Глава", "structure {type:HeadingLine;}", "10,18 80,18")
FIRST = line("l2", box(10, 30, 80, 40))
REGIONS = (
    f'<TextRegion id="notes" type="marginalia"><Coords points="{box(82, 5, 99, 45)}"/>'
    f"{line('n1', box(84, 10, 98, 18), 'NB')}</TextRegion>"
    f'<TextRegion id="main" custom="structure {{type:MainZone;}}"><Coords points="{box(5, 5, 81, 45)}"/>'
    f"{HEADING}{FIRST}</TextRegion>"
)
ORDER = (
    '<ReadingOrder><OrderedGroup id="o"><RegionRefIndexed index="0" regionRef="main"/>'
    '<RegionRefIndexed index="1" regionRef="notes"/></OrderedGroup></ReadingOrder>'
)


def prepared(
    tmp_path: Path, *pages: str, unit: SampleUnit = "layout", sizes: Sequence[tuple[int, int]] = ((100, 50),)
) -> Dataset:
    for number, (content, size) in enumerate(zip(pages, cycle(sizes), strict=False)):
        picture(tmp_path / "source" / f"p{number}.png", size=size, colour=(255, 255, number))
        write(tmp_path / "source" / f"p{number}.xml", page_xml(content, image=f"p{number}.png"))
    return prepare(tmp_path / "source", tmp_path / "out", unit=unit, split="0.4/0.3/0.3", workers=1)


def described(sample: Sample) -> list[tuple[str, str, str, str]]:
    return [(item.id, item.region.id if item.region else "", kind(item), item.text) for item in page_of(sample)]


def page_of(sample: Sample) -> tuple[Line, ...]:
    return read_layout(sample).lines


def kind(item: Line) -> str:
    return "/".join([item.region.kind if item.region else "", item.kind])


def test_a_scan_of_more_pixels_than_a_reader_takes_is_a_layout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if the dataset that is overwritten had refused it."""
    size, small = (400, 255), (100, 50)
    monkeypatch.setattr("dsocr.data.layouts.MAX_PIXELS", 100_000)
    for name, pixels in (("a", size), ("b", small)):
        scan = f'<TextRegion id="main">{line("l1", box(10, 10, 80, 20), "Глава")}</TextRegion>'
        write(tmp_path / "scans" / f"{name}.xml", page_xml(scan, image=f"{name}.png", size=pixels))
        Image.new("L", pixels, 250).save(tmp_path / "scans" / f"{name}.png", compress_level=1)
    pages = prepare(tmp_path / "scans", tmp_path / "out", unit="page", split="1/0/0", workers=1)
    (refused,) = pages.report.skipped
    assert "too large for a sample: 400x255 pixels" in refused.message
    dataset = prepare(tmp_path / "scans", tmp_path / "out", unit="layout", split="1/0/0", workers=1, overwrite=True)
    assert {read_layout(sample).size for sample in dataset} == {size, small}
    assert "unreadable-image" not in {finding.code for finding in check_dataset(dataset, workers=1)}


def test_pages_keep_lines_regions_types_and_order(tmp_path: Path) -> None:
    dataset = prepared(tmp_path, ORDER + REGIONS, ORDER + REGIONS, ORDER + REGIONS)
    assert dataset.card.unit == "layout"
    assert [part.pages for part in dataset.card.splits.values()] == [1, 1, 1]
    for sample in dataset:
        assert described(sample) == [
            ("l1", "main", "MainZone/HeadingLine", "Глава"),
            ("l2", "main", "MainZone/", ""),
            ("n1", "notes", "marginalia/", "NB"),
        ]
        heading = page_of(sample)[0]
        assert heading.outline is not None
        assert heading.outline.polygon == ((10, 10), (80, 10), (80, 20), (10, 20))
        assert heading.outline.baseline == ((10, 18), (80, 18))
        assert heading.region is not None
        assert heading.region.outline is not None
        assert heading.region.outline.box == (5, 5, 82, 46)


def test_outlines_follow_an_image_of_another_size(tmp_path: Path) -> None:
    pages = [ORDER + REGIONS] * 3
    for sample in prepared(tmp_path, *pages, sizes=[(200, 100)]):
        outline = page_of(sample)[0].outline
        assert outline is not None
        assert outline.polygon == ((20, 20), (160, 20), (160, 40), (20, 40))


@pytest.mark.parametrize(
    ("extra", "reason"),
    [
        pytest.param(line("bad", "", "текст"), "line without outline", id="without place"),
        pytest.param(line("bad", "", ""), "line without outline", id="without place and text"),
        pytest.param(line("bad", box(10, 31, 80, 40), "ещё"), "line drawn twice", id="twice"),
        pytest.param(line("bad", box(10, 500, 80, 510), "вне"), "outside the image", id="outside the image"),
        pytest.param(line("bad", box(10, 45, 10, 49), "черта"), "too small", id="no area"),
    ],
)
def test_lines_that_teach_nothing_are_skipped(extra: str, reason: str, tmp_path: Path) -> None:
    content = REGIONS.replace(FIRST, FIRST + extra)
    dataset = prepared(tmp_path, ORDER + content, ORDER + REGIONS, ORDER + REGIONS)
    assert {name: card.count for name, card in dataset.card.skipped.items()} == {reason: 1}
    assert [len(page_of(sample)) for sample in dataset] == [3, 3, 3]


def test_a_line_outside_its_region_is_noted_and_kept(tmp_path: Path) -> None:
    content = REGIONS.replace(HEADING, HEADING + line("far", box(84, 30, 98, 40), "далеко"))
    dataset = prepared(tmp_path, content, REGIONS, REGIONS)
    assert sum("outside their region" in note for note in dataset.card.notes) == 1
    assert sum(len(page_of(sample)) for sample in dataset) == 10


def test_a_page_without_outlines_is_no_layout(tmp_path: Path) -> None:
    pair(tmp_path / "source", "a", "текст")
    with raises_code("no-samples"):
        prepare(tmp_path / "source", tmp_path / "out", unit="layout", workers=1)


def test_an_image_of_another_shape_is_skipped(tmp_path: Path) -> None:
    dataset = prepared(tmp_path, *[REGIONS] * 4, sizes=[(50, 300), *[(100, 50)] * 3])
    assert dataset.card.skipped["outlines of another image"].count == 1
    assert len(dataset) == 3


def test_whole_pages_for_a_reader_keep_their_layout_too(tmp_path: Path) -> None:
    dataset = prepared(tmp_path, *[REGIONS.replace(FIRST, "")] * 3, unit="page")
    assert [len(page_of(sample)) for sample in dataset] == [2, 2, 2]
    assert {sample.text for sample in dataset} == {"NB\nГлава"}


def test_a_sample_without_a_layout_says_so(small_dataset: Path) -> None:
    with raises_code("layout-missing"):
        read_layout(next(iter(Dataset.open(small_dataset))))


def test_pages_without_text_are_no_mistake_of_a_layout(tmp_path: Path) -> None:
    silent = REGIONS.replace("Глава", "").replace("NB", "")
    dataset = prepared(tmp_path, silent, silent, silent)
    assert not check_dataset(dataset, workers=1).of("error")
