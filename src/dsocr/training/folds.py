"""Train on all folds of a dataset but one, and read the lines of that one: every line is read by a model that never
saw it, nor any other of its writer.

That scores a configuration on every line, and audits a dataset: lines are ranked by how surely their text is wrong.
Each fold is a run in the work folder. Finished ones are not trained again, an interrupted one resumes from its last
checkpoint, and what was read of a fold is kept as long as its run and the dataset stay the same.
"""

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NamedTuple, Unpack

from pydantic import TypeAdapter

from dsocr.config import RunConfig, load_config, load_run_config
from dsocr.console import shows_progress
from dsocr.data.dataset import Dataset, training_samples
from dsocr.data.fix import copy_with_folds
from dsocr.document import Sample, Split
from dsocr.errors import DataError, RunError, option
from dsocr.evaluation.audit import Audit, ReadSample, plant_mistakes, rank_lines, texts_to_score, write_audit
from dsocr.evaluation.report import report as write_report
from dsocr.evaluation.scorecard import Scorecard, make_scorecard
from dsocr.evaluation.scores import LineScore, score_lines, write_lines, writer_statuses
from dsocr.images import open_image
from dsocr.inference.confidence import Prediction
from dsocr.io.encodings import read_object
from dsocr.io.processes import ProgressCallback
from dsocr.io.work import remove_drafts, write_file
from dsocr.job import expand_changes, resolve
from dsocr.models.generation import batches
from dsocr.options import ON, Changes, Count, Output, RecipeKeys, StrPath, between
from dsocr.runs import ReadingSettings, RunFolder, to_json
from dsocr.training.many_runs import (
    ManyProgress,
    WorkDone,
    keep_reading,
    plan_run,
    require_one_process,
    train_run,
)

FOLDS = 5
"""Folds that are drawn for a dataset without any."""
_STEP_COST = 3
"""A line that is trained on takes about as long as three that are read: forward, and twice as much backward."""
_CHECKPOINT_STEPS = 25
"""Steps between checkpoints: what a killed command loses at most."""
_LINE = TypeAdapter(LineScore)
_HINT = f"remove the folder to train all folds again (or, of an audit, give {option('overwrite')}), or name another one"

Rows = list[dict[str, Any]]
"""What was read of the lines of a fold, as JSON values, in their order."""
ReadFold = Callable[[RunFolder, Sequence[Sample], Callable[[int], None]], Rows]
"""Reads lines with a finished run; called with the run, the samples, and a callback for the lines done so far."""


class FoldReading(NamedTuple):
    """A fold: its number, the run trained without it, its samples, what was read of them, and the file of that."""

    number: int
    run: RunFolder
    dataset: Dataset
    samples: list[Sample]
    rows: Rows
    file: Path

    @contextmanager
    def explain_damage(self) -> Iterator[None]:
        """Turn an error of rows that nobody wrote so into a RunError."""
        try:
            yield
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            message, hint = "is damaged, or of other lines than the dataset has", "delete it; it is made again"
            raise RunError(message, code="fold-damaged", where=self.file, hint=hint) from error


def read_folds(
    config: RunConfig,
    read: ReadFold,
    *,
    name: str,
    folds: int | None = None,
    readings: int = 1,
    overwrite: bool = False,
    progress: ManyProgress | None = None,
) -> list[FoldReading]:
    """Train each fold in `config.output` and read its lines; `name` is that of the files with what was read.

    A dataset without folds gets `folds` (5 if not given) in a copy in the work folder: by writer, else document or
    page. A line is read `readings` times. `overwrite` trains again what has other data or settings.

    Raises ConfigError for several processes, DataError for another number of folds, RunError for other runs.
    """
    require_one_process("start the command itself, without torchrun")
    dataset = _with_folds(config, folds, overwrite=overwrite)
    numbers = range(1, (dataset.card.folds or 0) + 1)
    opened = [Dataset.open(dataset.folder, fold=number) for number in numbers]
    every_steps = min(config.checkpoints.every_steps, _CHECKPOINT_STEPS)
    checkpoints = config.checkpoints.model_copy(update={"every_steps": every_steps})
    job = resolve(config.model_copy(update={"checkpoints": checkpoints}), overwrite=True, dataset=dataset)
    runs = [
        plan_run(
            job,
            job.run.path / f"fold-{fold.fold}",
            len(training_samples(fold, job.given)),
            dataset=fold,
            overwrite=overwrite,
            hint=_HINT,
        )
        for fold in opened
    ]
    samples = [fold.samples(Split.TEST) for fold in opened]
    step_work = config.training.batch_size * _STEP_COST
    total = sum(run.steps * step_work for run in runs if not run.finished)
    done = WorkDone(total + readings * sum(map(len, samples)), progress)
    results = []
    for number, planned, fold, lines in zip(numbers, runs, opened, samples, strict=True):
        note = f"fold {number} of {len(runs)}"
        run = train_run(planned, note, done, step_work=step_work)

        show = partial(done.show, note=f"{note}, reading")
        path = config.output / f"{name}-{number}.json"
        rows = keep_reading(path, run, {"dataset": dataset.card.hashes}, partial(read, run, lines, show), hint=_HINT)
        done.add(readings * len(lines))
        done.show(0, note)
        results.append(FoldReading(number, run, fold, lines, rows, path))
    return results


