"""Any format converts to every other and back without loss."""

import io
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lxml import etree
from PIL import Image

from dsocr.data.convert import convert, read_dataset
from dsocr.data.prepare import prepare
from dsocr.document import Line, Outline, Page, Point, Split
from dsocr.formats import SOURCE_FORMATS, TARGET_FORMATS, detect_format
from dsocr.formats.alto import alto_document, parse_alto
from dsocr.formats.page import page_document, parse_page
from dsocr.formats.tables import read_tables, writing_tsv
from dsocr.formats.xml import XmlPage
from dsocr.io.files import is_dataset
from dsocr.text import TextPolicy, is_blank
from tests.data.making import picture
from tests.formats.making_sources import SOURCES
from tests.formats.reading import pages, skipped

WHOLE = {"page", "page-2013", "alto", "tsv"}
READ_AS = {"page": "page", "page-2013": "page", "alto": "alto", "tsv": "table", "parquet": "parquet"}

Sources = dict[str, tuple[Path, list[str], list[Page]]]
LineKey = tuple[str, Outline | None]


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Sources:
    """Format -> a source of it, the texts it says, and its pages."""
    made = {}
    for name, make in SOURCES.items():
        folder = tmp_path_factory.mktemp(name) / "source"
        made[name] = (folder, make(folder), read(folder))
    return made


def read(folder: Path) -> list[Page]:
    """The pages of a source; none may be skipped."""
    items = list(read_dataset(folder) if is_dataset(folder) else detect_format(folder, None, {}).read(folder, {}))
    assert not skipped(items)
    return pages(items)


def content_of(page: Page) -> bytes:
    return page.content() if page.content else page.image.read_bytes()


def lines_of(page: Page, target: str = "") -> tuple[LineKey, ...]:
    """The texts in order with what the target holds of their outlines: all with whole pages, and ALTO always one."""
    whole = Outline((0, 0, *Image.open(io.BytesIO(content_of(page))).size)) if target == "alto" else None
    keeps_outlines = target in {*WHOLE, ""}
    return tuple((line.text.strip(), (line.outline or whole) if keeps_outlines else None) for line in page.lines)


MATRIX = [(source, target) for source in SOURCES for target in ("page", "alto", "tsv", "parquet", "ms-swift")]
"""Sources and targets; the other targets differ from one of these in the names of their elements."""


@pytest.mark.parametrize(
    ("source", "target"), [*MATRIX, *(("coco", target) for target in TARGET_FORMATS if ("coco", target) not in MATRIX)]
)
def test_a_source_round_trips(sources: Sources, source: str, target: str, tmp_path: Path) -> None:
    folder, texts, before = sources[source]
    assert sorted(text for page in before for text, _ in lines_of(page)) == sorted(texts)
    report = convert(folder, tmp_path / "out", to=target)
    assert (report.skipped, report.conversion.lines, report.conversion.images) == ([], len(texts), len(before))
    after = read(tmp_path / "out")
    if target in WHOLE:
        # Images are copied byte by byte.
        expected = Counter((page.split, content_of(page), lines_of(page, target)) for page in before)
        assert Counter((page.split, content_of(page), lines_of(page)) for page in after) == expected
    else:
        expected_lines = Counter((page.split, line) for page in before for line in lines_of(page, target))
        assert Counter((page.split, *lines_of(page)) for page in after) == expected_lines
    assert detect_format(tmp_path / "out", None, {}).name == READ_AS.get(target, "messages")


@pytest.mark.parametrize("source", SOURCE_FORMATS)
def test_a_source_becomes_a_dataset(sources: Sources, source: str, tmp_path: Path) -> None:
    folder, texts, found_pages = sources[source]
    given = Counter(page.split for page in found_pages for _ in page.lines if page.split)
    policy = TextPolicy(unicode="keep", spaces="keep")
    dataset = prepare(folder, tmp_path / "out", split="1/0/0", text_policy=policy)
    assert dataset.card.source_format == source
    found = {split: [sample.text.strip() for sample in dataset.samples(split)] for split in dataset.card.splits}
    # Without a split of its own, a source is all for training; otherwise what has none is skipped.
    assert {split: len(lines) for split, lines in found.items()} == (given or {Split.TRAIN: len(texts)})
    assert not Counter(text for lines in found.values() for text in lines) - Counter(texts)


def test_every_format_is_in_the_matrix() -> None:
    assert set(SOURCES) == {*SOURCE_FORMATS, "dataset"}


def test_a_way_through_all_page_formats_ends_where_it_began(sources: Sources, tmp_path: Path) -> None:
    place = sources["coco"][0]
    for number, target in enumerate(("tsv", "page", "tsv", "page", "alto", "tsv")):
        place = convert(place, tmp_path / str(number), to=target).output
    # ALTO gives an outline to each line.
    first, last = (Counter(lines_of(page, "alto") for page in read(folder)) for folder in (tmp_path / "0", place))
    assert first == last


CUT = ("source", "polygon", "baseline")
"""Where the line of a dataset was cut."""


@pytest.mark.parametrize(
    ("source", "target", "columns"),
    [("table", "tsv", ["note"]), ("table", "parquet", ["note"]), ("dataset", "parquet", CUT)],
)
def test_writers_pages_and_columns_round_trip(
    sources: Sources, source: str, target: str, columns: Sequence[str], tmp_path: Path
) -> None:
    folder, _, found = sources[source]
    convert(folder, tmp_path / "out", to=target)
    before, after = (
        sorted((page.lines[0].text, page.writer or "", page.page, *map(page.columns.get, columns)) for page in images)
        for images in (found, read(tmp_path / "out"))
    )
    assert before == after
    assert all(row[3] for row in after)


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


@settings(max_examples=25)
@given(wholes(0))
def test_any_page_round_trips_through_page_xml(whole: Page) -> None:
    assert described(page_document, parse_page, whole) == [(line.text, line.outline) for line in whole.lines]


@settings(max_examples=25)
@given(wholes(-999))
def test_any_page_round_trips_through_alto(whole: Page) -> None:
    assert described(alto_document, parse_alto, whole) == [(line.text, line.outline) for line in whole.lines]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25)
@given(wholes(-999))
def test_any_page_round_trips_through_a_table(tmp_path: Path, whole: Page) -> None:
    image = Page(picture(tmp_path / "p.png"), "p", "p:1", whole.lines, writer="Анна", split=Split.TEST)
    with writing_tsv(tmp_path, []) as write:
        write(image, "p")
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
