"""Which dataset a run belongs to, and which one its card scored."""

from pathlib import Path

from dsocr.config import load_config
from dsocr.data.dataset import Dataset
from dsocr.errors import DataError
from dsocr.evaluation.scorecard import Scorecard
from dsocr.runs import RunFolder
from dsocr.samples import Sample, Split


def dataset_of(run: RunFolder, folder: Path | None = None) -> Dataset:
    """The dataset in the folder that is given, else the run's own, split as it was for the training."""
    if folder is not None:
        return Dataset.open(folder)
    config = load_config(run.config)
    return Dataset.open(config.dataset, fold=config.fold)


def scored_dataset(run: RunFolder, card: Scorecard, folder: Path | None = None) -> Dataset:
    """The dataset whose lines a card scored: in the folder that is given, else that the card names, else the run's own.

    Raises DsocrError where there is none.
    """
    named = folder or card.settings.get("dataset")
    return dataset_of(run) if named is None else Dataset.open(Path(named), fold=card.settings.get("fold"))


def samples_to_score(dataset: Dataset, split: Split, limit: int | None = None) -> list[Sample]:
    """The first `limit` samples of a split, or all. Raises DataError, which names the splits there are, for none."""
    samples = dataset.samples(split)[:limit]
    if not samples:
        there = ", ".join(name.value for name in Split if dataset.samples(name))
        hint = f"it has {there}" if there else "prepare it anew"
        raise DataError(f"has no {split} split to score on", where=dataset.folder, hint=hint)
    return samples
