"""Evaluate a run: read a split with base and adapter, and score both."""

import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from dsocr.config import RunConfig, load_run_config
from dsocr.console import current_reporter, progress_bar
from dsocr.data.dataset import Dataset, training_samples
from dsocr.document import Sample, Split
from dsocr.errors import ConfigError, DataError, RunError, option
from dsocr.evaluation.calibration import CalibrationReport, JudgedLine, fit_calibration
from dsocr.evaluation.decide import name_better_base
from dsocr.evaluation.metrics import character_errors, pool
from dsocr.evaluation.report import drop_report
from dsocr.evaluation.report import report as write_report
from dsocr.evaluation.scorecard import Scorecard, make_scorecard, open_dataset
from dsocr.evaluation.scores import LineScore, score_lines, write_lines, writer_statuses
from dsocr.images import open_image
from dsocr.inference.confidence import UNCALIBRATED, Calibration, Prediction
from dsocr.io.processes import ProgressCallback
from dsocr.io.work import hash_file, remove_drafts, require_free_output, write_file
from dsocr.models.generation import ScoredText, spread
from dsocr.models.loading import Base
from dsocr.models.scripts import SAMPLE_LINES, describe_script
from dsocr.options import ON, Count, Output, Rare, ScriptName, SplitName, StrPath
from dsocr.runs import SHIPPED_BASES, ReadingSettings, RunFolder, read_provenance, to_json
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
    run: StrPath,
    *,
    dataset: StrPath | None = None,
    split: SplitName = "test",
    limit: Rare[Count | None] = None,
    base: Annotated[bool, ON] = True,
    report: Annotated[bool, ON] = True,
    calibrate: Rare[bool] = False,
    script: ScriptName | None = None,
    output: Output | None = None,
    progress: ProgressCallback | None = None,
) -> Scorecard:
    """Score a run on lines it never saw, beside its base.

    Args:
        run: Run folder, exported adapter, or a base: small, a folder, a Hub id.
        dataset: Another dataset folder than the run's own.
        split: Split to score.
        limit: Score the first samples only, this many.
        base: Also score the base as it was before training.
        report: Also write report.html, a page with images of the lines.
        calibrate: Fit the confidences again first, on the validation split.
        script: Script that line recognisers keep to; auto decides it by the lines; as trained if not given.
        output: Folder for the scores of a base or an export; runs/NAME-DATASET if not given.
        progress: Called with the lines done and in total, instead of a progress bar.

    The scorecard and the scored lines of a run are written into its folder. Those of a base or an export make a folder
    of their own, which `report` and `compare` take; a base is scored alone.

    Raises:
        ConfigError: Options do not go together.
        DataError: There is no dataset, or no such split of it.
        ModelError: The base cannot be loaded.
        RunError: The run is missing, unfinished or damaged.
    """
    folder, data = RunFolder.to_read_with(Path(run)), None if dataset is None else Path(dataset)
    is_run = folder.config.is_file()
    if output is not None and is_run:
        message = f"{option('output', output)} is for a base or an export: the scores of a run are kept in it"
        raise ConfigError(message, code="option-invalid", hint=f"leave {option('output', ...)} out")
    if calibrate and not is_run:
        message = f"{option('calibrate')} is for a run, which keeps the calibration of its confidences"
        raise ConfigError(message, code="option-invalid", hint=f"leave {option('calibrate')} out")
    if data is None and not is_run:
        hint = f"give {option('dataset', 'FOLDER')}, or the run folder around it if this is a run's adapter"
        message = "a reader that is no run has no dataset of its own"
        raise RunError(message, code="dataset-missing", where=folder.path, hint=hint)
    opened = open_dataset(folder, data)
    results = folder if is_run or data is None else _open_results(folder, data, output)
    samples = require_samples(opened, Split(split), limit)
    fitting_samples = require_samples(opened, Split.VALIDATION, limit) if calibrate else []
    network = Base.of_adapter(folder.adapter)
    from dsocr.inference.reader import LocalReader

    is_base = folder.reads_as_base
    undecided = LocalReader.of_run(folder, script=script, base=network, merged=not base)
    all_lines = opened.samples(Split(split))  # whatever the limit
    reader = undecided.decide_script(open_image(sample.image) for sample in spread(all_lines, SAMPLE_LINES))
    models = ("base",) if is_base else ("base", "adapter") if base else ("adapter",)
    total = len(fitting_samples) + len(samples) * len(models)
    done = 0

    def read(chosen: Sequence[Sample], with_reader: "LocalReader" = reader) -> Iterator[Prediction]:
        nonlocal done
        for prediction in with_reader.read((sample.id, open_image(sample.image)) for sample in chosen):
            yield prediction
            done += 1
            show(done, total)

    # A run trained on a part of its dataset only knows the writers of that part.
    trained: Sequence[Sample] = ()
    if not is_base:
        trained = opened.samples(Split.TRAIN) if data else training_samples(opened, load_run_config(folder.config))
    statuses = writer_statuses({sample.writer for sample in trained}, [sample.writer for sample in samples])
    lines: dict[str, list[LineScore]] = {}
    seconds: dict[str, float] = {}
    with progress_bar(progress, "reading", "lines") as show:
        if calibrate:
            base_scales = UNCALIBRATED
            if reader.processor.language_model:  # else the base's confidences, with one, are no guide
                settings = ReadingSettings.load(folder.adapter)
                base_scales = Calibration.load(Base.find(settings.base, settings.base_revision).folder)
            judged = _judge(fitting_samples, read(fitting_samples))
            fit_calibration(judged, base_scales, fitting_samples).save(folder.adapter)
        for model in models:
            started = time.monotonic()
            alone = model == "base" and not is_base
            with reader.base() if alone else nullcontext(reader.merged()) as used:
                predictions = list(read(samples, used))
            lines[model] = score_lines(
                samples, {prediction.id: prediction for prediction in predictions}, statuses, trained
            )
            seconds[model] = time.monotonic() - started

    notes = [] if is_base else list(_notes(folder, opened, Split(split), is_own=data is None))
    if folder.path.parent == SHIPPED_BASES and (better := name_better_base(folder.path.name, samples)):
        notes.append(f"{better}.")
    if limit is not None:
        notes.append(f"Only the first lines of the split were read, at most {limit}.")
    if reader is not undecided:
        notes.append(describe_script(reader.generation.script))
    language_model = _language_model(samples, predictions, reader)
    if language_model:
        without, with_model = (percentage(language_model[name], 1) for name in ("cer_without", "cer"))
        notes.append(f"The language model brings the CER from {without} to {with_model}.")
    calibration = Calibration.load(folder.adapter)
    if calibration.problem:
        notes.append(calibration.problem)
    reliability = None
    if any(prediction.scores for prediction in predictions):
        name, judged = opened.folder.resolve().name, _judge(samples, predictions)
        reliability = CalibrationReport.compute(calibration, judged, dataset=name, split=Split(split))
        notes[:0] = filter(None, [reliability.verdict])
    card = make_scorecard(
        Split(split),
        lines,
        seconds,
        struck_marks=reader.text_policy.struck_marks,
        dataset=opened.card.hashes,
        settings={
            **_settings(folder, reader, opened),
            **({"language_model": language_model} if language_model else {}),
            "lines": len(samples),
            "limit": limit,
            "dataset": None if data is None else data.as_posix(),
        },
        notes=tuple(notes),
    )
    remove_drafts(results.path, is_locked=False)
    write_lines(results.lines, lines)
    card.save(results.scorecard)
    if reliability is not None:
        write_file(results.confidence, to_json(reliability.to_dict()))
    if report:
        write_report(results.path, dataset=opened)
    elif outdated := drop_report(results):
        current_reporter().complain(f"note: {outdated}")
    return replace(card, folder=results.path)


