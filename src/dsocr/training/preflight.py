"""What is looked at before a training is begun: the dataset as this base will see it, and whether it can be learnt.

The single checks stand in `labels.py`, `inputs.py`, `pairs.py` and `overfit.py`.
"""

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from peft import PeftModel
from rapidfuzz import process
from rapidfuzz.distance import Levenshtein

from dsocr.config import RunConfig, load_run_config
from dsocr.data.check import check_for_base
from dsocr.data.dataset import Dataset, training_samples
from dsocr.document import Sample, Split
from dsocr.errors import ConfigError, DataError, DsocrError, ModelError, RunError, typed
from dsocr.images import open_image
from dsocr.inference.decoding import decode
from dsocr.inference.generation import Generation
from dsocr.io.processes import ProgressCallback
from dsocr.models.batch import IGNORED, collate, drop_ignored_positions
from dsocr.models.deepseek_ocr import Encoded, Processor
from dsocr.models.family import load_processor
from dsocr.models.loading import is_out_of_memory
from dsocr.runs import RunFolder
from dsocr.text import comparable
from dsocr.training.distributed import launched
from dsocr.training.learning_checks import (
    SAMPLES,
    Check,
    Preflight,
    check_characters,
    check_labels,
    check_prompt,
    check_reading_alike,
    check_slots,
    check_trial,
    overfit,
    trial_rate,
)
from dsocr.training.plan import measured_peak, spoken_bytes
from dsocr.training.preview import measure_lengths, within_budget
from dsocr.training.setup import Collator, EncodedSamples, Setup, pass_through, set_up, total_steps, undisturbed
from dsocr.training.trainer import as_overrides, lighter_settings, out_of_memory_spoken

SURE = 3.0
"""Standard errors above zero at which a mean difference counts: by chance, once in about 700."""
_MOST_WINS = 0.9
_NO_DIFFERENCE = 1e-6
_WORSE_THAN_A_GUESS, _LIKE_A_GUESS = 1.05, 0.9
"""Shares of a uniform guess's loss. Bases with random weights were measured at 1.002 and 1.004, nano at 0.07 on clean
lines and 0.40 on a hand that it hardly reads."""
_SHORTEST = 6
_NEAR, _FARTHER = 0.4, 0.3
"""Edits over length up to which a reading is a text's, and by how much more its own text must be away."""


@dataclass(frozen=True, slots=True)
class PairLosses:
    """The mean loss of a token of each transcription, on its own image and on another sample's."""

    own: Sequence[float]
    other: Sequence[float]

    @property
    def differences(self) -> list[float]:
        """By how much the other image raises the loss of each."""
        return [other - own for own, other in zip(self.own, self.other, strict=True)]

    @property
    def rise(self) -> float:
        """The mean of the differences."""
        return statistics.fmean(self.differences)

    @property
    def sureness(self) -> float:
        """How many standard errors the rise is above zero."""
        error = statistics.stdev(self.differences) / math.sqrt(len(self.own)) if len(self.own) > 1 else math.inf
        return self.rise / error if error else math.copysign(math.inf, self.rise)

    @property
    def wins(self) -> int:
        """How many find their own image likelier."""
        return sum(difference > 0 for difference in self.differences)


def pair_losses(model: PeftModel, encoder: Processor, samples: Sequence[Encoded], *, at_once: int) -> PairLosses:
    """Score each sample with its image and with the next one's, whose text should be another."""
    others = [
        replace(sample, views=following.views, prompt_ids=following.prompt_ids)
        for sample, following in zip(samples, [*samples[1:], samples[0]], strict=True)
    ]
    scored = [sample_losses(model, encoder, rows, at_once=at_once) for rows in (samples, others)]
    return PairLosses(scored[0], scored[1])


@torch.no_grad()
def sample_losses(model: PeftModel, encoder: Processor, samples: Sequence[Encoded], *, at_once: int) -> list[float]:
    """The mean loss of a learnt token of each sample."""
    model.eval()
    losses: list[float] = []
    for start in range(0, len(samples), at_once):
        rows = samples[start : start + at_once]
        batch = drop_ignored_positions(
            collate(rows, encoder.pad_id, padding="right", device=model.device, dtype=model.dtype)
        )
        labels, _ = batch.pop("labels"), batch.pop("shift_labels")
        logits = model(**batch).logits
        for row, learnt in zip(logits, labels, strict=True):
            there = learnt != IGNORED  # one sample at a time: a vocabulary's worth of float32 a token is much
            losses.append(float(torch.nn.functional.cross_entropy(row[there].float(), learnt[there])))
    return losses


