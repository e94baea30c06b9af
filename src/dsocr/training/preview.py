"""Samples as training will see them: the same images, epochs and draws, taken from what training itself reads."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from PIL import Image

from dsocr.config import RunConfig
from dsocr.data.augment import Augmentation, augment, changes, generator
from dsocr.data.contact_sheet import Picture, Row
from dsocr.data.dataset import Dataset
from dsocr.data.prepare import Progress
from dsocr.document import Sample, Split
from dsocr.errors import DataError
from dsocr.images import open_image, upright_size
from dsocr.models.deepseek_images import UNTILED, Grid, Resolution, Views, show, shrunk
from dsocr.models.deepseek_ocr import Encoder

REMEMBERED_BYTES = 1 << 30
"""What is kept in memory of images, so that they are opened once and not in every epoch: 1 GiB."""


class VariedImages:
    """The images of samples, each varied as drawn from (seed, view, index).

    One far larger than can be seen at the resolution is shrunk before.
    """

    def __init__(
        self, samples: Sequence[Sample], resolution: Resolution, *, augmentation: Augmentation = 0.0, seed: int = 0
    ) -> None:
        self._samples = samples
        self._resolution = resolution
        self._augmentation = augmentation
        self._seed = seed
        self._opened: dict[int, Image.Image] = {}
        self._room = REMEMBERED_BYTES

    def varied(self, index: int, view: int) -> Image.Image:
        """One variation of the image of a sample; the image itself where nothing is varied."""
        return augment(self._image(index), generator(self._seed, view, index), self._augmentation)

    def takes(self, size: int) -> bool:
        """True, and the room taken, where so many bytes more may be remembered."""
        fits = size <= self._room
        self._room -= size if fits else 0
        return fits

    def forget(self) -> None:
        """Give back the memory of what was remembered."""
        self._opened.clear()
        self._room = REMEMBERED_BYTES

    def _image(self, index: int) -> Image.Image:
        if index in self._opened:
            return self._opened[index]
        image = open_image(self._samples[index].image)
        if changes(self._augmentation):
            image = shrunk(image, self._resolution)
        if self.takes(image.width * image.height * len(image.getbands())):
            self._opened[index] = image
        return image


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


def preview(config: RunConfig, encoder: Encoder, *, samples: int, epochs: int, as_model: bool) -> Iterator[Row]:
    """A row for each of `samples` training samples, spread evenly: the original, then each of its first epochs.

    With `as_model` the pictures are what the encoder makes of them, the tiles of a view beside the whole.
    """
    dataset = Dataset.open(config.dataset)
    training, _ = within_budget(_training(dataset), encoder, config)
    augmentation = config.training.augmentation
    images = VariedImages(training, encoder.resolution, augmentation=augmentation, seed=config.seed)
    for index in _spread(len(training), samples):
        sample = training[index]
        pictures = [_picture("original", open_image(sample.image), encoder, as_model)]
        for epoch in range(epochs):
            # As training numbers them, from 0 in the draws and from 1 to people.
            pictures.append(_picture(f"epoch {epoch + 1}", images.varied(index, epoch), encoder, as_model))
        yield Row(sample.text, _told(sample), pictures)


def _training(dataset: Dataset) -> list[Sample]:
    samples = dataset.samples(Split.TRAIN)
    if not samples:
        raise DataError("there is no train split, so nothing that training varies", where=dataset.folder)
    return samples


def _spread(length: int, wanted: int) -> Sequence[int]:
    """`wanted` places from the first on, evenly spread; all of them where there are no more."""
    return sorted({round(place) for place in np.linspace(0, length - 1, min(wanted, length))})


def _told(sample: Sample) -> str:
    return ", ".join([sample.id, *([f"writer {sample.writer}"] if sample.writer else [])])


def _picture(name: str, image: Image.Image, encoder: Encoder, as_model: bool) -> Picture:
    if not as_model:
        return Picture(f"{name}, {image.width} x {image.height}", image)
    views = show(image, encoder.resolution)
    tokens = encoder.resolution.slots(views.grid)
    return Picture(f"{name}, {tokens} vision tokens", _seen(views))


def _seen(views: Views) -> Image.Image:
    """The whole and, below it, the tiles in their grid with a gap between them."""
    whole = Image.fromarray(views.whole.transpose(1, 2, 0))
    if views.tiles is None:
        return whole
    columns, rows = views.grid
    side = views.tiles.shape[-1]
    gap = side // 40
    width = max(whole.width, columns * (side + gap))
    seen = Image.new("RGB", (width, whole.height + gap + rows * (side + gap)), "white")
    seen.paste(whole)
    for place, tile in enumerate(views.tiles):
        row, column = divmod(place, columns)
        corner = (column * (side + gap), whole.height + gap + row * (side + gap))
        seen.paste(Image.fromarray(tile.transpose(1, 2, 0)), corner)
    return seen
