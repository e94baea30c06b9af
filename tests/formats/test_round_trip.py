"""Any format converts to every other and back without loss."""

import io
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lxml import etree
from PIL import Image

from dsocr.data.convert import convert, read_dataset
from dsocr.document import Line, Outline, Page, Point, Split
from dsocr.formats import SOURCE_FORMATS, TARGET_FORMATS, detect_format
from dsocr.formats.alto import alto_document, parse_alto
from dsocr.formats.page import page_document, parse_page
from dsocr.formats.tables import TsvWriter, read_tables
from dsocr.formats.xml import XmlPage
from dsocr.io.files import is_dataset
from dsocr.text import is_blank
from tests.data.making import picture
from tests.formats.making_sources import SOURCES
from tests.formats.reading import pages, skipped

WHOLE = {"page", "page-2013", "alto", "tsv"}
READ_AS = {"page": "page", "page-2013": "page", "alto": "alto", "tsv": "table", "parquet": "parquet"}

LineKey = tuple[str, Outline | None, Split | None]


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, list[str]]]:
    """Format -> a source of it, and the texts it says."""
    made = {}
    for name, make in SOURCES.items():
        folder = tmp_path_factory.mktemp(name) / "source"
        made[name] = (folder, make(folder))
    return made


def read(folder: Path, format_: str | None = None) -> list[Page]:
    """The images of a source, none of which may be left out."""
    is_ours = is_dataset(folder) and format_ is None
    items = list(read_dataset(folder) if is_ours else detect_format(folder, format_, {}).read(folder, {}))
    assert not skipped(items)
    return pages(items)


def lines_of(images: list[Page]) -> Iterator[tuple[LineKey, Page]]:
    return (((line.text.strip(), line.outline, image.split), image) for image in images for line in image.lines)


def size_of(image: Page) -> tuple[int, int]:
    content = image.content() if image.content else image.image.read_bytes()
    with Image.open(io.BytesIO(content)) as opened:
        return opened.size


def kept(line: LineKey, image: Page, target: str) -> LineKey:
    """What of a line the target holds: texts and splits all, outlines those with whole pages, and ALTO always one."""
    text, outline, split = line
    if target not in WHOLE:
        return text, None, split
    if target == "alto" and outline is None:
        return text, Outline((0, 0, *size_of(image))), split
    return line


@pytest.mark.parametrize("target", TARGET_FORMATS)
@pytest.mark.parametrize("source", SOURCES)
def test_a_source_round_trips(
    sources: dict[str, tuple[Path, list[str]]], source: str, target: str, tmp_path: Path
) -> None:
    folder, texts = sources[source]
    before = list(lines_of(read(folder)))
    assert sorted(text for (text, _, _), _ in before) == sorted(texts)
    report = convert(folder, tmp_path / "out", to=target)
    assert report.skipped == []
    again = read(tmp_path / "out")
    assert Counter(line for line, _ in lines_of(again)) == Counter(kept(*pair, target) for pair in before)
    assert (report.conversion.lines, report.conversion.images) == (len(before), len({id(image) for _, image in before}))
    assert detect_format(tmp_path / "out", None, {}).name == READ_AS.get(target, "messages")


def test_every_format_is_in_the_matrix() -> None:
    assert set(SOURCES) == {*SOURCE_FORMATS, "dataset"}


@pytest.mark.parametrize("source", ["alto", "page", "coco"])
def test_lines_keep_their_order_on_a_page(
    sources: dict[str, tuple[Path, list[str]]], source: str, tmp_path: Path
) -> None:
    folder, _ = sources[source]
    for target in sorted(WHOLE):
        convert(folder, tmp_path / target, to=target)
        before, after = (
            {image.split: [line.text for line in image.lines] for image in read(place)}
            for place in (folder, tmp_path / target)
        )
        assert before == after


@pytest.mark.parametrize("source", ["alto", "page", "coco", "table"])
def test_a_way_through_all_page_formats_ends_where_it_began(
    sources: dict[str, tuple[Path, list[str]]], source: str, tmp_path: Path
) -> None:
    folder, _ = sources[source]
    first = convert(folder, tmp_path / "0", to="tsv").output
    place = first
    for number, target in enumerate(("page", "tsv", "page", "alto", "tsv"), start=1):
        place = convert(place, tmp_path / str(number), to=target).output
    lines = {line for line, _ in lines_of(read(first))}
    pixels = {(line[0], size_of(image)) for line, image in lines_of(read(first))}
    assert {(line[0], size_of(image)) for line, image in lines_of(read(place))} == pixels
    if source != "table":
        assert {line for line, _ in lines_of(read(place))} == lines


