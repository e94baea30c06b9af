"""Training samples as training sees them: augmented images, lengths in tokens, and a preview of both."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from PIL import Image

from dsocr.config import RunConfig
from dsocr.data.augment import Augmentation, augment, changes, generator
from dsocr.data.contact_sheet import SheetRow
from dsocr.data.dataset import Dataset
from dsocr.document import Sample, Split
from dsocr.errors import DataError
from dsocr.images import open_image, upright_size
from dsocr.io.processes import ProgressCallback
from dsocr.models.deepseek_images import UNTILED, Grid, Resolution, Views, show, shrink
from dsocr.models.deepseek_ocr import Processor

REMEMBERED_BYTES = 1 << 30
"""Memory for opened images, so that they are opened once and not in every epoch: 1 GiB."""


class VariedImages:
    """The images of samples, augmented by draws from (seed, view, index).

    Images far larger than the resolution are shrunk before.
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
        """The image of a sample, augmented for one view (an epoch)."""
        return augment(self._image(index), generator(self._seed, view, index), self._augmentation)

    def takes(self, size: int) -> bool:
        """Reserve `size` bytes of the cache; False if they do not fit."""
        fits = size <= self._room
        self._room -= size if fits else 0
        return fits

    def forget(self) -> None:
        """Empty the cache."""
        self._opened.clear()
        self._room = REMEMBERED_BYTES

    def _image(self, index: int) -> Image.Image:
        if index in self._opened:
            return self._opened[index]
        image = open_image(self._samples[index].image)
        if changes(self._augmentation):
            image = shrink(image, self._resolution)
        if self.takes(image.width * image.height * len(image.getbands())):
            self._opened[index] = image
        return image


@dataclass(frozen=True, slots=True)
class SampleLength:
    """Tokens of a sample (image, text with the end token, whole sequence), and the grid of its tiles."""

    id: str
    grid: Grid
    vision: int
    text: int
    sequence: int


@dataclass(frozen=True, slots=True)
class Spread:
    """Order statistics; each is one of the values."""

    min: int
    median: int
    percentile_95: int
    max: int


def within_budget(samples: Sequence[Sample], encoder: Processor, config: RunConfig) -> tuple[list[Sample], int]:
    """The samples whose transcription fits, and the number of others. Raises DataError if none fits."""
    budget = config.training.max_text_tokens
    fitting = [sample for sample in samples if len(encoder.text_ids(sample.text)) <= budget]
    if not fitting:
        raise DataError(
            "no training sample fits max_text_tokens",
            where=config.dataset,
            hint="see `dsocr check`",
            code="text-too-long",
        )
    return fitting, len(samples) - len(fitting)


def measure_lengths(
    samples: Sequence[Sample], encoder: Processor, progress: ProgressCallback | None = None
) -> list[SampleLength]:
    """Measure the length of each sample as `encoder` would encode it. Raises DataError for unreadable images."""
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
    """The order statistics of at least one value."""
    ordered = sorted(values)

    def percentile(percent: int) -> int:
        return ordered[-(-len(ordered) * percent // 100) - 1]

    return Spread(ordered[0], percentile(50), percentile(95), ordered[-1])


def _grid(sample: Sample, resolution: Resolution) -> Grid:
    return UNTILED if resolution.tiling is None else resolution.grid(*upright_size(sample.image))


def preview(config: RunConfig, encoder: Processor, *, samples: int, epochs: int, as_model: bool) -> Iterator[SheetRow]:
    """Yield a row for each of `samples` training samples: the original image, then that of each of the first epochs.

    The samples are spread evenly over the split. With `as_model` the images are what the encoder makes of them, the
    tiles of a view below the whole.
    """
    dataset = Dataset.open(config.dataset)
    split = dataset.samples(Split.TRAIN)
    if not split:
        raise DataError("dataset has no train split to preview", where=dataset.folder, code="train-missing")
    training, _ = within_budget(split, encoder, config)
    augmentation = config.training.augmentation
    images = VariedImages(training, encoder.resolution, augmentation=augmentation, seed=config.seed)
    for index in sorted({round(place) for place in np.linspace(0, len(training) - 1, min(samples, len(training)))}):
        sample = training[index]
        original = _captioned("original", open_image(sample.image), encoder, as_model)
        # Epochs count from 0 in the random draws and from 1 on the sheet.
        varied = [
            _captioned(f"epoch {epoch + 1}", images.varied(index, epoch), encoder, as_model) for epoch in range(epochs)
        ]
        details = f"{sample.id}, writer {sample.writer}" if sample.writer else sample.id
        yield SheetRow(sample.text, details, [original, *varied])


def _captioned(name: str, image: Image.Image, encoder: Processor, as_model: bool) -> tuple[str, Image.Image]:
    if not as_model:
        return f"{name}, {image.width} x {image.height}", image
    views = show(image, encoder.resolution)
    return f"{name}, {encoder.resolution.slots(views.grid)} vision tokens", _as_image(views)


def _as_image(views: Views) -> Image.Image:
    """The whole image and, below it, the tiles in their grid with a gap between them."""
    whole = Image.fromarray(views.whole.transpose(1, 2, 0))
    if views.tiles is None:
        return whole
    columns, rows = views.grid
    side = views.tiles.shape[-1]
    gap = side // 40
    width = max(whole.width, columns * (side + gap))
    image = Image.new("RGB", (width, whole.height + gap + rows * (side + gap)), "white")
    image.paste(whole)
    for place, tile in enumerate(views.tiles):
        row, column = divmod(place, columns)
        corner = (column * (side + gap), whole.height + gap + row * (side + gap))
        image.paste(Image.fromarray(tile.transpose(1, 2, 0)), corner)
    return image
