"""Checks before training: can the base learn from these samples?

The cheap ones run before every run; the thorough ones also compare images with texts and overfit a handful of samples.
Trained weights, modes and random numbers are restored afterwards, and nothing is written.
"""

import math
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from rapidfuzz import process
from rapidfuzz.distance import Levenshtein

from dsocr.config import RunConfig
from dsocr.data.check import check_dataset
from dsocr.data.dataset import Dataset
from dsocr.document import Sample
from dsocr.errors import typed
from dsocr.evaluation.metrics import character_errors, pool
from dsocr.html import counted
from dsocr.images import open_image
from dsocr.io.processes import ProgressCallback
from dsocr.models.adapters import train_mode
from dsocr.models.family import IGNORED, Check, Encoded, Processor, Verdict, trains_all_weights
from dsocr.models.generation import Generation, batches, spread
from dsocr.text import comparable, percentage
from dsocr.training.checkpoint import preserved_random
from dsocr.training.preview import text_limit
from dsocr.training.samples import Setup

CHEAP_SAMPLES, PAIRED_SAMPLES, OVERFIT_SAMPLES = 3, 24, 5
OVERFIT_STEPS, OVERFIT_SECONDS = 150, 180.0
_CLEAR_WINS = 0.9
"""If at least this share of texts is likelier with its own image, images and texts belong together."""
_ENOUGH_PAIRS = 10
"""All of fewer may win by chance, more often than once in a thousand."""
_NO_DIFFERENCE = 1e-6
_WORSE_THAN_UNIFORM, _LIKE_UNIFORM = 1.05, 0.9
"""Shares of a uniform guess's loss. Bases with random weights were measured at 1.002 and 1.004, nano at 0.07 on clean
lines and 0.40 on a hand that it hardly reads."""
_MIN_LENGTH = 6
"""Shorter predictions match too many texts."""
_NEAR, _FARTHER = 0.4, 0.3
"""Edits over length at which a prediction matches a text, and how much more it must differ from its own."""
_READ_EVERY = 10
_READABLE_LOSS = 0.5
"""Mean loss of a token above which no text is read without errors."""
_TELLING_STEPS = 50
"""Fewer steps prove nothing about a loss that hardly falls; samples that can be memorized took 20 to 110."""


def check_setup(
    setup: Setup, config: RunConfig, *, thorough: bool, progress: ProgressCallback | None = None
) -> list[Check]:
    """Check batches and first loss and, if `thorough`, pairs of image and text, and overfitting.

    `progress` counts the steps of overfitting. Leaves weights, random numbers and samples as they were.
    """
    processor, model, samples = setup.processor, setup.model, setup.samples.samples

    def choose(count: int) -> tuple[list[Sample], list[Encoded]]:
        chosen = spread(samples, count)
        return chosen, [processor.encode(open_image(sample.image), sample.text) for sample in chosen]

    chosen, encoded = choose(PAIRED_SAMPLES if thorough else CHEAP_SAMPLES)
    texts = [sample.text for sample in chosen[:CHEAP_SAMPLES]]
    with preserve_state(model):
        checks = processor.family.check_inputs(model, processor, encoded[:CHEAP_SAMPLES], texts)
        if errors(checks):
            return checks
        losses = sample_losses(setup, encoded, config.training.micro_batch_size)
        checks.append(check_first_loss(losses, processor.family.uniform_loss(model, processor, encoded)))
        if thorough:
            checks.append(check_pairs(setup, config, chosen, encoded, losses))
    if errors(checks) or not thorough:
        return checks
    pairs = list(zip(*choose(OVERFIT_SAMPLES), strict=True))
    # A line drawn wider in training for its long text cannot be read without an error.
    pairs = [pair for pair in pairs if pair[1].has_input_of(pair[1].without_text())] or pairs
    rate = config.training.learning_rate or 0.0
    # At three times its own rate, a whole network forgets what it knew (`small`: a loss of 344 after 20 steps).
    if not trains_all_weights(processor.family, config.adapter.target):
        rate = min(max(3 * rate, 1e-3), 5e-3)
    overfitted = overfit(
        setup,
        [sample for _, sample in pairs],
        [sample.text for sample, _ in pairs],
        Generation(**config.generation.model_dump()),
        learning_rate=rate,
        batch_size=config.training.micro_batch_size,
        progress=progress,
    )
    return [*checks, check_overfit(*overfitted, len(pairs))]


