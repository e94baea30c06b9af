"""Checks before a training: the batches, and whether the base can learn from them.

The cheap ones run before every training; the thorough ones also swap images, and overfit a handful of samples. Trained
weights, modes and random numbers are restored afterwards, and nothing is written.
"""

import math
import random
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rapidfuzz import process
from rapidfuzz.distance import Levenshtein

from dsocr.config import RunConfig
from dsocr.document import Sample
from dsocr.errors import RunError
from dsocr.evaluation.metrics import character_errors, pool
from dsocr.images import open_image
from dsocr.io.processes import ProgressCallback
from dsocr.models.adapters import train_mode
from dsocr.models.family import IGNORED, Check, Encoded, Family, Processor, trains_all_weights
from dsocr.models.generation import Generation, batches, spread
from dsocr.text import comparable, percentage
from dsocr.training.samples import EncodedSamples, Setup

CHEAP_SAMPLES, PAIRED_SAMPLES, OVERFIT_SAMPLES = 3, 24, 5
OVERFIT_STEPS, OVERFIT_SECONDS = 150, 180.0
_TELLING_STEPS = 50
"""Steps before which a loss that hardly falls says nothing; samples that can be memorized took 20 to 110."""
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
_SHOWN_CHARACTERS = 40
_CODE_FAULT = "this is no setting: the base's files do not match its config.json, or the code is wrong"


def check_setup(
    setup: Setup, config: RunConfig, *, thorough: bool, progress: ProgressCallback | None = None
) -> list[Check]:
    """Check what shows with the network in memory: batches and first loss and, if `thorough`, pairs and overfitting.

    `progress` counts the steps of overfitting. Leaves weights, random numbers and samples as they were.
    """
    processor, model, samples = setup.processor, setup.model, setup.samples.samples
    batch_size = config.training.micro_batch_size
    generation = Generation(**config.generation.model_dump())
    chosen = spread(samples, PAIRED_SAMPLES if thorough else CHEAP_SAMPLES)
    encoded = [processor.encode(open_image(sample.image), sample.text) for sample in chosen]
    with preserve_state(model):
        few, inputs = chosen[:CHEAP_SAMPLES], encoded[:CHEAP_SAMPLES]
        trained_on = EncodedSamples(few, processor)
        checks = [
            check_characters([sample.text for sample in samples], processor),
            *processor.family.check_inputs(model, processor, inputs, [sample.text for sample in few]),
            check_same_input(few, [trained_on[place] for place in range(len(few))], processor),
        ]
        if errors(checks):
            return checks
        paired = sample_losses(model, processor, encoded, batch_size=batch_size)
        checks.append(check_first_loss(paired, processor.family.uniform_loss(model, processor, encoded)))
        if not thorough:
            return checks
        swapped = [
            sample.with_image_of(following)
            for sample, following in zip(encoded, [*encoded[1:], encoded[0]], strict=True)
        ]
        losses = PairLosses(paired, sample_losses(model, processor, swapped, batch_size=batch_size))
        mismatches: list[str] = []
        if losses.are_unclear:
            mismatches = find_mismatches(setup, chosen, encoded, [sample.text for sample in samples], generation)
        checks += [check_image_matters(losses), check_pairs(losses, mismatches)]
    if errors(checks):
        return checks
    chosen = spread(samples, OVERFIT_SAMPLES)
    memorized = [(processor.encode(open_image(sample.image), sample.text), sample.text) for sample in chosen]
    # What a network sees otherwise than in training, because of its text, it cannot read without an error.
    memorized = [pair for pair in memorized if pair[0].has_input_of(pair[0].without_text())] or memorized
    result = overfit(
        setup,
        [encoded for encoded, _ in memorized],
        [text for _, text in memorized],
        generation,
        learning_rate=_overfitting_rate(config, processor.family),
        batch_size=batch_size,
        progress=progress,
    )
    return [*checks, check_overfit(result, len(memorized))]


def _overfitting_rate(config: RunConfig, family: Family) -> float:
    """Return the learning rate of overfitting: higher than that of the training, but not where it would destroy.

    An adapter starts from nothing. Of all weights, those of `small` forgot at three times their rate what they knew:
    five lines had a loss of 344 after 20 steps, where their own rate memorizes them in 20.
    """
    rate = config.training.learning_rate or 0.0
    return rate if trains_all_weights(family, config.adapter.target) else min(max(3 * rate, 1e-3), 5e-3)


def errors(checks: Sequence[Check]) -> list[Check]:
    """Return the checks that failed."""
    return [check for check in checks if check.verdict == "error"]


def require_learning(checks: Sequence[Check], run: Path) -> None:
    """Raise RunError if a check failed, with all reasons."""
    if failed := errors(checks):
        shown = "".join(f"\n  {check.name}: {check.message}" for check in failed)
        raise RunError(f"Preflight checks failed:{shown}", code="preflight-failed", where=run, hint=failed[0].fix)