def _open_results(run: RunFolder, dataset: Path, output: StrPath | None) -> RunFolder:
    """Make the folder for the scores of a base or an export. Raises DataError if it holds something else."""
    settings = ReadingSettings.load(run.adapter)
    results = RunFolder(Path(output or Path("runs") / f"{run.name}-{dataset.resolve().name}"))
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
    files = (run.config, run.scorecard, run.lines, run.confidence, run.report)
    return [file.name for file in files]


def _judge(samples: Sequence[Sample], predictions: Iterable[Prediction]) -> list[JudgedLine]:
    pairs = zip(samples, predictions, strict=True)
    return [
        JudgedLine.compute(ScoredText(prediction.text, prediction.scores), sample.text) for sample, prediction in pairs
    ]


def _language_model(
    samples: Sequence[Sample], predictions: Sequence[Prediction], reader: "LocalReader"
) -> dict[str, float] | None:
    """Return the weight of the language model, and the CER without and with it; None if none was used."""
    model, plain = reader.processor.language_model, [prediction.plain for prediction in predictions]
    if model is None or None in plain:
        return None
    texts = [sample.text for sample in samples]
    without, cer = (
        pool(map(character_errors, texts, read)).rate
        for read in (map(str, plain), (prediction.text for prediction in predictions))
    )
    return {"weight": model.weight * reader.generation.language_model_share, "cer_without": without, "cer": cer}


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
    """Describe the ancestors of a run that were trained on lines of these splits."""
    return [
        f"Scores are optimistic: {count} {split} lines were used to train {run['run']}, the start of this run."
        for run in started_from
        for split, count in (run.get("known_lines") or {}).items()
        if count and split in splits
    ]


def _settings(run: RunFolder, reader: "LocalReader", dataset: Dataset) -> dict[str, object]:
    from dsocr.models.base_folder import weights_file

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
