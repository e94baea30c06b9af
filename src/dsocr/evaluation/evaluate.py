"""Evaluate a run: read a split with base and adapter, score both, and check what the base has forgotten.

The guard set is a small set that the base reads well. It is read again after training to measure forgetting.
"""

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dsocr.config import GuardSection, RunConfig, load_run_config
from dsocr.data.dataset import Dataset, training_samples
from dsocr.document import Sample, Split
from dsocr.errors import DataError, RunError, option
from dsocr.evaluation.calibration import CalibrationReport, JudgedLine, fit_calibration
from dsocr.evaluation.metrics import (
    ErrorRate,
    character_errors,
    describe_change,
    format_change_interval,
    pool,
)
from dsocr.evaluation.scorecard import Scorecard, make_scorecard, open_dataset
from dsocr.evaluation.scores import LineScore, score_lines, write_lines, writer_statuses
from dsocr.evaluation.statistics import Interval, PairedErrors, clusters_of, difference_interval
from dsocr.images import open_image
from dsocr.inference.confidence import Calibration, Prediction
from dsocr.io.files import shipped_path
from dsocr.io.work import hash_file, remove_drafts, require_free_output, write_file
from dsocr.models.base_folder import EMBEDDED, require_readable_adapter
from dsocr.models.family import Processor
from dsocr.models.generation import Generation, ScoredText, batches, spread
from dsocr.models.scripts import SAMPLE_LINES, describe_script
from dsocr.runs import ReadingSettings, RunFolder, read_provenance, to_json
from dsocr.text import is_blank, percentage

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from dsocr.inference.reader import LocalReader


def require_samples(dataset: Dataset, split: Split, limit: int | None = None) -> list[Sample]:
    """Return the first `limit` samples of a split, or all. Raises DataError, naming the existing splits, if empty."""
    samples = dataset.samples(split)[:limit]
    if not samples:
        existing = ", ".join(name.value for name in Split if dataset.samples(name))
        hint = f"its splits are: {existing}" if existing else "prepare it again"
        raise DataError(f"has no {split} split to score", code="split-missing", where=dataset.folder, hint=hint)
    return samples


DEFAULT_GUARD = "examples/print"
"""The guard set that ships for the embedded base."""

NO_GUARD_SET = (
    "No guard set, so forgetting is not measured; set `guard.dataset` to a prepared dataset that the base reads well."
)


