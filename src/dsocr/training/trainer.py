"""The Hugging Face Trainer with checkpoints of our own.

It is subclassed for two reasons. Batches are in the order that `order.py` draws, and their pixels come to the device
as bytes. And the Trainer saves an adapter through `save_pretrained` and loads it through PEFT, which restores nothing
of the decoder (see `model/adapters.py`), and it pickles the optimizer. What a checkpoint holds and how it is read back
is `checkpoints.py`; here the Trainer is only pointed there.
"""

import json
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import Sampler
from transformers import Trainer
from transformers.trainer_callback import ExportableState

from dsocr.model.collating import normalized
from dsocr.training.checkpoints import (
    checkpoint_path,
    load_optimizer,
    load_random_state,
    load_weights,
    rotate_checkpoints,
    save_checkpoint,
    unlogged_loss,
)
from dsocr.training.interruption import ignore_interrupts
from dsocr.training.ranks import Ranks, leave_to_each


class AdapterTrainer(Trainer):
    """Trains the adapter of a PEFT model; checkpoints go to `folder`, of which the newest `keep` stay.

    Several processes take the batches of `order` in turn, so it must have as many for each.
    """

    def __init__(
        self, *args: Any, folder: Path, keep: int, order: Sampler[int], ranks: Ranks | None = None, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self._ranks = ranks or Ranks()
        if self._ranks.count > 1:
            leave_to_each(self.model)
        self._folder = folder
        self._keep = keep
        self._order = order

    def _get_train_sampler(self, train_dataset: Any = None) -> Sampler[int]:
        return self._order

    def _prepare_inputs(self, inputs: dict[str, Any]) -> dict[str, Any]:
        prepared = normalized(super()._prepare_inputs(inputs))
        # Padding is on the right, where a causal decoder never looks from a position that is learnt.
        del prepared["attention_mask"]
        return prepared

    def _save_checkpoint(self, model: torch.nn.Module, trial: Any) -> None:
        losses = self._ranks.gathered(float(self._tr_loss))  # each process's own, whose mean is logged
        if not self._ranks.first:
            return
        for callback in [*self.callback_handler.callbacks, self.control]:
            if isinstance(callback, ExportableState):
                self.state.stateful_callbacks[type(callback).__name__] = callback.state()
        save_checkpoint(
            checkpoint_path(self._folder, self.state.global_step),
            self.accelerator.unwrap_model(model),
            self.optimizer,
            self.lr_scheduler,
            self.accelerator.scaler,
            json.dumps(asdict(self.state), indent=2, sort_keys=True) + "\n",
            (sum(losses) / len(losses), self._globalstep_last_logged),
        )
        rotate_checkpoints(self._folder, self._keep)

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        load_weights(Path(resume_from_checkpoint), self.accelerator.unwrap_model(model or self.model))

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        if checkpoint is not None:
            load_optimizer(Path(checkpoint), self.optimizer, self.lr_scheduler, self.accelerator.scaler)

    def _load_scaler(self, checkpoint: str | None) -> None:
        """Loaded with the optimizer."""

    def _load_rng_state(self, checkpoint: str | None) -> None:
        """Also the losses since the last log: the Trainer asks for this last, when it has set them to nothing."""
        if checkpoint is not None:
            load_random_state(Path(checkpoint))
            loss, self._globalstep_last_logged = unlogged_loss(Path(checkpoint))
            self._tr_loss += loss

    def get_train_dataloader(self) -> Any:
        """The Trainer's, with workers that leave it to the training what Ctrl-C means."""
        loader = super().get_train_dataloader()
        inner = getattr(loader, "base_dataloader", loader)
        if inner.num_workers:
            inner.worker_init_fn = partial(_start_worker, inner.worker_init_fn)
        return loader


def _start_worker(start: Callable[[int], None], number: int) -> None:
    ignore_interrupts()
    start(number)
