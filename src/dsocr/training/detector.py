"""How the detector of lines is trained, on pages whose lines are drawn.

The network says of each pixel whether it is in the middle of a line (differentiable binarization, Liao et al. 2020).
Published detectors lack the branch for the threshold, which only training uses: the threshold is here the constant at
which `find_lines` cuts, so there is nothing to learn for it.
"""

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import BatchNorm2d
from torch.nn.functional import binary_cross_entropy
from torch.utils.data import DataLoader
from transformers import set_seed

from dsocr.config import RunConfig
from dsocr.console import current_reporter
from dsocr.data.dataset import training_samples
from dsocr.data.layouts import read_layout
from dsocr.document import Outline, Sample, Split
from dsocr.errors import ConfigError, DataError
from dsocr.evaluation.layout_scores import LineCounts, count_lines
from dsocr.images import MAX_PAGE_PIXELS, open_image
from dsocr.job import Job, log_interval, total_steps
from dsocr.layout.detector_network import LineDetector, load_detector
from dsocr.layout.lines import TEXT, draw_lines, find_outlines
from dsocr.layout.text_detector import normalize_pixels, shrink_page
from dsocr.models.adapters import trained_files
from dsocr.models.loading import choose_device
from dsocr.text import percentage
from dsocr.training.checkpoint import save_best
from dsocr.training.distributed import Distributed
from dsocr.training.samples import LengthGroupedSampler, Remembered
from dsocr.training.trainer import Trainer, build_optimizer, build_scheduler
from dsocr.training.validation import PeriodicValidation, ValidationResult, draw_samples

_TRIED = 100
"""Maximum number of training pages checked before the first step."""
_MANY = 0.1
"""Share of training lines that cannot be found above which a message says so."""
_HARD = 3
"""The hardest pixels beside lines count in the loss, this many for each pixel in lines."""
_STEEP = 50.0
"""The steepness of binarization."""


# Pages as samples


@dataclass(frozen=True, slots=True)
class EncodedPage:
    """A page as the detector sees it, bytes `(3, H, W)`, its training target `(H, W)`, and its drawn lines."""

    size: tuple[int, int]
    pixels: Tensor
    lines: Tensor
    outlines: tuple[Outline, ...]

    def find(self, probabilities: Tensor) -> LineCounts:
        """Count the lines that are found by probabilities `(H, W)`."""
        return count_lines(self.outlines, find_outlines(probabilities.cpu().numpy(), self.size))


class PageSamples(torch.utils.data.Dataset[dict[str, Tensor]]):
    """Pages as batches of one, opened when they are needed and remembered; see `Remembered`."""

    def __init__(self, samples: Sequence[Sample]) -> None:
        self._samples = samples
        self._pages = Remembered[EncodedPage]()

    def __len__(self) -> int:
        return len(self._samples)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        page = self.page(index)
        return {"pixels": page.pixels[None], "lines": page.lines[None, None]}

    def page(self, index: int) -> EncodedPage:
        """Return the page of a sample. Raises DataError if it cannot be opened or has no layout."""
        return self._pages.get(index, partial(self._open, index), lambda page: page.pixels.numel() + page.lines.numel())

    def _open(self, index: int) -> EncodedPage:
        sample = self._samples[index]
        layout, image = read_layout(sample), open_image(sample.image, max_pixels=MAX_PAGE_PIXELS)
        outlines = tuple(line.outline for line in layout.lines if line.outline)
        pixels = torch.from_numpy(shrink_page(image))
        lines = draw_lines(outlines, image.size, (pixels.shape[1], pixels.shape[2]))
        return EncodedPage(image.size, pixels, torch.from_numpy(lines.copy()), outlines)


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


