"""What `preview` shows is what training sees."""

from typing import Any

import numpy as np
import pytest

from dsocr.config import RunConfig
from dsocr.data.dataset import Dataset
from dsocr.document import Split
from dsocr.models.deepseek_images import show
from dsocr.models.deepseek_inputs import DeepseekProcessor
from dsocr.models.family import load_processor
from dsocr.training.preview import preview
from dsocr.training.samples import EncodedSamples


@pytest.fixture
def encoder() -> Any:
    return load_processor("nano", None, "free_ocr")


@pytest.fixture
def config(small_config: RunConfig) -> RunConfig:
    training = small_config.training.model_copy(update={"augmentation": "strong"})
    return small_config.model_copy(update={"training": training, "seed": 5})


def test_every_epoch_is_the_one_that_training_encodes(config: RunConfig, encoder: DeepseekProcessor) -> None:
    training = Dataset.open(config.dataset).samples(Split.TRAIN)
    seen: Any = EncodedSamples(training, encoder, augmentation=config.training.augmentation, seed=config.seed)
    rows = list(preview(config, encoder, samples=16, epochs=2, as_model=False))
    assert [row.text for row in rows] == [sample.text for sample in training]
    for index, row in enumerate(rows):
        for epoch, (_, image) in enumerate(row.images[1:]):
            seen.set_epoch(epoch)
            assert np.array_equal(show(image, encoder.resolution).whole, seen[index].views.whole)


def test_as_the_model_sees_it_are_the_very_pixels_and_their_tokens(
    config: RunConfig, encoder: DeepseekProcessor
) -> None:
    training = Dataset.open(config.dataset).samples(Split.TRAIN)
    seen: Any = EncodedSamples(training, encoder, augmentation=config.training.augmentation, seed=config.seed)
    (row,) = preview(config, encoder, samples=1, epochs=1, as_model=True)
    assert np.array_equal(np.asarray(row.images[1][1]), seen[0].pixels())
    slots = seen[0].prompt_ids.count(encoder.image_token_id)
    assert row.images[1][0] == f"epoch 1, {slots} vision tokens"


def test_samples_are_spread_over_the_split(config: RunConfig, encoder: DeepseekProcessor) -> None:
    rows = list(preview(config, encoder, samples=3, epochs=1, as_model=False))
    training = Dataset.open(config.dataset).samples(Split.TRAIN)
    assert [row.text for row in rows] == [training[place].text for place in (0, 8, 15)]
    assert all("writer" in row.details for row in rows)
