"""Which samples are trained on, and a preview of how they are augmented. Needs no torch, so it shows at once."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from dsocr.config import RunConfig
from dsocr.data.augment import augment, changes, generator
from dsocr.data.contact_sheet import SheetRow
from dsocr.document import Sample, Split
from dsocr.errors import DataError
from dsocr.images import open_image
from dsocr.job import Job

if TYPE_CHECKING:
    from dsocr.models.family import Processor


def text_limit(processor: "Processor", config: RunConfig) -> int:
    """Return the most tokens of a text that is trained on: as configured, and as the network can write."""
    limit = config.training.max_text_tokens
    return limit if processor.max_text_tokens is None else min(limit, processor.max_text_tokens)


def within_budget(
    samples: Sequence[Sample], processor: "Processor", config: RunConfig, split: Split = Split.TRAIN
) -> tuple[list[Sample], int]:
    """Return the samples whose transcription fits, and the number of others. Raises DataError if none fits."""
    limit = text_limit(processor, config)
    fitting = [sample for sample in samples if len(processor.text_ids(sample.text)) <= limit]
    if not fitting:
        message = f"no sample of the {split} split fits max_text_tokens ({limit})"
        raise DataError(message, code="text-too-long", where=config.dataset, hint="see `dsocr check`")
    return fitting, len(samples) - len(fitting)


def preview(job: Job, processor: "Processor", *, samples: int, epochs: int, as_model: bool) -> Iterator[SheetRow]:
    """Yield a row for each of `samples` training samples: the original image, then that of each of the first epochs.

    The samples are spread evenly over the split. With `as_model` the images are what the processor makes of them, the
    tiles of a view below the whole.
    """
    config, dataset = job.config, job.samples_from
    split = dataset.samples(Split.TRAIN)
    if not split:
        raise DataError("dataset has no train split to preview", where=dataset.folder, code="train-missing")
    training, _ = within_budget(split, processor, config)
    for index in sorted({round(place) for place in np.linspace(0, len(training) - 1, min(samples, len(training)))}):
        sample = training[index]
        # Epochs count from 0 in the random draws and from 1 on the sheet.
        images = [("original", open_image(sample.image))]
        images += [(f"epoch {epoch + 1}", _image(sample, index, epoch, config, processor)) for epoch in range(epochs)]
        details = f"{sample.id}, writer {sample.writer}" if sample.writer else sample.id
        yield SheetRow(sample.text, details, [_captioned(*image, processor, as_model) for image in images])


def _image(sample: Sample, index: int, epoch: int, config: RunConfig, processor: "Processor") -> Image.Image:
    """The image of a sample as `EncodedSamples` has it in an epoch."""
    image, augmentation = open_image(sample.image), config.training.augmentation
    if not changes(augmentation):
        return image
    return augment(processor.shrink(image), generator(config.seed, epoch, index), augmentation)


def _captioned(name: str, image: Image.Image, processor: "Processor", as_model: bool) -> tuple[str, Image.Image]:
    if not as_model:
        return f"{name}, {image.width} x {image.height}", image
    vision = processor.measure("", lambda: image.size).vision
    return f"{name}, {vision} vision tokens", Image.fromarray(processor.encode(image).pixels())