@shows_progress("cross-validating", "lines")
def cross_validate(
    run: StrPath,
    *,
    base: Annotated[bool, ON] = True,
    report: Annotated[bool, ON] = True,
    progress: ProgressCallback | None = None,
) -> Scorecard:
    """Score a configuration on all lines of its dataset, each read by a model that was trained without its fold.

    Args:
        run: Run folder, configuration file, or dataset folder without a run.
        base: Also score the base as it was before training.
        report: Also write report.html, a page with images of the lines.
        progress: Called with the work done and in total, in lines, instead of a progress bar.

    Runs, scorecard and scored lines go to `folds/` of the run folder that the configuration names; that run itself is
    not trained. See `read_folds`.

    Raises:
        ConfigError: The settings have problems, or several processes were launched.
        DataError: There is no dataset, it cannot be divided into folds, or has aligned texts that nobody accepted.
        RunError: The folder holds other runs.
    """
    recorded = RunFolder(Path(run)).config
    config = load_run_config(recorded) if recorded.is_file() else load_config(Path(run))
    dataset = Dataset.open(config.dataset)
    if any(sample.aligned is not None for split in Split for sample in dataset.samples(split)):
        message, hint = "aligned texts that nobody accepted cannot be tested on", "accept them in the workbench"
        raise DataError(message, code="folds-conflict", where=config.dataset, hint=hint)
    folder = RunFolder(RunFolder(config.output).folds)
    models = ("base", "adapter") if base else ("adapter",)
    folds = read_folds(
        config.model_copy(update={"output": folder.path, "fold": None}),
        partial(_score_fold, models=models),
        name="-".join(("lines", *models)),
        readings=len(models),
        progress=progress,
    )
    lines: dict[str, list[LineScore]] = {model: [] for model in models}
    for fold in folds:
        with fold.explain_damage():
            for row in fold.rows:
                lines[row["model"]].append(_LINE.validate_python({k: v for k, v in row.items() if k != "model"}))
    dataset = Dataset.open(folds[0].dataset.folder)
    settings = ReadingSettings.load(folds[0].run.adapter)
    card = make_scorecard(
        Split.TEST,
        lines,
        struck_marks=settings.text_policy.struck_marks,
        folds={row["id"]: fold.number for fold in folds for row in fold.rows},
        dataset=dataset.card.hashes,
        settings={
            "base": settings.base,
            "base_revision": settings.base_revision,
            "dataset": dataset.folder.as_posix(),
            "dataset_source": dataset.card.source,
            "split_by": dataset.card.split_by,
            "folds": len(folds),
            "lines": len(lines["adapter"]),
            "prompt": settings.prompt,
            "resolution": settings.resolution,
            "generation": settings.generation,
            "text_policy": settings.text_policy.as_dict(),
        },
        notes=(
            f"All lines are scored: each was read by one of {len(folds)} models, which was trained without its fold "
            f"and chosen on another (folds by {dataset.card.split_by}). A model trained on all lines has seen more "
            "and reads a little better.",
        ),
    )
    write_file(folder.config, config.to_yaml())
    write_lines(folder.lines, lines)
    card.save(folder.scorecard)
    if report:
        write_report(folder.path)
    return replace(card, folder=folder.path)


def _score_fold(
    run: RunFolder, samples: Sequence[Sample], report: Callable[[int], None], *, models: Sequence[str]
) -> Rows:
    from dsocr.inference.reader import LocalReader  # loads torch

    config = load_run_config(run.config)
    trained = training_samples(Dataset.open(config.dataset, fold=config.fold), config)
    statuses = writer_statuses([sample.writer for sample in trained], [sample.writer for sample in samples])
    reader, rows = LocalReader.of_run(run, merged="base" not in models), Rows()
    for model in models:
        with reader.base() if model == "base" else nullcontext(reader.merged()) as used:
            predictions = {}
            for prediction in used.read((sample.id, open_image(sample.image)) for sample in samples):
                predictions[prediction.id] = prediction
                report(len(rows) + len(predictions))
        scored = score_lines(samples, predictions, statuses, trained)
        rows += [{"model": model, **line.to_dict()} for line in scored]
    return rows


