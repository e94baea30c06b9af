"""The recipe of an evaluation: a split read by base and adapter, and the card that sets them side by side."""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from PIL import Image

from dsocr.config import load_config
from dsocr.data.dataset import Dataset
from dsocr.data.images import open_image
from dsocr.data.subsets import training_samples
from dsocr.evaluation.datasets import dataset_of, samples_to_score
from dsocr.evaluation.guard import Guard, GuardReading
from dsocr.evaluation.lines import write_lines
from dsocr.evaluation.scorecard import Scorecard, make_scorecard
from dsocr.evaluation.scores import LineScore, hands_by_writer, score_lines
from dsocr.inference.readable import demand_readable
from dsocr.runs import ReadingSettings, RunFolder
from dsocr.samples import Sample, Split
from dsocr.sealing import file_hash

if TYPE_CHECKING:
    from dsocr.inference.transcriber import Transcriber

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
    demand_readable(run.adapter)
    from dsocr.inference.transcriber import Transcriber  # slow, and not needed to say what is not there

    transcriber = Transcriber.of_run(run)
    writers = [sample.writer for sample in samples]
    # A run that was trained on a part of its dataset knows the writers of that part.
    trained = opened.samples(Split.TRAIN) if dataset else training_samples(opened, load_config(run.config))
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
    config = load_config(run.config)
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
    from dsocr.model.adapters import WEIGHTS

    reading = ReadingSettings.load(run.adapter)
    return {
        "base": reading.base,
        "base_revision": reading.base_revision,
        "adapter_sha256": file_hash(run.adapter / WEIGHTS),
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
