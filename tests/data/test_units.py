"""Lines become regions and pages only if none of their lines is missing."""

import json
from pathlib import Path

import pytest

from dsocr.data.dataset import Card, Dataset, read_card
from dsocr.data.prepare import prepare
from dsocr.data.source_report import SourceReport
from dsocr.data.sources import UnitGrouper
from dsocr.document import Line, Outline, Page, Region, Sample, Skipped, SkipReason, Split, Unit
from dsocr.formats.alto import read_alto
from dsocr.formats.page import read_page
from dsocr.images import open_image, read_bytes
from tests.data.making import alto, alto_line, page_line, page_xml, pair, picture, write, write_pages
from tests.raising import raises_code

UPPER, LOWER = Outline((10, 10, 60, 30)), Outline((20, 40, 90, 60))
NAMED = Region("r1", Outline((5, 5, 95, 65)))
OTHER = Region("r2")


def image_of(*lines: Line, lost: tuple[Line, ...] = ()) -> Page:
    return Page(Path("p.png"), "p", "p.xml", lines, skipped=lost)


def units(image: Page, unit: Unit) -> tuple[list[Line], list[Skipped]]:
    notes = SourceReport(strict=True)
    return list(UnitGrouper(unit).apply(image, notes).lines), notes.skipped


def line(text: str, place: int, outline: Outline | None = UPPER, region: Region | None = NAMED) -> Line:
    return Line(text, f"p.xml:{place}", outline, region)


def test_a_page_is_its_lines_in_order_on_the_whole_image() -> None:
    found, skipped = units(image_of(line("раз", 1), line("два", 2, LOWER, OTHER), line("три", 3)), "page")
    assert [(one.text, one.where, one.outline) for one in found] == [("раз\nдва\nтри", "p.xml", None)]
    assert skipped == []


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        pytest.param(
            [line("раз", 1), line("два", 2, LOWER)],
            [("раз\nдва", "p.xml#r1", NAMED.outline)],
            id="the region's own outline",
        ),
        pytest.param(
            [line("раз", 1, UPPER, OTHER), line("два", 2, LOWER, OTHER)],
            [("раз\nдва", "p.xml#r2", Outline((10, 10, 90, 60)))],
            id="the bounds of its lines",
        ),
        pytest.param(
            [line("раз", 1), line("два", 2, Outline((0, 40, 99, 67)))],
            [("раз\nдва", "p.xml#r1", Outline((0, 5, 99, 67)))],
            id="a box around the region and a line that it would cut off",
        ),
        pytest.param(
            [line("раз", 1), line("два", 2, Outline((20, 40, 90, 67)))],
            [("раз\nдва", "p.xml#r1", NAMED.outline)],
            id="the region's own outline in spite of a tail",
        ),
        pytest.param(
            [line("раз", 1), line("два", 2, LOWER, OTHER), line("три", 3)],
            [("раз\nтри", "p.xml#r1", NAMED.outline), ("два", "p.xml#r2", LOWER)],
            id="regions in the order in which they begin",
        ),
        pytest.param(
            [line("раз", 1), line("два", 2, LOWER, None)],
            [("раз", "p.xml#r1", NAMED.outline), ("два", "p.xml:2", LOWER)],
            id="a line in no region is one by itself",
        ),
    ],
)
def test_a_region_is_its_lines(lines: list[Line], expected: list[tuple[str, str, Outline]]) -> None:
    found, _ = units(image_of(*lines), "region")
    assert [(one.text, one.where, one.outline) for one in found] == expected


@pytest.mark.parametrize(
    ("lines", "lost", "unit", "texts", "expected"),
    [
        pytest.param(
            [line("раз", 1), line(" \u200b", 2)],
            [],
            "page",
            [],
            [(SkipReason.GAP, "p.xml", "a line of the page is not transcribed: p.xml:2")],
            id="a blank line",
        ),
        pytest.param(
            [line("раз", 1), line("", 2), line("два", 3, LOWER, OTHER)],
            [],
            "region",
            ["два"],
            [(SkipReason.GAP, "p.xml#r1", "a line of the region is not transcribed: p.xml:2")],
            id="only the region with the blank line is left out",
        ),
        pytest.param(
            [line("раз", 1)],
            [line("два", 2, None)],
            "page",
            [],
            [(SkipReason.GAP, "p.xml", "a line of the page could not be read: p.xml:2")],
            id="a line that the format left out already",
        ),
        pytest.param(
            [line("", 1), line("", 2)],
            [],
            "page",
            [],
            [(SkipReason.NO_TEXT, "p.xml", "nothing on the page is transcribed")],
            id="nothing at all",
        ),
        pytest.param(
            [], [], "page", [], [(SkipReason.NO_TEXT, "p.xml", "nothing on the page is transcribed")], id="empty"
        ),
    ],
)
def test_a_unit_with_a_gap_is_skipped_and_is_no_fault(
    lines: list[Line],
    lost: list[Line],
    unit: Unit,
    texts: list[str],
    expected: list[tuple[SkipReason, str, str]],
) -> None:
    found, skipped = units(image_of(*lines, lost=tuple(lost)), unit)
    assert [one.text for one in found] == texts
    assert [(item.reason, item.where, item.message) for item in skipped] == expected


