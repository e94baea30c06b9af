"""A training loop for one model, its optimizer and a dataloader: `Trainer.fit` reads from top to bottom.

Knows nothing about images, datasets or run folders; accelerate places the model, wraps it for several processes and
handles mixed precision. Training resumes bit-identically from the state that `Trainer.state_dict` returned.
"""

import inspect
import itertools
import math
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from typing import Any, Literal

import torch
from accelerate import Accelerator, skip_first_batches
from accelerate.state import AcceleratorState
from accelerate.utils import send_to_device
from torch import Tensor
from torch.nn import Module
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import DataLoader
from transformers import get_scheduler

from dsocr.config import TrainingSection
from dsocr.errors import ConfigError, DataError, RunError, option
from dsocr.models.family import IGNORED
from dsocr.training.checkpoint import rng_state, set_rng_state

Precision = Literal["fp32", "bf16", "fp16"]
Batch = Mapping[str, Any]
LossFunction = Callable[[Module, Batch, Tensor], Tensor]

MAX_NONFINITE_STEPS = 3
"""Consecutive steps without a finite loss or gradient after which training fails."""
_UNSUPPORTED_OPTIMIZERS = {"Optimizer", "LBFGS", "SparseAdam"}
"""LBFGS needs several passes a step, SparseAdam sparse gradients."""


@dataclass(slots=True)
class TrainerState:
    """The progress of training; saved in every checkpoint.

    `epoch` counts passes over the data, with fractions. `tokens` are those of all ranks without padding. `loss_sum` is
    the sum of the losses of the `loss_steps` steps since the last log.
    """

    step: int = 0
    epoch: float = 0.0
    tokens: int = 0
    loss_sum: float = 0.0
    loss_steps: int = 0
    nonfinite_losses: int = 0
    consecutive_nonfinite: int = 0
    skipped_steps: int = 0


def mean_loss(model: Module, batch: Batch, num_items: Tensor) -> Tensor:
    """Return the batch's share of a step's loss for a model that returns the mean loss of a batch.

    The model is called with the batch as keywords and returns the loss, or an output with a `loss`.
    """
    output = model(**batch)
    loss: Tensor = output if isinstance(output, Tensor) else output["loss"]
    return loss * _count_items(batch).to(loss.device) / num_items


class Callback:
    """Hooks into training; every method is optional. Callbacks run in the order in which the Trainer has them."""

    def on_train_begin(self, trainer: "Trainer") -> None:
        """Before the first step, or the first after resuming."""

    def on_step_end(self, trainer: "Trainer") -> None:
        """After an optimizer step, before its log and its checkpoint; may call `trainer.stop`."""

    def on_log(self, trainer: "Trainer", values: Mapping[str, float | None]) -> None:
        """Every `log_every` steps, with the mean loss since the last log."""

    def on_train_end(self, trainer: "Trainer") -> None:
        """After the last step, or after an error that ended training."""

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint keeps of this callback, in JSON's types."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned."""


def require_callbacks(callbacks: Sequence[object]) -> None:
    """Raise ConfigError for anything but objects of subclasses of Callback."""
    for callback in callbacks:
        if not isinstance(callback, Callback):
            message = f"callbacks: {callback!r} is not an object of a subclass of dsocr.Callback"
            hint = "pass objects, as in callbacks=[Losses()], not classes or functions"
            raise ConfigError(message, code="callback-type", hint=hint)


