"""Checks before a training: the dataset as the base sees it, the batches, and whether a few samples can be learned.

The cheap ones run before every training; the thorough ones overfit a handful of samples. The adapter, the modes of all
modules and the random numbers are restored afterwards, and nothing is written.
"""

import math
import random
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from peft import PeftModel
from rapidfuzz import process
from rapidfuzz.distance import Levenshtein

from dsocr.config import RunConfig, load_run_config
from dsocr.data.check import check_for_base
from dsocr.data.dataset import Dataset, training_samples
from dsocr.document import Sample, Split
from dsocr.errors import ConfigError, DataError, DsocrError, ModelError, RunError, typed
from dsocr.evaluation.metrics import ErrorRate, character_errors
from dsocr.images import open_image
from dsocr.inference.decoding import decode
from dsocr.inference.generation import Generation, batches
from dsocr.io.processes import ProgressCallback
from dsocr.models.batch import IGNORED, aligned_labels, collate, drop_ignored_positions, normalize_pixels
from dsocr.models.deepseek_ocr import Encoded, Processor
from dsocr.models.family import load_processor
from dsocr.runs import RunFolder
from dsocr.text import comparable
from dsocr.training.plan import Plan, explain_out_of_memory, format_bytes, make_plan
from dsocr.training.preview import within_budget
from dsocr.training.samples import Collator, EncodedSamples
from dsocr.training.setup import Setup, set_up

Verdict = Literal["ok", "warning", "error"]

CHEAP_SAMPLES, PAIRED_SAMPLES, OVERFIT_SAMPLES = 3, 24, 5
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
_SHOWN_TOKENS = 48
_SHOWN_CHARACTERS = 40
_CODE_FAULT = "this is no setting: the base's files do not match its config.json, or the code is wrong"


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check; `fix` is empty where nothing is to be done, `details` are lines to look at."""

    name: str
    verdict: Verdict
    message: str
    fix: str = ""
    details: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DryRun:
    """All checks in their order, and what the training would take; the plan is None if a check failed before it."""

    checks: Sequence[Check]
    plan: Plan | None = None

    @property
    def is_ready(self) -> bool:
        """True if training would not be refused, and fits into memory."""
        return not self.errors

    @property
    def errors(self) -> list[Check]:
        """The checks that failed; training would be refused."""
        return [check for check in self.checks if check.verdict == "error"]

    def to_dict(self) -> dict[str, Any]:
        """Return checks and plan in JSON's types; `errors` has the names of the checks that failed."""
        return {
            "ready": self.is_ready,
            "errors": [check.name for check in self.errors],
            "checks": [asdict(check) for check in self.checks],
            "plan": None if self.plan is None else self.plan.to_dict(),
        }


def dry_run(
    config: RunConfig, *, preflight: bool = True, measure: bool = True, progress: ProgressCallback | None = None
) -> DryRun:
    """Check a training and plan it, without beginning it; `progress` counts the steps of overfitting.

    Loads the base; `preflight` makes a few steps on a few samples, `measure` some more to measure time and memory.
    Nothing is written.
    """
    checks: list[Check] = []
    plan: Plan | None = None
    try:
        processor = load_processor(config.base, config.input.resolution, config.input.prompt, config.base_revision)
        dataset = Dataset.open(config.dataset, fold=config.fold)
        checks.append(Check("base", "ok", f"{config.base} at resolution {processor.resolution.name}"))
        checks.append(_check_run(config))
        checks.append(_check_dataset(dataset, processor, config))
        if DryRun(checks).errors:
            return DryRun(checks)
        samples, excluded = within_budget(training_samples(dataset, config), processor, config)
        checks.append(_check_budget(len(samples), excluded, config))
        with explain_out_of_memory(config):
            setup = set_up(config, samples)
            message = f"they reach every layer of the adapter ({config.adapter.target_modules})"
            checks.append(Check("gradients", "ok", message))
            checks += check_setup(setup, config, thorough=preflight, progress=progress)
            if not DryRun(checks).errors:
                plan = make_plan(config, measure=measure, setup=setup)
                checks += _check_memory(plan)
    except DsocrError as error:
        kinds = {ConfigError: "configuration", DataError: "dataset", ModelError: "base"}
        checks.append(Check(kinds.get(type(error), "run"), "error", str(error), error.hint or ""))
    return DryRun(checks, plan)


