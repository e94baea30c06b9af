"""Checks that ask the network: the first loss, pairs of image and text, and whether a few samples can be memorized.

Trained weights, modes and random numbers are restored afterwards, and nothing is written.
"""

import math
import random
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from peft import PeftModel
from rapidfuzz import process
from rapidfuzz.distance import Levenshtein

from dsocr.document import Sample
from dsocr.evaluation.metrics import ErrorRate, character_errors
from dsocr.inference.decoding import decode
from dsocr.inference.generation import Generation, batches
from dsocr.io.processes import ProgressCallback
from dsocr.models.batch import IGNORED, collate, drop_ignored_positions, normalize_pixels
from dsocr.models.deepseek_ocr import Encoded, Processor
from dsocr.text import comparable
from dsocr.training.samples import Collator
from dsocr.training.setup import Setup

Verdict = Literal["ok", "warning", "error"]

OVERFIT_STEPS, OVERFIT_SECONDS = 150, 180.0
SURE = 3.0
"""Standard errors above zero at which a mean difference counts: by chance, once in about 700."""
_MIN_WINS = 0.9
_NO_DIFFERENCE = 1e-6
_WORSE_THAN_UNIFORM, _LIKE_UNIFORM = 1.05, 0.9
"""Shares of a uniform guess's loss. Bases with random weights were measured at 1.002 and 1.004, nano at 0.07 on clean
lines and 0.40 on a hand that it hardly reads."""
_MIN_LENGTH = 6
_NEAR, _FARTHER = 0.4, 0.3
"""Edits over length up to which a prediction is taken for a text, and by how much more its own text must be away."""
_READ_EVERY = 10
_READABLE_LOSS = 0.5
"""Mean loss of a token above which no text is read without errors."""


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check; `fix` is empty if no action is needed, `details` names lines to inspect."""

    name: str
    verdict: Verdict
    message: str
    fix: str = ""
    details: tuple[str, ...] = ()


@contextmanager
def preserve_state(model: PeftModel) -> Iterator[None]:
    """Restore trained weights, modes and random numbers after the block, and drop the gradients.

    Frozen weights are not copied: they do not change, and a second copy may not fit.
    """
    weights = [(parameter, parameter.detach().clone()) for parameter in model.parameters() if parameter.requires_grad]
    modes = [(module, module.training) for module in model.modules()]
    python_state, numpy_state = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng():
            yield
    finally:
        random.setstate(python_state)
        np.random.set_state(numpy_state)
        model.zero_grad(set_to_none=True)
        with torch.no_grad():
            for parameter, weight in weights:
                parameter.copy_(weight)
        for module, training in modes:
            module.training = training


# Losses and pairs of image and text


@dataclass(frozen=True, slots=True)
class PairLosses:
    """The mean loss of a token of each transcription, with its own image and with another sample's."""

    own: Sequence[float]
    other: Sequence[float]

    @property
    def differences(self) -> list[float]:
        """By how much the other image raises each loss."""
        return [other - own for own, other in zip(self.own, self.other, strict=True)]

    @property
    def rise(self) -> float:
        """The mean of the differences."""
        return statistics.fmean(self.differences)

    @property
    def standard_errors(self) -> float:
        """The rise in standard errors of the mean."""
        error = statistics.stdev(self.differences) / math.sqrt(len(self.own)) if len(self.own) > 1 else math.inf
        return self.rise / error if error else math.copysign(math.inf, self.rise)

    @property
    def wins(self) -> int:
        """The number of samples whose own image is the likelier."""
        return sum(difference > 0 for difference in self.differences)

    @property
    def are_unclear(self) -> bool:
        """True if the losses alone do not show that images and texts belong together."""
        return self.standard_errors < SURE or self.wins < _MIN_WINS * len(self.own)


@dataclass(frozen=True, slots=True)
class Mismatch:
    """An image whose prediction is another sample's transcription."""

    id: str
    prediction: str
    text: str
    nearest: str


def pair_losses(model: PeftModel, processor: Processor, samples: Sequence[Encoded], *, batch_size: int) -> PairLosses:
    """Score each sample with its image and with the next one's."""
    others = [
        replace(sample, views=following.views, prompt_ids=following.prompt_ids)
        for sample, following in zip(samples, [*samples[1:], samples[0]], strict=True)
    ]
    own, other = (sample_losses(model, processor, rows, batch_size=batch_size) for rows in (samples, others))
    return PairLosses(own, other)


