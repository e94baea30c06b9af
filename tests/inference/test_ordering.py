"""Images are read longest first, a window at a time, and their predictions come in the order of the images."""

from collections.abc import Iterable, Sequence
from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from dsocr.inference import reader
from dsocr.inference.reader import LocalReader
from dsocr.models.generation import Decoded, Generation
from dsocr.text import TextPolicy


def make_reader(batch_size: int, prefetch: int) -> tuple[LocalReader, list[int]]:
    """A reader that reads an image's width, and the widths in the order in which it saw them."""
    seen: list[int] = []

    def decode(network: object, processor: object, widths: Sequence[int], generation: object) -> list[Decoded]:
        seen.extend(widths)
        return [Decoded(str(width), 1, truncated=False) for width in widths]

    family = SimpleNamespace(decode=decode, retry_loops=lambda *arguments: arguments[-1])
    processor: Any = SimpleNamespace(family=family, encode=lambda image: image.width)
    settings = Generation(batch_size=batch_size, prefetch_batches=prefetch)
    return LocalReader(None, processor, settings, TextPolicy()), seen


@given(st.lists(st.integers(1, 50)), st.integers(1, 3), st.integers(1, 3))
def test_predictions_come_in_the_order_of_the_images(widths: list[int], batch_size: int, prefetch: int) -> None:
    local, seen = make_reader(batch_size, prefetch)
    read = local.read((str(place), Image.new("L", (width, 1))) for place, width in enumerate(widths))
    assert [(one.id, one.text) for one in read] == [(str(place), str(width)) for place, width in enumerate(widths)]
    most = batch_size * prefetch
    windows = [widths[start : start + most] for start in range(0, len(widths), most)]
    assert seen == [width for window in windows for width in sorted(window, reverse=True)]


def test_no_more_is_opened_ahead_than_may_be_held() -> None:
    opened: list[int] = []

    def images() -> Iterable[tuple[str, Image.Image]]:
        for place in range(100):
            opened.append(place)
            yield str(place), Image.new("1", (reader._MAX_PIXELS // 4, 1))

    local, _ = make_reader(64, 64)
    assert next(iter(local.read(images()))).id == "0"
    assert opened == [0, 1, 2, 3]
