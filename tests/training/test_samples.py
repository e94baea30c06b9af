"""Samples as the dataloader gets them and `preview` shows them, and their order: similar lengths together."""

import multiprocessing
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from torch.utils.data import DataLoader

from dsocr.config import RunConfig
from dsocr.data.augment import Augmentation
from dsocr.data.dataset import Dataset
from dsocr.document import Sample, Split
from dsocr.images import open_image
from dsocr.job import resolve
from dsocr.models.family import Processor
from dsocr.models.loading import load_processor
from dsocr.training.preview import preview_rows
from dsocr.training.samples import Collator, EncodedSamples, LengthGroupedSampler
from tests.conftest import draw_line


@pytest.fixture
def processor() -> Processor:
    return load_processor("nano", None, "free_ocr")


@pytest.fixture
def lines(small_dataset: Path) -> list[Sample]:
    return Dataset.open(small_dataset).samples(Split.TRAIN)


def require_no_networks(worker: int) -> None:
    """Check a worker process: importing networks would dominate its start-up time."""
    assert "transformers.modeling_utils" not in sys.modules


@pytest.mark.slow
def test_worker_processes_give_the_same_batches_and_see_the_epoch_change(
    lines: list[Sample], processor: Processor
) -> None:
    """Spawned workers, as on Windows, get everything pickled, and open images themselves."""
    alone, shared = (EncodedSamples(lines, processor, augmentation="light", seed=3) for _ in range(2))
    collate = Collator(processor)
    loader = DataLoader(
        shared,
        4,
        collate_fn=collate,
        num_workers=2,
        multiprocessing_context=multiprocessing.get_context("spawn"),
        persistent_workers=True,
        worker_init_fn=require_no_networks,
    )
    drawn = []
    for epoch in range(2):
        alone.set_epoch(epoch)
        shared.set_epoch(epoch)
        here, there = list(DataLoader(alone, 4, collate_fn=collate)), list(loader)
        for ours, theirs in zip(here, there, strict=True):
            assert all(torch.equal(ours[name], theirs[name]) for name in ours)
        drawn.append(there[0]["pixel_values"])
    assert not torch.equal(*drawn)