def _with_folds(config: RunConfig, folds: int | None, *, overwrite: bool) -> Dataset:
    """Open the dataset if it has folds, else its copy with folds, made if it is missing or outdated."""
    dataset = Dataset.open(config.dataset)
    if dataset.card.folds is not None:
        if folds not in (None, dataset.card.folds):
            message, hint = f"the dataset has {dataset.card.folds} folds, not {folds}", "leave the number out"
            raise DataError(message, code="folds-differ", where=config.dataset, hint=hint)
        return dataset
    copy, source = config.output / "dataset", config.output / "source.json"
    origin = {"dataset": dataset.card.hashes, "folds": folds or FOLDS, "seed": config.seed}
    if copy.is_dir():
        if read_object(source) == origin:
            remove_drafts(config.output)
            return Dataset.open(copy)
        if not overwrite:
            message = f"holds folds of an earlier state of {config.dataset}, or other folds"
            raise RunError(message, code="other-dataset", where=config.output, hint=_HINT)
        shutil.rmtree(copy)
    config.output.mkdir(parents=True, exist_ok=True)
    remove_drafts(config.output)
    write_file(source, to_json(origin))
    return copy_with_folds(dataset, copy, folds or FOLDS, seed=config.seed)


# Audit: rank lines by how surely their text is wrong


_TRAINING = {"max_steps": 100, "report_to": "none"}
"""Few steps: `small` has learnt most of what 800 lines of new hands teach (lab/verdicts.md)."""
_VALIDATION = {"every_steps": 50, "max_samples": 100}


@shows_progress("auditing", "lines")
def audit(
    dataset: StrPath | Dataset,
    *,
    changes: Changes | None = None,
    output: Output | None = None,
    folds: Annotated[int, between(3)] | None = None,
    lines: Count = 100,
    overwrite: bool = False,
    progress: ProgressCallback | None = None,
    **keys: Unpack[RecipeKeys],
) -> Audit:
    """Find lines whose transcription is wrong. Every line is read by a model that never saw it.

    Args:
        dataset: Dataset folder.
        changes: Change a setting, as section.key=value; repeatable.
        output: Work folder, where it resumes; runs/NAME-audit if not given.
        folds: Number of folds for a dataset without any; 5 if not given.
        lines: Number of lines on the page and in the table.
        overwrite: Train again what was trained on other data or with other settings.
        progress: Called with the work done and in total, in lines, instead of a progress bar.
        keys: Keys of the configuration, as `base="nano"` or `max_steps=200`.

    Takes minutes with the default base.

    Raises:
        ConfigError: The settings have problems.
        DataError: There is no dataset, or it cannot be divided into folds.
        RunError: The work folder holds other runs.
    """
    folder = dataset.folder if isinstance(dataset, Dataset) else Path(dataset)
    name = folder.resolve().name
    out = Path(output or Path("runs") / f"{name}-audit")
    settings, overrides = expand_changes(changes, keys)
    Dataset.open(folder)
    training = dict(_TRAINING)
    if any(key.startswith("training.epochs") for key in (*overrides, *settings)):
        del training["max_steps"]
    defaults = {"dataset": folder, "output": out, "training": training, "validation": _VALIDATION}
    config = load_config(defaults, overrides, changes=settings)
    read = []
    for fold in read_folds(config, read_fold, name="audit", folds=folds, overwrite=overwrite, progress=progress):
        with fold.explain_damage():
            pairs = zip(fold.samples, fold.rows, strict=True)
            read += [ReadSample.from_dict(row, sample) for sample, row in pairs]
    result = replace(rank_lines(read, name=name, folder=out), shown=lines)
    write_audit(result)
    return result


def read_fold(run: RunFolder, samples: Sequence[Sample], report: Callable[[int], None]) -> Rows:
    """Read the lines of a fold, and score their texts, readings and planted mistakes; see `ReadSample`."""
    from dsocr.inference.reader import LocalReader  # loads torch

    reader = LocalReader.of_run(run)
    model = reader.processor.language_model
    planted, done, rows = plant_mistakes(samples), 0, Rows()
    for batch in batches(list(zip(samples, planted, strict=True)), 4 * reader.generation.batch_size):
        images = [open_image(sample.image) for sample, _ in batch]
        read = list(reader.read((sample.id, image) for (sample, _), image in zip(batch, images, strict=True)))
        texts = [
            texts_to_score(prediction.text, plain_of(prediction), [sample.text, *mistakes])
            for (sample, mistakes), prediction in zip(batch, read, strict=True)
        ]
        scores = []
        for part in batches(list(zip(images, texts, strict=True)), reader.generation.batch_size):
            scores += reader.processor.family.log_likelihoods(
                reader.network, reader.processor, [image for image, _ in part], [candidates for _, candidates in part]
            )
        for (sample, mistakes), prediction, candidates, values in zip(batch, read, texts, scores, strict=True):
            likelihoods = dict(zip(candidates, values, strict=True))
            language = {text: model.score(text) for text in candidates} if model else {}
            rows.append(
                ReadSample(sample, prediction.text, plain_of(prediction), mistakes, likelihoods, language).to_dict()
            )
        done += len(batch)
        report(done)
    return rows


def plain_of(prediction: Prediction) -> str:
    """Return what was read without a language model."""
    return prediction.text if prediction.plain is None else prediction.plain
