"""Train a configuration: resolve it, say so, and train; torch is loaded when all that is named was found."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dsocr.config import RunConfig
from dsocr.console import Reporter, current_reporter, reporting_to
from dsocr.errors import DsocrError, RunError, option
from dsocr.io.processes import rank_and_count
from dsocr.job import Job, require_trainable, resolve
from dsocr.runs import RunFolder, TrainResult

if TYPE_CHECKING:
    from dsocr.training.trainer import Callback


def train(
    config: RunConfig, *, overwrite: bool = False, preflight: bool = False, callbacks: "Sequence[Callback]" = ()
) -> TrainResult:
    """Train a reader or a detector, or resume; see `dsocr.train`."""
    rank, _ = rank_and_count()
    reporter = Reporter() if rank else current_reporter()
    job = _resolve(config, rank, overwrite=overwrite)
    lines = f"its own readings of {', '.join(config.training.unlabelled)}" if config.learns_alone else config.dataset
    reporter.message(f"training {config.output} on {lines} from {config.base}")
    preflight = preflight and job.detector is None
    if preflight and (overwrite or not job.run.has_begun):
        skip = option("preflight", False)
        reporter.message(f"checking first that it learns, a few minutes at most; {skip} skips this")
    from dsocr.training.lifecycle import preserved_process
    from dsocr.training.recipe import run_job
    from dsocr.training.unlabelled import train_with_unlabelled

    with reporting_to(reporter), preserved_process():
        train_job = train_with_unlabelled if config.training.unlabelled else run_job
        return train_job(job, preflight=preflight, callbacks=callbacks)


def _resolve(settings: RunConfig, rank: int, *, overwrite: bool) -> Job:
    """Resolve a training; of several processes only the first says why it cannot begin."""
    try:
        if rank == 0:  # other processes may look when the first is at work there
            require_trainable(RunFolder(settings.output), overwrite=overwrite)
        return resolve(settings, overwrite=overwrite, finds_lines=True)
    except DsocrError as error:
        if rank == 0:
            raise
        raise RunError("the first process says why it cannot train", code="peer-failed") from error
