"""The small base reads each of 200 lines the same alone, in batches, shuffled and through a busy server."""

import sys
from pathlib import Path

import numpy as np
import pytest

from dsocr.images import open_image

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

from one_is_many import different, read_every_way

LINES = 200


@pytest.mark.slow
def test_one_is_many(tmp_path: Path) -> None:
    """Lines of the shipped sample, each cut at another place, so that all widths occur."""
    files = sorted((Path(__file__).parents[2] / "examples" / "handwriting").rglob("*.jpg"))
    drawn, lines = np.random.default_rng(5), {}
    for number in range(LINES):
        image = open_image(files[number % len(files)])
        width = int(image.width * drawn.uniform(0.3, 1))
        lines[f"line{number:03}"] = image.crop((0, 0, max(width, 20), image.height))
    (_, alone), *others = read_every_way("small", lines, tmp_path)
    assert len({text for text, _ in alone.values()}) > LINES / 2
    assert {way: different(alone, readings) for way, readings in others} == {way: [] for way, _ in others}
    assert len(others) == 3