def check_first_loss(losses: Sequence[float], vocabulary: int) -> Check:
    """The loss before the first step beside that of a uniform guess over the vocabulary."""
    mean, guess = statistics.fmean(losses), math.log(vocabulary)
    told = f"the loss before the first step is {mean:.2f}; a guess among {vocabulary} tokens scores {guess:.2f}"
    if not math.isfinite(mean):
        fix = "set training.precision to bf16 or fp32; if it stays so, the base's weights are broken"
        return Check("first loss", "refused", f"the loss before the first step is {mean}", fix)
    if mean > _WORSE_THAN_A_GUESS * guess:
        fix = "the base is sure of something else: are these images of these texts, and is it the right base?"
        return Check("first loss", "refused", f"{told}, which is better", fix)
    if mean > _LIKE_A_GUESS * guess:
        fix = "look whether the images belong to the texts, and whether this base was ever trained"
        return Check("first loss", "warning", f"{told}: the base knows nothing of these texts", fix)
    return Check("first loss", "ok", f"{told}, {guess - mean:.2f} more")


def check_image_matters(losses: PairLosses) -> Check:
    """Whether another image changes the loss at all, and whether it raises it."""
    if len(losses.own) < 2:
        return Check("image matters", "warning", "there is one sample only, so no other image to try")
    if max(map(abs, losses.differences)) < _NO_DIFFERENCE:
        fix = "the image does not reach the text: look at the base's image token and its vision weights"
        return Check("image matters", "refused", "another image does not change the loss of any sample", fix)
    told = f"another sample's image changes the loss by {losses.rise:+.4g} on average of {len(losses.own)} samples"
    if losses.sureness >= SURE:
        return Check("image matters", "ok", told)
    fix = "with such a base nobody can tell before training whether images and texts belong together"
    return Check("image matters", "warning", f"{told}, no sure rise: the base reads nothing in these images", fix)


@dataclass(frozen=True, slots=True)
class Misplaced:
    """An image whose reading is another sample's transcription."""

    id: str
    reading: str
    text: str
    nearest: str


def find_misplaced(
    model: PeftModel,
    encoder: Processor,
    samples: Sequence[Encoded],
    named: Sequence[tuple[str, str]],
    texts: Sequence[str],
    generation: Generation,
) -> list[Misplaced]:
    """The samples, `named` by id and text, that read as another of the split's `texts` and not as their own."""
    known = [comparable(text) for text in texts]
    found = []
    for start in range(0, len(samples), generation.batch_size):
        part = samples[start : start + generation.batch_size]
        readings = decode(model, encoder, [replace(sample, answer_ids=()) for sample in part], generation)
        for (name, text), reading in zip(named[start:], readings, strict=False):
            nearest = _nearest(comparable(reading.text), comparable(text), known)
            if nearest is not None:
                found.append(Misplaced(name, reading.text, text, nearest))
    return found


def _nearest(reading: str, own: str, known: Sequence[str]) -> str | None:
    """The text that a reading is, where it is clearly not its own; short ones are too easily like another."""
    if len(reading) < _SHORTEST:
        return None
    best = process.extractOne(reading, known, scorer=Levenshtein.normalized_distance, score_cutoff=_NEAR)
    if best is None or Levenshtein.normalized_distance(reading, own) < best[1] + _FARTHER:
        return None
    return best[0]


def unclear(losses: PairLosses) -> bool:
    """True where the losses alone do not say that images and texts belong together."""
    return losses.sureness < SURE or losses.wins < _MOST_WINS * len(losses.own)


def check_pairs(losses: PairLosses, misplaced: Sequence[Misplaced]) -> Check:
    """Whether the images are those of the texts; `misplaced` are looked for only where the losses are `unclear`."""
    count = len(losses.own)
    told = (
        f"{losses.wins} of {count} transcriptions are likelier with their own image than with another's, by"
        f" {losses.rise:.2f} on average ({losses.sureness:.1f} standard errors)"
    )
    details = tuple(
        f"{found.id}: its image reads {found.reading[:50]!r}, as {found.nearest[:50]!r}, not {found.text[:50]!r}"
        for found in misplaced[:5]
    )
    if len(misplaced) >= max(3, count / 8):
        message = f"{len(misplaced)} of {count} images show the transcription of another sample; {told}"
        fix = "the table that pairs images with texts is shifted or shuffled: put it right, and prepare again"
        return Check("pairs", "refused", message, fix, details)
    if losses.sureness < SURE:
        fix = "look at some lines with `dsocr preview`; this base cannot read them well enough to tell"
        return Check("pairs", "warning", f"whether images and texts belong together is unsure: {told}", fix, details)
    if misplaced or unclear(losses):
        return Check("pairs", "warning", told, "some pairs may be wrong: see `dsocr check --html`", details)
    return Check("pairs", "ok", told)


