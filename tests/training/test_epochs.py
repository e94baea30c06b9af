import pytest
import torch
from accelerate.data_loader import BatchSamplerShard, DataLoaderShard, SeedableRandomSampler, skip_first_batches
from torch.utils.data import BatchSampler, Dataset
from transformers import TrainerControl, TrainerState, TrainingArguments

from dsocr.training.trainer import EpochTeller


class Told(Dataset[int]):
    def __init__(self) -> None:
        self.epochs: list[int] = []

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> int:
        return index

    def set_epoch(self, epoch: int) -> None:
        self.epochs.append(epoch)


@pytest.mark.parametrize(
    ("counted", "epoch"),
    [
        pytest.param(None, 0, id="before the first step"),
        pytest.param(1.0, 1, id="one epoch is over"),
        pytest.param(2 + 3 / 7, 2, id="resumed in the middle"),
        pytest.param(2 + 6 / 7, 2, id="resumed before the last step"),
    ],
)
def test_the_samples_are_told_which_epoch_begins(counted: float | None, epoch: int) -> None:
    told = Told()
    EpochTeller(told).on_epoch_begin(TrainingArguments(), TrainerState(epoch=counted), TrainerControl())
    assert told.epochs == [epoch]


@pytest.mark.parametrize("how", ["several processes", "resumed in the middle of an epoch"])
def test_accelerate_tells_a_sampler_or_the_samples_but_not_both(how: str) -> None:
    """What makes `EpochTeller` needed; where this fails, accelerate tells the samples and it is needed no more."""
    told = Told()
    sampler = SeedableRandomSampler(told, data_seed=1, generator=torch.Generator())
    batches = BatchSampler(sampler, 2, drop_last=False)
    if how == "several processes":
        loader = DataLoaderShard(told, batch_sampler=BatchSamplerShard(batches, num_processes=2, process_index=0))
    else:
        loader = skip_first_batches(DataLoaderShard(told, batch_sampler=batches), 1)
    loader.set_epoch(3)
    assert told.epochs == []
