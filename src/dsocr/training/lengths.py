"""How long the samples of a split are for a model, in tokens, found without decoding an image."""

from collections.abc import Sequence
from dataclasses import dataclass

from dsocr.config import RunConfig
from dsocr.data.images import upright_size
from dsocr.data.prepare import Progress
from dsocr.errors import DataError
from dsocr.model.encoding import Encoder
from dsocr.model.resolution import UNTILED, Grid, Resolution
from dsocr.samples import Sample


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


def within_budget(samples: Sequence[Sample], encoder: Encoder, config: RunConfig) -> tuple[list[Sample], int]:
    """The samples whose transcription fits, and how many do not. Raises DataError where none does."""
    budget = config.training.max_text_tokens
    fitting = [sample for sample in samples if len(encoder.text_ids(sample.text)) <= budget]
    if not fitting:
        raise DataError("no training sample is left", where=config.dataset, hint="see `dsocr check`")
    return fitting, len(samples) - len(fitting)


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
    return UNTILED if resolution.tiling is None else resolution.grid(*upright_size(sample.image))