PAIRED = 24
"""Samples on which it is tried whether images and texts belong together."""
_LOOKED_AT = 3


def preflight(config: RunConfig, *, progress: ProgressCallback | None = None) -> Preflight:
    """Whether a training of this configuration can learn: every check, up to the first that makes others pointless.

    Loads the base, trains a few steps on five samples, and keeps nothing of it.
    """
    checks: list[Check] = []
    try:
        encoder, dataset = _opened(config)
        checks.append(Check("base", "ok", f"{config.base} at resolution {encoder.resolution.name}"))
        checks.append(_check_run(config))
        checks.append(_check_dataset(dataset, encoder, config))
        if any(check.verdict == "refused" for check in checks):
            return Preflight(checks)
        samples, excluded = within_budget(training_samples(dataset, config), encoder, config)
        checks.append(_check_budget(len(samples), excluded, config))
        with out_of_memory_spoken(config):
            setup = set_up(config, samples)
            checks.append(
                Check("gradients", "ok", f"they reach every layer of the adapter ({config.adapter.target_modules})")
            )
            checks.append(_check_memory(setup, samples, config))
            if checks[-1].verdict == "refused":
                return Preflight(checks)
            checks += prove(setup, samples, config, thorough=True, progress=progress)
    except DsocrError as error:
        return Preflight([*checks, _refusal(error)])
    return Preflight(checks)


def prove(
    setup: Setup,
    samples: Sequence[Sample],
    config: RunConfig,
    *,
    thorough: bool,
    progress: ProgressCallback | None = None,
) -> list[Check]:
    """What can be shown with the network in memory: cheap looks at a few samples and, if `thorough`, trials.

    Leaves the network, the random numbers and the samples as they were.
    """
    encoder, model = setup.encoder, setup.model
    chosen = [samples[place] for place in evenly(len(samples), PAIRED if thorough else _LOOKED_AT)]
    encoded = [encoder.encode(open_image(sample.image), sample.text) for sample in chosen]
    at_once = config.training.micro_batch_size
    with undisturbed(model):
        checks = [check_characters([sample.text for sample in samples], encoder)]
        checks += list(_cheap(setup, chosen[:_LOOKED_AT], encoded[:_LOOKED_AT]))
        if any(check.verdict == "refused" for check in checks):
            return checks
        if not thorough:
            first = sample_losses(model, encoder, encoded, at_once=at_once)
            return [*checks, check_first_loss(first, _vocabulary(model))]
        losses = pair_losses(model, encoder, encoded, at_once=at_once)
        generation = Generation(**config.generation.model_dump())
        misplaced: list[Misplaced] = []
        if unclear(losses):
            named = [(sample.id, sample.text) for sample in chosen]
            texts = [sample.text for sample in samples]
            misplaced = find_misplaced(model, encoder, encoded, named, texts, generation)
        checks += [check_first_loss(losses.own, _vocabulary(model)), check_image_matters(losses)]
        checks.append(check_pairs(losses, misplaced))
    if any(check.verdict == "refused" for check in checks):
        return checks
    return [*checks, *_trial(setup, samples, config, generation, progress)]


def demand_learning(checks: Sequence[Check], run: Path) -> None:
    """Raises RunError where a check refuses, with all their reasons."""
    refused = [check for check in checks if check.verdict == "refused"]
    if refused:
        shown = "".join(f"\n  {check.name}: {check.message}" for check in refused)
        raise RunError(f"is not begun, for it would not learn{shown}", where=run, hint=refused[0].fix)


def evenly(length: int, wanted: int) -> list[int]:
    """`wanted` places from the first to the last, evenly spread; all of them where there are no more."""
    wanted = min(wanted, length)
    return sorted({round(place * (length - 1) / max(wanted - 1, 1)) for place in range(wanted)})


def _cheap(setup: Setup, chosen: Sequence[Sample], encoded: Sequence[Encoded]) -> Iterator[Check]:
    encoder, model = setup.encoder, setup.model
    learnt = Collator(encoder.pad_id)(encoded)
    yield check_labels(learnt, [sample.text for sample in chosen], encoder)
    yield check_prompt(learnt, encoder, _vocabulary(model))
    moved = collate(encoded, encoder.pad_id, padding="right", device=model.device, dtype=model.dtype)
    yield check_slots(model, moved, encoder)
    trained_on = EncodedSamples(chosen, encoder)
    yield check_reading_alike(chosen, [trained_on[place] for place in range(len(chosen))], encoder)


