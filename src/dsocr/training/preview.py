"""Samples as training will see them: the same images, epochs and draws, taken from what training itself reads."""

from collections.abc import Iterator, Sequence

import numpy as np
from PIL import Image

from dsocr.config import RunConfig
from dsocr.data.contact_sheet import Picture, Row
from dsocr.data.dataset import Dataset
from dsocr.data.images import open_image
from dsocr.errors import DataError
from dsocr.model.encoding import Encoder
from dsocr.model.views import Views, show
from dsocr.samples import Sample, Split
from dsocr.training.lengths import within_budget
from dsocr.training.varying import VariedImages


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
