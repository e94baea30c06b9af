"""Learning a handful of samples by heart: what cannot even do that will learn nothing from thousands.

The adapter is trained where it is and put back afterwards; nothing is written.
"""

import math
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from peft import PeftModel

from dsocr.data.prepare import Progress
from dsocr.evaluation.metrics import ErrorRate, character_errors
from dsocr.inference.decoding import decode
from dsocr.inference.generation import Generation
from dsocr.model.collating import normalized
from dsocr.model.encoding import Encoded, Encoder
from dsocr.training.collator import Collator
from dsocr.training.undisturbed import undisturbed
from dsocr.training.verdicts import Check

SAMPLES, STEPS, SECONDS = 5, 150, 180.0
_READ_EVERY = 10
_WORTH_READING = 0.5
"""Mean loss of a token above which no text comes out whole."""


@dataclass(frozen=True, slots=True)
class Trial:
    """How far it came: the loss of the first and the last step, the CER of the last reading, whether time ran out."""

    steps: int
    seconds: float
    samples_per_second: float
    first_loss: float
    last_loss: float
    cer: float
    out_of_time: bool


def trial_rate(learning_rate: float) -> float:
    """The learning rate of the trial: thrice the training's, from 1e-3 to 5e-3."""
    return min(max(3 * learning_rate, 1e-3), 5e-3)


def overfit(
    model: PeftModel,
    encoder: Encoder,
    samples: Sequence[Encoded],
    texts: Sequence[str],
    generation: Generation,
    *,
    rate: float,
    dtype: torch.dtype,
    at_once: int,
    steps: int = STEPS,
    seconds: float = SECONDS,
    progress: Progress | None = None,
) -> Trial:
    """Train on these samples until they are read without an error, at most so many steps and seconds; then undo it."""
    with undisturbed(model):
        longest = max(len(sample.answer_ids) for sample in samples)
        room = replace(generation, max_new_tokens=max(generation.max_new_tokens, longest + 8))
        optimizer = torch.optim.AdamW((p for p in model.parameters() if p.requires_grad), lr=rate, weight_decay=0.0)
        batches = [samples[start : start + at_once] for start in range(0, len(samples), at_once)]
        started, cer, step = time.monotonic(), math.inf, 0
        losses: list[float] = []
        times: list[float] = []
        while step < steps and cer > 0 and time.monotonic() - started < seconds:
            begun = time.monotonic()
            losses.append(_step(model, batches, encoder, optimizer, dtype))
            times.append(time.monotonic() - begun)
            step += 1
            if not math.isfinite(losses[-1]):
                break
            if (step % _READ_EVERY == 0 and losses[-1] < _WORTH_READING) or step == steps:
                cer = _read(model, encoder, samples, texts, room)
            if progress is not None:
                progress(step, steps)
        if math.isinf(cer) and math.isfinite(losses[-1]):
            cer = _read(model, encoder, samples, texts, room)
    taken = time.monotonic() - started
    speed = len(samples) / max(statistics.median(times), 1e-9)  # the first step is slower than those to come
    return Trial(step, taken, speed, losses[0], losses[-1], cer, out_of_time=step < steps and taken >= seconds)


def _step(
    model: PeftModel,
    batches: Sequence[Sequence[Encoded]],
    encoder: Encoder,
    optimizer: torch.optim.Optimizer,
    dtype: torch.dtype,
) -> float:
    """One optimizer step over all batches; the mean loss before it."""
    model.train()
    device = next(model.parameters()).device
    total, count = 0.0, sum(map(len, batches))
    for batch in batches:
        inputs = Collator(encoder.pad_id)(batch)
        moved = {name: value.to(device) if isinstance(value, torch.Tensor) else value for name, value in inputs.items()}
        with torch.autocast(device.type, dtype, enabled=dtype is not torch.float32):
            loss = model(**normalized(moved)).loss * len(batch) / count
        loss.backward()
        total += float(loss.detach())
    torch.nn.utils.clip_grad_norm_((p for p in model.parameters() if p.requires_grad), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return total


def _read(
    model: PeftModel, encoder: Encoder, samples: Sequence[Encoded], texts: Sequence[str], generation: Generation
) -> float:
    pooled = ErrorRate()
    for start in range(0, len(samples), generation.samples_per_batch):
        part = samples[start : start + generation.samples_per_batch]
        readings = decode(model, encoder, [replace(sample, answer_ids=()) for sample in part], generation)
        for text, reading in zip(texts[start:], readings, strict=False):
            pooled += character_errors(text, reading.text)
    return pooled.rate


def check_trial(trial: Trial, samples: int) -> Check:
    """What a trial means for the training after it."""
    fell = f"the loss went from {trial.first_loss:.2f} to {trial.last_loss:.2f}"
    bounds = f"in {trial.steps} steps, {trial.seconds:.0f} s"
    if trial.cer == 0:
        return Check("overfit", "ok", f"{samples} samples were learnt by heart {bounds}: read without an error; {fell}")
    if not math.isfinite(trial.last_loss):
        fix = "lower training.learning_rate, or set training.precision to bf16 or fp32"
        return Check("overfit", "refused", f"the loss of {samples} samples was lost {bounds}: {fell}", fix)
    told = f"{samples} samples were not learnt by heart {bounds}: CER {trial.cer:.1%}, {fell}"
    if trial.out_of_time and trial.last_loss < 0.7 * trial.first_loss:
        return Check("overfit", "warning", f"{told}; time ran out while it was learning", "watch the first readings")
    if trial.last_loss > 0.7 * trial.first_loss:
        fix = "hardly anything is learnt: raise adapter.rank, widen adapter.scope, or look at the base"
    else:
        fix = "look at these samples: equal images with different texts cannot be learnt; or raise adapter.rank"
    return Check("overfit", "refused", told, fix)