@contextmanager
def preserve_state(model: Any) -> Iterator[None]:
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


# Batches


def check_characters(texts: Sequence[str], processor: Processor) -> Check:
    """Check that the tokenizer can write the texts; if it cannot write most of them, the base is the wrong one."""
    unknown = set(processor.unknown_characters("".join(sorted(set().union(*texts)))))
    if not unknown:
        return Check("characters", "ok", f"the tokenizer can write all {len(texts)} texts")
    count = sum(not unknown.isdisjoint(text) for text in texts)
    shown = "".join(sorted(unknown)[:_SHOWN_CHARACTERS])
    message = f"the tokenizer cannot write {shown!r}, {len(unknown)} characters in {count} of {len(texts)} texts"
    fix = "choose a base that knows the script, or replace the characters in the source"
    return Check("characters", "error" if count > len(texts) / 2 else "warning", message, fix)


def check_same_input(samples: Sequence[Sample], trained_on: Sequence[Encoded], processor: Processor) -> Check:
    """Check that transcription gives an image the pixels and prompt that training has, without augmentation."""
    for sample, encoded in zip(samples, trained_on, strict=True):
        if not encoded.without_text().has_input_of(processor.encode(open_image(sample.image))):
            message = f"{sample.id} has other pixels or another prompt in training than in transcription"
            return Check("same input", "error", message, _CODE_FAULT)
    return Check("same input", "ok", f"{len(samples)} samples have the same input in training and in transcription")


# Losses, and pairs of image and text


@dataclass(frozen=True, slots=True)
class PairLosses:
    """The mean loss of a token of each transcription, with its own image and with another sample's."""

    paired: Sequence[float]
    other: Sequence[float]

    @property
    def differences(self) -> list[float]:
        """By how much the other image raises each loss."""
        return [other - paired for paired, other in zip(self.paired, self.other, strict=True)]

    @property
    def rise(self) -> float:
        """The mean of the differences."""
        return statistics.fmean(self.differences)

    @property
    def standard_errors(self) -> float:
        """The rise in standard errors of the mean."""
        error = statistics.stdev(self.differences) / math.sqrt(len(self.paired)) if len(self.paired) > 1 else math.inf
        return self.rise / error if error else math.copysign(math.inf, self.rise)

    @property
    def wins(self) -> int:
        """The number of samples whose own image is the likelier."""
        return sum(difference > 0 for difference in self.differences)

    @property
    def are_unclear(self) -> bool:
        """True if the losses alone do not show that images and texts belong together."""
        return self.standard_errors < SURE or self.wins < _MIN_WINS * len(self.paired)


def sample_losses(model: Any, processor: Processor, samples: Sequence[Encoded], *, batch_size: int) -> list[float]:
    """Return the mean loss of a label of each sample."""
    model.eval()
    return [
        loss
        for rows in batches(samples, batch_size)
        for loss in processor.family.sample_losses(
            model, processor.on_device(processor.collate(rows), model, model.dtype)
        )
    ]


def check_first_loss(losses: Sequence[float], uniform: float) -> Check:
    """Compare the loss before the first step with that of a uniform guess."""
    mean = statistics.fmean(losses)
    message = f"the first loss is {mean:.2f}; a uniform guess has {uniform:.2f}"
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
    if len(losses.paired) < 2:
        return Check("image matters", "warning", "there is only one sample, so no other image to try")
    if max(map(abs, losses.differences)) < _NO_DIFFERENCE:
        fix = "the image does not reach the text: check the base's image token and its vision weights"
        return Check("image matters", "error", "another image changes the loss of no sample", fix)
    message = f"another image changes the loss by {losses.rise:+.4g} on average of {len(losses.paired)} samples"
    if losses.standard_errors >= SURE:
        return Check("image matters", "ok", message)
    fix = "before training this base cannot show whether images and texts belong together"
    return Check("image matters", "warning", f"{message}, which is not significant", fix)


def find_mismatches(
    setup: Setup,
    samples: Sequence[Sample],
    encoded: Sequence[Encoded],
    texts: Sequence[str],
    generation: Generation,
) -> list[str]:
    """Describe the samples whose image reads as another one of `texts`, and clearly not as their own."""
    known = [comparable(text) for text in texts]
    distance = Levenshtein.normalized_distance
    mismatches = []
    for sample, text in zip(samples, _read(setup, encoded, generation), strict=True):
        prediction = comparable(text)
        if len(prediction) < _MIN_LENGTH:  # short texts are too much alike
            continue
        best = process.extractOne(prediction, known, scorer=distance, score_cutoff=_NEAR)
        if best is not None and distance(prediction, comparable(sample.text)) >= best[1] + _FARTHER:
            mismatches.append(
                f"{sample.id}: its image reads {text[:50]!r}, like {best[0][:50]!r}, not {sample.text[:50]!r}"
            )
    return mismatches