def check_setup(
    setup: Setup, config: RunConfig, *, thorough: bool, progress: ProgressCallback | None = None
) -> list[Check]:
    """Check what shows with the network in memory: batches and first loss and, if `thorough`, pairs and overfitting.

    Leaves weights, random numbers and samples as they were.
    """
    processor, model, samples = setup.processor, setup.model, setup.samples.samples
    chosen = _spread(samples, PAIRED_SAMPLES if thorough else CHEAP_SAMPLES)
    encoded = [processor.encode(open_image(sample.image), sample.text) for sample in chosen]
    batch_size = config.training.micro_batch_size
    with preserve_state(model):
        checks = [check_characters([sample.text for sample in samples], processor)]
        checks += _check_batches(setup, chosen[:CHEAP_SAMPLES], encoded[:CHEAP_SAMPLES])
        if DryRun(checks).errors:
            return checks
        if not thorough:
            losses = sample_losses(model, processor, encoded, batch_size=batch_size)
            return [*checks, check_first_loss(losses, _vocabulary_size(model))]
        pairs = pair_losses(model, processor, encoded, batch_size=batch_size)
        generation = Generation(**config.generation.model_dump())
        mismatches: list[Mismatch] = []
        if pairs.are_unclear:
            mismatches = find_mismatches(model, processor, chosen, encoded, [s.text for s in samples], generation)
        checks += [check_first_loss(pairs.own, _vocabulary_size(model)), check_image_matters(pairs)]
        checks.append(check_pairs(pairs, mismatches))
        if DryRun(checks).errors:
            return checks
    chosen = _spread(samples, OVERFIT_SAMPLES)
    result = overfit(
        setup,
        [processor.encode(open_image(sample.image), sample.text) for sample in chosen],
        [sample.text for sample in chosen],
        generation,
        learning_rate=min(max(3 * config.training.learning_rate, 1e-3), 5e-3),
        batch_size=batch_size,
        progress=progress,
    )
    return [*checks, check_overfit(result, len(chosen))]


def require_learning(checks: Sequence[Check], run: Path) -> None:
    """Raise RunError if a check failed, with all reasons."""
    if errors := DryRun(checks).errors:
        shown = "".join(f"\n  {check.name}: {check.message}" for check in errors)
        raise RunError(f"Training would not learn{shown}", code="preflight-failed", where=run, hint=errors[0].fix)


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


def _spread(samples: Sequence[Sample], count: int) -> list[Sample]:
    """Return `count` samples from the first to the last, evenly spread; all if there are fewer."""
    places = np.linspace(0, len(samples) - 1, min(count, len(samples)))
    return [samples[place] for place in sorted({round(place) for place in places.tolist()})]


def _vocabulary_size(model: PeftModel) -> int:
    return int(model.config.text_config.vocab_size)


# Run folder, dataset, memory


def _check_run(config: RunConfig) -> Check:
    run = RunFolder(config.output)
    if run.config.is_file() and (recorded := load_run_config(run.config)).base != config.base:
        message = f"{config.output.as_posix()} holds a run on the base {recorded.base}, not {config.base}"
        return Check("run", "error", message, "an adapter fits its own base only: give `output:` another folder")
    return Check("run", "ok", f"{config.output.as_posix()} can be trained in")


def _check_dataset(dataset: Dataset, processor: Processor, config: RunConfig) -> Check:
    limit = config.training.max_text_tokens if config.training.long_text == "error" else None
    findings = check_for_base(dataset, processor, max_text_tokens=limit)
    for severity in ("error", "warning"):
        if found := findings.of(severity):
            details = tuple(f"{finding.where}: {finding.message} ({finding.count})" for finding in found)
            fix = found[0].remedy if severity == "error" else f"see `dsocr check {typed(dataset.folder.as_posix())}`"
            return Check("dataset", severity, f"{len(found)} kinds of {severity}s: {details[0]}", fix, details)
    return Check("dataset", "ok", f"{len(dataset.samples(Split.TRAIN))} training samples without findings")


