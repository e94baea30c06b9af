"""What a user names as readings to compare, made into scored lines: run folders, and predictions of any tool."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dsocr.data.dataset import Dataset
from dsocr.data.sources.texts import text_encoding
from dsocr.errors import DataError, DsocrError, RunError, typed
from dsocr.evaluation.comparison import NamedLines
from dsocr.evaluation.datasets import samples_to_score, scored_dataset
from dsocr.evaluation.lines import load_lines
from dsocr.evaluation.matching import Missing, match
from dsocr.evaluation.predictions import read_predictions
from dsocr.evaluation.scorecard import Scorecard
from dsocr.evaluation.scores import LineScore, hands_by_writer, score_lines
from dsocr.runs import RunFolder
from dsocr.samples import PackedImage, Split


@dataclass(frozen=True, slots=True)
class Given:
    """What was named on the command line: `NAME=PATH`, or a path that names itself."""

    path: Path
    name: str

    @classmethod
    def parse(cls, text: str) -> "Given":
        """The name before a first `=`, unless there is a file or folder of that whole name."""
        name, equals, path = text.partition("=")
        if equals and name and path and not Path(text).exists() and not {"/", "\\"} & set(name):
            return cls(Path(path), name)
        path_itself = Path(text)
        return cls(path_itself, path_itself.resolve().name if path_itself.is_dir() else path_itself.stem)

    @property
    def is_run(self) -> bool:
        """True of a run folder."""
        return RunFolder(self.path).config.is_file()


@dataclass(frozen=True, slots=True)
class Readings:
    """Readings of the same lines, the lines' images as far as they are known, and what was read."""

    readings: Sequence[NamedLines]
    images: Mapping[str, Path | PackedImage] = field(default_factory=dict)
    about: Mapping[str, Any] = field(default_factory=dict)


def gather_readings(
    given: Sequence[str],
    *,
    base: bool = False,
    dataset: Path | None = None,
    split: Split | None = None,
    missing: Missing = "refuse",
    columns: Mapping[str, str] | None = None,
    encoding: str | None = None,
) -> Readings:
    """The readings in their order; a single run is its base and its adapter, and `base` puts that base before others.

    The lines are those of the dataset's split, or those that the first run was evaluated on. Raises DsocrError where
    what was named cannot be read, or was not made from the same lines.
    """
    named = [Given.parse(text) for text in given]
    for one in named:
        if not one.path.exists():
            hint = "give run folders, or the files or folders of predictions"
            raise DataError("no such file or folder", where=one.path, hint=hint)
    runs = [_Run.open(one) for one in named if one.is_run]
    alone = len(named) == 1 and bool(runs)
    if base and not runs:
        raise DataError("--base asks for the base of a run, and no run folder is given")
    needed = len(runs) < len(named)
    opened = _dataset(dataset, runs, needed=needed)
    split = split or (runs[0].split if runs else Split.TEST)
    for each in runs:
        each.demand(split, opened, runs[0], as_it_is=needed or dataset is not None)
    found: list[NamedLines] = []
    if base or alone:
        found.append(runs[0].reading("base", "base"))
    by_path = {run.given.path: run for run in runs}
    with text_encoding(encoding):
        for one in named:
            run = by_path.get(one.path)
            if run is not None:
                found.append(run.reading("adapter" if alone else one.name, "adapter"))
            else:
                found.append(_predicted(one, opened, split, missing, columns))
    return Readings(found, _images(opened, split, found), _about(opened, split, runs))


