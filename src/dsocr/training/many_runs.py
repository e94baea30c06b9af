"""Train many runs, one after the other: plan each, train or resume it unless it is finished, keep its readings.

A run that is finished is not trained again, an interrupted one resumes from its last checkpoint, and what was read
with a run is kept as long as the run and its dataset stay the same.
"""

import gc
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dsocr.console import NotedProgress, Reporter, current_reporter, ignore_progress, reporting_to
from dsocr.errors import ConfigError, RunError
from dsocr.io.processes import rank_and_count
from dsocr.io.work import keep_result
from dsocr.job import Job, total_steps
from dsocr.runs import RunFolder, read_provenance

ManyProgress = Callable[..., None]
"""Called with the work done, the whole work, and a note on what is done now."""


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """A run to train, unless it is finished."""

    job: Job
    steps: int
    finished: bool


def require_one_process(hint: str) -> None:
    """Raise ConfigError if a launcher started several processes: each run is trained in one."""
    if rank_and_count()[1] > 1:
        raise ConfigError("many runs are trained in one process", code="launch-unsupported", hint=hint)


def plan_run(
    job: Job,
    output: Path,
    samples: int,
    *,
    overwrite: bool,
    hint: str,
    **changes: Any,
) -> PlannedRun:
    """Plan a job's training in another folder, on so many samples; see `Job.with_run`.

    Raises RunError with the hint if the folder holds another run, unless `overwrite`.
    """
    finished = False
    try:
        planned = job.with_run(output, **changes)
        finished = planned.is_finished()
    except RunError as error:
        if not overwrite:
            raise RunError(error.message, code=error.code, where=error.where, hint=hint) from error
        planned = job.with_run(output, overwrite=True, **changes)
    return PlannedRun(planned, total_steps(planned.config, samples), finished)


class WorkDone:
    """How much of the whole work is done, for a progress bar."""

    def __init__(self, total: int, progress: ManyProgress | None) -> None:
        self._done, self._total, self._progress = 0.0, total, progress

    def show(self, more: float, note: str) -> None:
        """Show work that is being done."""
        if self._progress is not None:
            self._progress(round(self._done + more), self._total, note)

    def add(self, work: float) -> None:
        """Count work that is done."""
        self._done += work


class _PartOfWork(Reporter):
    """Reports the steps of one training as a part of the whole work."""

    def __init__(self, show: Callable[[int, str], None]) -> None:
        self._show, self._outer = show, current_reporter()

    def complain(self, text: str) -> None:
        """Pass it on."""
        self._outer.complain(text)

    @contextmanager
    def progress(self, label: str, unit: str) -> Iterator[NotedProgress]:
        """Show steps; preparations are short."""
        yield (lambda done, total, note="": self._show(done, note)) if label == "training" else ignore_progress


def train_run(planned: PlannedRun, note: str, done: WorkDone, *, step_work: float = 1) -> RunFolder:
    """Train a run unless it is finished, and open it; a step is `step_work` of the whole work."""
    if not planned.finished:
        from dsocr.training.recipe import run_job  # loads torch

        def show(step: int, details: str) -> None:
            done.show(step * step_work, f"{note}, step {step}  {details}")

        with reporting_to(_PartOfWork(show)):
            run_job(planned.job)
        gc.collect()  # there may be no memory for this network and the next
        done.add(planned.steps * step_work)
    return RunFolder.open(planned.job.run.path)


def keep_reading(path: Path, run: RunFolder, data: Mapping[str, Any], make: Callable[[], Any], *, hint: str) -> Any:
    """Return cached readings of a run and some data, or compute and cache them; see `keep_result`.

    Raises RunError if the run does not say when its training began, which identifies it.
    """
    begun = read_provenance(run).get("begun_at")
    if begun is None:
        message = "does not say when the training began"
        raise RunError(message, code="provenance-unreadable", where=run.provenance, hint=hint)
    return keep_result(path, {"trained": str(begun), **data}, make)


def drop_weights(run: RunFolder) -> None:
    """Remove what takes space of a run that nobody will read with; its records stay."""
    for folder in (run.checkpoints, run.path / "adapter", run.path / "model"):
        shutil.rmtree(folder, ignore_errors=True)