def errors(checks: Sequence[Check]) -> list[Check]:
    """Return the checks that failed."""
    return [check for check in checks if check.verdict == "error"]


def check_data(dataset: Dataset, processor: Processor, config: RunConfig) -> Check:
    """Check the dataset; errors are listed, warnings and notes counted."""
    limit = text_limit(processor, config) if config.training.long_text == "error" else None
    findings = check_dataset(dataset, processor, max_text_tokens=limit)
    if listed := findings.of("error"):
        details = tuple(f"{finding.place}: {finding.message} ({finding.count})" for finding in listed)
        return Check("dataset", "error", f"{counted(len(listed), 'error')}: {details[0]}", listed[0].remedy, details)
    fix = f"see `dsocr check {typed(dataset.folder)}`" if findings else ""
    return Check("dataset", "warning" if findings.of("warning") else "ok", findings.summary(), fix)


@contextmanager
def preserve_state(model: Any) -> Iterator[None]:
    """Restore trained weights, modes and random numbers after the block, and drop the gradients.

    Frozen weights are not copied: they do not change, and a second copy may not fit.
    """
    weights = [(parameter, parameter.detach().clone()) for parameter in model.parameters() if parameter.requires_grad]
    modes = [(module, module.training) for module in model.modules()]
    try:
        with preserved_random():
            yield
    finally:
        model.zero_grad(set_to_none=True)
        with torch.no_grad():
            for parameter, weight in weights:
                parameter.copy_(weight)
        for module, training in modes:
            module.training = training


def sample_losses(setup: Setup, samples: Sequence[Encoded], batch_size: int) -> list[float]:
    """Return the mean loss of a label of each sample."""
    model, processor = setup.model.eval(), setup.processor
    collated = (
        processor.on_device(processor.collate(rows), model, model.dtype) for rows in batches(samples, batch_size)
    )
    return [loss for batch in collated for loss in processor.family.sample_losses(model, batch)]


def check_first_loss(losses: Sequence[float], uniform: float) -> Check:
    """Compare the loss before the first step with that of a uniform guess."""
    mean = statistics.fmean(losses)
    message = f"the first loss is {mean:.2f}; a uniform guess has {uniform:.2f}"
    if not math.isfinite(mean):
        fix = "set training.precision to bf16 or fp32; if it stays so, the base's weights are broken"
        return Check("first loss", "error", message, fix)
    if mean <= _LIKE_UNIFORM * uniform:
        return Check("first loss", "ok", message)
    fix = "check that the images belong to the texts, and that this base was ever trained"
    verdict: Verdict = "error" if mean > _WORSE_THAN_UNIFORM * uniform else "warning"
    return Check("first loss", verdict, f"{message}: the base cannot read these lines", fix)


def check_pairs(
    setup: Setup, config: RunConfig, samples: Sequence[Sample], encoded: Sequence[Encoded], losses: Sequence[float]
) -> Check:
    """Check that images and texts belong together: each text must be likelier with its own image than with another.

    Where that is unclear, the base reads the images, and too many readings may not match the text of another sample.
    """
    if len(samples) < 2:
        return Check("pairs", "warning", "there is only one sample, so no other image to compare with")
    swapped = [
        sample.with_image_of(following) for sample, following in zip(encoded, [*encoded[1:], encoded[0]], strict=True)
    ]
    others = sample_losses(setup, swapped, config.training.micro_batch_size)
    rises = [other - loss for loss, other in zip(losses, others, strict=True)]
    if max(map(abs, rises)) < _NO_DIFFERENCE:
        fix = "the image does not reach the text: check the base's image token and its vision weights"
        return Check("pairs", "error", "another image changes the loss of no sample", fix)
    wins = sum(rise > 0 for rise in rises)
    message = f"{wins} of {len(samples)} transcriptions are likelier with their own image than with another"
    if len(samples) >= _ENOUGH_PAIRS and wins >= _CLEAR_WINS * len(samples):
        return Check("pairs", "ok", f"{message}; one wrong pair in ten would go unnoticed: see `dsocr check --html`")
    predictions = _read(setup, encoded, Generation(**config.generation.model_dump()))
    mismatches = find_mismatches(samples, predictions, [sample.text for sample in setup.samples.samples])
    verdict: Verdict = "warning"
    message = f"cannot tell whether images and texts belong together: {message}"
    fix = "look at some lines with `dsocr preview`; this base cannot read them well enough to tell"
    if len(mismatches) >= max(3, len(samples) / 8):
        verdict = "error"
        message = f"{len(mismatches)} of {len(samples)} images show the transcription of another sample; {message}"
        fix = "the table that pairs images with texts is shifted or shuffled: correct it, and prepare again"
    return Check("pairs", verdict, message, fix, tuple(mismatches[:5]))


