"""Train the detector of lines on pages whose lines are drawn: what `train` does where the base is a detector.

The network says of each pixel whether it is in the middle of a line (differentiable binarization, Liao et al. 2020).
Published detectors lack the branch for the threshold, which only training uses: the threshold is here the constant at
which `find_lines` cuts, so there is nothing to learn for it.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import BatchNorm2d
from torch.nn.functional import binary_cross_entropy
from torch.utils.data import DataLoader
from transformers import set_seed

from dsocr.config import RunConfig, load_run_config
from dsocr.data.dataset import Dataset, training_samples
from dsocr.data.layouts import read_layout
from dsocr.document import Outline, Sample, Split
from dsocr.errors import ConfigError, DataError, Interrupted
from dsocr.evaluation.layout_scores import LineCounts, count_lines
from dsocr.images import MAX_PAGE_PIXELS, open_image
from dsocr.io.work import explain_disk_errors, write_file, write_folder
from dsocr.layout.lines import TEXT, draw_lines, find_outlines
from dsocr.layout.text_detector import Detector, load_detector, normalize_pixels, shrink_page
from dsocr.models.adapters import trained_files
from dsocr.models.loading import choose_device
from dsocr.runs import RunFolder
from dsocr.text import percentage
from dsocr.training.callbacks import Callback, SignalHandler, TrainingProgress, make_writer, run_logger
from dsocr.training.checkpoint import require_best, save_best, step_of
from dsocr.training.distributed import connect, decide_threads, limit_threads
from dsocr.training.lifecycle import RunLock, clear_run, explain_out_of_memory, require_same_settings, start_run
from dsocr.training.samples import REMEMBERED_BYTES, LengthGroupedSampler, log_interval, total_steps
from dsocr.training.train import TrainingJob, TrainResult, find_checkpoint, fit, save_run
from dsocr.training.trainer import Trainer, build_optimizer, build_scheduler
from dsocr.training.validation import PeriodicValidation, StartValidation, ValidationLine, draw_samples

_DEFAULTS: Mapping[str, Any] = {"learning_rate": 1e-4, "batch_size": 1, "micro_batch_size": 1}
"""Settings of the training section where the configuration has none. Pages differ in size, so each is a batch."""
_VALIDATIONS = 10
"""Validations of a run whose configuration does not say after how many steps."""
_MEANT = {
    "epochs",
    "max_steps",
    "max_samples",
    "batch_size",
    "micro_batch_size",
    "learning_rate",
    "warmup_ratio",
    "lr_scheduler",
    "optimizer",
    "weight_decay",
    "max_grad_norm",
    "threads",
    "report_to",
}
"""Settings of the training section that a detector is trained with."""
_UNUSED = ("input", "adapter", "generation")
"""Sections that only readers have a use for."""

_TRIED = 100
"""Training pages whose lines are looked at before the first step, at most."""
_MANY = 0.1
"""Share of training lines that cannot be found from which a message says so."""
_HARD = 3
"""Pixels beside lines that count in the loss, those taken most for text, by the number of pixels in lines."""
_STEEP = 50.0
"""The steepness of binarization."""


# Pages as samples


@dataclass(frozen=True, slots=True)
class EncodedPage:
    """A page as the detector sees it, bytes `(3, H, W)`, what it shall say of it, `(H, W)`, and its drawn lines."""

    id: str
    size: tuple[int, int]
    pixels: Tensor
    lines: Tensor
    outlines: tuple[Outline, ...]

    def find(self, probabilities: Tensor) -> LineCounts:
        """Count the lines that are found by probabilities `(H, W)`."""
        return count_lines(self.outlines, find_outlines(probabilities.cpu().numpy(), self.size))


def encode_page(sample: Sample) -> EncodedPage:
    """Open a page and draw the middle of its lines. Raises DataError if it cannot be opened or has no layout."""
    layout = read_layout(sample)
    image = open_image(sample.image, max_pixels=MAX_PAGE_PIXELS)
    outlines = tuple(line.outline for line in layout.lines if line.outline)
    pixels = shrink_page(image)
    lines = draw_lines(outlines, image.size, (pixels.shape[1], pixels.shape[2]))
    return EncodedPage(sample.id, image.size, pixels, torch.from_numpy(lines.copy()), outlines)


class PageSamples(torch.utils.data.Dataset[dict[str, Tensor]]):
    """Pages as batches of one, opened when they are needed and remembered up to `REMEMBERED_BYTES`."""

    def __init__(self, samples: Sequence[Sample]) -> None:
        self._samples = samples
        self._pages: dict[int, EncodedPage] = {}
        self._room = REMEMBERED_BYTES

    def __len__(self) -> int:
        return len(self._samples)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        page = self.page(index)
        return {"pixels": page.pixels[None], "lines": page.lines[None, None]}

    def page(self, index: int) -> EncodedPage:
        """Return the page of a sample."""
        if index in self._pages:
            return self._pages[index]
        page = encode_page(self._samples[index])
        size = page.pixels.numel() + page.lines.numel()
        if size <= self._room:
            self._room -= size
            self._pages[index] = page
        return page


# Loss


def page_loss(network: Any, batch: Mapping[str, Tensor], num_items: Tensor) -> Tensor:
    """Return the loss of the pages of a batch over `num_items`, the pages of the whole step."""
    probabilities = network(normalize_pixels(batch["pixels"])).last_hidden_state
    loss: Tensor = detection_loss(probabilities, batch["lines"].float()) * len(probabilities) / num_items
    return loss


def detection_loss(probabilities: Tensor, lines: Tensor) -> Tensor:
    """Return the loss of probabilities `(B, 1, H, W)` where `lines` is 1 in the middle of lines and 0 elsewhere.

    The cross-entropy of the pixels in lines and of the hardest others, and the dice loss of the binarized map.
    """
    entropy = binary_cross_entropy(probabilities, lines, reduction="none")
    positive = lines.sum()
    count = min(_HARD * int(positive), int(lines.numel() - positive)) or min(1000, lines.numel())
    hardest = (entropy * (1 - lines)).flatten().topk(count).values
    balanced = ((entropy * lines).sum() + hardest.sum()) / (positive + count)
    binary = torch.sigmoid(_STEEP * (probabilities - TEXT))
    common = (binary * lines).sum()
    dice = 1 - (2 * common + 1) / (binary.sum() + positive + 1)
    return balanced + dice


# Validation


@dataclass(frozen=True, slots=True)
class LayoutResult:
    """One validation of a detector."""

    step: int
    loss: float
    counts: LineCounts
    pages: int
    seconds: float
    is_best: bool
    lines: tuple[ValidationLine, ...] = ()
    cer: ClassVar[None] = None
    failures: ClassVar[str] = ""

    @property
    def score(self) -> str:
        """What is validated, and its value."""
        return f"line F1 {percentage(self.counts.f1)}"

    @property
    def curves(self) -> Mapping[str, float]:
        """The values that trackers draw."""
        counts = self.counts
        return {"loss": self.loss, "f1": counts.f1, "precision": counts.precision, "recall": counts.recall}

    def describe(self) -> str:
        """Return the line of the log."""
        counts = self.counts
        lines = f"{counts.matched} of {counts.drawn} lines found, {counts.detected} in all, on {self.pages} pages"
        return f"validation loss {self.loss:.4f}, {self.score}, {lines}"

    def to_dict(self) -> dict[str, Any]:
        """Return the row of metrics.jsonl."""
        row = {"step": self.step, "loss": self.loss, **self.counts.to_dict(), "pages": self.pages}
        return row | {"seconds": self.seconds, "best": self.is_best}


@dataclass(slots=True)
class LayoutState:
    """What a checkpoint keeps of a LayoutValidator."""

    best_f1: float = 0.0
    best_loss: float = math.inf
    best_step: int | None = None
    without_improvement: int = 0


class LayoutValidator(PeriodicValidation):
    """Finds the lines of the validation pages. The best has the highest F1; of equal ones, the lowest loss."""

    state: LayoutState

    def __init__(
        self,
        pages: PageSamples,
        config: RunConfig,
        folder: Path,
        on_result: Callable[[LayoutResult], None] = lambda result: None,
    ) -> None:
        super().__init__(config.validation.every_steps, config.validation.patience)
        self.state = LayoutState()
        self.on_result = on_result
        self._pages = pages
        self._folder = folder

    @torch.no_grad()
    def validate(self, model: Any, step: int, limit: float = math.inf) -> None:
        """Validate once: report the result, and keep the weights if they are the best and 1 - F1 is below `limit`."""
        started, state = time.monotonic(), self.state
        model.eval()
        device = next(model.parameters()).device
        counts, loss = LineCounts(), 0.0
        for page in map(self._pages.page, range(len(self._pages))):
            probabilities = model(normalize_pixels(page.pixels[None].to(device))).last_hidden_state
            loss += float(detection_loss(probabilities, page.lines[None, None].to(device).float())) / len(self._pages)
            counts += page.find(probabilities[0, 0])
        competes = math.isfinite(loss) and 1 - counts.f1 < limit
        is_best = competes and (state.best_step is None or (-counts.f1, loss) < (-state.best_f1, state.best_loss))
        if is_best:
            state.best_f1, state.best_loss = counts.f1, loss
            state.best_step, state.without_improvement = step, 0
            save_best(self._folder, step, model, {})
        elif step:
            state.without_improvement += 1
        seconds = time.monotonic() - started
        self.on_result(LayoutResult(step, loss, counts, len(self._pages), seconds, is_best))


# Train


@dataclass(frozen=True, slots=True)
class _Pages:
    """The pages to train on and to validate on, with what the configuration leaves open."""

    config: RunConfig
    dataset: Dataset
    training: PageSamples
    validation: PageSamples


def train_layout(
    config: RunConfig,
    *,
    overwrite: bool = False,
    on_progress: Callable[[TrainingProgress], None] | None = None,
    on_message: Callable[[str], None] | None = None,
    on_stage: Callable[[str, str, int, int], None] | None = None,
    callbacks: Sequence[Callback] = (),
) -> TrainResult:
    """Train a detector as the configuration says, or resume where an earlier call was interrupted; see `train`."""
    started = time.monotonic()
    require_used_settings(config)
    run, say = RunFolder(config.output), on_message or (lambda message: None)
    with connect() as dist, explain_disk_errors(run.path), explain_out_of_memory(config), ExitStack() as stack:
        if dist.world_size > 1:
            raise ConfigError(
                "A detector is trained in one process", code="detector-one-process", hint="leave torchrun out"
            )
        lock = RunLock(run)
        newest = find_checkpoint(run, lock, stack, say, overwrite=overwrite)
        checkpoint = Path(newest) if newest else None
        log = stack.enter_context(run_logger(run))
        job = TrainingJob(run, dist, checkpoint, log, say, None, on_stage, on_progress)

        # Setup
        pages = _open_pages(config, job)
        if busy := limit_threads(config, pages.config):
            say(busy)
        config = pages.config
        set_seed(config.seed)
        device = choose_device()
        network = load_detector(RunFolder.to_find_lines_with(Path(config.base))).to(device)
        _begin(job, lock, pages, str(device), overwrite=overwrite)

        # Fit
        signals = SignalHandler(say, dist)
        validator = LayoutValidator(pages.validation, config, run.checkpoints) if len(pages.validation) else None
        own_callbacks: list[Callback] = [] if validator is None else [validator]
        own_callbacks.append(writer := make_writer(run, log, config, on_progress))
        if validator is not None:
            validator.on_result = writer.write_validation
            own_callbacks.append(StartValidation(validator, math.inf))  # the base may find them better
        save = partial(save_run, job, config.checkpoints.keep)
        trainer = _make_trainer(network, pages, save, [*own_callbacks, signals, *callbacks])
        with signals.installed():
            fit(trainer, job, validator)
            is_over = trainer.is_finished or (validator is not None and validator.is_out_of_patience)
            if signals.signal is not None and not is_over:
                raise Interrupted(signals.signal, trainer.state.step, run.resume_command)
            _finish(job, network, validator)
        return TrainResult(
            run=run,
            steps=trainer.state.step,
            best_step=validator.state.best_step if validator else None,
            best_cer=None,
            best_f1=validator.state.best_f1 if validator else None,
            seconds=time.monotonic() - started,
            excluded=0,
            resumed_from=step_of(checkpoint) if checkpoint else 0,
        )


def require_used_settings(config: RunConfig) -> None:
    """Raise ConfigError for settings that differ from the default and that only readers are trained with."""
    fields = RunConfig.model_fields
    default = fields["training"].default
    problems = [
        f"training.{name}: is for readers"
        for name in type(default).model_fields
        if name not in _MEANT and getattr(config.training, name) != getattr(default, name)
    ]
    problems += [
        f"{section}.{name}: is for readers"
        for section in _UNUSED
        for name in type(fields[section].default).model_fields
        if getattr(getattr(config, section), name) != getattr(fields[section].default, name)
    ]
    if "micro_batch_size" in config.training.model_fields_set and config.training.micro_batch_size != 1:
        problems.append("training.micro_batch_size: must be 1, since pages differ in size")
    if problems:
        raise ConfigError.listing(problems, where="the configuration", code="detector-setting")


def _open_pages(config: RunConfig, job: TrainingJob) -> _Pages:
    """Open the dataset. Raises RunError if a run that resumes was begun with other settings."""
    dataset = Dataset.open(config.dataset, fold=config.fold)
    recorded = load_run_config(job.run.config) if job.checkpoint else None
    samples = training_samples(dataset, config)
    config = _complete(config, len(samples))
    if recorded is not None:
        require_same_settings(job.run, config, recorded)
    config = decide_threads(config, recorded)
    chosen = draw_samples(dataset.samples(Split.VALIDATION), config.validation.max_samples, config.seed)
    return _Pages(config, dataset, PageSamples(samples), PageSamples(chosen))


def _complete(config: RunConfig, samples: int) -> RunConfig:
    """Return the configuration with the defaults of a detector."""
    known = config.training.model_fields_set
    training = config.training.model_copy(
        update={
            name: value
            for name, value in _DEFAULTS.items()
            if name not in known or getattr(config.training, name) is None
        }
    )
    config = config.model_copy(update={"training": training})
    if "every_steps" in config.validation.model_fields_set:
        return config
    every = max(1, total_steps(config, samples) // _VALIDATIONS)
    return config.model_copy(update={"validation": config.validation.model_copy(update={"every_steps": every})})


def _begin(job: TrainingJob, lock: RunLock, pages: _Pages, device: str, *, overwrite: bool) -> None:
    """Check that the lines can be told apart at the size of the network, and write what a run folder begins with."""
    run, config, log = job.run, pages.config, job.log
    if job.checkpoint is None:
        learnable, count = LineCounts(), min(len(pages.training), _TRIED)
        for number in range(count):
            if job.on_stage is not None:
                job.on_stage("opening", "pages", number, count)
            page = pages.training.page(number)
            learnable += page.find(page.lines.float())
        if not learnable.matched:
            message = f"none of {learnable.drawn} lines could be found, however well the detector learnt"
            hint = "see on a contact sheet whether the outlines are around the lines"
            raise DataError(message, code="layout-unlearnable", where=config.dataset, hint=hint)
    lock.acquire()
    if overwrite:
        clear_run(run)
    write_file(run.config, config.to_yaml())
    if job.checkpoint is None:
        start_run(run, config, pages.dataset, device=device, world_size=1, samples=len(pages.training))
        log.info("of %d lines on %d training pages %d can be found", learnable.drawn, count, learnable.matched)
        lost = learnable.drawn - learnable.matched
        if lost > _MANY * learnable.drawn:
            job.announce(
                f"{lost} of {learnable.drawn} training lines are too small or too close to others to be told apart"
            )
    if len(pages.validation):
        log.info("%d validation pages", len(pages.validation))
    else:
        log.warning("there is no validation split: the last weights are kept, not the best")


def _make_trainer(
    network: Detector, pages: _Pages, save: Callable[[Trainer], None], callbacks: Sequence[Callback]
) -> Trainer:
    config, training = pages.config, pages.config.training
    samples = pages.training
    max_steps = total_steps(config, len(samples))
    optimizer = build_optimizer(
        training.optimizer.name,
        list(network.parameters()),
        learning_rate=training.learning_rate or _DEFAULTS["learning_rate"],
        weight_decay=training.weight_decay,
        arguments=training.optimizer.arguments,
    )
    scheduler = build_scheduler(
        training.lr_scheduler.name,
        optimizer,
        warmup_steps=math.ceil(training.warmup_ratio * max_steps),
        max_steps=max_steps,
        arguments=training.lr_scheduler.arguments,
    )
    sampler = LengthGroupedSampler([1] * len(samples), 1, training.batch_size, seed=config.seed)
    return Trainer(
        network,
        optimizer,
        scheduler,
        DataLoader(samples, batch_sampler=sampler, collate_fn=_only),
        max_steps=max_steps,
        gradient_accumulation_steps=training.batch_size,
        max_grad_norm=training.max_grad_norm,
        log_every=log_interval(max_steps),
        save_every=config.checkpoints.every_steps,
        save=save,
        callbacks=callbacks,
        loss_function=page_loss,
        # Statistics of a few pages would be worse than those of the base.
        frozen=[module for module in network.modules() if isinstance(module, BatchNorm2d)],
        seed=config.seed,
    )


def _only(batches: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    (batch,) = batches
    return batch


def _finish(job: TrainingJob, network: Detector, validator: LayoutValidator | None) -> None:
    """Write the best weights, whose presence marks the run as finished; without a validation the last."""
    run, files = job.run, trained_files(network)
    if validator is not None and validator.state.best_step is not None:
        best = require_best(run, validator.state.best_step)
        files = [(name, (best / name).read_bytes()) for name, _ in files]
    write_folder(run.path / "model", files)
