"""Outlines that do not match their baselines are found, and lines are cropped by the baseline instead."""

import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageDraw

from dsocr.data.check import check_dataset
from dsocr.data.dataset import Dataset
from dsocr.data.prepare import prepare
from dsocr.document import Outline, Sample, Split
from dsocr.images import open_image
from dsocr.outlines import is_off_baseline, reading_rows
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


def scan(folder: Path, scales: dict[int, float | None], kind: str = "page") -> Path:
    """A page whose lines have polygons on another scale than their baselines; no polygon for None."""
    image = Image.new("L", (WIDTH, HEIGHT), 235)
    lines = ""
    for row in ROWS:
        ImageDraw.Draw(image).rectangle(bar(row), fill=40)
        scale = scales.get(row, 1.0)
        points = written([] if scale is None else polygon(row, scale))
        baseline = written([(100, row), (300 + row // 3, row)])
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