class Trainer:
    """Trains a model for `max_steps` optimizer steps, epoch after epoch.

    `dataloader` yields micro-batches (dicts of tensors) and has a length; `gradient_accumulation_steps` of them make
    an optimizer step.
    `set_epoch` of its sampler, batch sampler and dataset is called before each epoch. With several ranks it
    must yield this rank's share, equally many micro-batches on each.

    `loss_function(model, batch, num_items)` returns the sum of the losses of the batch's items divided by `num_items`,
    the number of items of the whole step over all ranks. Items are the labels that are not -100, or the rows of the
    batch if it has no `labels`. `prepare_batch` runs on the device. `frozen` parts stay in evaluation mode.

    `save` is called on every rank, every `save_every` steps, at the end, and where a callback stops with `save=True`.

    A step whose loss or gradient is not finite changes nothing: it is counted, and skipped in the logged loss and the
    learning-rate schedule. The third one in a row raises RunError, and so does validating or saving weights that are
    not finite. Overflows under fp16 are left to the gradient scaler.
    """

    def __init__(
        self,
        model: Module,
        optimizer: Optimizer,
        scheduler: LRScheduler | None,
        dataloader: "DataLoader[Any] | Sequence[Batch]",
        *,
        max_steps: int,
        gradient_accumulation_steps: int = 1,
        max_grad_norm: float = 1.0,
        precision: Precision = "fp32",
        log_every: int = 10,
        save_every: int | None = None,
        save: Callable[["Trainer"], None] | None = None,
        callbacks: Sequence[Callback] = (),
        loss_function: LossFunction = mean_loss,
        prepare_batch: Callable[[Batch], Batch] = lambda batch: batch,
        frozen: Sequence[Module] = (),
        seed: int = 42,
    ) -> None:
        device = next(model.parameters()).device
        # An earlier Trainer of this process may have had another precision.
        AcceleratorState._reset_state(reset_partial_state=True)
        self.accelerator = Accelerator(
            mixed_precision={"fp32": "no"}.get(precision, precision), cpu=device.type == "cpu"
        )
        self.module = model
        self.model, self.optimizer = self.accelerator.prepare(model, optimizer)
        self.scheduler = scheduler
        self.dataloader = dataloader
        self.max_steps = max_steps
        self.max_grad_norm = max_grad_norm
        self.state = TrainerState()
        self._accumulation = gradient_accumulation_steps
        self._log_every = log_every
        self._save_every = save_every
        self._save = save
        self._callbacks = list(callbacks)
        self._loss_function = loss_function
        self._prepare_batch = prepare_batch
        self._frozen = frozen
        self._seed = seed
        self._loss_sum = torch.zeros((), device=self.device)
        self._grad_norm: Tensor = self._loss_sum
        self._learning_rate = 0.0
        self._unsummed_tokens = 0  # of this rank
        self._stopping = self._save_requested = False

    @property
    def device(self) -> torch.device:
        """The device of the model."""
        device: torch.device = self.accelerator.device
        return device

    @property
    def is_finished(self) -> bool:
        """True after the last step."""
        return self.state.step >= self.max_steps

    @property
    def steps_per_epoch(self) -> int:
        """Optimizer steps in an epoch; the last may have fewer micro-batches."""
        return math.ceil(len(self.dataloader) / self._accumulation)

    def fit(self, resume: Mapping[str, Any] | None = None) -> TrainerState:
        """Train from the start, or from the state of a checkpoint whose weights the model already has."""
        if len(self.dataloader) == 0:
            hint = "give it a dataset with samples, or set `drop_last=False`"
            raise DataError("the dataloader has no batches to train on", code="no-batches", hint=hint)
        if resume is not None:
            self.load_state_dict(resume)
        self._stopping = False
        try:
            self._call("on_train_begin")
            first_epoch = self.state.step // self.steps_per_epoch
            for epoch in itertools.count(first_epoch):
                if self._stopping or self.is_finished:
                    break
                self._run_epoch(epoch, resume["rng"] if resume and epoch == first_epoch else None)
        finally:
            self._call("on_train_end")
        return self.state

    def _run_epoch(self, epoch: int, resumed_rng: Mapping[str, Any] | None) -> None:
        """Make the steps of an epoch; those before a resumed one are skipped without loading their samples."""
        micro_batches = len(self.dataloader)
        done = (self.state.step % self.steps_per_epoch) * self._accumulation
        if resumed_rng is not None and not done:
            set_rng_state(resumed_rng)
        batches = self._iterate(epoch, skip=done)
        while not (self._stopping or self.is_finished) and done < micro_batches:
            step_batches = list(itertools.islice(batches, self._accumulation))
            if resumed_rng is not None and done:  # starting the dataloader drew a number
                set_rng_state(resumed_rng)
            resumed_rng = None
            done += len(step_batches)
            self._train_step(step_batches)
            self.state.step += 1
            self.state.epoch = epoch + done / micro_batches
            self._call("on_step_end")
            if self.state.step % self._log_every == 0:
                self.log()
            is_due = self._save_every is not None and self.state.step % self._save_every == 0
            if is_due or self.is_finished or self._save_requested:
                self.save()

    def _iterate(self, epoch: int, *, skip: int) -> Iterator[Batch]:
        for name in ("sampler", "batch_sampler", "dataset"):
            part: Any = getattr(self.dataloader, name, None)
            if hasattr(part, "set_epoch"):
                part.set_epoch(epoch)
        return iter(skip_first_batches(self.dataloader, skip) if skip else self.dataloader)

    def _train_step(self, batches: Sequence[Batch]) -> None:
        """Forward and backward passes of all micro-batches, then one optimizer step."""
        if self.accelerator.num_processes > 1:  # dropout differs between ranks, and rank 0 saves its state alone
            rng = random.Random(f"step {self._seed} {self.state.step} {self.accelerator.process_index}")  # noqa: S311
            torch.manual_seed(rng.getrandbits(63))
        self.model.train()
        for part in self._frozen:
            part.eval()
        num_items = sum(map(_count_items, batches), torch.zeros((), dtype=torch.int64)).to(self.device)
        if self.accelerator.num_processes > 1:
            num_items = self.accelerator.gather(num_items).sum()
        loss_sum = self._loss_sum
        for place, batch in enumerate(batches, 1):
            # DistributedDataParallel averages gradients over ranks in the backward pass of the last micro-batch.
            with nullcontext() if place == len(batches) else self.accelerator.no_sync(self.model):
                prepared = self._prepare_batch(send_to_device(batch, self.device))
                loss = self._loss_function(self.model, prepared, num_items) * self.accelerator.num_processes
                self.accelerator.backward(loss)
            loss_sum = loss_sum + loss.detach()
            if "attention_mask" in batch:
                self._unsummed_tokens += int(batch["attention_mask"].sum())
        self._grad_norm = self.accelerator.clip_grad_norm_(self.model.parameters(), self.max_grad_norm)
        rates = self.scheduler.get_last_lr() if self.scheduler else [self.optimizer.param_groups[0]["lr"]]
        self._learning_rate = float(rates[0])
        finite = torch.isfinite(loss_sum)
        if self.accelerator.scaler is None:  # else the scaler looks at the gradients
            finite = finite & torch.isfinite(self._grad_norm)
        if self.accelerator.num_processes > 1:  # decide alike on every rank
            finite = self.accelerator.gather(finite.int()).all()
        # Waits for the device once a step; a later check would need an optimizer that can be undone on the device.
        if bool(finite):
            self._loss_sum = loss_sum
            self._update()
        else:
            self._skip_update()
        self.model.zero_grad()

    def _update(self) -> None:
        self.optimizer.step()
        if self.accelerator.optimizer_step_was_skipped:
            self.state.skipped_steps += 1
        elif self.scheduler is not None:
            self.scheduler.step()
        self.state.loss_steps += 1
        self.state.consecutive_nonfinite = 0

    def _skip_update(self) -> None:
        if self.accelerator.scaler is not None:
            self.accelerator.scaler.update()  # clipping has unscaled the gradients
        self.state.nonfinite_losses += 1
        self.state.consecutive_nonfinite += 1
        if self.state.consecutive_nonfinite >= MAX_NONFINITE_STEPS:
            message = (
                f"loss or gradient was not finite in {MAX_NONFINITE_STEPS} consecutive steps, the last one step"
                f" {self.state.step + 1} with learning rate {self._learning_rate:.2g}"
            )
            again = f"start again with {option('overwrite')}"
            hint = f"lower training.learning_rate or set training.precision=fp32, and {again}"
            raise RunError(message, code="loss-not-finite", hint=hint)

    def require_finite_weights(self) -> None:
        """Raise RunError if a trained weight is not finite."""
        trained = [parameter for parameter in self.module.parameters() if parameter.requires_grad]
        if not bool(torch.stack([torch.isfinite(parameter).all() for parameter in trained]).all()):
            message = f"trained weights are not finite after step {self.state.step}"
            hint = f"lower training.learning_rate, and start again with {option('overwrite')}"
            raise RunError(message, code="weights-not-finite", hint=hint)

    def log(self) -> None:
        """Pass the mean loss since the last log and the state of the optimizer to the callbacks."""
        self._sum_over_ranks()
        steps = self.state.loss_steps
        values = {
            "loss": self.state.loss_sum / steps if steps else None,
            "learning_rate": self._learning_rate,
            "gradient_norm": float(self._grad_norm),
            "nonfinite_losses": self.state.nonfinite_losses,
            "skipped_steps": self.state.skipped_steps,
        }
        self.state.loss_steps = 0
        self._loss_sum = torch.zeros_like(self._loss_sum)
        self._call("on_log", values)

    def save(self) -> None:
        """Have a checkpoint written, unless the weights are not finite."""
        self._save_requested = False
        if self._save is not None:
            self.require_finite_weights()
            self._save(self)

    def stop(self, *, save: bool) -> None:
        """Stop after the current step, with a checkpoint if `save`; called by callbacks."""
        self._stopping = True
        self._save_requested |= save

    def state_dict(self) -> dict[str, Any]:
        """Return all that the training needs to resume but the weights; every rank must call it."""
        self._sum_over_ranks()
        scaler = self.accelerator.scaler
        callbacks = {name: callback.state_dict() for name, callback in self._named_callbacks()}
        return {
            "trainer": asdict(self.state),
            "max_steps": self.max_steps,
            "optimizer": self.optimizer.state_dict(),
            "scheduler": None if self.scheduler is None else self.scheduler.state_dict(),
            "scaler": None if scaler is None else scaler.state_dict(),
            "callbacks": {name: state for name, state in callbacks.items() if state},
            "rng": rng_state(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned, but the random numbers: `fit` does that when the data are open."""
        self.state = TrainerState(**state["trainer"])
        self._loss_sum = torch.tensor(self.state.loss_sum, device=self.device)
        optimizer = state["optimizer"]
        by_parameter = {int(place): values for place, values in optimizer["state"].items()}
        self.optimizer.load_state_dict({**optimizer, "state": by_parameter})
        if self.scheduler is not None and state["scheduler"] is not None:
            self.scheduler.load_state_dict(state["scheduler"])
        if self.accelerator.scaler is not None and state["scaler"] is not None:
            self.accelerator.scaler.load_state_dict(state["scaler"])
        for name, callback in self._named_callbacks():
            if (known := state["callbacks"].get(name)) is not None:
                callback.load_state_dict(known)

    def _named_callbacks(self) -> Iterator[tuple[str, Callback]]:
        """Yield the callbacks with the names of their classes, numbered where a name repeats."""
        counts = Counter[str]()
        for callback in self._callbacks:
            name = type(callback).__name__
            counts[name] += 1
            yield (name if counts[name] == 1 else f"{name}-{counts[name]}"), callback

    def _sum_over_ranks(self) -> None:
        """Bring the state up to date with what every rank has counted since the last call."""
        tokens = torch.tensor(self._unsummed_tokens, device=self.device)
        self._unsummed_tokens = 0
        loss_sum = self._loss_sum
        if self.accelerator.num_processes > 1:
            tokens = self.accelerator.gather(tokens).sum()
            loss_sum = self.accelerator.gather(loss_sum).mean()
        self.state.tokens += int(tokens)
        self.state.loss_sum = float(loss_sum)

    def _call(self, hook: str, *arguments: Any) -> None:
        for callback in self._callbacks:
            getattr(callback, hook)(self, *arguments)


def build_optimizer(training: TrainingSection, parameters: Sequence[Tensor] | Sequence[dict[str, Any]]) -> Optimizer:
    """Make the configured optimizer of torch.optim; weight decay is omitted where its class has none.

    Raises ConfigError for an unknown class, and for arguments that it does not take.
    """
    name = training.optimizer.name
    classes = {key: item for key, item in vars(torch.optim).items() if isinstance(item, type) and key[0].isupper()}
    known = sorted(classes.keys() - _UNSUPPORTED_OPTIMIZERS)
    if name not in known:
        hint = f"choose one of {', '.join(known)}"
        raise ConfigError(f"training.optimizer: unknown optimizer {name!r}", code="optimizer-unknown", hint=hint)
    settings = {"lr": training.learning_rate, "weight_decay": training.weight_decay, **training.optimizer.arguments}
    accepted = inspect.signature(classes[name]).parameters
    if "weight_decay" not in accepted:
        del settings["weight_decay"]
    try:
        optimizer: Optimizer = classes[name](parameters, **settings)
    except (TypeError, ValueError) as error:
        hint = f"its arguments are {', '.join(key for key in accepted if key not in {'params', 'lr'})}"
        raise ConfigError(f"training.optimizer: {name}: {error}", code="optimizer-arguments", hint=hint) from error
    return optimizer


def build_scheduler(training: TrainingSection, optimizer: Optimizer, max_steps: int) -> LRScheduler:
    """Make the configured schedule of transformers, which multiplies the learning rates of all parameter groups."""
    name = training.lr_scheduler.name
    try:
        scheduler: LRScheduler = get_scheduler(
            name,
            optimizer,
            num_warmup_steps=math.ceil(training.warmup_ratio * max_steps),
            num_training_steps=max_steps,
            scheduler_specific_kwargs=training.lr_scheduler.arguments,
        )
    except (TypeError, ValueError) as error:
        raise ConfigError(f"training.lr_scheduler: {name}: {error}", code="lr-scheduler-arguments") from error
    return scheduler


def _count_items(batch: Batch) -> Tensor:
    """Count what is trained on in a batch: labels after the shift of a causal model, labels, or rows."""
    for name in ("shift_labels", "labels"):
        labels = batch.get(name)
        if isinstance(labels, Tensor) and not labels.is_floating_point():
            return labels.ne(IGNORED).sum()
    rows = next(value for value in batch.values() if isinstance(value, Tensor))
    return torch.tensor(len(rows))
