"""The recipe of an evaluation: a split read by base and adapter, and the card that sets them side by side."""

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from PIL import Image

from dsocr.config import GuardSection, load_run_config
from dsocr.data.dataset import Dataset, training_samples
from dsocr.document import Sample, Split
from dsocr.errors import DataError
from dsocr.evaluation.metrics import ErrorRate, character_errors
from dsocr.evaluation.scorecard import Scorecard, make_scorecard
from dsocr.evaluation.scores import LineScore, hands_by_writer, score_lines, write_lines
from dsocr.images import open_image
from dsocr.inference.generation import Generation, batches
from dsocr.io.atomic import hash_file
from dsocr.io.files import shipped_path
from dsocr.models.checkpoint import EMBEDDED, require_readable_adapter
from dsocr.models.deepseek_ocr import Processor
from dsocr.runs import ReadingSettings, RunFolder
from dsocr.text import is_blank

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from dsocr.inference.reader import Transcriber


def dataset_of(run: RunFolder, folder: Path | None = None) -> Dataset:
    """The dataset in the folder that is given, else the run's own, split as it was for the training."""
    if folder is not None:
        return Dataset.open(folder)
    config = load_run_config(run.config)
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


PRINT = "examples/print"
"""The set that ships for the embedded base."""

NO_GUARD = (
    "no guard set: nothing will tell what the base forgets; `guard.dataset` takes a prepared dataset that it reads well"
)


