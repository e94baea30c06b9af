"""Lines are found on drawn pages whose lines are known; pages without lines are errors."""

import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFont

from dsocr.data.segment import find_pitch, find_skew, segment
from dsocr.errors import DataError
from tests.raising import raises_code

WORDS = ["the", "quick", "brown", "fox", "jumps", "over", "lazy", "dogs", "and", "many", "other", "things"]


def page(
    lines: int = 8, columns: int = 1, *, ruled: bool = False, skew: float = 0.0, paper: int = 245
) -> tuple[Image.Image, list[tuple[int, int, int, int]]]:
    """A page of drawn text and the boxes of its lines, column by column."""
    width, pitch = 500 * columns + 200, 60
    image = Image.new("L", (width, 200 + pitch * lines), paper)
    drawing = ImageDraw.Draw(image)
    font = ImageFont.load_default(34)
    if ruled:
        for line in range(lines + 3):
            drawing.line((20, 120 + pitch * line, width - 20, 120 + pitch * line), fill=paper - 60, width=2)
    boxes = []
    for column in range(columns):
        for line in range(lines):
            text = " ".join(WORDS[(line + place + column) % len(WORDS)] for place in range(5))
            place = (100 + 560 * column, 80 + pitch * line)
            drawing.text(place, text, fill=40, font=font)
            boxes.append(tuple(map(int, drawing.textbbox(place, text, font=font))))
    if skew:
        image = image.rotate(skew, Image.Resampling.BICUBIC, fillcolor=paper)
    return image, boxes  # type: ignore[return-value]


def overlap(one: tuple[int, int, int, int], other: tuple[int, int, int, int]) -> float:
    """Intersection over union of two boxes."""
    across = max(min(one[2], other[2]) - max(one[0], other[0]), 0)
    down = max(min(one[3], other[3]) - max(one[1], other[1]), 0)
    both = sum((box[2] - box[0]) * (box[3] - box[1]) for box in (one, other))
    return across * down / max(both - across * down, 1)


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({}, id="clean"),
        pytest.param({"ruled": True}, id="ruled"),
        pytest.param({"columns": 2}, id="two columns"),
        pytest.param({"lines": 1}, id="a single line"),
        pytest.param({"paper": 170}, id="dark paper"),
    ],
)
def test_every_line_is_found_in_reading_order(options: dict[str, int]) -> None:
    image, boxes = page(**options)  # type: ignore[arg-type]
    found = segment(image)
    assert len(found) == len(boxes)
    assert all(overlap(line.outline.box, box) > 0.5 for line, box in zip(found, boxes, strict=True))
    assert len({line.region.id for line in found}) == options.get("columns", 1)


@pytest.mark.parametrize("skew", [-3.0, 2.0])
def test_skewed_page(skew: float) -> None:
    image, boxes = page(skew=skew)
    found = segment(image)
    assert len(found) == len(boxes)
    slopes = [(line.outline.baseline[-1][1] - line.outline.baseline[0][1]) for line in found]
    falls = np.tan(np.radians(-skew)) * np.array(
        [line.outline.baseline[-1][0] - line.outline.baseline[0][0] for line in found]
    )
    assert np.median(np.abs(np.array(slopes) - falls)) < 8


@pytest.mark.parametrize(
    ("borders", "turn"),
    [
        pytest.param((150, 120, 200, 90), 0.0, id="on all sides"),
        pytest.param((300, 0, 0, 0), 0.0, id="on one side"),
        pytest.param((150, 150, 150, 150), 4.0, id="around a rotated page"),
    ],
)
@pytest.mark.parametrize("level", [0, 50], ids=["black", "dark grey"])
def test_dark_borders_have_no_lines(borders: tuple[int, int, int, int], turn: float, level: int) -> None:
    image, boxes = page()
    left, top, right, bottom = borders
    scan = Image.new("L", (image.width + left + right, image.height + top + bottom), level)
    scan.paste(image, (left, top))
    if turn:
        scan = scan.rotate(turn, Image.Resampling.BICUBIC, fillcolor=level)
    noise = np.random.default_rng(1).normal(0, 6, (scan.height, scan.width))
    found = segment(Image.fromarray(np.clip(np.asarray(scan) + noise, 0, 255).astype(np.uint8)))
    assert len(found) == len(boxes)
    if not turn:
        expected = [(x0 + left, y0 + top, x1 + left, y1 + top) for x0, y0, x1, y1 in boxes]
        assert all(overlap(line.outline.box, box) > 0.5 for line, box in zip(found, expected, strict=True))


def test_baselines_are_under_the_letters() -> None:
    image, boxes = page()
    for line, (_, top, _, bottom) in zip(segment(image), boxes, strict=True):
        assert all(top + 0.5 * (bottom - top) < y <= bottom for _, y in line.outline.baseline)


def test_skew_and_pitch() -> None:
    ink = np.zeros((400, 600), dtype=bool)
    for top in range(40, 360, 40):
        for column in range(50, 550):
            ink[top + round(0.03 * column) : top + 8 + round(0.03 * column), column] = True
    assert find_skew(ink) == pytest.approx(0.03, abs=0.004)
    assert find_pitch(ink[:, :100]) == pytest.approx(40, abs=2)


def _chequered() -> Image.Image:
    """An image that is dark in a third of its pixels everywhere."""
    rows, columns = np.indices((1000, 800))
    return Image.fromarray(np.where((rows // 7 + columns // 7) % 3, 230, 40).astype(np.uint8))


@pytest.mark.parametrize(
    ("image", "code"),
    [
        pytest.param(Image.new("RGB", (800, 1000), "white"), "page-blank", id="white"),
        pytest.param(Image.new("L", (800, 1000), 0), "page-dark", id="black"),
        pytest.param(_chequered(), "page-dark", id="a pattern"),
        pytest.param(Image.new("L", (1, 1), 200), "page-blank", id="a pixel"),
        pytest.param(Image.new("L", (4000, 3), 200), "page-blank", id="a thread"),
    ],
)
def test_pages_without_lines(image: Image.Image, code: str) -> None:
    with raises_code(code):
        segment(image)


@pytest.mark.skipif(sys.platform == "win32", reason="the stand-in for kraken is a script with a shebang")
def test_kraken_and_its_errors(tmp_path: Path) -> None:
    from dsocr.inference.inputs import choose_segmenter
    from tests.data.making import alto, alto_line

    answer = alto(alto_line("", "10 10 60 10 60 30 10 30"))
    command = tmp_path / "kraken"
    command.write_text(
        f"#!{sys.executable}\nimport sys\nassert sys.argv[1:3] == ['-a', '-i'] and sys.argv[5:] == ['segment', '-bl']\n"
        f"open(sys.argv[4], 'w').write('''{answer}''')\n",
        encoding="utf-8",
    )
    command.chmod(0o755)
    buffer = tmp_path / "p.png"
    Image.new("L", (100, 50), 255).save(buffer)
    (line,) = choose_segmenter(str(command))(buffer.read_bytes(), "p.png")
    assert (line.where, line.outline.box if line.outline else None) == ("p.png#1", (10, 10, 61, 31))
    command.write_text(f"#!{sys.executable}\nraise SystemExit('no model')\n", encoding="utf-8")
    with pytest.raises(DataError, match="no model"):
        choose_segmenter(str(command))(buffer.read_bytes(), "p.png")
    with pytest.raises(DataError, match="not installed"):
        choose_segmenter(str(tmp_path / "elsewhere" / "kraken"))
    with pytest.raises(DataError, match="unknown segmenter"):
        choose_segmenter("rm")