def check_pairs(losses: PairLosses, mismatches: Sequence[str]) -> Check:
    """Check that the images belong to the texts; `mismatches` are only looked for if the losses are unclear."""
    count, details = len(losses.paired), tuple(mismatches[:5])
    message = (
        f"{losses.wins} of {count} transcriptions are likelier with their own image than with another, by"
        f" {losses.rise:.2f} on average ({losses.standard_errors:.1f} standard errors)"
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


def _read(setup: Setup, samples: Sequence[Encoded], generation: Generation) -> list[str]:
    """Return what the network reads in samples, whose transcriptions it is not given."""
    rows = batches([sample.without_text() for sample in samples], generation.batch_size)
    decode = setup.processor.family.decode
    return [reading.text for row in rows for reading in decode(setup.model, setup.processor, row, generation)]


def forward_backward(
    model: Any, processor: Processor, samples: Sequence[Encoded], dtype: torch.dtype, *, weight: float = 1.0
) -> float:
    """Make one forward and backward pass as in training; return the mean loss times `weight`, and leave gradients."""
    batch = processor.on_device(processor.collate(samples), model)
    labels, family = batch["labels"], processor.family
    train_mode(model)
    with torch.autocast(labels.device.type, dtype, enabled=dtype is not torch.float32):
        loss = family.loss(model, batch, (labels != IGNORED).sum()) * weight
    loss.backward()  # type: ignore[no-untyped-call]
    return float(loss.detach())


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
    model = setup.model
    longest = max(len(setup.processor.text_ids(text)) + 1 for text in texts)
    generation = replace(generation, max_new_tokens=max(generation.max_new_tokens, longest + 8))

    def measure_cer() -> float:
        return pool(map(character_errors, texts, _read(setup, samples, generation))).rate

    with preserve_state(model):
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        optimizer = torch.optim.AdamW(trained, lr=learning_rate, weight_decay=0.0)
        started, cer = time.monotonic(), math.inf
        losses: list[float] = []
        while len(losses) < max_steps and cer > 0 and time.monotonic() - started < max_seconds:
            losses.append(0.0)
            for rows in batches(samples, batch_size):
                losses[-1] += forward_backward(
                    model, setup.processor, rows, setup.dtype, weight=len(rows) / len(samples)
                )
            torch.nn.utils.clip_grad_norm_(trained, 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            if not math.isfinite(losses[-1]):
                break
            is_time = len(losses) % _READ_EVERY == 0 and losses[-1] < _READABLE_LOSS
            if is_time or len(losses) == max_steps:
                cer = measure_cer()
            if progress is not None:
                progress(len(losses), max_steps)
        if math.isinf(cer) and math.isfinite(losses[-1]):
            cer = measure_cer()
    seconds = time.monotonic() - started
    timed_out = len(losses) < max_steps and seconds >= max_seconds
    return OverfitResult(len(losses), seconds, losses[0], losses[-1], cer, timed_out)


def check_overfit(result: OverfitResult, samples: int) -> Check:
    """Judge the result of overfitting."""
    fell = f"the loss fell from {result.first_loss:.2f} to {result.last_loss:.2f}"
    effort = f"in {result.steps} steps, {result.seconds:.0f} s"
    if result.cer == 0:
        return Check("overfit", "ok", f"{samples} samples were memorized {effort}; {fell}")
    if not math.isfinite(result.last_loss):
        fix = "lower training.learning_rate, or set training.precision to bf16 or fp32"
        return Check("overfit", "error", f"the loss of {samples} samples became {result.last_loss} {effort}", fix)
    cer = percentage(result.cer, 1)
    message = f"{samples} samples were not memorized {effort}: CER {cer}, {fell}"
    if result.timed_out and (result.last_loss < 0.7 * result.first_loss or result.steps < _TELLING_STEPS):
        message = f"too slow to tell whether {samples} samples can be memorized: CER {cer} {effort}, {fell}"
        return Check(
            "overfit", "warning", message, "watch the first validations, or close other programs and try again"
        )
    if result.last_loss > result.first_loss:
        fell = f"the loss rose from {result.first_loss:.2f} to {result.last_loss:.2f}"
        message, fix = f"{samples} samples were not memorized {effort}: {fell}", "lower training.learning_rate"
    elif result.last_loss > 0.7 * result.first_loss:
        fix = "hardly anything is learned: raise adapter.r, widen adapter.target_modules, or check the base"
    else:
        fix = "look at these samples: equal images with different texts cannot be learned; or raise adapter.r"
    return Check("overfit", "error", message, fix)