@pytest.mark.parametrize("unit", ["region", "page"])
def test_a_line_that_is_a_whole_image_is_not_grouped(unit: Unit) -> None:
    image = image_of(Line("раз", "p.txt"))
    assert UnitGrouper(unit).apply(image, SourceReport(strict=True)) == image


def test_unknown_regions_are_an_error() -> None:
    units = UnitGrouper("region")
    units.apply(image_of(line("раз", 1, UPPER, None)), SourceReport(strict=False))
    with raises_code("no-regions"):
        units.require_regions()


def test_alto_names_its_blocks(tmp_path: Path) -> None:
    picture(tmp_path / "p.png")
    named = '</TextBlock><TextBlock ID="b2" HPOS="5" VPOS="6" WIDTH="50" HEIGHT="40">'
    dummy = '</TextBlock><TextBlock ID="eSc_dummyblock_">'
    write(tmp_path / "p.xml", alto(alto_line("раз") + named + alto_line("два") + dummy + alto_line("три")))
    (image,) = read_alto(tmp_path)
    assert isinstance(image, Page)
    assert [one.region for one in image.lines] == [Region("line 6"), Region("b2", Outline((5, 6, 55, 46))), None]


@pytest.mark.parametrize(
    ("points", "outline"),
    [
        pytest.param("0,0 9,0 9,9", Outline((0, 0, 10, 10), ((0, 0), (9, 0), (9, 9))), id="a polygon"),
        pytest.param("0,0 9", None, id="nonsense costs the outline and not the page"),
    ],
)
def test_page_names_its_regions(tmp_path: Path, points: str, outline: Outline | None) -> None:
    picture(tmp_path / "p.png")
    region = f'<TextRegion id="r1"><Coords points="{points}"/>{page_line("раз")}</TextRegion>'
    write(tmp_path / "p.xml", page_xml(region))
    (image,) = read_page(tmp_path)
    assert isinstance(image, Page)
    assert [one.region for one in image.lines] == [Region("r1", outline)]


def test_a_line_without_an_outline_makes_a_gap_in_its_page(tmp_path: Path) -> None:
    picture(tmp_path / "p.png")
    bare = '<TextLine><String CONTENT="без места"/></TextLine>'
    write(tmp_path / "p.xml", alto(alto_line("раз") + bare))
    _, image = read_alto(tmp_path)
    assert isinstance(image, Page)
    assert [one.text for one in image.skipped] == ["без места"]


def prepared(source: Path, out: Path, unit: Unit | None) -> tuple[Card, list[Sample]]:
    card = prepare(source, out, unit=unit, split="1/0/0").card
    return card, Dataset.open(out).samples(Split.TRAIN)


def test_a_dataset_of_pages_holds_the_scans_as_they_are(tmp_path: Path) -> None:
    source = write_pages(tmp_path / "s", ["a_1", "a_2"], lines=2)
    write(source / "gap.xml", alto(alto_line("есть") + alto_line(""), image="a_1.png"))
    card, samples = prepared(source, tmp_path / "out", "page")
    assert [sample.text for sample in samples] == [f"a_{page} строка 0\na_{page} строка 1" for page in (1, 2)]
    assert [read_bytes(sample.image) for sample in samples] == [
        (source / f"a_{page}.png").read_bytes() for page in (1, 2)
    ]
    assert (card.unit, {reason: part.count for reason, part in card.skipped.items()}) == (
        "page",
        {"not transcribed throughout": 1},
    )


def test_a_dataset_of_regions_holds_them_cut_out(tmp_path: Path) -> None:
    picture(tmp_path / "s/p.png", size=(200, 100))
    regions = []
    for place, top in ((1, 0), (2, 50)):
        own = f"10,{top + 5} 60,{top + 5} 60,{top + 30} 10,{top + 30}"
        lines = "".join(page_line(f"{place} {word}", points=own) for word in ("раз", "два"))
        around = f"0,{top} 99,{top} 99,{top + 39} 0,{top + 39}"
        regions.append(f'<TextRegion id="r{place}"><Coords points="{around}"/>{lines}</TextRegion>')
    write(tmp_path / "s/p.xml", page_xml("".join(regions), size=(200, 100)))
    card, samples = prepared(tmp_path / "s", tmp_path / "out", "region")
    assert [sample.text for sample in samples] == ["1 раз\n1 два", "2 раз\n2 два"]
    assert [open_image(sample.image).size for sample in samples] == [(100, 40), (100, 40)]
    assert [sample.source for sample in samples] == ["p.xml#r1", "p.xml#r2"]
    assert card.unit == "region"


def test_a_card_from_before_units_tells_of_lines(tmp_path: Path) -> None:
    pair(tmp_path / "s", "a", "а")
    prepare(tmp_path / "s", tmp_path / "out", split="1/0/0")
    path = tmp_path / "out" / "dataset.json"
    content = json.loads(path.read_text("utf-8"))
    assert content.pop("unit") == "line"
    write(path, json.dumps(content))
    assert read_card(tmp_path / "out").unit == "line"
