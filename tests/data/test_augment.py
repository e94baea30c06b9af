"""Images as the same hand might have written them another time."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from dsocr.data.augment import augment


def line(width: int = 400, height: int = 60, mode: str = "RGB") -> Image.Image:
    """Dark strokes on cream paper."""
    pixels = np.full((height, width, 3), (240, 235, 220), dtype=np.uint8)
    pixels[height // 3 : 2 * height // 3, 10::12] = (40, 40, 70)
    return Image.fromarray(pixels).convert(mode)


def drawn(seed: tuple[int, ...], strength: float = 1.0) -> np.ndarray:
    return np.asarray(augment(line(), np.random.default_rng(seed), strength))


def test_the_same_seed_epoch_and_sample_give_the_same_picture() -> None:
    assert np.array_equal(drawn((1, 2, 3)), drawn((1, 2, 3)))
    assert not np.array_equal(drawn((1, 2, 3))[:40, :300], drawn((1, 3, 3))[:40, :300])


def test_strength_0_changes_nothing() -> None:
    assert np.array_equal(drawn((1,), 0.0), np.asarray(line()))


@pytest.mark.parametrize("mode", ["L", "RGB"])
def test_mode_and_shape_stay_about_what_they_were(mode: str) -> None:
    for seed in range(30):
        image = augment(line(mode=mode), np.random.default_rng(seed))
        assert image.mode == mode
        assert 0.8 < image.width / 400 < 1.2
        assert 0.85 < image.height / 60 < 1.15


def test_ink_stays_ink_and_no_black_comes_in_at_the_rim() -> None:
    for seed in range(30):
        pixels = drawn((seed,)).mean(axis=2)
        paper = np.median(pixels)
        assert pixels.min() < paper - 60, "the writing has vanished"
        assert abs(pixels[0].mean() - paper) < 12
        assert abs(pixels[:, -1].mean() - paper) < 40


@given(width=st.integers(1, 600), height=st.integers(1, 120), seed=st.integers(0, 1000))
def test_any_size_survives(width: int, height: int, seed: int) -> None:
    image = augment(Image.new("L", (width, height), 200), np.random.default_rng(seed), 2.0)
    assert image.width >= 1
    assert image.height >= 1
