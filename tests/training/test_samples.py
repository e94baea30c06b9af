"""Samples of a split as the dataloader gets them, in this process and in others."""

import multiprocessing
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader

from dsocr.data.augment import Augmentation
from dsocr.data.dataset import Dataset
from dsocr.document import Sample, Split
from dsocr.images import open_image
from dsocr.training.samples import Collator, EncodedSamples
from tests.conftest import draw_line

if TYPE_CHECKING:
    from dsocr.models.loading import BaseModel


def encoded(small_dataset: Path, nano: "BaseModel") -> EncodedSamples:
    return EncodedSamples(Dataset.open(small_dataset).samples(Split.TRAIN), nano.processor(None, "free_ocr"))


def require_no_networks(worker: int) -> None:
    """Check a worker process: importing networks would dominate its start-up time."""
    assert "transformers.modeling_utils" not in sys.modules


def test_worker_processes_that_are_spawned_give_the_same_batches(small_dataset: Path, nano: "BaseModel") -> None:
    """Spawned workers, as on Windows, get everything pickled; they start without importing networks."""
    samples = encoded(small_dataset, nano)
    collate = Collator(nano.processor(None, "free_ocr"))
    here = list(DataLoader(samples, 8, collate_fn=collate))
    context = multiprocessing.get_context("spawn")
    there = list(
        DataLoader(
            samples,
            8,
            collate_fn=collate,
            num_workers=1,
            multiprocessing_context=context,
            worker_init_fn=require_no_networks,
        )
    )
    assert len(here) == len(there) == 2
    for ours, theirs in zip(here, there, strict=True):
        assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_an_image_is_prepared_once_while_memory_allows(
    small_dataset: Path, nano: "BaseModel", monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[Path] = []

    def counting(path: Path) -> Image.Image:
        opened.append(path)
        return open_image(path)

    monkeypatch.setattr("dsocr.training.samples.open_image", counting)
    samples = encoded(small_dataset, nano)
    assert samples[0] is samples[0]
    assert len(opened) == 1
    monkeypatch.setattr("dsocr.training.samples.EncodedSamples._takes", lambda images, size: False)
    assert samples[1] is not samples[1]
    assert len(opened) == 3


def test_augmented_images_change_with_the_epoch_and_come_back_with_it(small_dataset: Path, nano: "BaseModel") -> None:
    lines = Dataset.open(small_dataset).samples(Split.TRAIN)
    samples: Any = EncodedSamples(lines, nano.processor(None, "free_ocr"), augmentation=1.0, seed=3)
    first = samples[0]
    samples.set_epoch(1)
    assert not np.array_equal(samples[0].views.whole, first.views.whole)
    assert samples[0].answer_ids == first.answer_ids
    samples.set_epoch(0)
    assert np.array_equal(samples[0].views.whole, first.views.whole)


def test_worker_processes_draw_the_same_pictures_and_see_the_epoch_change(
    small_dataset: Path, nano: "BaseModel"
) -> None:
    """However many there are, though each of them opens its images itself, and while they live on."""
    lines = Dataset.open(small_dataset).samples(Split.TRAIN)
    encoder = nano.processor(None, "free_ocr")
    alone, shared = (EncodedSamples(lines, encoder, augmentation="medium", seed=3) for _ in range(2))
    collate = Collator(encoder)
    loader = DataLoader(
        shared,
        4,
        collate_fn=collate,
        num_workers=2,
        multiprocessing_context=multiprocessing.get_context("spawn"),
        persistent_workers=True,
    )
    drawn = []
    for epoch in range(2):
        alone.set_epoch(epoch)
        shared.set_epoch(epoch)
        here, there = list(DataLoader(alone, 4, collate_fn=collate)), list(loader)
        assert len(here) == len(there) == 4
        for ours, theirs in zip(here, there, strict=True):
            assert torch.equal(ours["pixel_values"], theirs["pixel_values"])
        drawn.append(there)
    assert not torch.equal(drawn[0][0]["pixel_values"], drawn[1][0]["pixel_values"])


@pytest.mark.parametrize(
    ("augmentation", "size"),
    [
        pytest.param(1.0, (1232, 77), id="shrunk before it is varied"),
        pytest.param("none", (3200, 200), id="left as it is, because nothing is done to it"),
    ],
)
def test_a_large_image_is_shrunk_only_to_be_varied(
    augmentation: Augmentation,
    size: tuple[int, int],
    nano: "BaseModel",
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    draw_line(tmp_path / "line.png", "a" * 122)
    with Image.open(tmp_path / "line.png") as image:
        image.resize((3200, 200)).save(tmp_path / "line.png")
    sample = Sample("line.png", tmp_path / "line.png", "a", Split.TRAIN)
    monkeypatch.setattr("dsocr.training.samples.augment", lambda image, *_: image)
    samples = EncodedSamples([sample], nano.processor(None, "free_ocr"), augmentation=augmentation)
    assert samples.image(0, 0).size == size