@dataclass(frozen=True, slots=True)
class GuardResult:
    """Error rates of the base and of the adapter on the guard set; `margin` is in percentage points of CER.

    `interval` is that of the adapter's CER minus the base's, None if it was not computed.
    """

    name: str
    lines: int
    margin: float
    base: ErrorRate
    adapter: ErrorRate
    interval: Interval | None = None

    @property
    def increase(self) -> float:
        """Percentage points of CER by which the adapter is worse than the base; negative if it is better."""
        return 100 * (self.adapter.rate - self.base.rate)

    @property
    def exceeds_margin(self) -> bool:
        """Whether the CER increased by more than the margin."""
        return self.increase > self.margin + 1e-9

    @property
    def message(self) -> str:
        """The result in a sentence, with remedies if the margin is exceeded."""
        result = f"the CER of the guard set ({self.lines} lines of {self.name}) is {100 * self.adapter.rate:.2f} %"
        result += f", of the base alone {100 * self.base.rate:.2f} %: {describe_change(self.increase)}"
        if self.interval is not None and self.interval.bounds:
            low, high = (100 * end for end in self.interval.bounds)
            result += f" (95 % CI {format_change_interval(low, high)}, over {self.interval.unit}s)"
        if not self.exceeds_margin:
            return f"{result}, within the margin of {self.margin:g} points"
        return (
            f"{result}, more than the margin of {self.margin:g}. If that matters, "
            "scale the adapter down with `dsocr export --scale`, or train with a lower learning_rate, fewer epochs, or "
            "lines of that kind mixed in"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the result for JSON: CERs are fractions, `increase` and `margin` percentage points."""
        return {
            "dataset": self.name,
            "lines": self.lines,
            "margin": self.margin,
            "characters": self.base.length,
            "base_errors": self.base.errors,
            "adapter_errors": self.adapter.errors,
            "base_cer": self.base.rate,
            "adapter_cer": self.adapter.rate,
            "increase": self.increase,
            "interval": self.interval and asdict(self.interval),
            "exceeds_margin": self.exceeds_margin,
            "message": self.message,
        }


@dataclass(frozen=True, slots=True)
class GuardSet:
    """The lines of a guard set, its name, and the tolerated increase in percentage points of CER."""

    name: str
    samples: Sequence[Sample]
    margin: float

    @classmethod
    def load(cls, section: GuardSection, base: str) -> "GuardSet | None":
        """Load the configured guard set, else the one that ships with the base; None if there is none.

        Raises DataError if the configured dataset, split or its text is missing.
        """
        folder = section.dataset
        if folder is None and base == EMBEDDED:
            folder = shipped_path(DEFAULT_GUARD)
        if folder is None or not section.lines:
            return None
        try:
            dataset = Dataset.open(folder)
        except DataError as error:
            message = f"guard.dataset: {error.message.raw}"
            raise DataError(message, code=error.code, where=error.where, hint=error.hint) from error
        splits = [Split(section.split)] if section.split else list(Split)
        every_sample = chain.from_iterable(dataset.samples(split) for split in splits)
        samples = [sample for sample in every_sample if not is_blank(sample.text)]
        if not samples:
            hint = "check guard.dataset and guard.split"
            raise DataError("guard set has no lines with text", code="guard-empty", where=folder, hint=hint)
        count = min(section.lines, len(samples))
        chosen = [samples[number * len(samples) // count] for number in range(count)]
        return cls(folder.name, chosen, section.margin)

    def score(self, network: "PreTrainedModel", processor: Processor, generation: Generation) -> list[ErrorRate]:
        """Read the set with the network in its current state and count the errors of each line.

        The network is left in evaluation mode.
        """
        errors = []
        for samples in batches(self.samples, generation.batch_size):
            images = [processor.encode(open_image(sample.image)) for sample in samples]
            decoded = processor.family.decode(network, processor, images, generation)
            errors += [character_errors(sample.text, read.text) for sample, read in zip(samples, decoded, strict=True)]
        return errors

    def compare(self, base: ErrorRate, adapter: ErrorRate) -> GuardResult:
        """Return the result of scoring the set with the base and with the adapter."""
        return GuardResult(self.name, len(self.samples), self.margin, base, adapter)

    def compare_lines(self, base: Sequence[ErrorRate], adapter: Sequence[ErrorRate]) -> GuardResult:
        """Return the result with its interval, from the errors of each line."""
        counts = [(first.errors, second.errors, first.length) for first, second in zip(base, adapter, strict=True)]
        base_errors, errors, lengths = np.array(counts, np.float64).T
        interval = difference_interval(PairedErrors(base_errors, errors, lengths, clusters_of(self.samples)))
        return replace(self.compare(pool(base), pool(adapter)), interval=interval)


def evaluate(
    run: RunFolder,
    *,
    results: RunFolder | None = None,
    dataset: Path | None = None,
    split: Split = Split.TEST,
    limit: int | None = None,
    with_base: bool = True,
    calibrate: bool = False,
    script: str | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Scorecard:
    """Score a finished run on a split of its own dataset, or of another one.

    Writes the scorecard, the scored lines and, if the predictions have confidences, a report on how reliable these are
    into `results`, the run folder if not given; a base or an export, which has none, needs both that and a dataset. Of
    a base, only the base is scored.
    `limit` reads only the first samples of the split. `calibrate` first fits the confidences again, on the dataset's
    validation split; training has fitted them once. `script` replaces the run's `generation.script`; where that is
    auto, lines from all over the split decide. With the base, the guard set is scored too. `progress` gets
    the number of lines read and their total.
    """
    opened = open_dataset(run, dataset)
    samples = require_samples(opened, split, limit)
    fitting_samples = require_samples(opened, Split.VALIDATION, limit) if calibrate else []
    require_readable_adapter(run.adapter)
    from dsocr.inference.reader import LocalReader

    undecided, is_base, results = LocalReader.of_run(run, script=script), run.reads_as_base, results or run
    all_lines = require_samples(opened, split, None)  # whatever the limit
    reader = undecided.decide_script(open_image(sample.image) for sample in spread(all_lines, SAMPLE_LINES))
    models = ("base",) if is_base else ("base", "adapter") if with_base else ("adapter",)
    # First, so that an unreadable guard set fails before hours of reading.
    guard = _score_guard_set(results, reader) if with_base and not is_base else None
    total = len(fitting_samples) + len(samples) * len(models)
    done = 0

    def read(chosen: Sequence[Sample], with_reader: "LocalReader" = reader) -> Iterator[Prediction]:
        nonlocal done
        for prediction in with_reader.read((sample.id, open_image(sample.image)) for sample in chosen):
            yield prediction
            done += 1
            if progress is not None:
                progress(done, total)

    if calibrate:
        fit_calibration(_judge(fitting_samples, read(fitting_samples))).save(run.adapter)

    # A run trained on a part of its dataset only knows the writers of that part.
    trained: Sequence[Sample] = ()
    if not is_base:
        trained = opened.samples(Split.TRAIN) if dataset else training_samples(opened, load_run_config(run.config))
    statuses = writer_statuses({sample.writer for sample in trained}, [sample.writer for sample in samples])
    lines: dict[str, list[LineScore]] = {}
    seconds: dict[str, float] = {}
    for model in models:
        started = time.monotonic()
        with reader.base() if model == "base" and not is_base else nullcontext(reader) as used:
            predictions = list(read(samples, used))
        lines[model] = score_lines(
            samples, {prediction.id: prediction for prediction in predictions}, statuses, trained
        )
        seconds[model] = time.monotonic() - started

    notes = [] if is_base else list(_notes(run, opened, split, is_own=dataset is None))
    if limit is not None:
        notes.append(f"Only the first lines of the split were read, at most {limit}.")
    if reader is not undecided:
        notes.append(describe_script(reader.generation.script))
    language_model = _language_model(samples, predictions, reader)
    if language_model:
        without, with_model = (percentage(language_model[name], 1) for name in ("cer_without", "cer"))
        notes.append(f"The language model brings the CER from {without} to {with_model}.")
    calibration = Calibration.load(run.adapter)
    if calibration.problem:
        notes.append(calibration.problem)
    card = make_scorecard(
        split,
        lines.get("base"),
        lines.get("adapter"),
        base_seconds=seconds.get("base"),
        adapter_seconds=seconds.get("adapter"),
        struck_marks=reader.text_policy.struck_marks,
        dataset=opened.card.hashes,
        settings={
            **_settings(run, reader, opened),
            **({"language_model": language_model} if language_model else {}),
            "lines": len(samples),
            "limit": limit,
            "dataset": None if dataset is None else dataset.as_posix(),
        },
        notes=tuple(notes),
        guard=guard and guard.to_dict(),
    )
    remove_drafts(results.path, is_locked=False)
    write_lines(results.lines, lines)
    card.save(results.scorecard)
    if any(prediction.scores for prediction in predictions):
        from dsocr.evaluation.report.result_pages import render_calibration

        name, judged = opened.folder.resolve().name, _judge(samples, predictions)
        report = CalibrationReport.compute(calibration, judged, dataset=name, split=split)
        write_file(results.confidence, to_json(report.to_dict()))
        write_file(results.confidence_page, render_calibration(report, run.name))
    return card


def results_folder(run: RunFolder, dataset: Path, out: Path | None) -> RunFolder:
    """Return the folder for the scores of a reader: a run's own, else `out`, by default named as reader and dataset."""
    if run.config.is_file():
        return run
    return RunFolder(out or Path("runs") / f"{run.name}-{dataset.resolve().name}")


def open_results(run: RunFolder, dataset: Path | None, out: Path | None) -> RunFolder:
    """Make the folder for the scores of a base or an export.

    Raises RunError without a dataset, DataError if the folder holds something else.
    """
    if dataset is None:
        hint = f"give {option('dataset', 'FOLDER')}, or the run folder around it if this is a run's adapter"
        message = "a reader that is no run has no dataset of its own"
        raise RunError(message, code="dataset-missing", where=run.path, hint=hint)
    settings = ReadingSettings.load(run.adapter)
    results = results_folder(run, dataset, out)
    config = RunConfig.model_validate(
        {
            "base": settings.base,
            "base_revision": settings.base_revision,
            "dataset": dataset.resolve(),
            "output": results.path,
        }
    )
    require_free_output(results.path, "evaluation", partial(_result_files, config=config), overwrite=True)
    results.path.mkdir(parents=True, exist_ok=True)
    write_file(results.config, config.to_yaml())
    return results


def _result_files(folder: Path, config: RunConfig) -> list[str] | None:
    """Return the files of an earlier evaluation of the same base in a folder; None if it is something else."""
    run = RunFolder(folder)
    if not run.config.is_file() or load_run_config(run.config).base != config.base:
        return None
    files = (run.config, run.scorecard, run.lines, run.confidence, run.confidence_page, run.report)
    return [*(file.name for file in files), run.report.with_suffix(".md").name]


def _judge(samples: Sequence[Sample], predictions: Iterable[Prediction]) -> list[JudgedLine]:
    pairs = zip(samples, predictions, strict=True)
    return [
        JudgedLine.compute(ScoredText(prediction.text, prediction.scores), sample.text) for sample, prediction in pairs
    ]


def _language_model(
    samples: Sequence[Sample], predictions: Sequence[Prediction], reader: "LocalReader"
) -> dict[str, float] | None:
    """Return the weight of the language model, and the CER without and with it; None if none was used."""
    pairs = [(sample.text, prediction) for sample, prediction in zip(samples, predictions, strict=True)]
    if any(prediction.plain is None for _, prediction in pairs):
        return None
    without = pool([character_errors(text, prediction.plain or "") for text, prediction in pairs]).rate
    with_model = pool([character_errors(text, prediction.text) for text, prediction in pairs]).rate
    processor = reader.processor
    if processor.language_model is None:
        return None
    weight = processor.language_model.weight * reader.generation.language_model_share
    return {"weight": weight, "cer_without": without, "cer": with_model}


def _score_guard_set(run: RunFolder, reader: "LocalReader") -> GuardResult | None:
    config = load_run_config(run.config)
    guard = GuardSet.load(config.guard, config.base)
    if guard is None:
        return None
    with reader.base() as alone:
        base = guard.score(alone.network, alone.processor, alone.generation)
    return guard.compare_lines(base, guard.score(reader.network, reader.processor, reader.generation))


def _notes(run: RunFolder, dataset: Dataset, split: Split, *, is_own: bool) -> Iterator[str]:
    """Yield what is unusual about the data, compared with what the run was trained on."""
    if split == Split.TRAIN:
        yield "The model was trained on these lines, so the scores do not predict those of other lines."
    made = read_provenance(run)
    trained = made.get("dataset", {}).get(Split.TRAIN.value)
    if is_own:
        yield from describe_known_lines(made.get("started_from", []), [split])
    train = dataset.card.splits.get(Split.TRAIN)
    if trained != (train and train.sha256):
        changed = "The run was not trained on this dataset"
        if is_own:
            changed = "The dataset has changed since the run was trained on it"
        yield f"{changed}: writers count as known if they are in its train split."


def describe_known_lines(
    started_from: Iterable[Mapping[str, Any]], splits: Collection[str] = tuple(Split)
) -> list[str]:
    """List which of the runs that a training started from were trained on lines of these splits."""
    return [
        f"{count} lines of the {split} split trained {run['run']}, from which this run started: scores are too good."
        for run in started_from
        for split, count in (run.get("known_lines") or {}).items()
        if count and split in splits
    ]


def _settings(run: RunFolder, reader: "LocalReader", dataset: Dataset) -> dict[str, object]:
    from dsocr.models.adapters import weights_file

    settings = ReadingSettings.load(run.adapter)
    return {
        "base": settings.base,
        "base_revision": settings.base_revision,
        "family": reader.processor.family.name,
        "adapter_sha256": hash_file(weights_file(run.adapter)),
        "device": str(reader.network.device),
        "number_format": str(reader.network.dtype).removeprefix("torch."),
        "normalization": "NFC, every run of white space one space, both ends stripped",
        "dataset_source": dataset.card.source,
        "prompt": reader.processor.prompt,
        "resolution": reader.processor.resolution_name,
        "generation": reader.generation.as_dict(),
        "text_policy": reader.text_policy.as_dict(),
        "split_by": dataset.card.split_by,
        "fold": dataset.fold,
    }