@dataclass(frozen=True, slots=True)
class _Run:
    given: Given
    card: Scorecard
    lines: Mapping[str, list[LineScore]]

    @classmethod
    def open(cls, given: Given) -> "_Run":
        run = RunFolder(given.path)
        return cls(given, Scorecard.load(run.scorecard), load_lines(run.lines))

    @property
    def split(self) -> Split:
        return Split(self.card.split)

    def dataset(self) -> Dataset | None:
        """The dataset that it was evaluated on, where it still is in its place."""
        try:
            return scored_dataset(RunFolder(self.given.path), self.card)
        except DsocrError:
            return None

    def demand(self, split: Split, dataset: Dataset | None, first: "_Run", *, as_it_is: bool) -> None:
        """An error where the run was evaluated on another split, or on another state of it.

        That state is the first run's, or that of the dataset `as_it_is`.
        """
        hint = f"dsocr evaluate {typed(self.given.path.as_posix())}"
        if dataset is not None:
            hint += f" --dataset {dataset.folder.as_posix()}"
        if self.split != split:
            message = f"was evaluated on the {self.split} split, not on {split}"
            raise RunError(message, where=self.given.path, hint=f"{hint} --split {split}")
        other = first.card.dataset.get(split)
        if as_it_is and dataset is not None and split in dataset.card.splits:
            other = dataset.card.splits[split].sha256
        own = self.card.dataset.get(split)
        if own is not None and other is not None and own != other:
            message = f"was evaluated on another dataset: its {split} split has the hash {own[:12]}, not {other[:12]}"
            raise RunError(message, where=self.given.path, hint=f"{hint} --split {split}")

    def reading(self, name: str, model: str) -> NamedLines:
        if model not in self.lines:
            hint = f"dsocr evaluate {typed(self.given.path.as_posix())}, without --no-base"
            raise RunError(f"was evaluated without its {model}", where=self.given.path, hint=hint)
        limit = self.card.settings.get("limit")
        remarks = [f"run {self.given.path.as_posix()}, {model}, scored {self.card.made_at}"]
        if limit:
            remarks.append(f"only the first {limit} lines were read")
        return NamedLines(name, self.lines[model], remarks)


def _dataset(folder: Path | None, runs: Sequence[_Run], *, needed: bool) -> Dataset | None:
    """The dataset that was named, else that of the first run; None where only runs are compared and it is gone."""
    if folder is not None:
        fold = next((run.card.settings.get("fold") for run in runs), None)
        return Dataset.open(folder, fold=fold)
    if not runs:
        raise DataError("there is nothing to score predictions against", hint="name it: --dataset FOLDER --split test")
    own = runs[0].dataset()
    if own is None and needed:
        message = "its dataset is not where the run was trained on it, so predictions cannot be told whose they are"
        raise DataError(message, where=runs[0].given.path, hint="name it: --dataset FOLDER")
    return own


def _predicted(
    given: Given, dataset: Dataset | None, split: Split, missing: Missing, columns: Mapping[str, str] | None
) -> NamedLines:
    assert dataset is not None
    samples = samples_to_score(dataset, split)
    matched = match(read_predictions(given.path, columns), samples, dataset.card.policy(), missing=missing)
    writers = [sample.writer for sample in samples]
    hands = hands_by_writer({sample.writer for sample in dataset.samples(Split.TRAIN)}, writers)
    remarks = [f"predictions {given.path.as_posix()}", *matched.remarks]
    return NamedLines(given.name, score_lines(samples, matched.predictions, hands), remarks)


def _images(dataset: Dataset | None, split: Split, found: Sequence[NamedLines]) -> dict[str, Path | PackedImage]:
    """The pictures of lines that the dataset has as they were scored."""
    if dataset is None or not found:
        return {}
    texts = {line.id: line.reference for line in found[0].lines}
    try:
        return {sample.id: sample.image for sample in dataset.samples(split) if texts.get(sample.id) == sample.text}
    except DataError:
        return {}


def _about(dataset: Dataset | None, split: Split, runs: Sequence[_Run]) -> dict[str, Any]:
    about: dict[str, Any] = {"split": str(split)}
    if dataset is not None and split in dataset.card.splits:
        about |= {"dataset": dataset.folder.resolve().name, "sha256": dataset.card.splits[split].sha256}
    if runs:
        about["sha256"] = runs[0].card.dataset.get(split)  # as it was scored, though it may have changed since
    return about
