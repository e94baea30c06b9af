"""Scored lines and evaluated run folders with invented predictions, so that no model has to be trained."""

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dsocr.data.dataset import Dataset
from dsocr.document import Sample, Split
from dsocr.evaluation.scorecard import make_scorecard
from dsocr.evaluation.scores import LineScore, ReadText, score_lines, write_lines, writer_statuses
from dsocr.runs import RunFolder

Reader = Callable[[int, Sample], ReadText]
"""Predicts a sample, given its number from 0."""


@dataclass(frozen=True)
class Line:
    """A line; only its writer and page matter."""

    writer: str | None = None
    page: str | None = None


def sample(name: str, text: str, writer: str | None = None, page: str | None = None) -> Sample:
    """Make a sample without an image."""
    return Sample(id=name, image=Path(name), text=text, split=Split.TEST, writer=writer, page=page)


def scored(*pairs: tuple[str, str], writers: Sequence[str | None] = ()) -> list[LineScore]:
    """Score (reference, prediction) pairs."""
    names = writers or [None] * len(pairs)
    samples = [sample(f"{n}", text, writer) for n, ((text, _), writer) in enumerate(zip(pairs, names, strict=True))]
    return score_lines(samples, {f"{n}": ReadText(prediction) for n, (_, prediction) in enumerate(pairs)})


def make_evaluated_run(
    folder: Path, dataset: Path, readers: dict[str, Reader], *, trained_on: Path | None = None
) -> RunFolder:
    """Make a run folder with configuration, metrics, provenance, scored lines and a card of the dataset's test split.

    `trained_on` is the same dataset by default.
    """
    run = RunFolder(folder)
    folder.mkdir(parents=True)
    run.config.write_text(
        f"dataset: {(trained_on or dataset).as_posix()}\noutput: {folder.as_posix()}\n", encoding="utf-8"
    )
    opened = Dataset.open(dataset)
    samples = opened.samples(Split.TEST)
    statuses = writer_statuses({sample.writer for sample in opened.samples(Split.TRAIN)}, [s.writer for s in samples])
    readings = {
        name: score_lines(samples, {sample.id: reader(place, sample) for place, sample in enumerate(samples)}, statuses)
        for name, reader in readers.items()
    }
    write_lines(run.lines, readings)
    settings = {"prompt": "<image>\nFree OCR.", "limit": None, "dataset": trained_on and dataset.as_posix()}
    make_scorecard("test", readings, dataset=opened.card.hashes, settings=settings).save(run.scorecard)
    rows = [{"kind": "train", "step": step, "loss": 1 / step, "learning_rate": 1e-3} for step in (1, 2, 3)]
    rows += [{"kind": "validation", "step": step, "loss": 0.5, "cer": 0.3 / step} for step in (2, 3)]
    run.metrics.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    made = {"base": "nano", "base_revision": None, "begun_at": "2026-01-01T00:00:00+00:00", "dsocr_version": "0.1.0"}
    run.provenance.write_text(json.dumps(made), encoding="utf-8")
    return run


def misread(place: int, sample: Sample) -> ReadText:
    """Read badly: letters swapped, one line empty, one looping, one with HTML."""
    odd = {
        0: ReadText("и так далее " * 300, truncated=True),
        1: ReadText(""),
        2: ReadText("<script>alert('1')</script>"),
    }
    return odd.get(place, ReadText(sample.text.replace("и", "н").replace("e", "c")))


def read_better(place: int, sample: Sample) -> ReadText:
    """Read well, without the last letter of every other line."""
    return ReadText(sample.text if place % 2 else sample.text[:-1])


def change_card(dataset: Path, folder: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    """Copy a dataset, unless `folder` is its own, and change its card."""
    if folder != dataset:
        shutil.copytree(dataset, folder)
    card = json.loads((folder / "dataset.json").read_text(encoding="utf-8"))
    change(card)
    (folder / "dataset.json").write_text(json.dumps(card), encoding="utf-8")
    return folder


def other_test_split(card: dict[str, Any]) -> None:
    """Let a card have another test split."""
    card["splits"]["test"]["sha256"] = "f" * 64
