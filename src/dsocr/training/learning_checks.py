"""Learning a handful of samples by heart: what cannot even do that will learn nothing from thousands.

The adapter is trained where it is and put back afterwards; nothing is written.
"""

import math
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from typing import Any, Literal

import torch
from peft import PeftModel

from dsocr.document import Sample
from dsocr.evaluation.metrics import ErrorRate, character_errors
from dsocr.images import open_image
from dsocr.inference.decoding import decode
from dsocr.inference.generation import Generation
from dsocr.io.processes import ProgressCallback
from dsocr.models.batch import IGNORED, aligned_labels, collate, normalize_pixels
from dsocr.models.deepseek_ocr import Encoded, Processor
from dsocr.training.setup import Collator, undisturbed

Verdict = Literal["ok", "warning", "refused"]


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at; `details` are lines to look at, `fix` is empty where nothing is to be done."""

    name: str
    verdict: Verdict
    message: str
    fix: str = ""
    details: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Preflight:
    """All checks in their order; a check that a refusal made impossible is not among them."""

    checks: Sequence[Check]

    @property
    def refused(self) -> list[Check]:
        """Those because of which training would be in vain."""
        return [check for check in self.checks if check.verdict == "refused"]

    def as_dict(self) -> dict[str, Any]:
        """The checks for programs, and under `refused` the names of those that refuse."""
        return {"refused": [check.name for check in self.refused], "checks": [asdict(check) for check in self.checks]}


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
    encoder: Processor,
    samples: Sequence[Encoded],
    texts: Sequence[str],
    generation: Generation,
    *,
    rate: float,
    dtype: torch.dtype,
    at_once: int,
    steps: int = STEPS,
    seconds: float = SECONDS,
    progress: ProgressCallback | None = None,
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
    encoder: Processor,
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
            loss = model(**normalize_pixels(moved)).loss * len(batch) / count
        loss.backward()
        total += float(loss.detach())
    torch.nn.utils.clip_grad_norm_((p for p in model.parameters() if p.requires_grad), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return total


def _read(
    model: PeftModel, encoder: Processor, samples: Sequence[Encoded], texts: Sequence[str], generation: Generation
) -> float:
    pooled = ErrorRate()
    for start in range(0, len(samples), generation.batch_size):
        part = samples[start : start + generation.batch_size]
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
        fix = "hardly anything is learnt: raise adapter.r, widen adapter.target_modules, or look at the base"
    else:
        fix = "look at these samples: equal images with different texts cannot be learnt; or raise adapter.r"
    return Check("overfit", "refused", told, fix)


_OURS = "this is no setting of yours: the base's files are not what its config.json says, or the code is wrong"


def check_prompt(batch: Mapping[str, Any], encoder: Processor, vocabulary: int) -> Check:
    """Whether each row of a training batch begins with the begin token, once, and has only ids that the base knows."""
    begin = int(encoder.tokenizer.bos_token_id)
    ids = batch["input_ids"]
    if not bool((ids[:, 0] == begin).all()) or not bool(((ids == begin).sum(1) == 1).all()):
        return Check("begin token", "refused", "not every sample begins with the begin token, and has it once", _OURS)
    if int(ids.max()) >= vocabulary:
        message = f"the tokenizer writes id {int(ids.max())}, and the base has {vocabulary} tokens"
        return Check("begin token", "refused", message, "the tokenizer is another base's: download the base again")
    name = encoder.tokenizer.decode([begin], skip_special_tokens=False)
    return Check("begin token", "ok", f"each sample begins with {name}, once")


@torch.no_grad()
def check_slots(model: PeftModel, batch: Mapping[str, Any], encoder: Processor) -> Check:
    """Whether there are as many image slots in the ids as the vision towers make features."""
    model.eval()
    images = {name: value for name, value in batch.items() if name not in ("input_ids", "attention_mask", "labels")}
    made = model.get_image_features(**images).pooler_output
    width = model.config.text_config.hidden_size
    features = sum(part.numel() for part in made) // width
    slots = int((batch["input_ids"] == encoder.image_token_id).sum())
    if features != slots:
        message = f"there are {slots} image slots for {features} features: what is seen would be cut or misplaced"
        return Check("image slots", "refused", message, _OURS)
    return Check("image slots", "ok", f"{slots} image slots for as many features, in {len(batch['input_ids'])} samples")


def check_reading_alike(samples: Sequence[Sample], trained_on: Sequence[Encoded], encoder: Processor) -> Check:
    """Whether reading an image gives the pixels and prompt ids that training has, without augmentation."""
    for sample, learnt in zip(samples, trained_on, strict=True):
        read = encoder.encode(open_image(sample.image))
        ours = collate([learnt], encoder.pad_id, padding="right")
        theirs = collate([read], encoder.pad_id, padding="left")
        pixels = [name for name in theirs if name.startswith("pixel_values")]
        same = torch.equal(ours["input_ids"][ours["labels"] == IGNORED], theirs["input_ids"][0])
        if not same or not all(torch.equal(ours[name], theirs[name]) for name in pixels):
            message = f"{sample.id} is trained on with other pixels or another prompt than it is read with"
            return Check("read alike", "refused", message, _OURS)
    return Check(
        "read alike", "ok", f"{len(samples)} samples have the same pixels and prompt when trained on and when read"
    )


_SHOWN_TOKENS = 48
_SHOWN_CHARACTERS = 40


def check_labels(batch: Mapping[str, Any], texts: Sequence[str], encoder: Processor) -> Check:
    """Whether the labels (B, T) of a batch are its texts and their end tokens; the details show each sample."""
    batch = {**batch, "labels": aligned_labels(dict(batch))}
    rows = [_Row(batch, place, encoder) for place in range(len(texts))]
    problems = [problem for row, text in zip(rows, texts, strict=True) for problem in row.problems(text)]
    details = tuple(line for row in rows for line in row.shown())
    if problems:
        told = "; ".join(dict.fromkeys(problems))
        fix = "this is no setting of yours: the code that makes the batch is wrong, or its tokenizer.json is"
        return Check("labels", "refused", f"the labels are not the transcriptions: {told}", fix, details)
    learnt = sum(len(row.learnt) for row in rows)
    told = f"{learnt} tokens of {len(rows)} samples are learnt: each transcription and its end, nothing else"
    return Check("labels", "ok", told, details=details)


def check_characters(texts: Sequence[str], encoder: Processor) -> Check:
    """Whether the base's tokenizer can write the texts; where it cannot write most of them it is the wrong base."""
    unknown = set(encoder.unknown_characters("".join(sorted(set().union(*texts)))))
    if not unknown:
        return Check("characters", "ok", f"the tokenizer can write all {len(texts)} texts")
    count = sum(not unknown.isdisjoint(text) for text in texts)
    shown = "".join(sorted(unknown)[:_SHOWN_CHARACTERS])
    message = f"the tokenizer cannot write {shown!r}, {len(unknown)} characters in {count} of {len(texts)} texts"
    fix = "choose a base that knows the script, or replace the characters in the source"
    return Check("characters", "refused" if count > len(texts) / 2 else "warning", message, fix)


