"""Predictions to compare: from evaluated runs, and from the files that other tools write."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

from dsocr.config import load_run_config
from dsocr.data.dataset import Dataset
from dsocr.data.splits import page_key
from dsocr.document import PackedImage, Split
from dsocr.errors import DataError, DsocrError, RunError, command, first_few, option
from dsocr.evaluation.compare import Comparison, System, compare
from dsocr.evaluation.evaluate import require_samples
from dsocr.evaluation.page_metrics import read_pages, score_pages, written_pages
from dsocr.evaluation.prediction_files import (
    MatchedText,
    Missing,
    clean_text,
    match,
    normalize_name,
    page_name,
    parse_name,
    read_predictions,
    stem_of,
)
from dsocr.evaluation.scorecard import Scorecard, open_scored_dataset
from dsocr.evaluation.scores import MODEL_LABELS, LineScore, load_lines, score_lines, writer_statuses
from dsocr.evaluation.statistics import clusters_of
from dsocr.io.encodings import text_encoding
from dsocr.runs import RunFolder, to_json


def compare_paths(
    paths: Sequence[str],
    *,
    base: bool = False,
    dataset: Path | None = None,
    split: Split | None = None,
    missing: Missing = "error",
    columns: Mapping[str, str] | None = None,
    encoding: str | None = None,
    pages: bool = False,
    pool_seeds: bool = False,
) -> Comparison:
    """Compare evaluated runs and files of predictions, each given as `NAME=PATH` or a path.

    One run alone is compared with its base; `base` puts the first run's base before the others. Predictions are
    scored on the split of `dataset`, by default the one the first run was evaluated on. With `pages`, whole pages are
    compared, and predictions may have any lines. `pool_seeds` makes one system of runs that differ in seed alone.
    Raises DsocrError if something cannot be read, or runs were evaluated on different lines.
    """
    named = [parse_name(text) for text in paths]
    for _, path in named:
        if not path.exists():
            hint = "give run folders, or files or folders of predictions"
            raise DataError("no such file or folder", code="input-missing", where=path, hint=hint)
    runs = {path: _EvaluatedRun.open(path) for _, path in named if RunFolder(path).config.is_file()}
    first = next(iter(runs.values()), None)
    if base and first is None:
        raise DataError(f"{option('base')} needs a run folder whose base to compare with", code="no-base")
    has_files = any(path not in runs for _, path in named)
    opened = _open_dataset(dataset, first, required=has_files)
    split = split or (Split(first.card.split) if first else Split.TEST)
    for run in runs.values():
        run.require_same_split(split, opened, first, check_dataset=has_files or dataset is not None)
    alone = len(named) == 1 and first is not None
    systems = [first.system("base", "base")] if first and (base or alone) else []
    with text_encoding(encoding):
        for name, path in named:
            if path in runs:
                model = "adapter" if "adapter" in runs[path].lines else "base"  # of a base, nothing was trained
                systems.append(runs[path].system("trained" if alone and name == "base" else name, model))
            else:
                assert opened is not None
                systems.append(_score_file(name, path, opened, split, missing, columns, pages=pages))
    images, about = _describe(opened, split, systems)
    if first is not None:
        about["sha256"] = first.card.dataset.get(split)  # as it was scored; it can have changed since
    if pages:
        of_runs = {system.name for system in systems if system.trained or system.name == "base"}
        systems = [
            replace(system, lines=read_pages(system.lines)) if system.name in of_runs else system for system in systems
        ]
        if opened is not None:  # of pages with lines in another split too, a tool reads more than the references have
            others = [sample for other in Split if other != split for sample in opened.samples(other)]
            divided = {page_key(sample.document, sample.page) for sample in others}
            count = sum(line.page in divided for line in systems[0].lines)
            note = [f"{count} pages have lines in another split and are left out"] if count else []
            for place, system in enumerate(systems):
                whole = [line for line in system.lines if line.page not in divided]
                systems[place] = replace(system, lines=whole, notes=[*system.notes, *note])
    if pool_seeds:
        settings = {}
        for name, path in named:
            if path in runs:
                values = load_run_config(RunFolder(path).config).model_dump(mode="json", exclude={"seed", "output"})
                settings[name] = to_json(values)
        systems = pool_trainings(systems, settings)
        read = {line.id: line.id.partition(_SEED_MARK)[0] for line in systems[0].lines}
        images = {id_: images[name] for id_, name in read.items() if name in images}
    return compare(systems, images=images, about=about, pages=pages)


_SEED_MARK = " (seed "


def pool_trainings(systems: Sequence[System], settings: Mapping[str, str]) -> list[System]:
    """Make one system of runs with the same settings by name; all others count as often, so that lines stay paired.

    A line of the pooled system has the name of the line and the place of the run. Raises DataError if no two runs
    differ in seed alone, or lines have neither writers nor pages, by which an interval counts several readings once.
    """
    groups: dict[str, list[System]] = {}
    for system in systems:
        groups.setdefault(settings.get(system.name, system.name), []).append(system)
    if all(len(group) == 1 for group in groups.values()):
        hint = "their configurations may differ in `seed` and `output` only"
        raise DataError("no two runs differ in seed alone", code="seeds-none", hint=hint)
    if clusters_of(systems[0].lines).unit == "line":
        message = "seeds cannot be pooled where fewer than five writers and five pages are known"
        raise DataError(message, code="seeds-none", hint=f"prepare with {option('writer', ...)} to name writers")
    times = math.lcm(*(len(group) for group in groups.values()))
    pooled = []
    for group in groups.values():
        lines = [
            replace(line, id=f"{line.id}{_SEED_MARK}{turn + 1})")
            for turn in range(times)
            for line in group[turn % len(group)].lines
        ]
        if len(group) == 1:
            pooled.append(replace(group[0], lines=lines))
            continue
        cers = [system.score.cer.rate for system in group]
        notes = [f"{len(group)} seeds", *(note for system in group for note in system.notes)]
        pooled.append(System(f"{group[0].name} ({len(group)} seeds)", lines, notes, seeds=cers))
    return pooled


@dataclass(frozen=True, slots=True)
class _EvaluatedRun:
    path: Path
    card: Scorecard
    lines: Mapping[str, list[LineScore]]

    @classmethod
    def open(cls, path: Path) -> "_EvaluatedRun":
        run = RunFolder(path)
        return cls(path, Scorecard.load(run.scorecard), load_lines(run.lines))

    def require_same_split(
        self, split: Split, dataset: Dataset | None, first: "_EvaluatedRun | None", *, check_dataset: bool
    ) -> None:
        """Raise RunError unless the run was evaluated on this split, with the same content.

        The content is the first run's, or with `check_dataset` that of the dataset now.
        """
        options = {} if dataset is None else {"dataset": dataset.folder.as_posix()}
        hint = f"run {command('evaluate', self.path.as_posix(), **options, split=str(split))}"
        if self.card.split != split:
            message = f"was evaluated on the {self.card.split} split, not on {split}"
            raise RunError(message, code="other-dataset", where=self.path, hint=hint)
        other = first.card.dataset.get(split) if first else None
        if check_dataset and dataset is not None and split in dataset.card.splits:
            other = dataset.card.splits[split].sha256
        scored = self.card.dataset.get(split)
        if scored is not None and other is not None and scored != other:
            message = (
                f"was evaluated on another dataset: its {split} split has the hash {scored[:12]}, not {other[:12]}"
            )
            raise RunError(message, code="other-dataset", where=self.path, hint=hint)

    def system(self, name: str, model: str) -> System:
        if model not in self.lines:
            hint = f"run {command('evaluate', self.path.as_posix())} without {option('base', False)}"
            raise RunError(f"was evaluated without its {model}", code="no-base", where=self.path, hint=hint)
        limit = self.card.settings.get("limit")
        notes = [f"run {self.path.as_posix()}, {MODEL_LABELS[model]}, scored {self.card.created_at}"]
        notes += [f"only the first {limit} lines were read"] if limit else []
        return System(name, self.lines[model], notes, trained=model == "adapter")


def _open_dataset(folder: Path | None, first: _EvaluatedRun | None, *, required: bool) -> Dataset | None:
    """Open the named dataset, else that of the first run; None if that is gone and not required."""
    if folder is not None:
        return Dataset.open(folder, fold=first.card.settings.get("fold") if first else None)
    if first is None:
        hint = f"name a dataset and a split: {option('dataset', 'FOLDER')}, {option('split', 'test')}"
        raise DataError("there is nothing to score predictions against", code="dataset-missing", hint=hint)
    try:
        return open_scored_dataset(RunFolder(first.path), first.card)
    except DsocrError as error:
        if not required:
            return None
        message = "its dataset has moved, so predictions cannot be scored"
        raise DataError(
            message, code="dataset-missing", where=first.path, hint=f"name it: {option('dataset', 'FOLDER')}"
        ) from error


def _score_file(
    name: str,
    path: Path,
    dataset: Dataset,
    split: Split,
    missing: Missing,
    columns: Mapping[str, str] | None,
    *,
    pages: bool,
) -> System:
    """Score predictions of lines; with `pages`, of a tool with its own lines: PAGE, ALTO, texts or a table of pages."""
    samples, file, policy = require_samples(dataset, split), read_predictions(path, columns), dataset.card.policy()
    trained = {sample.writer for sample in dataset.samples(Split.TRAIN)}
    statuses = writer_statuses(trained, [sample.writer for sample in samples])
    if not pages:
        predicted, notes = match(file, samples, policy, missing=missing)
        return System(name, score_lines(samples, predicted, statuses), [f"predictions {path.as_posix()}", *notes])
    written = written_pages(score_lines(samples, {sample.id: MatchedText("") for sample in samples}, statuses))
    names: dict[str, str] = {}
    for sample in samples:
        key = str(page_key(sample.document, sample.page))
        names |= {normalize_name(page_name(sample)): key, PurePosixPath(page_name(sample)).name: key}
    texts: dict[str, list[str]] = {}
    unused: list[str] = []
    for prediction in file.predictions:
        page = normalize_name(prediction.page or prediction.name)
        place = names.get(page) or names.get(stem_of(page)) or names.get(PurePosixPath(page).name)
        if place is None:
            unused.append(prediction.where)
        else:
            texts.setdefault(place, []).append(policy.apply(clean_text(prediction.text)))
    notes = [f"predictions {path.as_posix()}", file.source, f"by page: {len(texts)} of {len(written)} pages"]
    notes += [f"{len(unused)} predictions match no page and are not used: {first_few(unused, 5)}"] if unused else []
    if missing == "empty":
        texts = {key: [] for key in written} | texts
    return System(name, score_pages(written, {key: "\n".join(lines) for key, lines in texts.items()}), notes)


def _describe(
    dataset: Dataset | None, split: Split, systems: Sequence[System]
) -> tuple[dict[str, Path | PackedImage], dict[str, Any]]:
    """Return the images of lines that have not changed in the dataset, and facts about the comparison."""
    about: dict[str, Any] = {"split": str(split)}
    if dataset is None or split not in dataset.card.splits:
        return {}, about
    about |= {"dataset": dataset.folder.resolve().name, "sha256": dataset.card.splits[split].sha256}
    references = {line.id: line.reference for line in systems[0].lines}
    try:
        samples = dataset.samples(split, references.keys())
    except DataError:
        return {}, about
    return {sample.id: sample.image for sample in samples if references[sample.id] == sample.text}, about