class LayoutValidator(PeriodicValidation):
    """Finds the lines of the validation pages. The best has the highest F1; of equal ones, the lowest loss."""

    def __init__(self, pages: PageSamples, config: RunConfig, folder: Path) -> None:
        super().__init__(config.validation.every_steps, config.validation.patience)
        self._pages = pages
        self._folder = folder

    def _keep(self, model: Any, step: int) -> None:
        save_best(self._folder, step, model, {})

    @torch.no_grad()
    def _measure(self, model: Any, step: int) -> ValidationResult:
        model.eval()
        device = next(model.parameters()).device
        counts, loss = LineCounts(), 0.0
        for page in map(self._pages.page, range(len(self._pages))):
            probabilities = model(normalize_pixels(page.pixels[None].to(device))).last_hidden_state
            loss += float(detection_loss(probabilities, page.lines[None, None].to(device).float())) / len(self._pages)
            counts += page.find(probabilities[0, 0])
        f1, pages = counts.f1, len(self._pages)
        return ValidationResult(
            step,
            loss,
            rank=(-f1, loss),
            score=f"line F1 {percentage(f1)}",
            details=f"{counts.matched} of {counts.drawn} lines found, {counts.detected} in all, on {pages} pages",
            rates={"f1": f1, "precision": counts.precision, "recall": counts.recall},
            counts={**counts.to_dict(), "pages": pages},
        )


# Train


class DetectorLearner:
    """The training of a detector: its pages, and its network. Raises ConfigError in one of several processes."""

    folder: Literal["model"] = "model"
    excluded = 0
    verdicts: Sequence[str] = ()

    def __init__(self, job: Job, dist: Distributed) -> None:
        if dist.world_size > 1:
            message = "a detector is trained in one process"
            raise ConfigError(message, code="detector-one-process", hint="leave torchrun out")
        assert job.detector is not None
        config, dataset = job.config, job.samples_from
        chosen = draw_samples(dataset.samples(Split.VALIDATION), config.validation.max_samples, config.seed)
        self._pages = PageSamples(training_samples(dataset, config))
        self.config, self.count = config, len(self._pages)
        self.notes = [f"{len(chosen)} validation pages"]
        set_seed(config.seed)
        self.device = choose_device()
        self._network = load_detector(job.detector).to(self.device)
        self.warnings: list[str] = []
        self.validator = LayoutValidator(PageSamples(chosen), config, job.run.checkpoints) if chosen else None
        if self.validator is not None:
            self.validator.start_limit = math.inf  # the base may find the lines better

    def check(self, preflight: bool) -> list[str]:
        """Check that lines are separate at the size of the network. Raises DataError if none is."""
        learnable, count = LineCounts(), min(self.count, _TRIED)
        with current_reporter().progress("opening", "pages") as done:
            for number in range(count):
                done(number, count)
                page = self._pages.page(number)
                learnable += page.find(page.lines.float())
        if not learnable.matched:
            message = f"none of {learnable.drawn} lines could be found, however well the detector learnt"
            hint = "see on a contact sheet whether the outlines are around the lines"
            raise DataError(message, code="layout-unlearnable", where=self.config.dataset, hint=hint)
        lost = learnable.drawn - learnable.matched
        if lost > _MANY * learnable.drawn:
            lines = f"{lost} of {learnable.drawn} training lines"
            self.warnings.append(f"{lines} are too small, or too close to others")
        return [f"of {learnable.drawn} lines on {count} training pages {learnable.matched} can be found"]

    def make_trainer(self, log: logging.Logger, **options: Any) -> Trainer:
        """Make the trainer."""
        config, training, network = self.config, self.config.training, self._network
        max_steps = total_steps(config, self.count)
        optimizer = build_optimizer(training, list(network.parameters()))
        sampler = LengthGroupedSampler([1] * self.count, 1, training.batch_size, seed=config.seed)
        return Trainer(
            network,
            optimizer,
            build_scheduler(training, optimizer, max_steps),
            DataLoader(self._pages, batch_sampler=sampler, collate_fn=itemgetter(0)),
            max_steps=max_steps,
            gradient_accumulation_steps=training.batch_size,
            max_grad_norm=training.max_grad_norm,
            log_every=log_interval(max_steps),
            loss_function=page_loss,
            # Statistics of a few pages would be worse than those of the base.
            frozen=[module for module in network.modules() if isinstance(module, BatchNorm2d)],
            seed=config.seed,
            **options,
        )

    def finish(self, model: Any, best: Path | None) -> list[tuple[str, bytes]]:
        """Return the files of the best weights, or of the last."""
        files = trained_files(model)
        files = files if best is None else [(name, (best / name).read_bytes()) for name, _ in files]
        return [*files, *LineDetector().graph_files(files)]

    def scores(self) -> dict[str, Any]:
        """Return the field of `TrainResult` for the best weights."""
        best = None if self.validator is None else self.validator.state.best
        return {} if best is None else {"best_f1": -best[0]}