@torch.no_grad()
def sample_losses(
    model: PeftModel, processor: Processor, samples: Sequence[Encoded], *, batch_size: int
) -> list[float]:
    """Return the mean loss of a trained token of each sample."""
    model.eval()
    losses: list[float] = []
    for rows in batches(samples, batch_size):
        batch = drop_ignored_positions(
            collate(rows, processor.pad_id, padding="right", device=model.device, dtype=model.dtype)
        )
        labels, _ = batch.pop("labels"), batch.pop("shift_labels")
        for row, wanted in zip(model(**batch).logits, labels, strict=True):
            kept = wanted != IGNORED  # sample by sample: logits in float32 take much memory
            losses.append(float(torch.nn.functional.cross_entropy(row[kept].float(), wanted[kept])))
    return losses


def check_first_loss(losses: Sequence[float], vocabulary_size: int) -> Check:
    """Compare the loss before the first step with that of a uniform guess over the vocabulary."""
    mean, uniform = statistics.fmean(losses), math.log(vocabulary_size)
    message = f"the first loss is {mean:.2f}; a uniform guess over {vocabulary_size} tokens has {uniform:.2f}"
    if not math.isfinite(mean):
        fix = "set training.precision to bf16 or fp32; if it stays so, the base's weights are broken"
        return Check("first loss", "error", f"the first loss is {mean}", fix)
    if mean > _WORSE_THAN_UNIFORM * uniform:
        fix = "check that the images belong to the texts, and that it is the right base"
        return Check("first loss", "error", f"{message}, which is lower", fix)
    if mean > _LIKE_UNIFORM * uniform:
        fix = "check that the images belong to the texts, and that this base was ever trained"
        return Check("first loss", "warning", f"{message}: the base cannot read these lines", fix)
    return Check("first loss", "ok", message)


def check_image_matters(losses: PairLosses) -> Check:
    """Check that another image changes the loss at all, and that it raises it."""
    if len(losses.own) < 2:
        return Check("image matters", "warning", "there is only one sample, so no other image to try")
    if max(map(abs, losses.differences)) < _NO_DIFFERENCE:
        fix = "the image does not reach the text: check the base's image token and its vision weights"
        return Check("image matters", "error", "another image changes the loss of no sample", fix)
    message = f"another image changes the loss by {losses.rise:+.4g} on average of {len(losses.own)} samples"
    if losses.standard_errors >= SURE:
        return Check("image matters", "ok", message)
    fix = "before training this base cannot show whether images and texts belong together"
    return Check("image matters", "warning", f"{message}, which is not significant", fix)


def find_mismatches(
    model: PeftModel,
    processor: Processor,
    samples: Sequence[Sample],
    encoded: Sequence[Encoded],
    texts: Sequence[str],
    generation: Generation,
) -> list[Mismatch]:
    """Return the samples whose image reads as another one of `texts`, and not as their own."""
    known = [comparable(text) for text in texts]
    found = []
    for pairs in batches(zip(samples, encoded, strict=True), generation.batch_size):
        readings = decode(model, processor, [replace(one, answer_ids=()) for _, one in pairs], generation)
        for (sample, _), reading in zip(pairs, readings, strict=True):
            nearest = _nearest_other(comparable(reading.text), comparable(sample.text), known)
            if nearest is not None:
                found.append(Mismatch(sample.id, reading.text, sample.text, nearest))
    return found


def _nearest_other(prediction: str, own: str, known: Sequence[str]) -> str | None:
    """Return the text that a prediction is, if it is clearly not its own; short texts are too much alike."""
    if len(prediction) < _MIN_LENGTH:
        return None
    best = process.extractOne(prediction, known, scorer=Levenshtein.normalized_distance, score_cutoff=_NEAR)
    if best is None or Levenshtein.normalized_distance(prediction, own) < best[1] + _FARTHER:
        return None
    return best[0]


def check_pairs(losses: PairLosses, mismatches: Sequence[Mismatch]) -> Check:
    """Check that the images belong to the texts; `mismatches` are only looked for if the losses are unclear."""
    count = len(losses.own)
    message = (
        f"{losses.wins} of {count} transcriptions are likelier with their own image than with another, by"
        f" {losses.rise:.2f} on average ({losses.standard_errors:.1f} standard errors)"
    )
    details = tuple(
        f"{found.id}: its image reads {found.prediction[:50]!r}, like {found.nearest[:50]!r}, not {found.text[:50]!r}"
        for found in mismatches[:5]
    )
    if len(mismatches) >= max(3, count / 8):
        message = f"{len(mismatches)} of {count} images show the transcription of another sample; {message}"
        fix = "the table that pairs images with texts is shifted or shuffled: correct it, and prepare again"
        return Check("pairs", "error", message, fix, details)
    if losses.standard_errors < SURE:
        fix = "look at some lines with `dsocr preview`; this base cannot read them well enough to tell"
        message = f"cannot tell whether images and texts belong together: {message}"
        return Check("pairs", "warning", message, fix, details)
    if mismatches or losses.are_unclear:
        return Check("pairs", "warning", message, "some pairs may be wrong: see `dsocr check --html`", details)
    return Check("pairs", "ok", f"{message}; one wrong pair in ten would go unnoticed: see `dsocr check --html`")


