"""The Hugging Face Trainer with checkpoints of our own.

It is subclassed for two reasons. Batches are in the order that `order.py` draws, and their pixels come to the device
as bytes. And the Trainer saves an adapter through `save_pretrained` and loads it through PEFT, which restores nothing
of the decoder (see `model/adapters.py`), and it pickles the optimizer. What a checkpoint holds and how it is read back
is `checkpoints.py`; here the Trainer is only pointed there.
"""

import json
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

import torch
from torch.utils.data import Sampler
from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_callback import ExportableState

from dsocr.config import RunConfig
from dsocr.errors import RunError
from dsocr.io.processes import rank_and_count
from dsocr.models.batch import normalize_pixels
from dsocr.models.loading import choose_device, choose_dtype, is_out_of_memory
from dsocr.runs import RunFolder
from dsocr.training.checkpoint import (
    checkpoint_path,
    load_optimizer,
    load_random_state,
    load_weights,
    rotate_checkpoints,
    save_checkpoint,
    unlogged_loss,
)
from dsocr.training.distributed import Ranks, launched, leave_to_each

# Ctrl-C and `kill`; on Windows Ctrl-Break too, as which closing the window, logging off and shutting down arrive.
_SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGBREAK") if hasattr(signal, name)]

_SAID = "finishing the running step, then a checkpoint"
_ONCE_MORE = "; once more ends it at once, with the checkpoint before"


class Interruption(TrainerCallback):
    """Ends a training after the step in which a signal comes; a second signal ends the process as it always would.

    `say` is told so in a sentence. It must stand after the callbacks that may end a training for good. Of several
    processes all end after the same step, whichever heard it; a launcher, which may pass on a signal twice, ends those
    that take too long.
    """

    def __init__(self, say: Callable[[str], None], ranks: Ranks | None = None) -> None:
        self._say = say
        self._ranks = ranks or Ranks()
        self.signal: int | None = None

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Signals are heard inside; outside the main thread Python lets nobody hear them, and nothing happens."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        former = {number: signal.signal(number, self._heard) for number in _SIGNALS}
        try:
            yield
        finally:
            for number, handler in former.items():
                signal.signal(number, handler)

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Save and stop, where it was asked for."""
        self.signal = max(self._ranks.gathered(self.signal or 0)) or None
        if self.signal is not None:
            control.should_save = control.should_training_stop = True

    def _heard(self, number: int, frame: FrameType | None) -> None:
        self.signal = number
        alone = rank_and_count()[1] == 1
        if alone:
            for other in _SIGNALS:  # the system's own answer also ends a process that is deep in a computation
                signal.signal(other, signal.SIG_DFL)
        # A signal may come while something is being printed; only another thread can wait for that to end.
        threading.Thread(target=self._say, args=(_SAID + (_ONCE_MORE if alone else ""),), daemon=True).start()


def ignore_interrupts() -> None:
    """Let this process hear no Ctrl-C, which a terminal sends to worker processes too: the training ends them.

    A launcher sends the signal that asks a training to end to its worker processes as well: they hear the next one.
    """
    for number in _SIGNALS:
        if number != signal.SIGTERM:
            signal.signal(number, signal.SIG_IGN)
        elif launched().count > 1:
            signal.signal(number, lambda number, frame: signal.signal(number, signal.SIG_DFL) and None)


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
        prepared = normalize_pixels(super()._prepare_inputs(inputs))
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


_THREE = 3


@contextmanager
def out_of_memory_spoken(config: RunConfig) -> Iterator[None]:
    """Turn running out of memory, on a GPU or on the machine, into RunError; the run folder stays as it is."""
    try:
        yield
    except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        # `from None`: the traceback would keep the batch alive.
        raise _spoken(config) from None


def lighter_settings(config: RunConfig) -> dict[str, object]:
    """Three settings and their values that take less memory, those first that change nothing but the speed."""
    training = config.training
    fewer = [n for n in range(1, training.micro_batch_size // 2 + 1) if training.batch_size % n == 0]
    options: list[tuple[str, object]] = [("training.micro_batch_size", fewer[-1])] if fewer else []
    if not training.gradient_checkpointing:
        options.append(("training.gradient_checkpointing", True))
    device = choose_device()
    if choose_dtype("auto", device).itemsize < choose_dtype(training.precision, device).itemsize:
        options.append(("training.precision", "auto"))
    if training.attention != "sdpa":
        options.append(("training.attention", "sdpa"))
    if config.adapter.target_modules != "decoder":
        options.append(("adapter.target_modules", "decoder"))
    if config.adapter.r > 1:
        options.append(("adapter.r", config.adapter.r // 2))
    options.append(("training.max_text_tokens", max(training.max_text_tokens // 2, 1)))
    return dict(options[:_THREE])


def as_overrides(settings: dict[str, object]) -> str:
    """The settings as options of the command line: `--set NAME=VALUE ...`."""
    return " ".join(f"--set {name}={str(value).lower()}" for name, value in settings.items())


def _spoken(config: RunConfig) -> RunError:
    checkpoint = max(RunFolder(config.output).checkpoints.glob("step-*"), default=None)
    message = f"training ran out of memory on the {choose_device().type.upper()}"
    hint = f"run it again with {as_overrides(lighter_settings(config))} or a smaller input.resolution"
    if checkpoint is not None:
        hint += f" (with only micro_batch_size and gradient_checkpointing changed, from {checkpoint.name} on)"
    return RunError(message, where=config.output, hint=hint)
