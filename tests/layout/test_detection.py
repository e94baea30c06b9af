"""Pages on their side are read along it; pages upside down or with too small lines are named."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFont

from dsocr.document import Outline
from dsocr.images import encode_image
from dsocr.inference.confidence import Prediction
from dsocr.layout import detect_lines, lies_on_side
from dsocr.outlines import quarter_turns
from dsocr.runs import RunFolder
from tests.inference.reading_pages import fake_run, files, transcribe
from tests.raising import raises_code

pytestmark = pytest.mark.usefixtures("_pages_detected_once")
TURNS = {
    "upright": None,
    "counterclockwise": Image.Transpose.ROTATE_90,
    "clockwise": Image.Transpose.ROTATE_270,
    "upside-down": Image.Transpose.ROTATE_180,
}
LINES = 4


def draw_text(rows: int = LINES) -> Image.Image:
    """A page of lines with a darker start, each longer than the one above."""
    image = Image.new("L", (420, 40 * rows + 60), 245)
    drawing, font = ImageDraw.Draw(image), ImageFont.load_default(22)
    for row in range(rows):
        drawing.text((60, 30 + 40 * row), "MWMWM" + "tilt" * (row % 6), fill=40, font=font)
    return image


def turned(turn: str) -> Image.Image:
    transpose = TURNS[turn]
    return draw_text() if transpose is None else draw_text().transpose(transpose)


class Measures:
    """Is sure of lines whose left half is darker, and reads how long they are."""

    def read(self, images: Iterable[tuple[str, Image.Image]]) -> Iterator[Prediction]:
        for name, image in images:
            ink = 255 - np.asarray(image.convert("L")).astype(float)
            left, right = (part.sum() for part in np.array_split(ink, 2, axis=1))
            is_upright = bool(left >= right) and image.width > image.height
            text = f"length of {max(image.size)}"
            yield Prediction(name, text, 8, False, confidence=0.9 if is_upright else 0.4)


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    return fake_run(tmp_path / "run")


@pytest.mark.parametrize("turn", ["counterclockwise", pytest.param("clockwise", marks=pytest.mark.slow)])
def test_lines_along_the_side_are_where_they_are_on_the_upright_page(turn: str) -> None:
    image = turned(turn)
    upright = [line.outline for line in detect_lines(encode_image(turned("upright"), "PNG").content, "page")]
    lines = [line.outline for line in detect_lines(encode_image(image, "PNG").content, "page")]
    assert len(lines) == len(upright) == LINES
    assert all(line is not None and quarter_turns(line) == -1 for line in lines)
    assert lies_on_side([line for line in lines if line is not None])
    width = image.width
    for line, other in zip(lines if turn == "counterclockwise" else lines[::-1], upright, strict=True):
        assert line is not None
        assert other is not None
        left, top, right, bottom = line.box
        along = (top, image.height - bottom)[turn == "counterclockwise"]
        expected = np.array([along, (left, width - right)[turn == "clockwise"], bottom - top, right - left])
        box = other.box
        assert np.abs(expected - (box[0], box[1], box[2] - box[0], box[3] - box[1])).max() <= 16


@pytest.mark.parametrize(
    ("turn", "quarters", "upside_down"),
    [("upright", 0, False), ("counterclockwise", -1, False), ("clockwise", 1, False), ("upside-down", 0, True)],
)
def test_a_turned_page_is_read_or_named(
    run: RunFolder, tmp_path: Path, turn: str, quarters: int, upside_down: bool
) -> None:
    (tmp_path / "in").mkdir()
    turned(turn).save(tmp_path / "in" / "page.png")
    report = transcribe(
        run,
        [tmp_path / "in"],
        tmp_path / "out",
        format=["page", "text"],
        review=tmp_path / "review.jsonl",
        reader=Measures(),
        images="page",
    )
    assert report.lines == LINES
    assert report.upside_down == (["page.png"] if upside_down else [])
    assert report.mean_confidence == (None if upside_down else pytest.approx(0.9)), "that of upright pages"
    texts = files(tmp_path / "out")["page.txt"].decode().split("\n")[:LINES]
    widths = [int(text.rpartition(" ")[2]) for text in texts]
    assert (widths == sorted(widths)) is not upside_down


def test_a_note_along_the_side_does_not_turn_the_page() -> None:
    text = [
        Outline.of_polygon(((0, y), (400, y), (400, y + 20), (0, y + 20)), ((0, y), (400, y))) for y in range(0, 90, 30)
    ]
    note = Outline.of_polygon(((450, 0), (470, 0), (470, 400), (450, 400)), ((470, 400), (470, 0)))
    assert not lies_on_side([*text, note])
    assert lies_on_side([note])


def test_lines_that_are_too_small_are_an_error_and_others_are_found() -> None:
    with raises_code("lines-too-small"):
        detect_lines(encode_image(draw_text(rows=150), "PNG").content, "page")
    assert len(detect_lines(encode_image(draw_text(rows=40), "PNG").content, "page")) == 40
