"""Evaluate a run: read a split with base and adapter, and score both."""

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dsocr.config import RunConfig, load_run_config
from dsocr.data.dataset import Dataset, training_samples
from dsocr.document import Sample, Split
from dsocr.errors import DataError, RunError, option
from dsocr.evaluation.calibration import CalibrationReport, JudgedLine, fit_calibration
from dsocr.evaluation.metrics import (
    character_errors,
    pool,
)
from dsocr.evaluation.scorecard import Scorecard, make_scorecard, open_dataset
from dsocr.evaluation.scores import LineScore, score_lines, write_lines, writer_statuses
from dsocr.images import open_image
from dsocr.inference.confidence import Calibration, Prediction
from dsocr.io.work import hash_file, remove_drafts, require_free_output, write_file
from dsocr.models.generation import ScoredText, spread
from dsocr.models.loading import Base
from dsocr.models.scripts import SAMPLE_LINES, describe_script
from dsocr.runs import ReadingSettings, RunFolder, read_provenance, to_json
from dsocr.text import percentage

if TYPE_CHECKING:
    from dsocr.inference.reader import LocalReader


def require_samples(dataset: Dataset, split: Split, limit: int | None = None) -> list[Sample]:
    """Return the first `limit` samples of a split, or all. Raises DataError, naming the existing splits, if empty."""
    samples = dataset.samples(split)[:limit]
    if not samples:
        existing = ", ".join(name.value for name in Split if dataset.samples(name))
        hint = f"its splits are: {existing}" if existing else "prepare it again"
        raise DataError(f"has no {split} split to score", code="split-missing", where=dataset.folder, hint=hint)
    return samples


def evaluate(
    run: RunFolder,
    *,
    results: RunFolder | None = None,
    dataset: Path | None = None,
    opened: Dataset | None = None,
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
    a base, only the base is scored. `opened` is the dataset if the caller has opened it.
    `limit` reads only the first samples of the split. `calibrate` first fits the confidences again, on the dataset's
    validation split; training has fitted them once. `script` replaces the run's `generation.script`; where that is
    auto, lines from all over the split decide. `progress` gets the number of lines read and their total.
    """
    opened = opened or open_dataset(run, dataset)
    samples = require_samples(opened, split, limit)
    fitting_samples = require_samples(opened, Split.VALIDATION, limit) if calibrate else []
    base = Base.find(str(run.adapter)) if run.is_base else Base.of_adapter(run.adapter)
    from dsocr.inference.reader import LocalReader

    undecided = LocalReader.of_run(run, script=script, base=base)
    is_base, results = run.reads_as_base, results or run
    all_lines = require_samples(opened, split, None)  # whatever the limit
    reader = undecided.decide_script(open_image(sample.image) for sample in spread(all_lines, SAMPLE_LINES))
    models = ("base",) if is_base else ("base", "adapter") if with_base else ("adapter",)
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
    )
    remove_drafts(results.path, is_locked=False)
    write_lines(results.lines, lines)
    card.save(results.scorecard)
    if any(prediction.scores for prediction in predictions):
        from dsocr.evaluation.result_pages import render_calibration

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
