"""Checks before a training: the dataset as the base sees it, the batches, and whether a few samples can be learned.

The cheap ones run before every training; the thorough ones overfit a handful of samples. The adapter, the modes of all
modules and the random numbers are restored afterwards, and nothing is written.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import torch
from peft import PeftModel

from dsocr.config import RunConfig, load_run_config
from dsocr.data.check import check_for_base
from dsocr.data.dataset import Dataset, training_samples
from dsocr.document import Sample, Split
from dsocr.errors import ConfigError, DataError, DsocrError, ModelError, RunError, typed
from dsocr.images import open_image
from dsocr.inference.generation import Generation
from dsocr.io.processes import ProgressCallback
from dsocr.models.batch import IGNORED, aligned_labels, collate
from dsocr.models.deepseek_ocr import Encoded, Processor
from dsocr.models.family import load_processor
from dsocr.runs import RunFolder
from dsocr.training.learning_checks import (
    Check,
    Mismatch,
    check_first_loss,
    check_image_matters,
    check_overfit,
    check_pairs,
    find_mismatches,
    overfit,
    pair_losses,
    preserve_state,
    sample_losses,
)
from dsocr.training.plan import Plan, explain_out_of_memory, format_bytes, make_plan
from dsocr.training.preview import within_budget
from dsocr.training.samples import Collator, EncodedSamples
from dsocr.training.setup import Setup, set_up

CHEAP_SAMPLES, PAIRED_SAMPLES, OVERFIT_SAMPLES = 3, 24, 5
_SHOWN_TOKENS = 48
_SHOWN_CHARACTERS = 40
_CODE_FAULT = "this is no setting: the base's files do not match its config.json, or the code is wrong"


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
    """Check a training and plan it, without starting it; `progress` counts the steps of overfitting.

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
        raise RunError(f"Preflight checks failed:{shown}", code="preflight-failed", where=run, hint=errors[0].fix)


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