def find_mismatches(samples: Sequence[Sample], predictions: Sequence[str], texts: Sequence[str]) -> list[str]:
    """Describe the samples whose prediction matches another one of `texts`, and clearly not their own."""
    known, distance = [comparable(text) for text in texts], Levenshtein.normalized_distance
    mismatches = []
    for sample, text in zip(samples, predictions, strict=True):
        prediction = comparable(text)
        if len(prediction) < _MIN_LENGTH:
            continue
        best = process.extractOne(prediction, known, scorer=distance, score_cutoff=_NEAR)
        if best is not None and distance(prediction, comparable(sample.text)) >= best[1] + _FARTHER:
            mismatches.append(
                f"{sample.id}: its image reads {text[:50]!r}, like {best[0][:50]!r}, not {sample.text[:50]!r}"
            )
    return mismatches


def _read(setup: Setup, samples: Sequence[Encoded], generation: Generation) -> list[str]:
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


def overfit(
    setup: Setup,
    samples: Sequence[Encoded],
    texts: Sequence[str],
    generation: Generation,
    *,
    learning_rate: float,
    batch_size: int,
    progress: ProgressCallback | None = None,
) -> tuple[list[float], float, float]:
    """Train on a few samples until they are read without an error; the model is restored afterwards.

    Return the loss of each step, the CER of the last readings, and the seconds.
    """
    model, started, cer = setup.model, time.monotonic(), math.inf
    longest = max(len(setup.processor.text_ids(text)) for text in texts)
    generation = replace(generation, max_new_tokens=max(generation.max_new_tokens, longest + 9))
    losses: list[float] = []
    with preserve_state(model):
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        optimizer = torch.optim.AdamW(trained, lr=learning_rate, weight_decay=0.0)
        while True:
            losses.append(0.0)
            for rows in batches(samples, batch_size):
                share = len(rows) / len(samples)
                losses[-1] += forward_backward(model, setup.processor, rows, setup.dtype, weight=share)
            torch.nn.utils.clip_grad_norm_(trained, 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            seconds, is_finite = time.monotonic() - started, math.isfinite(losses[-1])
            is_over = not is_finite or len(losses) == OVERFIT_STEPS or seconds >= OVERFIT_SECONDS
            if is_finite and (is_over or (len(losses) % _READ_EVERY == 0 and losses[-1] < _READABLE_LOSS)):
                cer = pool(map(character_errors, texts, _read(setup, samples, generation))).rate
            if progress is not None:
                progress(len(losses), OVERFIT_STEPS)
            if is_over or cer == 0:
                break
    return losses, cer, seconds


def check_overfit(losses: Sequence[float], cer: float, seconds: float, samples: int) -> Check:
    """Judge the result of overfitting."""
    steps, first, last = len(losses), losses[0], losses[-1]
    effort = f"in {steps} steps, {seconds:.0f} s; the loss went from {first:.2f} to {last:.2f}"
    if cer == 0:
        return Check("overfit", "ok", f"{samples} samples were memorized {effort}")
    message = f"{samples} samples were not memorized {effort}, CER {percentage(cer, 1)}"
    share, is_slow = last / max(first, 1e-9), seconds >= OVERFIT_SECONDS and steps < OVERFIT_STEPS
    if is_slow and (share < 0.7 or steps < _TELLING_STEPS):
        fix = "watch the first validations, or close other programs and try again"
        return Check("overfit", "warning", f"too slow to tell whether samples can be memorized: {message}", fix)
    fix = "look at these samples: equal images with different texts cannot be learned; or raise adapter.r"
    if not share <= 1:  # or not a number
        fix = "lower training.learning_rate, or set training.precision to bf16 or fp32"
    return Check("overfit", "error", message, fix)
