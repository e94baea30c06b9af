"""The alternative resolution for reading an image again."""

import pytest

from dsocr.models.canvas import another_resolution
from dsocr.models.deepseek_ocr import RESOLUTIONS, Variant, find_resolution

LINE, PAGE = (1600, 100), (1200, 1700)


@pytest.mark.parametrize(
    ("family", "image_size", "current", "other"),
    [
        pytest.param("deepseek_ocr", LINE, "base", "large", id="the next larger"),
        pytest.param("deepseek_ocr", LINE, "large", "wrap", id="rows of a folded line are higher still"),
        pytest.param("deepseek_ocr", LINE, "wrap", "large", id="nothing is larger: the next smaller"),
        pytest.param("deepseek_ocr", LINE, "tiny", "wrap", id="never one that squeezes a line into a square"),
        pytest.param("deepseek_ocr", PAGE, "tiny", "small", id="which hardly distorts a page"),
        pytest.param("deepseek_ocr", PAGE, "base", "large", id="a page"),
        pytest.param("deepseek_ocr", PAGE, "gundam", "large", id="a page in tiles, at once"),
        pytest.param("unlimited_ocr", LINE, "base", "wrap", id="one that has no large"),
        pytest.param("unlimited_ocr", PAGE, "base", "small", id="a page is not folded if there is anything else"),
        pytest.param("deepseek_ocr_2", LINE, "base", "wrap", id="the second model"),
        pytest.param("nano", LINE, "wrap", None, id="the embedded base has one only"),
    ],
)
def test_another_resolution(family: Variant, image_size: tuple[int, int], current: str, other: str | None) -> None:
    found = another_resolution(image_size, find_resolution(family, current), RESOLUTIONS[family])
    assert (found and found.name) == other