def test_an_image_is_prepared_once_while_memory_allows(
    lines: list[Sample], processor: Processor, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[Path] = []

    def counting(path: Path) -> Image.Image:
        opened.append(path)
        return open_image(path)

    monkeypatch.setattr("dsocr.training.samples.open_image", counting)
    samples = EncodedSamples(lines, processor)
    assert samples[0] is samples[0]
    assert len(opened) == 1
    samples.forget()
    monkeypatch.setattr("dsocr.training.samples.REMEMBERED_BYTES", 0)
    samples = EncodedSamples(lines, processor)
    assert samples[1] is not samples[1]
    assert len(opened) == 3


@pytest.mark.parametrize(
    ("augmentation", "size"),
    [
        pytest.param(1.0, (1232, 77), id="shrunk before it is varied"),
        pytest.param("none", (3200, 200), id="left as it is, because nothing is done to it"),
    ],
)
def test_a_large_image_is_shrunk_only_to_be_augmented(
    augmentation: Augmentation,
    size: tuple[int, int],
    processor: Processor,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    draw_line(tmp_path / "line.png", "a" * 122)
    with Image.open(tmp_path / "line.png") as image:
        image.resize((3200, 200)).save(tmp_path / "line.png")
    sample = Sample("line.png", tmp_path / "line.png", "a", Split.TRAIN)
    monkeypatch.setattr("dsocr.training.samples.augment", lambda image, *_: image)
    samples = EncodedSamples([sample], processor, augmentation=augmentation)
    assert samples.image(0, 0).size == size


@pytest.mark.parametrize("as_model", [False, True])
def test_a_preview_shows_the_images_that_training_encodes(
    as_model: bool, small_config: RunConfig, lines: list[Sample], processor: Processor
) -> None:
    training = small_config.training.model_copy(update={"augmentation": "light"})
    config = small_config.model_copy(update={"training": training, "seed": 5})
    seen: Any = EncodedSamples(lines, processor, augmentation="light", seed=5)
    rows = list(preview_rows(resolve(config, overwrite=True), processor, samples=3, epochs=2, as_model=as_model))
    assert [row.text for row in rows] == [lines[place].text for place in (0, 8, 15)], "spread over the split"
    for place, row in zip((0, 8, 15), rows, strict=True):
        assert "writer" in row.details
        for epoch, (caption, image) in enumerate(row.images[1:]):
            seen.set_epoch(epoch)
            pixels = np.asarray(image) if as_model else processor.encode(image).pixels()
            assert np.array_equal(pixels, seen[place].pixels())
            assert caption.startswith(f"epoch {epoch + 1}, ")
            assert caption.endswith("73 vision tokens") is as_model


LENGTHS = st.lists(st.integers(1, 200), min_size=1, max_size=60)


def draw(lengths: Sequence[int], micro: int, step: int, *, seed: int = 17, epoch: int = 0, **options: Any) -> list[Any]:
    sampler = LengthGroupedSampler(lengths, micro, step, seed=seed, **options)
    sampler.set_epoch(epoch)
    batches = list(sampler)
    assert len(batches) == len(sampler)
    return batches


def flat(batches: Sequence[Sequence[int]]) -> list[int]:
    return [index for batch in batches for index in batch]


@given(
    lengths=LENGTHS,
    micro=st.integers(1, 7),
    accumulation=st.integers(1, 4),
    group=st.booleans(),
    epoch=st.integers(0, 3),
)
def test_an_epoch_has_every_sample_once(
    lengths: list[int], micro: int, accumulation: int, group: bool, epoch: int
) -> None:
    batches = draw(lengths, micro, micro * accumulation, group=group, epoch=epoch)
    assert sorted(flat(batches)) == list(range(len(lengths)))
    assert all(len(batch) == micro for batch in batches[:-1])


@given(lengths=LENGTHS, micro=st.integers(1, 7), world_size=st.integers(2, 4), group=st.booleans())
def test_ranks_get_equally_many_full_batches_and_the_rest_are_fillers(
    lengths: list[int], micro: int, world_size: int, group: bool
) -> None:
    options = {"group": group, "world_size": world_size}
    shards = [draw(lengths, micro, micro * world_size, rank=rank, **options) for rank in range(world_size)]
    assert len({len(shard) for shard in shards}) == 1
    assert all(len(batch) == micro for shard in shards for batch in shard)
    together = flat([batch for batches in zip(*shards, strict=True) for batch in batches])
    count = len(lengths)
    assert together[:count] == flat(draw(lengths, micro, micro * world_size, group=group))
    assert all(count <= filler < 2 * count for filler in together[count:])
    assert len(together) - count < micro * world_size


@given(lengths=LENGTHS, accumulation=st.integers(1, 4))
def test_a_step_trains_on_the_samples_drawn_for_it(lengths: list[int], accumulation: int) -> None:
    step = 3 * accumulation
    drawn, grouped = (flat(draw(lengths, 3, step, group=group)) for group in (False, True))
    for start in range(0, len(lengths), step):
        assert set(drawn[start : start + step]) == set(grouped[start : start + step])


def test_the_order_depends_on_seed_and_epoch() -> None:
    lengths = list(range(50))
    same = draw(lengths, 5, 10, seed=3, epoch=2)
    assert same == draw(lengths, 5, 10, seed=3, epoch=2)
    assert same != draw(lengths, 5, 10, seed=3, epoch=3)
    assert same != draw(lengths, 5, 10, seed=4, epoch=2)


def test_grouping_pads_less_and_shuffles_the_batches_of_a_step() -> None:
    lengths = [(37 * index) % 101 + 1 for index in range(320)]
    padding = [
        sum(
            max(lengths[index] for index in batch) * len(batch) - sum(lengths[index] for index in batch)
            for batch in batches
        )
        for batches in (draw(lengths, 8, 32, group=group) for group in (False, True))
    ]
    assert padding[0] > 2 * padding[1]
    firsts = [batch[0] // 8 for batch in draw(list(range(64)), 8, 64)]
    assert sorted(firsts) == list(range(8)) != firsts
