"""Train many runs, one after the other: plan each, train or resume those that are not finished, keep what they read.

A run that is finished is not trained again, an interrupted one resumes from its last checkpoint, and what was read
with a run is kept as long as the run and its dataset stay the same.
"""

import gc
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dsocr.config import RunConfig
from dsocr.errors import ConfigError, RunError
from dsocr.io.processes import rank_and_count
from dsocr.io.work import keep_result
from dsocr.runs import RunFolder
from dsocr.text import percentage
from dsocr.training.callbacks import TrainingProgress
from dsocr.training.lifecycle import begun_at, is_trained, pin_base
from dsocr.training.samples import total_steps
from dsocr.training.train import TrainResult, train

ManyProgress = Callable[[int, int, str], None]
"""Called with the work done, the whole work, and a note on what is done now."""


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """A run to train; `replaces` if its folder has another one that may be overwritten."""

    config: RunConfig
    steps: int
    finished: bool
    replaces: bool


def require_one_process(hint: str) -> None:
    """Raise ConfigError if a launcher started several processes: each run is trained in one."""
    if rank_and_count()[1] > 1:
        raise ConfigError("many runs are trained in one process", code="launch-unsupported", hint=hint)


def plan_run(config: RunConfig, samples: int, *, overwrite: bool, hint: str) -> PlannedRun:
    """Plan a run on so many samples. Raises RunError with the hint if its folder holds another, unless `overwrite`."""
    finished = replaces = False
    try:
        finished = is_trained(config)
    except RunError as error:
        if not overwrite:
            raise RunError(error.message, code=error.code, where=error.where, hint=hint) from error
        replaces = True
    # With the defaults of the base's family, such as the batch size of line recognisers.
    return PlannedRun(config, total_steps(pin_base(config, None)[0], samples), finished, replaces)


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


def train_runs(
    runs: Sequence[PlannedRun],
    notes: Sequence[str],
    *,
    done: WorkDone,
    step_work: float = 1,
    on_message: Callable[[str], None] | None = None,
    train_function: Callable[..., TrainResult] = train,
) -> Iterator[RunFolder]:
    """Yield each run when it is finished; a step is `step_work` of the whole work, and `notes` say what is trained."""
    for planned, note in zip(runs, notes, strict=True):
        if not planned.finished:

            def on_progress(current: TrainingProgress, note: str = note) -> None:
                cer = "" if current.cer is None else f", validation CER {percentage(current.cer, 1)}"
                done.show(current.step * step_work, f"{note}, step {current.step}{cer}")

            train_function(planned.config, overwrite=planned.replaces, on_progress=on_progress, on_message=on_message)
            gc.collect()  # there may be no memory for this network and the next
            done.add(planned.steps * step_work)
        yield RunFolder.open(planned.config.output)


def keep_reading(path: Path, run: RunFolder, data: Mapping[str, Any], make: Callable[[], Any], *, hint: str) -> Any:
    """Return what was read with a run of some data, from the file or made now; see `keep_result`."""
    return keep_result(path, {"trained": begun_at(run, hint=hint), **data}, make)


def drop_weights(run: RunFolder) -> None:
    """Remove what takes space of a run that nobody will read with; its records stay."""
    for folder in (run.checkpoints, run.path / "adapter", run.path / "model"):
        shutil.rmtree(folder, ignore_errors=True)
