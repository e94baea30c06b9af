"""Images shrink to the size a resolution can show before they are processed."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageDraw

from dsocr.data.dataset import Dataset
from dsocr.document import Split
from dsocr.images import open_image
from dsocr.models.canvas import show
from dsocr.models.deepseek_ocr import Variant, find_resolution

SAMPLE = Path(__file__).parents[2] / "examples" / "handwriting"


def strokes(width: int, height: int) -> Image.Image:
    """Strokes as wide as a pen's, uneven so that folding has gaps to find."""
    image = Image.new("L", (width, height), 240)
    draw = ImageDraw.Draw(image)
    for place in range(height, width - height, height):
        slope = height // 4 if place // height % 3 else -height // 3
        draw.line((place, height // 5, place + slope, 4 * height // 5), fill=30, width=height // 12)
    return image


@pytest.mark.parametrize(
    ("family", "resolution", "size", "expected"),
    [
        pytest.param("nano", "wrap", (800, 64), (800, 64), id="a line about as large as it is shown"),
        pytest.param("nano", "wrap", (3200, 200), (1232, 77), id="wrapped into rows of 51 pixels"),
        pytest.param("deepseek_ocr", "wrap", (3200, 200), (3200, 200), id="rows of 128 pixels, not worth it"),
        pytest.param("deepseek_ocr", "base", (4000, 160), (1550, 62), id="padded to a square of 1024"),
        pytest.param("nano", "wrap", (2, 5000), (1, 97), id="a strip"),
        pytest.param("deepseek_ocr", "small", (3200, 200), (3200, 200), id="squashed, so its height is stretched"),
        pytest.param("deepseek_ocr", "gundam", (3200, 200), (3200, 200), id="shown in nine tiles"),
    ],
)
def test_size_after_shrinking(
    family: Variant, resolution: str, size: tuple[int, int], expected: tuple[int, int]
) -> None:
    assert find_resolution(family, resolution).shrink(Image.new("L", size)).size == expected


def test_tiles_stay_as_many_as_they_were() -> None:
    resolution = find_resolution("deepseek_ocr", "gundam")
    for size in ((4000, 3000), (2480, 3508), (9000, 400), (6000, 6000)):
        small = resolution.shrink(Image.new("L", size))
        assert resolution.grid(*small.size) == resolution.grid(*size)


@pytest.mark.parametrize("size", [(3200, 200), (2500, 140), (1500, 190)], ids=str)
def test_shrinking_barely_changes_the_model_input(size: tuple[int, int]) -> None:
    resolution, image = find_resolution("nano", None), strokes(*size)
    assert resolution.shrink(image) is not image
    before, after = (show(item, resolution)["pixel_values"].astype(float) for item in (image, resolution.shrink(image)))
    assert np.abs(before - after).mean() < 1.5


def test_the_shipped_sample_is_not_shrunk() -> None:
    """What the demo measured does not depend on shrinking."""
    resolution = find_resolution("nano", None)
    images = [open_image(sample.image) for sample in Dataset.open(SAMPLE).samples(Split.TRAIN)]
    assert [image.size for image in images if resolution.shrink(image) is not image] == []
