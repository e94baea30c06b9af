"""What is looked at before a training is begun: the dataset as this base will see it, and whether it can be learnt.

The single checks stand in `labels.py`, `inputs.py`, `pairs.py` and `overfit.py`.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from peft import PeftModel

from dsocr.config import RunConfig, load_config
from dsocr.data.dataset import Dataset
from dsocr.data.images import open_image
from dsocr.data.prepare import Progress
from dsocr.data.subsets import training_samples
from dsocr.errors import ConfigError, DataError, DsocrError, ModelError, RunError, typed
from dsocr.inference.generation import Generation
from dsocr.model.collating import collate
from dsocr.model.encoding import Encoded, Encoder
from dsocr.model.out_of_memory import is_out_of_memory
from dsocr.model.tokenizing import load_encoder
from dsocr.runs import RunFolder
from dsocr.samples import Sample, Split
from dsocr.training.arguments import total_steps
from dsocr.training.collator import Collator, EncodedSamples
from dsocr.training.gradients import pass_through
from dsocr.training.inputs import check_prompt, check_reading_alike, check_slots
from dsocr.training.labels import check_characters, check_labels
from dsocr.training.lengths import measure_lengths, within_budget
from dsocr.training.out_of_memory import as_overrides, lighter_settings, out_of_memory_spoken
from dsocr.training.overfit import SAMPLES, check_trial, overfit, trial_rate
from dsocr.training.pairs import (
    Misplaced,
    check_first_loss,
    check_image_matters,
    check_pairs,
    find_misplaced,
    pair_losses,
    sample_losses,
    unclear,
)
from dsocr.training.probe import measured_peak, spoken_bytes
from dsocr.training.ranks import launched
from dsocr.training.setup import Setup, set_up
from dsocr.training.survey import survey_for_base
from dsocr.training.undisturbed import undisturbed
from dsocr.training.verdicts import Check, Preflight

PAIRED = 24
"""Samples on which it is tried whether images and texts belong together."""
_LOOKED_AT = 3


def preflight(config: RunConfig, *, progress: Progress | None = None) -> Preflight:
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
            checks.append(Check("gradients", "ok", f"they reach every layer of the adapter ({config.adapter.scope})"))
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
    progress: Progress | None = None,
) -> list[Check]:
    """What can be shown with the network in memory: cheap looks at a few samples and, if `thorough`, trials.

    Leaves the network, the random numbers and the samples as they were.
    """
    encoder, model = setup.encoder, setup.model
    chosen = [samples[place] for place in evenly(len(samples), PAIRED if thorough else _LOOKED_AT)]
    encoded = [encoder.encode(open_image(sample.image), sample.text) for sample in chosen]
    at_once = config.training.samples_per_forward
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
    setup: Setup, samples: Sequence[Sample], config: RunConfig, generation: Generation, progress: Progress | None
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
        at_once=config.training.samples_per_forward,
        progress=progress,
    )
    yield check_trial(trial, len(chosen))
    steps = total_steps(config, len(samples))
    rate = trial.samples_per_second * launched().count
    seconds = steps * config.training.samples_per_step / rate
    told = f"{steps} steps will take about {seconds / 60:.0f} min at {rate:.3g} samples/s"
    yield Check("time", "ok", f"{told}, without the readings of the validation split")


def _opened(config: RunConfig) -> tuple[Encoder, Dataset]:
    encoder = load_encoder(config.base, config.input.resolution, config.input.prompt, config.base_revision)
    return encoder, Dataset.open(config.dataset, fold=config.fold)


def _check_run(config: RunConfig) -> Check:
    """Whether the run folder holds what was trained on another base."""
    run = RunFolder(config.run)
    if run.config.is_file():
        begun = load_config(run.config)
        if begun.base != config.base:
            message = f"{config.run.as_posix()} holds a run on the base {begun.base}, not {config.base}"
            return Check("run", "refused", message, "an adapter fits its own base only: give `run:` another folder")
    return Check("run", "ok", f"{config.run.as_posix()} can be trained in")


def _check_dataset(dataset: Dataset, encoder: Encoder, config: RunConfig) -> Check:
    limit = config.training.max_text_tokens if config.training.long_text == "error" else None
    findings = survey_for_base(dataset, encoder, max_text_tokens=limit).findings
    worst = [finding for finding in findings if finding.severity == "error"]
    shown = tuple(f"{finding.where}: {finding.message} ({finding.count})" for finding in worst)
    if worst:
        return Check("dataset", "refused", f"{len(worst)} kinds of errors: {shown[0]}", worst[0].fix, shown)
    doubtful = [finding for finding in findings if finding.severity == "warning"]
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
    longest = [samples[index] for index in ordered[-config.training.samples_per_forward :]]
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