def _check_budget(fitting: int, excluded: int, config: RunConfig) -> Check:
    limit = config.training.max_text_tokens
    if excluded:
        message = f"{excluded} of {fitting + excluded} texts have more than {limit} tokens and are excluded"
        return Check("text budget", "warning", message, "raise training.max_text_tokens, or cut them into lines")
    return Check("text budget", "ok", f"all {fitting} texts have at most {limit} tokens")


def _check_memory(plan: Plan) -> list[Check]:
    if not plan.fits:
        return [Check("memory", "error", "a step runs out of memory", plan.warnings[-1])]
    if plan.measurement is None:
        return []
    peak, size = plan.measurement.peak_bytes, plan.measurement.micro_batch_size
    used = "" if peak is None else f", peak {format_bytes(peak)}"
    return [Check("memory", "ok", f"the longest micro-batch, {size} samples, fits{used}")]


# Batches


def _check_batches(setup: Setup, samples: Sequence[Sample], encoded: Sequence[Encoded]) -> list[Check]:
    processor, model = setup.processor, setup.model
    batch = Collator(processor.pad_id)(encoded)
    on_device = collate(encoded, processor.pad_id, padding="right", device=model.device, dtype=model.dtype)
    trained_on = EncodedSamples(samples, processor)
    return [
        check_labels(batch, [sample.text for sample in samples], processor),
        check_prompt(batch, processor, _vocabulary_size(model)),
        check_image_slots(model, on_device, processor),
        check_same_input(samples, [trained_on[place] for place in range(len(samples))], processor),
    ]


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


def check_labels(batch: Mapping[str, Any], texts: Sequence[str], processor: Processor) -> Check:
    """Check that the labels of a batch are its texts and their end tokens; the details show each sample's tokens."""
    batch = {**batch, "labels": aligned_labels(dict(batch))}
    rows = [_LabelledRow(batch, place, processor) for place in range(len(texts))]
    problems = [problem for row, text in zip(rows, texts, strict=True) for problem in row.problems(text)]
    details = tuple(line for row in rows for line in row.describe())
    if problems:
        message = f"labels are not the transcriptions: {'; '.join(dict.fromkeys(problems))}"
        fix = "this is no setting: the code that makes the batch is wrong, or its tokenizer.json"
        return Check("labels", "error", message, fix, details)
    count = sum(len(row.trained) for row in rows)
    message = f"{count} tokens of {len(rows)} samples are trained on: each transcription and its end token"
    return Check("labels", "ok", message, details=details)


