"""How long the samples of a split are for a model, in tokens, found without decoding an image."""

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from dsocr.data.images import FORMATS, read_bytes
from dsocr.data.prepare import Progress
from dsocr.errors import DataError
from dsocr.model.encoding import Encoder
from dsocr.model.resolution import UNTILED, Grid, Resolution
from dsocr.samples import Sample

_ORIENTATION = 0x0112
_LYING = range(5, 9)
"""The orientations in which a camera was held upright, so that width and height change places."""


@dataclass(frozen=True, slots=True)
class SampleLength:
    """One sample: the grid of its tiles, its image slots, its text with the end token, and the whole sequence."""

    id: str
    grid: Grid
    vision: int
    text: int
    sequence: int


@dataclass(frozen=True, slots=True)
class Spread:
    """The least, the middle, that below which 95 of 100 are, and the most; each is one of the values."""

    min: int
    median: int
    percentile_95: int
    max: int


def measure_lengths(
    samples: Sequence[Sample], encoder: Encoder, progress: Progress | None = None
) -> list[SampleLength]:
    """The length of each sample, as `encoder` would make it. Raises DataError for an image that has no size."""
    words = len(encoder.prompt_ids()) - encoder.resolution.slots()
    lengths = []
    for done, sample in enumerate(samples, start=1):
        grid = _grid(sample, encoder.resolution)
        vision, text = encoder.resolution.slots(grid), len(encoder.answer_ids(sample.text))
        lengths.append(SampleLength(sample.id, grid, vision, text, words + vision + text))
        if progress:
            progress(done, len(samples))
    return lengths


def spread(values: Sequence[int]) -> Spread:
    """The spread of at least one value."""
    ordered = sorted(values)
    return Spread(ordered[0], _share(ordered, 50), _share(ordered, 95), ordered[-1])


def _share(ordered: Sequence[int], percent: int) -> int:
    """The least value that is not below `percent` of 100 of them."""
    return ordered[-(-len(ordered) * percent // 100) - 1]


def _grid(sample: Sample, resolution: Resolution) -> Grid:
    return UNTILED if resolution.tiling is None else resolution.grid(*_upright_size(sample))


def _upright_size(sample: Sample) -> tuple[int, int]:
    """Width and height as `open_image` would give them, from the head of the file."""
    try:
        file_or_bytes = sample.image if isinstance(sample.image, Path) else io.BytesIO(read_bytes(sample.image))
        with Image.open(file_or_bytes, formats=FORMATS) as file:
            # Not the getexif of its own kind of file: a PNG's looks behind the pixels, and decodes them for it.
            lying = Image.Image.getexif(file).get(_ORIENTATION) in _LYING
            return (file.height, file.width) if lying else (file.width, file.height)
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise DataError(f"the image cannot be read: {error}", where=sample.image, hint="see `dsocr check`") from error