def _trial(
    setup: Setup,
    samples: Sequence[Sample],
    config: RunConfig,
    generation: Generation,
    progress: ProgressCallback | None,
) -> Iterator[Check]:
    chosen = [samples[place] for place in evenly(len(samples), SAMPLES)]
    trial = overfit(
        setup.model,
        setup.encoder,
        [setup.encoder.encode(open_image(sample.image), sample.text) for sample in chosen],
        [sample.text for sample in chosen],
        generation,
        rate=trial_rate(config.training.learning_rate),
        dtype=setup.dtype,
        at_once=config.training.micro_batch_size,
        progress=progress,
    )
    yield check_trial(trial, len(chosen))
    steps = total_steps(config, len(samples))
    rate = trial.samples_per_second * launched().count
    seconds = steps * config.training.batch_size / rate
    told = f"{steps} steps will take about {seconds / 60:.0f} min at {rate:.3g} samples/s"
    yield Check("time", "ok", f"{told}, without the readings of the validation split")


def _opened(config: RunConfig) -> tuple[Processor, Dataset]:
    encoder = load_processor(config.base, config.input.resolution, config.input.prompt, config.base_revision)
    return encoder, Dataset.open(config.dataset, fold=config.fold)


def _check_run(config: RunConfig) -> Check:
    """Whether the run folder holds what was trained on another base."""
    run = RunFolder(config.output)
    if run.config.is_file():
        begun = load_run_config(run.config)
        if begun.base != config.base:
            message = f"{config.output.as_posix()} holds a run on the base {begun.base}, not {config.base}"
            return Check("run", "refused", message, "an adapter fits its own base only: give `output:` another folder")
    return Check("run", "ok", f"{config.output.as_posix()} can be trained in")


def _check_dataset(dataset: Dataset, encoder: Processor, config: RunConfig) -> Check:
    limit = config.training.max_text_tokens if config.training.long_text == "error" else None
    findings = check_for_base(dataset, encoder, max_text_tokens=limit)
    worst = findings.of("error")
    shown = tuple(f"{finding.where}: {finding.message} ({finding.count})" for finding in worst)
    if worst:
        return Check("dataset", "refused", f"{len(worst)} kinds of errors: {shown[0]}", worst[0].remedy, shown)
    doubtful = findings.of("warning")
    shown = tuple(f"{finding.where}: {finding.message} ({finding.count})" for finding in doubtful)
    if doubtful:
        message = f"no errors, {len(doubtful)} kinds of warnings"
        return Check("dataset", "warning", message, f"see `dsocr check {typed(dataset.folder.as_posix())}`", shown)
    return Check("dataset", "ok", f"{len(dataset.samples(Split.TRAIN))} training samples, nothing to find fault with")


def _check_budget(fitting: int, excluded: int, config: RunConfig) -> Check:
    limit = config.training.max_text_tokens
    if excluded:
        message = f"{excluded} of {fitting + excluded} texts have more than {limit} tokens and are left out"
        return Check("text budget", "warning", message, "raise training.max_text_tokens, or cut them into lines")
    return Check("text budget", "ok", f"all {fitting} texts have {limit} tokens at most")


def _check_memory(setup: Setup, samples: Sequence[Sample], config: RunConfig) -> Check:
    """Check that a forward and backward pass of the longest batch fits into memory."""
    lengths = measure_lengths(samples, setup.encoder)
    ordered = sorted(range(len(lengths)), key=lambda index: lengths[index].sequence)
    longest = [samples[index] for index in ordered[-config.training.micro_batch_size :]]
    encoded = [setup.encoder.encode(open_image(sample.image), sample.text) for sample in longest]
    try:
        with measured_peak(setup.device) as peak:
            pass_through(setup.model, Collator(setup.encoder.pad_id)(encoded), setup.dtype)
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        fix = f"lower it with {as_overrides(lighter_settings(config))} or a smaller input.resolution"
        return Check("memory", "refused", f"the longest batch of {len(longest)} runs out of memory", fix)
    setup.model.zero_grad(set_to_none=True)
    tokens = lengths[ordered[-1]].sequence
    taken = "" if peak[0] is None else f", {spoken_bytes(peak[0])} at most"
    return Check("memory", "ok", f"the longest batch of {len(longest)}, {tokens} tokens each, fits{taken}")


def _refusal(error: DsocrError) -> Check:
    name = {ConfigError: "configuration", DataError: "dataset", ModelError: "base"}.get(type(error), "run")
    return Check(name, "refused", str(error), error.hint or "")


def _vocabulary(model: PeftModel) -> int:
    return int(model.config.text_config.vocab_size)
