"""Run folders that look evaluated: predictions are made up, so no model has to be trained."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from dsocr.data.dataset import Dataset
from dsocr.document import Sample, Split
from dsocr.evaluation.scorecard import make_scorecard
from dsocr.evaluation.scores import hands_by_writer, score_lines, write_lines
from dsocr.runs import RunFolder


@dataclass(frozen=True)
class Read:
    """What a model answered."""

    text: str
    truncated: bool = False
    looping: bool = False


Reader = Callable[[int, Sample], Read]
"""What a model makes of a sample, given its number from 0."""


def make_evaluated_run(
    folder: Path, dataset: Path, readers: dict[str, Reader], *, trained_on: Path | None = None
) -> RunFolder:
    """A run folder with configuration, curves, provenance, scored lines and a card of the dataset's test split.

    It was trained on the same dataset unless another is given.
    """
    run = RunFolder(folder)
    folder.mkdir(parents=True)
    run.config.write_text(
        f"dataset: {(trained_on or dataset).as_posix()}\noutput: {folder.as_posix()}\n", encoding="utf-8"
    )
    opened = Dataset.open(dataset)
    samples = opened.samples(Split.TEST)
    hands = hands_by_writer({sample.writer for sample in opened.samples(Split.TRAIN)}, [s.writer for s in samples])
    readings = {
        name: score_lines(samples, {sample.id: reader(place, sample) for place, sample in enumerate(samples)}, hands)
        for name, reader in readers.items()
    }
    write_lines(run.lines, readings)
    digests = {name.value: part.sha256 for name, part in opened.card.splits.items()}
    settings = {"prompt": "<image>\nFree OCR.", "limit": None, "dataset": trained_on and dataset.as_posix()}
    make_scorecard("test", readings.get("base"), readings.get("adapter"), dataset=digests, settings=settings).save(
        run.scorecard
    )
    rows = [{"kind": "train", "step": step, "loss": 1 / step, "learning_rate": 1e-3} for step in (1, 2, 3)]
    rows += [{"kind": "validation", "step": step, "loss": 0.5, "cer": 0.3 / step} for step in (2, 3)]
    run.metrics.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    made = {"base": "nano", "base_revision": None, "begun_at": "2026-01-01T00:00:00+00:00", "dsocr_version": "0.1.0"}
    run.provenance.write_text(json.dumps(made), encoding="utf-8")
    return run


def misread(place: int, sample: Sample) -> Read:
    """A poor reader: letters swapped, one line lost, one looping, one hostile."""
    odd = {0: Read("и так далее " * 300, truncated=True), 1: Read(""), 2: Read("<script>alert('1')</script>")}
    return odd.get(place, Read(sample.text.replace("и", "н").replace("e", "c")))


def read_better(place: int, sample: Sample) -> Read:
    """A fair reader: the last letter is lost."""
    return Read(sample.text if place % 2 else sample.text[:-1])
