"""Tells the training samples which epoch it is."""

from typing import Any, Protocol

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments


class VariesByEpoch(Protocol):
    """Samples that look different in each epoch."""

    def set_epoch(self, epoch: int) -> None:
        """Look as in this epoch, counted from 0."""


class EpochTeller(TrainerCallback):
    """Tells the samples each epoch as it begins, in every process, resumed or not.

    accelerate tells a sampler or the samples, not both: under several processes, and in an epoch that is resumed in
    its middle, it is the sampler.
    """

    def __init__(self, samples: VariesByEpoch) -> None:
        self._samples = samples

    def on_epoch_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """The whole part of the Trainer's count is the epochs that are over."""
        self._samples.set_epoch(int(state.epoch or 0))
