"""Lines become regions and pages only if none of their lines is missing."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsocr.data.dataset import Dataset, SourceReport
from dsocr.data.prepare import prepare
from dsocr.data.sources import UnitGrouper
from dsocr.document import Line, Outline, Page, Region, Skipped, SkipReason, Split, Unit
from dsocr.formats.alto import read_alto
from dsocr.formats.page import read_page
from dsocr.images import open_image, read_bytes
from dsocr.inference.inputs import PagePreparer, find_pages
from tests.data.making import alto, alto_line, page_line, page_xml, picture, write, write_pages
from tests.raising import raises_code

COPISTE = Path(__file__).parents[2] / "examples" / "copiste"
UPPER, LOWER = Outline((10, 10, 60, 30)), Outline((20, 40, 90, 60))
NAMED = Region("r1", Outline((5, 5, 95, 65)))
OTHER = Region("r2")


def line(text: str, place: int, outline: Outline | None = UPPER, region: Region | None = NAMED) -> Line:
    return Line(text, f"p.xml:{place}", outline, region)


def group(lines: list[Line], unit: Unit, lost: list[Line] | None = None) -> tuple[list[Line], list[Skipped]]:
    report = SourceReport(strict=True)
    page = Page(Path("p.png"), "p", "p.xml", tuple(lines), skipped=tuple(lost or ()))
    return list(UnitGrouper(unit).apply(page, report).lines), report.skipped


def test_a_page_is_its_lines_in_order_on_the_whole_image() -> None:
    found, skipped = group([line("раз", 1), line("два", 2, LOWER, OTHER), line("три", 3)], "page")
    assert [(one.text, one.where, one.outline) for one in found] == [("раз\nдва\nтри", "p.xml", None)]
    assert skipped == []


ONE = line("раз", 1)
OWN = ("раз\nдва", "p.xml#r1", NAMED.outline)


def two(outline: Outline, region: Region | None = NAMED) -> Line:
    return line("два", 2, outline, region)


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        pytest.param([ONE, two(LOWER)], [OWN], id="the region's own outline"),
        pytest.param([ONE, two(Outline((20, 40, 90, 67)))], [OWN], id="in spite of a descender"),
        pytest.param(
            [ONE, two(Outline((0, 40, 99, 67)))],
            [("раз\nдва", "p.xml#r1", Outline((0, 5, 99, 67)))],
            id="a box around the region and a line that it would cut off",
        ),
        pytest.param(
            [line("раз", 1, UPPER, OTHER), two(LOWER, OTHER)],
            [("раз\nдва", "p.xml#r2", Outline((10, 10, 90, 60)))],
            id="the bounds of its lines",
        ),
        pytest.param(
            [ONE, two(LOWER, OTHER), line("три", 3)],
            [("раз\nтри", "p.xml#r1", NAMED.outline), ("два", "p.xml#r2", LOWER)],
            id="regions in the order of their first lines",
        ),
        pytest.param(
            [ONE, two(LOWER, None)],
            [("раз", "p.xml#r1", NAMED.outline), ("два", "p.xml:2", LOWER)],
            id="a line outside of regions is one by itself",
        ),
    ],
)
def test_a_region_is_its_lines(lines: list[Line], expected: list[tuple[str, str, Outline]]) -> None:
    assert [(one.text, one.where, one.outline) for one in group(lines, "region")[0]] == expected


@pytest.mark.parametrize(
    ("lines", "lost", "unit", "texts", "reason", "where"),
    [
        pytest.param([ONE, line(" \u200b", 2)], [], "page", [], SkipReason.GAP, "p.xml", id="a blank line"),
        pytest.param([ONE], [line("два", 2, None)], "page", [], SkipReason.GAP, "p.xml", id="a line without outline"),
        pytest.param([line("", 1), line("", 2)], [], "page", [], SkipReason.NO_TEXT, "p.xml", id="no text at all"),
        pytest.param([], [], "page", [], SkipReason.NO_TEXT, "p.xml", id="empty"),
        pytest.param(
            [ONE, line("", 2), line("два", 3, LOWER, OTHER)],
            [],
            "region",
            ["два"],
            SkipReason.GAP,
            "p.xml#r1",
            id="only the region with the blank line",
        ),
    ],
)
def test_a_unit_with_a_gap_is_skipped_and_is_no_fault(
    lines: list[Line], lost: list[Line], unit: Unit, texts: list[str], reason: SkipReason, where: str
) -> None:
    found, skipped = group(lines, unit, lost)
    assert [one.text for one in found] == texts
    assert [(item.reason, item.where) for item in skipped] == [(reason, where)]
    assert reason is not SkipReason.GAP or skipped[0].message.endswith(": p.xml:2")


BLANK = " "


def at(place: int, text: str | None = None) -> Line:
    """A line of a region with lines of 20 pixels below each other."""
    return line(f"t{place}" if text is None else text, place, Outline((10, 20 * place, 60, 20 * place + 20)))


def parts_of(lines: list[Line], most: int) -> tuple[list[Line], list[Skipped]]:
    report = SourceReport(strict=False)
    page = Page(Path("p.png"), "p", "p.xml", tuple(lines))
    return list(UnitGrouper("region", most).apply(page, report).lines), report.skipped


@pytest.mark.parametrize(
    ("lines", "most", "expected"),
    [
        pytest.param([at(1), at(2)], 5, [("t1\nt2", (10, 20, 60, 60))], id="a box around its lines, not the region"),
        pytest.param(
            [at(place) for place in range(1, 6)],
            4,
            [("t1\nt2", (10, 20, 60, 60)), ("t3\nt4\nt5", (10, 60, 60, 120))],
            id="divided evenly",
        ),
        pytest.param(
            [at(1), at(2, BLANK), at(3), at(4)],
            5,
            [("t1", (10, 20, 60, 40)), ("t3\nt4", (10, 60, 60, 100))],
            id="at a line without a text, which is skipped alone",
        ),
        pytest.param([at(1), at(2)], 1, [("t1", (10, 20, 60, 40)), ("t2", (10, 40, 60, 60))], id="lines again"),
    ],
)
def test_a_region_is_divided_into_neighbours(
    lines: list[Line], most: int, expected: list[tuple[str, tuple[int, int, int, int]]]
) -> None:
    parts, skipped = parts_of(lines, most)
    assert [(part.text, part.outline and part.outline.box) for part in parts] == expected
    assert [item.where for item in skipped] == [line.where for line in lines if line.text == BLANK]


@given(blanks=st.lists(st.booleans(), min_size=1, max_size=40), most=st.integers(1, 15))
def test_no_line_is_lost_in_parts(blanks: list[bool], most: int) -> None:
    lines = [at(place, BLANK if blank else None) for place, blank in enumerate(blanks, start=1)]
    parts, skipped = parts_of(lines, most)
    assert [text for part in parts for text in part.text.split("\n")] == [
        line.text for line in lines if line.text != BLANK
    ]
    assert {item.where for item in skipped} == {line.where for line in lines if line.text == BLANK}
    assert len({part.where for part in parts}) == len(parts)
    assert max((part.text.count("\n") + 1 for part in parts), default=0) <= most


@pytest.mark.parametrize(
    ("unit", "most", "code"), [("line", 5, "option-without-regions"), ("region", 0, "option-invalid")]
)
def test_parts_that_cannot_be(unit: Unit, most: int, code: str) -> None:
    with raises_code(code):
        UnitGrouper(unit, most)


def test_unknown_regions_are_an_error() -> None:
    grouper = UnitGrouper("region")
    grouper.apply(Page(Path("p.png"), "p", "p.xml", (line("раз", 1, UPPER, None),)), SourceReport())
    with raises_code("option-without-regions"):
        grouper.require_regions()


def test_alto_names_its_blocks_and_keeps_lines_without_outlines_apart(tmp_path: Path) -> None:
    picture(tmp_path / "p.png")
    named = '</TextBlock><TextBlock ID="b2" HPOS="5" VPOS="6" WIDTH="50" HEIGHT="40">'
    dummy = '</TextBlock><TextBlock ID="eSc_dummyblock_">'
    bare = '<TextLine><String CONTENT="без места"/></TextLine>'
    write(tmp_path / "p.xml", alto(alto_line("раз") + named + alto_line("два") + dummy + alto_line("три") + bare))
    _, image = read_alto(tmp_path)
    assert isinstance(image, Page)
    assert [line.region for line in image.lines] == [Region("line 6"), Region("b2", Outline((5, 6, 55, 46))), None]
    assert [one.text for one in image.skipped] == ["без места"]


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
    assert [line.region for line in image.lines] == [Region("r1", outline)]


def prepared(source: Path, unit: Unit) -> Dataset:
    return prepare(source, source.parent / "out", unit=unit, split="1/0/0")


def test_a_dataset_of_pages_has_the_scans_as_they_are(tmp_path: Path) -> None:
    source = write_pages(tmp_path / "s", ["a_1", "a_2"], lines=2)
    picture(source / "gap.png", colour=(0, 0, 0))
    write(source / "gap.xml", alto(alto_line("есть") + alto_line(""), image="gap.png"))
    dataset = prepared(source, "page")
    assert [(sample.text, read_bytes(sample.image)) for sample in dataset] == [
        (f"{name} строка 0\n{name} строка 1", (source / f"{name}.png").read_bytes()) for name in ("a_1", "a_2")
    ]
    assert (dataset.card.unit, list(dataset.card.skipped)) == ("page", ["not transcribed throughout"])


def test_a_dataset_of_regions_has_them_cropped(tmp_path: Path) -> None:
    picture(tmp_path / "s/p.png", size=(200, 100))
    regions = ""
    for place, top in ((1, 0), (2, 50)):
        own = f"10,{top + 5} 60,{top + 5} 60,{top + 30} 10,{top + 30}"
        lines = "".join(page_line(f"{place} {word}", points=own) for word in ("раз", "два"))
        around = f"0,{top} 99,{top} 99,{top + 39} 0,{top + 39}"
        regions += f'<TextRegion id="r{place}"><Coords points="{around}"/>{lines}</TextRegion>'
    write(tmp_path / "s/p.xml", page_xml(regions, size=(200, 100)))
    dataset = prepared(tmp_path / "s", "region")
    assert [(sample.text, sample.source, open_image(sample.image).size) for sample in dataset] == [
        ("1 раз\n1 два", "p.xml#r1", (100, 40)),
        ("2 раз\n2 два", "p.xml#r2", (100, 40)),
    ]
    assert dataset.card.unit == "region"


def test_a_share_of_the_groups_becomes_single_lines(tmp_path: Path) -> None:
    for name in sorted(COPISTE.glob("alto/*.xml"))[:3]:
        (tmp_path / "s").mkdir(exist_ok=True)
        shutil.copy(name, tmp_path / "s")
        shutil.copy(COPISTE / "jpg" / f"{name.stem}.jpg", tmp_path / "s")
    options: dict[str, Any] = {"unit": "region", "lines_per_region": 4, "split": "1/0/0"}
    texts = {}
    for share in (0.0, 0.5, 1.0):
        dataset = prepare(tmp_path / "s", tmp_path / f"{share}", single_lines=share, **options)
        texts[share] = [sample.text for sample in dataset.samples(Split.TRAIN)]
    lines = {share: sorted("\n".join(chosen).split("\n")) for share, chosen in texts.items()}
    assert lines[0.0] == lines[0.5] == lines[1.0] == sorted(texts[1.0])
    assert len(texts[0.0]) < len(texts[0.5]) < len(texts[1.0])
    with raises_code("option-invalid"):
        prepare(tmp_path / "s", tmp_path / "lines", single_lines=0.5, split="1/0/0")


def test_reading_cuts_the_parts_that_were_trained(tmp_path: Path) -> None:
    """The lines of a page in parts, for training and for reading: the same texts together, each with its place."""
    source = tmp_path / "page"
    source.mkdir()
    xml = sorted((COPISTE / "alto").glob("*.xml"))[0]
    shutil.copy(xml, source)
    shutil.copy(COPISTE / "jpg" / f"{xml.stem}.jpg", source)
    dataset = prepare(source, tmp_path / "dataset", unit="region", lines_per_region=4, split="1/0/0")
    trained = [sample.text.split("\n") for sample in dataset.samples(Split.TRAIN)]
    assert Dataset.open(dataset.folder).card.lines_per_region == 4
    preparer = PagePreparer("region", lambda *_: (), replace_texts=True, most=4)
    with find_pages([source], tmp_path / "unpacked") as found:
        (page,) = (preparer.prepare(page) for page in found.pages)
    read = [[" ".join(line.text.split()) for line in crop.lines] for crop in page.crops]
    assert sorted(read) == sorted(trained)
    assert max(map(len, read)) > 1
    assert all(line.outline for crop in page.crops for line in crop.lines)