@pytest.mark.parametrize("target", sorted(WHOLE))
def test_images_are_copied_byte_by_byte(
    sources: dict[str, tuple[Path, list[str]]], target: str, tmp_path: Path
) -> None:
    folder, _ = sources["hkr"]
    convert(folder, tmp_path / "out", to=target)
    before = sorted(image.image.read_bytes() for image in read(folder))
    assert sorted(image.image.read_bytes() for image in read(tmp_path / "out")) == before


@pytest.mark.parametrize("target", ["tsv", "parquet"])
def test_writers_and_pages_round_trip(sources: dict[str, tuple[Path, list[str]]], target: str, tmp_path: Path) -> None:
    folder, _ = sources["table"]
    convert(folder, tmp_path / "out", to=target)
    before, after = (
        sorted((image.lines[0].text, image.writer, image.page, image.columns["note"]) for image in read(place))
        for place in (folder, tmp_path / "out")
    )
    assert before == after


def test_a_dataset_tells_in_parquet_where_its_lines_were_cut(
    sources: dict[str, tuple[Path, list[str]]], tmp_path: Path
) -> None:
    folder, _ = sources["dataset"]
    convert(folder, tmp_path / "out", to="parquet")
    names = ("source", "polygon", "baseline")
    before, after = (
        sorted((image.lines[0].text, *(image.columns[name] for name in names)) for image in read(place))
        for place in (folder, tmp_path / "out")
    )
    assert before == after
    assert all(row[1].startswith("annotations_val.json#") for row in after)


# Any text that XML can hold, as white space at the ends is no part of a transcription.
LETTERS = st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\ufffe\uffff")
TEXTS = st.text(LETTERS | st.sampled_from("\t\n\r ")).map(str.strip).filter(lambda text: not is_blank(text))


def outlines(lowest: int) -> st.SearchStrategy[Outline | None]:
    numbers = st.integers(lowest, 99_999)
    points: st.SearchStrategy[Point] = st.tuples(numbers, numbers)
    polygons = st.lists(points, min_size=3, max_size=8).map(tuple)
    baselines = st.just(()) | st.lists(points, min_size=2, max_size=5).map(tuple)
    sizes = st.integers(1, 9_999)
    boxes = st.builds(
        lambda left, top, width, height: (left, top, left + width, top + height), numbers, numbers, sizes, sizes
    )
    return st.builds(Outline.of_polygon, polygons, baselines) | st.builds(Outline, boxes, st.just(()), baselines)


def wholes(lowest: int) -> st.SearchStrategy[Page]:
    """Pages with outlined lines."""
    lines = st.builds(Line, TEXTS, st.just("p:1"), outlines(lowest))
    return st.lists(lines, min_size=1, max_size=5).map(
        lambda found: Page(Path("p.png"), "p", "p", tuple(found), size=(1000, 500))
    )


def described(
    document: Callable[[Page], tuple[etree._Element, dict[str, int]]],
    parse: Callable[[etree._Element], XmlPage],
    whole: Page,
) -> list[tuple[str, Outline | None]]:
    """What is read from the document, once it has been a file."""
    content = etree.tostring(document(whole)[0], encoding="UTF-8", xml_declaration=True, pretty_print=True)
    return [(line.text, line.outline) for line in parse(etree.fromstring(content)).lines]


@given(wholes(0))
def test_any_page_round_trips_through_page_xml(whole: Page) -> None:
    assert described(page_document, parse_page, whole) == [(line.text, line.outline) for line in whole.lines]


@given(wholes(-999))
def test_any_page_round_trips_through_alto(whole: Page) -> None:
    assert described(alto_document, parse_alto, whole) == [(line.text, line.outline) for line in whole.lines]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(wholes(-999))
def test_any_page_round_trips_through_a_table(tmp_path: Path, whole: Page) -> None:
    image = Page(picture(tmp_path / "p.png"), "p", "p:1", whole.lines, writer="Анна", split=Split.TEST)
    writing = TsvWriter(tmp_path, [])
    writing.add(image, "p")
    writing.close()
    (found,) = read_tables(tmp_path / "lines.tsv", {})
    assert isinstance(found, Page)
    assert [(line.text, line.outline) for line in found.lines] == [(line.text, line.outline) for line in whole.lines]
    assert (found.writer, found.split) == ("Анна", Split.TEST)


def test_a_page_at_another_size_is_written_in_its_own_pixels(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    SOURCES["coco"](tmp_path / "source")
    picture(tmp_path / "source" / "images" / "p.png", size=(200, 100))
    for target in sorted(WHOLE):
        convert(tmp_path / "source", tmp_path / target, to=target)
        (before,), (after,) = read(tmp_path / "source"), read(tmp_path / target)
        doubled = [replace(line.outline.scaled(2, 2)) for line in before.lines if line.outline]
        assert [line.outline and line.outline.polygon for line in after.lines] == [found.polygon for found in doubled]
        assert after.size in {(200, 100), None}
