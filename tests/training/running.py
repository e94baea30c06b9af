"""Runs of a configuration as tests train them, with their reports and steps."""

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import dsocr
from dsocr.config import RunConfig
from dsocr.console import NotedProgress, Reporter, reporting_to
from dsocr.document import Sample
from dsocr.errors import Interrupted
from dsocr.io.work import write_file, write_folder
from dsocr.job import Job, resolve, with_defaults
from dsocr.models.loading import Base
from dsocr.runs import TrainResult, to_json
from dsocr.training import readers
from dsocr.training.samples import Setup


def ignore(*_: object) -> None:
    """Do nothing."""


def pretend_to_train(job: Job, earlier: int, stop_at: int) -> TrainResult:
    """Leave a run folder without training; the one after `stop_at` earlier ones is interrupted."""
    run = job.run
    if earlier == stop_at:
        raise Interrupted(2, 3, run.resume_command)
    if job.overwrite:
        shutil.rmtree(run.path)
    write_folder(run.adapter, [])
    write_file(run.config, job.config.to_yaml())
    write_file(run.provenance, to_json({"begun_at": f"{earlier}", "dataset": job.samples_from.card.hashes}))
    return TrainResult(run, 1, None, 0.0)


class Heard(Reporter):
    """Passes on what is said, and progress as its label, unit, and numbers."""

    def __init__(
        self, on_message: Callable[[str], None] = ignore, on_stage: Callable[[str, str, int, int], None] = ignore
    ) -> None:
        self._say, self._stage = on_message, on_stage

    def complain(self, text: str) -> None:
        self._say(text)

    @contextmanager
    def progress(self, label: str, unit: str) -> Iterator[NotedProgress]:
        yield lambda done, total, note="": self._stage(label, unit, done, total)


def train(
    config: RunConfig,
    *,
    overwrite: bool = False,
    on_message: Callable[[str], None] = ignore,
    on_stage: Callable[[str, str, int, int], None] = ignore,
    on_step: Callable[[int], None] = ignore,
    **options: Any,
) -> TrainResult:
    """Train or resume a run; `on_step` is called after each step, as often as a bar moves."""

    def show(label: str, unit: str, done: int, total: int) -> None:
        if label == "training":
            on_step(done)
        on_stage(label, unit, done, total)

    with reporting_to(Heard(on_message, show)):
        result = dsocr.train(config, overwrite=overwrite, **{"preflight": False, **options}).result
    assert result is not None
    return result


def pinned(config: RunConfig) -> RunConfig:
    """Return the configuration with the defaults of its base."""
    return with_defaults(config, Base.find(config.base, config.base_revision))


def set_up(config: RunConfig, samples: Sequence[Sample]) -> Setup:
    """Set up the network and the samples of a configuration."""
    start = resolve(config, overwrite=True).start if config.adapter.init_from else None
    return readers.set_up(config, samples, Base.find(config.base, config.base_revision), start=start)