class _Row:
    """One sample of a batch: ids, labels, and what is padding."""

    def __init__(self, batch: Mapping[str, Any], place: int, encoder: Processor) -> None:
        self._encoder = encoder
        self._ids: list[int] = batch["input_ids"][place].tolist()
        self._labels: list[int] = batch["labels"][place].tolist()
        self._present: list[int] = batch["attention_mask"][place].tolist()
        self.learnt = [label for label in self._labels if label != IGNORED]

    def problems(self, text: str) -> Iterator[str]:
        """Everything that is wrong with what is learnt."""
        end, places = int(self._encoder.tokenizer.eos_token_id), range(len(self._ids))
        if not self.learnt:
            yield "all is masked, so nothing would be learnt"
            return
        learnt = [place for place in places if self._labels[place] != IGNORED]
        if any(self._labels[place] != self._ids[place] for place in learnt):
            yield "labels and input ids do not stand at the same places"
        if any(not self._present[place] for place in learnt):
            yield "padding is learnt"
        if self._encoder.image_token_id in self.learnt:
            yield "image slots are learnt"
        if learnt[0] <= max((p for p in places if self._ids[p] == self._encoder.image_token_id), default=-1):
            yield "what stands before the image's end is learnt"
        if self.learnt[-1] != end:
            yield "the end token is not learnt, so the model would not learn to stop"
        answer = self.learnt[:-1] if self.learnt[-1] == end else self.learnt
        if self._encoder.unknown_characters(text):
            return  # `check_characters` tells of them
        decoded = self._encoder.tokenizer.decode(answer, skip_special_tokens=False)
        if decoded != text:
            yield f"what is learnt reads {decoded[:60]!r}, not {text[:60]!r}"

    def shown(self) -> Iterator[str]:
        """A line for each stretch of the sequence: masked, learnt or padding, how many tokens, and which."""
        places = range(len(self._ids))
        for kind, stretch in groupby(places, key=self._kind):
            ids = [self._ids[place] for place in stretch]
            yield f"{kind:<8}{len(ids):>5}  {self._tokens(ids) if kind != 'padding' else ''}".rstrip()

    def _kind(self, place: int) -> str:
        if self._labels[place] != IGNORED:
            return "learnt"
        return "masked" if self._present[place] else "padding"

    def _tokens(self, ids: Sequence[int]) -> str:
        told: list[str] = []
        for number, same in groupby(ids):
            count = len(list(same))
            name = self._encoder.tokenizer.decode([number], skip_special_tokens=False).replace("\n", "\\n")
            told += [f"{count} x {name}"] if number == self._encoder.image_token_id else [name] * count
        if len(told) > _SHOWN_TOKENS:
            told = [*told[: _SHOWN_TOKENS - 8], "...", *told[-7:]]
        return "|".join(told)