# Overfitting


@dataclass(frozen=True, slots=True)
class OverfitResult:
    """How far overfitting came: losses of the first and the last step, CER of the last predictions."""

    steps: int
    seconds: float
    first_loss: float
    last_loss: float
    cer: float
    timed_out: bool


def overfit(
    setup: Setup,
    samples: Sequence[Encoded],
    texts: Sequence[str],
    generation: Generation,
    *,
    learning_rate: float,
    batch_size: int,
    max_steps: int = OVERFIT_STEPS,
    max_seconds: float = OVERFIT_SECONDS,
    progress: ProgressCallback | None = None,
) -> OverfitResult:
    """Train on a few samples until they are read without an error; the model is restored afterwards."""
    model, processor = setup.model, setup.processor
    longest = max(len(sample.answer_ids) for sample in samples)
    generation = replace(generation, max_new_tokens=max(generation.max_new_tokens, longest + 8))
    with preserve_state(model):
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        optimizer = torch.optim.AdamW(trained, lr=learning_rate, weight_decay=0.0)
        started, cer = time.monotonic(), math.inf
        losses: list[float] = []
        while len(losses) < max_steps and cer > 0 and time.monotonic() - started < max_seconds:
            losses.append(_overfit_step(setup, list(batches(samples, batch_size)), optimizer))
            if not math.isfinite(losses[-1]):
                break
            is_time = len(losses) % _READ_EVERY == 0 and losses[-1] < _READABLE_LOSS
            if is_time or len(losses) == max_steps:
                cer = _cer(model, processor, samples, texts, generation)
            if progress is not None:
                progress(len(losses), max_steps)
        if math.isinf(cer) and math.isfinite(losses[-1]):
            cer = _cer(model, processor, samples, texts, generation)
    seconds = time.monotonic() - started
    timed_out = len(losses) < max_steps and seconds >= max_seconds
    return OverfitResult(len(losses), seconds, losses[0], losses[-1], cer, timed_out)


def _overfit_step(setup: Setup, micro_batches: Sequence[Sequence[Encoded]], optimizer: torch.optim.Optimizer) -> float:
    """Make one optimizer step over all batches; return the mean loss before it."""
    model = setup.model
    model.train()
    total, count = 0.0, sum(map(len, micro_batches))
    for samples in micro_batches:
        batch = Collator(setup.processor.pad_id)(samples)
        moved = {
            name: part.to(setup.device) if isinstance(part, torch.Tensor) else part for name, part in batch.items()
        }
        with torch.autocast(setup.device.type, setup.dtype, enabled=setup.dtype is not torch.float32):
            loss = model(**normalize_pixels(moved)).loss * len(samples) / count
        loss.backward()
        total += float(loss.detach())
    torch.nn.utils.clip_grad_norm_((p for p in model.parameters() if p.requires_grad), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return total


def _cer(
    model: PeftModel, processor: Processor, samples: Sequence[Encoded], texts: Sequence[str], generation: Generation
) -> float:
    pooled = ErrorRate()
    for pairs in batches(zip(samples, texts, strict=True), generation.batch_size):
        readings = decode(model, processor, [replace(sample, answer_ids=()) for sample, _ in pairs], generation)
        for (_, text), reading in zip(pairs, readings, strict=True):
            pooled += character_errors(text, reading.text)
    return pooled.rate


def check_overfit(result: OverfitResult, samples: int) -> Check:
    """Judge the result of overfitting."""
    fell = f"the loss fell from {result.first_loss:.2f} to {result.last_loss:.2f}"
    effort = f"in {result.steps} steps, {result.seconds:.0f} s"
    if result.cer == 0:
        return Check("overfit", "ok", f"{samples} samples were memorized {effort}; {fell}")
    if not math.isfinite(result.last_loss):
        fix = "lower training.learning_rate, or set training.precision to bf16 or fp32"
        return Check("overfit", "error", f"the loss of {samples} samples became {result.last_loss} {effort}", fix)
    message = f"{samples} samples were not memorized {effort}: CER {result.cer:.1%}, {fell}"
    if result.timed_out and result.last_loss < 0.7 * result.first_loss:
        return Check("overfit", "warning", f"{message}; time ran out", "watch the first validations")
    if result.last_loss > 0.7 * result.first_loss:
        fix = "hardly anything is learned: raise adapter.r, widen adapter.target_modules, or check the base"
    else:
        fix = "look at these samples: equal images with different texts cannot be learned; or raise adapter.r"
    return Check("overfit", "error", message, fix)