@dataclass(frozen=True, slots=True)
class GuardReading:
    """The set as the base alone and as the adapter read it; `margin` is in points of CER."""

    name: str
    lines: int
    margin: float
    base: ErrorRate
    adapter: ErrorRate

    @property
    def drop(self) -> float:
        """Points of CER that the adapter reads the set worse than the base; negative where it reads it better."""
        return 100 * (self.adapter.rate - self.base.rate)

    @property
    def is_beyond(self) -> bool:
        """True where the drop is larger than the margin."""
        return self.drop > self.margin + 1e-9

    @property
    def sentence(self) -> str:
        """What became of the set, and beyond the margin what to do about it."""
        told = f"the CER of the guard set ({self.lines} lines of {self.name}) is {self.adapter.rate:.2%}"
        told += f", of the base alone {self.base.rate:.2%}"
        if not self.is_beyond:
            return f"{told}: within the margin of {self.margin:g} points"
        return (
            f"{told}: {self.drop:.1f} points worse, more than the margin of {self.margin:g}. If that matters to you, "
            "use less of the adapter with `dsocr export RUN --adapter FOLDER --scale 0.8`; or train with a lower "
            "learning_rate, fewer epochs, or lines of that kind mixed in"
        )

    def as_dict(self) -> dict[str, Any]:
        """The reading as JSON holds it: CERs are fractions, `drop` and `margin` points of CER."""
        return {
            "dataset": self.name,
            "lines": self.lines,
            "margin": self.margin,
            "characters": self.base.length,
            "base_errors": self.base.errors,
            "adapter_errors": self.adapter.errors,
            "base_cer": self.base.rate,
            "adapter_cer": self.adapter.rate,
            "drop": self.drop,
            "beyond_margin": self.is_beyond,
            "sentence": self.sentence,
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """The reading that `as_dict` wrote, rebuilt from its counts."""
        rates = (ErrorRate(values[f"{model}_errors"], values["characters"]) for model in ("base", "adapter"))
        return cls(values["dataset"], values["lines"], values["margin"], *rates)


@dataclass(frozen=True, slots=True)
class Guard:
    """The lines of a guard set, what they are called, and how many points of CER they may lose."""

    name: str
    samples: Sequence[Sample]
    margin: float

    @classmethod
    def open(cls, section: GuardSection, base: str) -> "Guard | None":
        """The set that the configuration names, else the one that ships with the base; None where there is none.

        Raises DataError where a named dataset is none, or has no such split or no text.
        """
        folder = section.dataset
        if folder is None and base == EMBEDDED:
            folder = shipped_path(PRINT)
        if folder is None or not section.lines:
            return None
        try:
            dataset = Dataset.open(folder)
        except DataError as error:
            raise DataError(f"guard.dataset: {error.message}", where=error.where, hint=error.hint) from error
        splits = [Split(section.split)] if section.split else list(Split)
        everything = chain.from_iterable(dataset.samples(split) for split in splits)
        samples = [sample for sample in everything if not is_blank(sample.text)]
        if not samples:
            raise DataError("guard: there is no line to read", where=folder, hint="see guard.dataset and guard.split")
        chosen = min(section.lines, len(samples))
        spread = [samples[place * len(samples) // chosen] for place in range(chosen)]
        return cls(folder.name, spread, section.margin)

    def read(self, network: "PreTrainedModel", encoder: Processor, generation: Generation) -> ErrorRate:
        """The pooled errors of the network, with its adapter or without, as it is. It is left in evaluation mode."""
        from dsocr.inference.decoding import decode

        pooled = ErrorRate()
        for samples in batches(self.samples, generation.batch_size):
            images = [encoder.encode(open_image(sample.image)) for sample in samples]
            readings = decode(network, encoder, images, generation)
            for sample, reading in zip(samples, readings, strict=True):
                pooled += character_errors(sample.text, reading.text)
        return pooled

    def compared(self, base: ErrorRate, adapter: ErrorRate) -> GuardReading:
        """Two readings of the set beside each other."""
        return GuardReading(self.name, len(self.samples), self.margin, base, adapter)


Progress = Callable[[int, int], None]
"""Told after each line: how many are read, and how many there are, base and adapter together."""


def evaluate(
    run: RunFolder,
    *,
    dataset: Path | None = None,
    split: Split = Split.TEST,
    limit: int | None = None,
    with_base: bool = True,
    progress: Progress | None = None,
) -> Scorecard:
    """Score a finished run on a split of its own dataset, or of another; writes the run's scorecard and lines.

    `limit` reads the first so many samples only, and the card says so. With the base the guard set is scored as well.
    """
    opened = dataset_of(run, dataset)
    samples = samples_to_score(opened, split, limit)
    require_readable_adapter(run.adapter)
    from dsocr.inference.reader import Transcriber

    transcriber = Transcriber.of_run(run)
    writers = [sample.writer for sample in samples]
    # A run that was trained on a part of its dataset knows the writers of that part.
    trained = opened.samples(Split.TRAIN) if dataset else training_samples(opened, load_run_config(run.config))
    hands = hands_by_writer({sample.writer for sample in trained}, writers)

    # First, so that a guard set that cannot be read costs no hours of reading.
    guarded = _guarded(run, transcriber) if with_base else None
    done = 0

    def read(*, adapter: bool) -> tuple[list[LineScore], float]:
        nonlocal done
        started, predictions = time.monotonic(), {}
        with nullcontext() if adapter else transcriber.without_adapter():
            for prediction in transcriber.read(_images(samples)):
                predictions[prediction.id] = prediction
                done += 1
                if progress is not None:
                    progress(done, len(samples) * (2 if with_base else 1))
        return score_lines(samples, predictions, hands), time.monotonic() - started

    remarks = _remarks(run, opened, split, own=dataset is None, limit=limit)
    base, base_seconds = read(adapter=False) if with_base else (None, None)
    lines, adapter_seconds = read(adapter=True)
    card = make_scorecard(
        split,
        base,
        lines,
        base_seconds=base_seconds,
        adapter_seconds=adapter_seconds,
        dataset={name.value: part.sha256 for name, part in opened.card.splits.items()},
        settings=_settings(run, transcriber, opened, len(samples), limit)
        | {"dataset": None if dataset is None else dataset.as_posix()},
        remarks=remarks,
        struck_marks=transcriber.text_policy.struck_marks,
    )
    card = replace(card, guard=None if guarded is None else guarded.as_dict())
    write_lines(run.lines, ({} if base is None else {"base": base}) | {"adapter": lines})
    card.save(run.scorecard)
    return card


def _guarded(run: RunFolder, transcriber: "Transcriber") -> GuardReading | None:
    """The guard set as the base and the adapter read it; None where there is none."""
    config = load_run_config(run.config)
    guard = Guard.open(config.guard, config.base)
    if guard is None:
        return None
    with transcriber.without_adapter():
        base = guard.read(transcriber.network, transcriber.encoder, transcriber.generation)
    return guard.compared(base, guard.read(transcriber.network, transcriber.encoder, transcriber.generation))


def _images(samples: Sequence[Sample]) -> Iterator[tuple[str, Image.Image]]:
    for sample in samples:
        yield sample.id, open_image(sample.image)


def _remarks(run: RunFolder, dataset: Dataset, split: Split, *, own: bool, limit: int | None) -> list[str]:
    """What is unusual about the data, compared with what the run was trained on."""
    remarks = []
    trained = _trained_on(run)
    scored = {name.value: part.sha256 for name, part in dataset.card.splits.items()}
    train = Split.TRAIN.value
    if split == Split.TRAIN:
        remarks.append("These lines were trained on, so this tells nothing about others.")
    if trained.get(train) != scored.get(train):
        changed = "The dataset has changed since the run was trained on it" if own else "The run was not trained on it"
        remarks.append(f"{changed}: known and new hands are told by the train split of the dataset that is scored.")
    if limit is not None:
        remarks.append(f"Only the first lines of the split were read, at most {limit}.")
    return remarks


def _trained_on(run: RunFolder) -> dict[str, str]:
    """The hash of each split that the run was trained with; nothing where it does not tell."""
    try:
        return dict(json.loads(run.provenance.read_text(encoding="utf-8"))["dataset"])
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def _settings(
    run: RunFolder, transcriber: "Transcriber", dataset: Dataset, lines: int, limit: int | None
) -> dict[str, object]:
    from dsocr.models.adapters import WEIGHTS

    reading = ReadingSettings.load(run.adapter)
    return {
        "base": reading.base,
        "base_revision": reading.base_revision,
        "adapter_sha256": hash_file(run.adapter / WEIGHTS),
        "device": str(transcriber.network.device),
        "number_format": str(transcriber.network.dtype).removeprefix("torch."),
        "normalization": "NFC, every run of white space one space, both ends stripped",
        "dataset_source": dataset.card.source,
        "prompt": transcriber.encoder.prompt,
        "resolution": transcriber.encoder.resolution.name,
        "generation": transcriber.generation.as_dict(),
        "text_policy": transcriber.text_policy.as_dict(),
        "split_by": dataset.card.split_by,
        "fold": dataset.fold,
        "lines": lines,
        "limit": limit,
    }
