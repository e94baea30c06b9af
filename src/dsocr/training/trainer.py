"""The Hugging Face Trainer with checkpoints of our own.

It is subclassed for two reasons. Batches are in the order that `order.py` draws, and their pixels come to the device as
bytes. And the Trainer saves an adapter through `save_pretrained` and loads it through PEFT, which
restores nothing of the decoder (see `model/adapters.py`), and it pickles the optimizer. What a checkpoint holds and
how it is read back is `checkpoints.py`; here the Trainer is only pointed there.
"""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import Sampler
from transformers import Trainer
from transformers.trainer_callback import ExportableState

from dsocr.model.encoding import normalized
from dsocr.training.checkpoints import (
    checkpoint_path,
    load_optimizer,
    load_random_state,
    load_weights,
    rotate_checkpoints,
    save_checkpoint,
)


class AdapterTrainer(Trainer):
    """Trains the adapter of a PEFT model; checkpoints go to `folder`, of which the newest `keep` stay."""

    def __init__(self, *args: Any, folder: Path, keep: int, order: Sampler[int], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._folder = folder
        self._keep = keep
        self._order = order

    def _get_train_sampler(self, train_dataset: Any = None) -> Sampler[int]:
        return self._order

    def _prepare_inputs(self, inputs: dict[str, Any]) -> dict[str, Any]:
        return normalized(super()._prepare_inputs(inputs))

    def _save_checkpoint(self, model: torch.nn.Module, trial: Any) -> None:
        if not self.args.should_save:
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
        if checkpoint is not None:
            load_random_state(Path(checkpoint))
