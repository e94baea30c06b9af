"""Outlines that do not match their baselines are found, and lines are cropped by the baseline instead."""

import io
import math
import os
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from dsocr.data.check import check_dataset
from dsocr.data.dataset import Dataset
from dsocr.data.prepare import prepare
from dsocr.document import Line, Outline, Page, Point, Sample, Split, bounds
from dsocr.images import LineFile, crop_lines, open_image
from dsocr.outlines import is_off_baseline, outline_by_baselines, reading_rows, turn_baselines
from tests.data.making import alto, page_xml, write
from tests.inference.reading_pages import Hashes, fake_run, rows_of, text_of, transcribe

WIDTH, HEIGHT, PITCH = 800, 1000, 90
ROWS = range(150, 900, PITCH)
"""Rows of the baselines."""


def bar(row: int) -> tuple[int, int, int, int]:
    """The writing above a baseline: a bar of the same length."""
    return (100, row - 40, 300 + row // 3, row)


def polygon(row: int, scale: float = 1.0) -> list[tuple[int, int]]:
    left, top, right, bottom = bar(row)
    corners = [(left - 5, top - 10), (right + 5, top - 10), (right + 5, bottom + 15), (left - 5, bottom + 15)]
    return [(round(x * scale), round(y * scale)) for x, y in corners]


def written(points: list[tuple[int, int]]) -> str:
    return " ".join(f"{x},{y}" for x, y in points)


def scan(folder: Path, scales: dict[int, float | None], kind: str = "page", *, backward: bool = False) -> Path:
    """A page whose lines have polygons on another scale than their baselines; no polygon for None."""
    image = Image.new("L", (WIDTH, HEIGHT), 235)
    lines = ""
    for row in ROWS:
        ImageDraw.Draw(image).rectangle(bar(row), fill=40)
        scale = scales.get(row, 1.0)
        points = written([] if scale is None else polygon(row, scale))
        baseline = written([(100, row), (300 + row // 3, row)][:: -1 if backward else 1])
        if kind == "page":
            coords = f'<Coords points="{points}"/>' if points else ""
            text = f"<TextEquiv><Unicode>строка {row}</Unicode></TextEquiv>"
            lines += f'<TextLine id="l{row}">{coords}<Baseline points="{baseline}"/>{text}</TextLine>'
        else:
            shape = f'<Shape><Polygon POINTS="{points}"/></Shape>' if points else ""
            lines += f'<TextLine BASELINE="{baseline}">{shape}<String CONTENT="строка {row}"/></TextLine>'
    folder.mkdir(parents=True)
    image.save(folder / "p.png")
    size = (WIDTH, HEIGHT)
    region = f'<TextRegion id="r">{lines}</TextRegion>'
    write(folder / "p.xml", page_xml(region, size=size) if kind == "page" else alto(lines, size=size))
    return folder


def ink_columns(sample: Sample) -> int:
    return int((np.asarray(open_image(sample.image).convert("L")) < 100).any(axis=0).sum())


@pytest.mark.parametrize(
    ("scales", "repaired"),
    [
        pytest.param({}, 0, id="matching outlines"),
        pytest.param(dict.fromkeys(list(ROWS)[2:5], 0.5), 3, id="some outlines on half the scale"),
        pytest.param(dict.fromkeys(ROWS, 0.5), len(ROWS), id="all outlines on half the scale"),
        pytest.param(dict.fromkeys(list(ROWS)[1:], 0.5), len(ROWS), id="one outline that matches by chance"),
        pytest.param(dict.fromkeys(list(ROWS)[3:5], None), 2, id="lines without an outline"),
        pytest.param(dict.fromkeys(ROWS, None), len(ROWS), id="no outlines at all"),
    ],
)
@pytest.mark.parametrize("kind", ["page", "alto"])
def test_lines_are_cropped_by_their_baselines(
    scales: dict[int, float | None], repaired: int, kind: str, tmp_path: Path
) -> None:
    dataset = prepare(scan(tmp_path / "source", scales, kind), tmp_path / "out", split="1/0/0")
    samples = {sample.text: sample for sample in dataset.samples(Split.TRAIN)}
    for row in ROWS:
        left, _, right, _ = bar(row)
        sample = samples[f"строка {row}"]
        assert ink_columns(sample) == pytest.approx(right - left + 1, abs=3)
        assert open_image(sample.image).height < 1.5 * PITCH
    notes = [note for note in dataset.card.notes if "baseline" in note]
    assert [note.partition(" ")[0] for note in notes] == ([str(repaired)] if repaired else [])
    assert "outline-off-baseline" not in {finding.code for finding in check_dataset(dataset, workers=1)}


@pytest.mark.parametrize("kind", ["page", "alto"])
def test_baselines_from_right_to_left_are_turned_around(kind: str, tmp_path: Path) -> None:
    crops = []
    for name, backward in (("right", False), ("left", True)):
        source = scan(tmp_path / name, dict.fromkeys(ROWS, None), kind, backward=backward)
        dataset = prepare(source, tmp_path / f"out-{name}", split="1/0/0")
        crops.append([open_image(sample.image).tobytes() for sample in dataset.samples(Split.TRAIN)])
    assert crops[0] == crops[1]
    assert [note for note in dataset.card.notes if note.startswith(f"{len(ROWS)} baselines run against")]


def test_reading_crops_lines_like_training(tmp_path: Path) -> None:
    source = scan(tmp_path / "source", dict.fromkeys(ROWS, 0.5))
    dataset = prepare(source, tmp_path / "out", split="1/0/0")
    trained = [text_of(open_image(sample.image)) for sample in dataset.samples(Split.TRAIN)]
    document = (source / "p.xml").read_text(encoding="utf-8")
    write(source / "p.xml", re.sub("строка [0-9]+", "", document))
    transcribe(fake_run(tmp_path / "run"), [source], tmp_path / "texts.jsonl", reader=Hashes())
    assert [row["text"] for row in rows_of(tmp_path / "texts.jsonl")] == trained


def test_outlines_off_their_baselines_are_found(tmp_path: Path) -> None:
    prepare(scan(tmp_path / "source", {}), tmp_path / "out", split="1/0/0")
    metadata = tmp_path / "out" / "train" / "metadata.jsonl"
    rows = metadata.read_text(encoding="utf-8").splitlines()
    for place in (1, 4):
        row = list(ROWS)[place]
        rows[place] = rows[place].replace(written(polygon(row)), written(polygon(row, 0.5)))
    metadata.write_text("\n".join(rows) + "\n", encoding="utf-8")
    findings = {finding.code: finding for finding in check_dataset(Dataset.open(tmp_path / "out"), workers=1)}
    finding = findings["outline-off-baseline"]
    assert (finding.severity, [example.where[-1] for example in finding.examples]) == ("warning", ["2", "5"])


@pytest.mark.parametrize(
    ("baseline", "is_off"),
    [
        pytest.param([(0, 40), (200, 40)], False, id="inside"),
        pytest.param([(0, 55), (200, 55)], False, id="a little below"),
        pytest.param([(0, 90), (200, 90)], True, id="far below"),
        pytest.param([(0, 40), (300, 40)], False, id="longer than the polygon"),
        pytest.param([(0, 40), (900, 40)], True, id="much longer than the polygon"),
        pytest.param([(40, 40)], False, id="a single point is no baseline"),
        pytest.param([], False, id="no baseline"),
    ],
)
def test_matching_of_outlines_and_baselines(baseline: list[tuple[int, int]], is_off: bool) -> None:
    outline = Outline.of_polygon(((0, 0), (200, 0), (200, 50), (0, 50)), tuple(baseline))
    assert is_off_baseline(outline) is is_off


def test_an_outline_is_scaled_in_both_directions() -> None:
    outline = Outline((1, 2, 3, 4), ((1, 2), (3, 2), (3, 4)), ((1, 4), (3, 4)))
    assert outline.scaled(2, 10) == Outline((2, 20, 6, 40), ((2, 20), (6, 20), (6, 40)), ((2, 40), (6, 40)))


@pytest.mark.parametrize(("down", "turn"), [(True, "ROTATE_270"), (False, "ROTATE_90")])
def test_sideways_lines_are_turned(down: bool, turn: str, tmp_path: Path) -> None:
    upright = Image.new("L", (400, 60), 235)
    ImageDraw.Draw(upright).polygon(((20, 50), (380, 50), (380, 20)), fill=40)
    sideways = upright.transpose(Image.Transpose[turn])
    page = Image.new("L", (600, 600), 235)
    page.paste(sideways, (300, 100))
    box = [(300, 100), (360, 100), (360, 500), (300, 500)]
    baseline = [(310, 100), (310, 500)] if down else [(350, 500), (350, 100)]
    line = f'<Coords points="{written(box)}"/><Baseline points="{written(baseline)}"/>'
    line += "<TextEquiv><Unicode>да</Unicode></TextEquiv>"
    region = f'<TextRegion id="r"><TextLine id="l">{line}</TextLine></TextRegion>'
    (tmp_path / "s").mkdir()
    page.save(tmp_path / "s" / "p.png")
    write(tmp_path / "s" / "p.xml", page_xml(region, size=(600, 600)))
    (sample,) = prepare(tmp_path / "s", tmp_path / "out", split="1/0/0").samples(Split.TRAIN)
    image = np.asarray(open_image(sample.image).convert("L"))
    rows, columns = np.nonzero(image < 100)
    assert image.shape[1] > image.shape[0]
    # The triangle is high on the right.
    right = columns > np.median(columns)
    assert rows[right].min() < rows[~right].min()


@pytest.mark.parametrize("from_right", [False, True])
@pytest.mark.parametrize("slope", [0.0, 0.07, -0.07])
def test_words_are_read_by_rows_and_columns(slope: float, from_right: bool) -> None:
    """Two pages of a spread with five rows of three words each, which are not level."""
    places = [(page, row, word) for page in range(2) for row in range(5) for word in range(3)]
    boxes = []
    for page, row, word in places:
        left = 60 + 700 * page + 150 * word
        top = round(100 + 60 * row + slope * left + 7 * (word % 2))
        boxes.append((left, top, left + 110, top + 50))
    if from_right:
        boxes = [(2000 - right, top, 2000 - left, bottom) for left, top, right, bottom in boxes]
    shuffled = sorted(range(len(boxes)), key=lambda place: boxes[place][1] * 7919 % 101)
    rows = reading_rows([boxes[place] for place in shuffled], are_words=True, from_right=from_right)
    assert [[places[shuffled[place]] for place in row] for row in rows] == [
        [(page, row, word) for word in range(3)] for page in range(2) for row in range(5)
    ]


Corners = list[tuple[float, float]]
KINDS = ("none", "polygon", "twice", "crossed", "corner loop")


@st.composite
def drawn_pages(draw: st.DrawFn) -> tuple[Image.Image, Page, float]:
    """A page with lines of other colours, turned and scaled, and its skew."""
    count, quarters, scale = draw(st.integers(3, 6)), draw(st.integers(0, 3)), draw(st.sampled_from([0.5, 0.8, 1.7]))
    skew = math.radians(draw(st.integers(-8, 8)))
    angle = math.radians(90 * quarters) + skew
    turn = np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
    image = Image.new("RGB", (600, 600), (240, 240, 240))
    pen = ImageDraw.Draw(image)
    lines = []
    kinds = st.sampled_from(KINDS) if draw(st.booleans()) else st.just("none")
    is_reversed = draw(st.lists(st.booleans(), min_size=count, max_size=count)) if quarters != 2 else [False] * count
    if quarters % 2 and draw(st.booleans()):
        is_reversed = [True] * count

    def on_page(points: Sequence[tuple[float, float]], factor: float = 1) -> tuple[Point, ...]:
        moved = (0.6 * np.array(points) @ turn.T + 300) * factor
        return tuple((round(x), round(y)) for x, y in moved.tolist())

    for number in range(count):
        left, length, row = draw(st.integers(-300, -250)), draw(st.integers(250, 550)), 90 * (number - count / 2) + 40
        right, top, bottom = left + length, row - 40, row + 12
        for area, part in (
            ((left, row - 24, right, row), 0),
            ((left, top, left + 30, row), 1),
            ((right - 90, row, right - 60, bottom), 2),
        ):
            corners = [(area[0], area[1]), (area[2], area[1]), (area[2], area[3]), (area[0], area[3])]
            pen.polygon(on_page(corners), fill=(number + 1, part, 0))
        shares = sorted(draw(st.lists(st.sampled_from([0.01, 0.1, 0.3, 0.5, 0.51, 0.99]), max_size=4)))
        baseline = [(left + share * length, row + draw(st.integers(-2, 2))) for share in (0, *shares, 1)]
        begin, above, end, below = left - 6, top - 6, right + 6, bottom + 6
        middle, far = left + 0.4 * length, left + 0.7 * length
        upper: Corners = [(begin, above), (end, above)]
        lower: Corners = [(end, below), (begin, below)]
        loop = [(end, below + 4), (end - 40, below + 4), (end - 40, above), (end, above)]
        shapes: dict[str, Corners] = {
            "none": [],
            "polygon": upper + lower,
            "twice": [upper[0], (far, above), (far, below), (middle, below), (middle, above), upper[1], *lower],
            "crossed": upper + lower[::-1],
            "corner loop": upper + loop + lower,
        }
        polygon = shapes[draw(kinds)]
        if draw(st.booleans()):
            polygon.reverse()
        if is_reversed[number]:
            baseline.reverse()
        points, outline_points = on_page(baseline, scale), on_page(polygon, scale) if polygon else ()
        outline = Outline.of_polygon(outline_points, points) if polygon else Outline(bounds(points), (), points)
        lines.append(Line("т", f"p.xml:{number}", outline))
    size = (round(600 * scale),) * 2
    return image, Page(Path("p.png"), "p", "p.xml", tuple(lines), size), skew


def colours(image: Image.Image) -> NDArray[np.int64]:
    """Number of the line and of its part (10 the letters, 11 the first one, 12 a tail) that each pixel shows."""
    red, green, _ = np.moveaxis(np.asarray(image, dtype=np.int64), 2, 0)
    return np.where(green < 200, red * 10 + green, 0)


@settings(max_examples=int(os.environ.get("DRAWS", "40")))
@given(drawn_pages())
def test_a_crop_holds_its_line_upright(drawn: tuple[Image.Image, Page, float]) -> None:
    image, page, skew = drawn
    areas = np.bincount(colours(image).ravel())
    file = io.BytesIO()
    image.save(file, "BMP")
    page, _ = outline_by_baselines(turn_baselines(page)[0])
    cropped = crop_lines(page, file.getvalue())
    assert isinstance(cropped, tuple)
    for number, crop in enumerate(cropped[1]):
        assert isinstance(crop, LineFile), crop
        shown = colours(Image.open(io.BytesIO(crop.content)))
        level = []
        for part in (10 * (number + 1) + part for part in range(3)):
            rows, columns = np.nonzero(shown == part)
            assert len(rows) > 0.97 * areas[part], f"{len(rows)} of {areas[part]} pixels of {part}"
            level.append((rows.mean(), columns.mean()))
        turn = [[math.cos(skew), math.sin(skew)], [-math.sin(skew), math.cos(skew)]]
        letters, first, tail = (np.array(level) @ turn).tolist()
        assert first[1] < letters[1] < tail[1], "from left to right"
        assert first[0] < letters[0] < tail[0], "not upside down"