class _LabelledRow:
    """One sample of a batch: ids, labels, and which of them are padding."""

    def __init__(self, batch: Mapping[str, Any], place: int, processor: Processor) -> None:
        self._processor = processor
        self._ids: list[int] = batch["input_ids"][place].tolist()
        self._labels: list[int] = batch["labels"][place].tolist()
        self._present: list[int] = batch["attention_mask"][place].tolist()
        self.trained = [label for label in self._labels if label != IGNORED]

    def problems(self, text: str) -> Iterator[str]:
        """Yield everything that is wrong with the labels."""
        end, image = int(self._processor.tokenizer.eos_token_id), self._processor.image_token_id
        if not self.trained:
            yield "all positions are masked"
            return
        trained = [place for place, label in enumerate(self._labels) if label != IGNORED]
        if any(self._labels[place] != self._ids[place] for place in trained):
            yield "labels are not aligned with the input ids"
        if any(not self._present[place] for place in trained):
            yield "padding is trained on"
        if image in self.trained:
            yield "image tokens are trained on"
        if trained[0] <= max((place for place, token in enumerate(self._ids) if token == image), default=-1):
            yield "the prompt is trained on"
        if self.trained[-1] != end:
            yield "the end token is not trained on"
        answer = self.trained[:-1] if self.trained[-1] == end else self.trained
        if self._processor.unknown_characters(text):
            return  # see `check_characters`
        decoded = self._processor.tokenizer.decode(answer, skip_special_tokens=False)
        if decoded != text:
            yield f"got {decoded[:60]!r}, expected {text[:60]!r}"

    def describe(self) -> Iterator[str]:
        """Yield a line for each stretch of the sequence: its kind, the number of tokens, and which they are."""
        for kind, stretch in groupby(range(len(self._ids)), key=self._kind):
            ids = [self._ids[place] for place in stretch]
            yield f"{kind:<8}{len(ids):>5}  {self._tokens(ids) if kind != 'padding' else ''}".rstrip()

    def _kind(self, place: int) -> str:
        if self._labels[place] != IGNORED:
            return "trained"
        return "masked" if self._present[place] else "padding"

    def _tokens(self, ids: Sequence[int]) -> str:
        names: list[str] = []
        for token, same in groupby(ids):
            count = len(list(same))
            name = self._processor.tokenizer.decode([token], skip_special_tokens=False).replace("\n", "\\n")
            names += [f"{count} x {name}"] if token == self._processor.image_token_id else [name] * count
        if len(names) > _SHOWN_TOKENS:
            names = [*names[: _SHOWN_TOKENS - 8], "...", *names[-7:]]
        return "|".join(names)


def check_prompt(batch: Mapping[str, Any], processor: Processor, vocabulary_size: int) -> Check:
    """Check that each row starts with the begin token, has it once, and has only ids that the base knows."""
    begin = int(processor.tokenizer.bos_token_id)
    ids = batch["input_ids"]
    if not bool((ids[:, 0] == begin).all()) or not bool(((ids == begin).sum(1) == 1).all()):
        return Check("begin token", "error", "not every sample starts with exactly one begin token", _CODE_FAULT)
    if int(ids.max()) >= vocabulary_size:
        message = f"the tokenizer writes id {int(ids.max())}, and the base has {vocabulary_size} tokens"
        return Check("begin token", "error", message, "the tokenizer is another base's: download the base again")
    name = processor.tokenizer.decode([begin], skip_special_tokens=False)
    return Check("begin token", "ok", f"each sample starts with one {name}")


@torch.no_grad()
def check_image_slots(model: PeftModel, batch: Mapping[str, Any], processor: Processor) -> Check:
    """Check that the ids have as many image tokens as the vision towers make features."""
    model.eval()
    images = {name: value for name, value in batch.items() if name not in ("input_ids", "attention_mask", "labels")}
    outputs = model.get_image_features(**images).pooler_output
    features = sum(output.numel() for output in outputs) // model.config.text_config.hidden_size
    slots = int((batch["input_ids"] == processor.image_token_id).sum())
    if features != slots:
        message = f"{slots} image slots for {features} features"
        return Check("image slots", "error", message, _CODE_FAULT)
    return Check("image slots", "ok", f"{slots} image slots for as many features, in {len(batch['input_ids'])} samples")


def check_same_input(samples: Sequence[Sample], trained_on: Sequence[Encoded], processor: Processor) -> Check:
    """Check that transcription gives an image the pixels and prompt ids that training has, without augmentation."""
    for sample, encoded in zip(samples, trained_on, strict=True):
        ours = collate([encoded], processor.pad_id, padding="right")
        theirs = collate([processor.encode(open_image(sample.image))], processor.pad_id, padding="left")
        pixels = [name for name in theirs if name.startswith("pixel_values")]
        same_ids = torch.equal(ours["input_ids"][ours["labels"] == IGNORED], theirs["input_ids"][0])
        if not same_ids or not all(torch.equal(ours[name], theirs[name]) for name in pixels):
            message = f"{sample.id} has other pixels or another prompt in training than in transcription"
            return Check("same input", "error", message, _CODE_FAULT)
    return Check("same input", "ok", f"{len(samples)} samples have the same input in training and in transcription")


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
