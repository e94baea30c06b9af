"""Callbacks of every run: metrics.jsonl and the log, experiment trackers, progress, and signals."""

import logging
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any

import psutil
import torch

from dsocr.config import RunConfig
from dsocr.console import NotedProgress, current_reporter, format_rate, ignore_progress
from dsocr.io.processes import HANGUP, SIGNALS, handling, rank_and_count
from dsocr.runs import RunFolder, append_jsonl, elapsed_until
from dsocr.training.distributed import Distributed
from dsocr.training.trainer import Callback, Trainer
from dsocr.training.validation import ValidationResult, lines_text

_TRACKER_ENVIRONMENT: Mapping[str, Mapping[str, str]] = {
    "mlflow": {"MLFLOW_TRACKING_URI": "sqlite:///{folder}/mlflow.db"},
    "wandb": {"WANDB_MODE": "offline", "WANDB_DIR": "{folder}"},
    "trackio": {"TRACKIO_DIR": "{folder}"},
}
"""What keeps a tracker on this machine, unless the user has set it otherwise."""


class MetricsWriter(Callback):
    """Appends every logged step and every validation to metrics.jsonl, passes them to trackers, reports progress."""

    def __init__(self, run: RunFolder, log: logging.Logger, config: RunConfig) -> None:
        self._run, self._log = run, log
        self._config, self._trackers = config, list[Tracker]()
        self._bar = ExitStack()
        self._show: NotedProgress = ignore_progress
        self._started, self._first_step, self._first_tokens = math.nan, 0, 0
        self._elapsed_before = 0.0
        self._values: Mapping[str, float | None] = {}
        self._score: str | None = None

    def on_train_begin(self, trainer: Trainer) -> None:
        """Start the clock; rates count the steps of this call only."""
        state = trainer.state
        self._started, self._first_step, self._first_tokens = time.monotonic(), state.step, state.tokens
        self._elapsed_before = elapsed_until(self._run, state.step)
        for name in self._config.training.report_to:
            self._trackers.append(Tracker(name, self._run, self._config, state.step + 1))
        self._show = self._bar.enter_context(current_reporter().progress("training", "steps"))
        self._log.info("training from step %d to step %d", state.step, trainer.max_steps)

    def on_step_end(self, trainer: Trainer) -> None:
        """Show the progress."""
        values = self._values
        facts = [
            None if (loss := values.get("loss")) is None else f"loss {loss:.3f}",
            None if (rate := values.get("learning_rate")) is None else f"lr {rate:.1e}",
            self._score,
            format_rate(self._samples_per_second(trainer), "samples"),
        ]
        self._show(trainer.state.step, trainer.max_steps, "  ".join(fact for fact in facts if fact))

    def on_log(self, trainer: Trainer, values: Mapping[str, float | None]) -> None:
        """Write one row."""
        step, self._values = trainer.state.step, values
        tokens = trainer.state.tokens - self._first_tokens
        row = {
            **values,
            "samples_per_second": self._samples_per_second(trainer),
            "tokens_per_second": tokens / max(time.monotonic() - self._started, 1e-9) if tokens else None,
            "memory_bytes": peak_memory(trainer.device.type),
        }
        place = {"kind": "train", "step": step, "epoch": trainer.state.epoch, "elapsed_seconds": self._elapsed()}
        append_jsonl(self._run.metrics, {**place, **row})
        for tracker in self._trackers:
            tracker.log("train", row, step)
        loss = "none finite" if values["loss"] is None else f"{values['loss']:.4f}"
        self._log.info("step %d: loss %s, learning rate %.2e", step, loss, values["learning_rate"])
        if values["nonfinite_losses"]:
            self._log.warning("step %d: %d steps so far without a finite loss", step, values["nonfinite_losses"])

    def on_train_end(self, trainer: Trainer) -> None:
        """Close the trackers."""
        self._bar.close()
        self._log.info("training ended at step %d", trainer.state.step)
        for tracker in self._trackers:
            tracker.finish()

    def write_validation(self, result: ValidationResult) -> None:
        """Write one validation."""
        if math.isnan(self._started):  # the best adapter of a finished training was lost
            self._started, self._elapsed_before = time.monotonic(), elapsed_until(self._run, result.step)
        self._score = result.score
        values = {"step": result.step, "loss": result.loss, **result.counts, **result.rates}
        times = {"seconds": result.seconds, "elapsed_seconds": self._elapsed()}
        append_jsonl(self._run.metrics, {"kind": "validation", **values, "best": result.is_best, **times})
        for tracker in self._trackers:
            tracker.log_validation(result)
        best = ", the best so far" if result.is_best else ""
        self._log.info(
            "step %d: validation loss %.4f, %s, %s%s", result.step, result.loss, result.score, result.details, best
        )
        failures = f", {result.failures}" if result.failures else ""
        scores = f"validation {result.score}, loss {result.loss:.3f}"
        current_reporter().message(f"step {result.step}: {scores}{failures}{best}")

    def _elapsed(self) -> float:
        """Seconds of training so far, including those before an interruption."""
        return self._elapsed_before + time.monotonic() - self._started

    def _samples_per_second(self, trainer: Trainer) -> float:
        seconds_per_step = (time.monotonic() - self._started) / max(trainer.state.step - self._first_step, 1)
        return self._config.training.batch_size / max(seconds_per_step, 1e-9)


class Tracker:
    """An experiment tracker of accelerate; in TensorBoard, steps from `first_step` on replace earlier ones.

    All get curves. TensorBoard also shows the first validation lines with their images.
    """

    def __init__(self, name: str, run: RunFolder, config: RunConfig, first_step: int) -> None:
        from accelerate.tracking import LOGGER_TYPE_TO_CLASS

        self._has_images = name == "tensorboard"
        make: Any = LOGGER_TYPE_TO_CLASS[name]
        if self._has_images:
            self._tracker = make(run.tensorboard.name, run.path, purge_step=first_step)
            self._tracker.start()
            return
        # Beside the run, so that a tracker shows all runs of a folder together; what is set in the environment wins.
        folder = run.path.resolve().parent / name
        for variable, value in _TRACKER_ENVIRONMENT[name].items():
            os.environ.setdefault(variable, value.format(folder=folder.as_posix()))
        folder.mkdir(exist_ok=True)
        options = {"name": run.path.resolve().name}
        if name == "mlflow":
            options = {"run_name": options["name"], "logging_dir": (folder / "artifacts").as_uri()}
        self._tracker = make("dsocr", **options)
        self._tracker.start()
        self._tracker.store_init_configuration(config.model_dump(mode="json"))

    def log(self, group: str, values: Mapping[str, float | None], step: int) -> None:
        """Add a point to each curve `group/name`, except for values that are unknown or not finite."""
        points = {f"{group}/{name}": x for name, x in values.items() if x is not None and math.isfinite(x)}
        self._tracker.log(points, step=step)

    def log_validation(self, result: ValidationResult) -> None:
        """Add the curves of a validation, and show the first lines with their predictions."""
        step = result.step
        self.log("validation", {"loss": result.loss, **result.rates}, step)
        if self._has_images and result.lines:
            board = self._tracker.tracker
            board.add_text("validation/lines", lines_text(result.lines), step)
            for place, line in enumerate(result.lines, 1):
                board.add_image(f"validation_lines/{place:02d}", line.image, step, dataformats="HWC")

    def finish(self) -> None:
        """Flush and close."""
        self._tracker.finish()


@dataclass(eq=False)
class SignalHandler(Callback):
    """Stops training after the step in which a signal arrives, with a checkpoint; a second signal ends the process.

    Must come after callbacks that may end training for good. All ranks stop after the same step, whichever got the
    signal. There a launcher ends processes that take too long, and may send a signal twice.
    """

    on_message: Callable[[str], None]
    dist: Distributed
    signal: int | None = None
    _handled: Sequence[int] = ()
    _terminals: Sequence[int] = ()

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Handle signals in the `with` block; outside the main thread Python cannot, and nothing is done."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        self._terminals = [descriptor for descriptor in (1, 2) if os.isatty(descriptor)]
        with handling(SIGNALS, self._handle) as self._handled:
            yield

    def on_step_end(self, trainer: Trainer) -> None:
        """Save and stop if a signal arrived on any rank."""
        self.signal = max(self.dist.all_gather(self.signal or 0)) or None
        if self.signal is not None:
            trainer.stop(save=True)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.signal = number
        if number == HANGUP:  # writing to a terminal that was closed is an error, so output goes nowhere
            nowhere = os.open(os.devnull, os.O_WRONLY)
            for descriptor in self._terminals:
                os.dup2(nowhere, descriptor)
            os.close(nowhere)
        message = "finishing the current step, then saving a checkpoint"
        if rank_and_count()[1] == 1:
            message += "; interrupt again to stop at once, with the previous checkpoint"
            for other in self._handled:
                # The default handlers also end a process that is deep in a computation. Shells and the system both
                # tell that a terminal was closed, which is no second request.
                signal.signal(other, signal.SIG_IGN if number == other == HANGUP else signal.SIG_DFL)
        # A signal may arrive while something is being printed; only another thread can wait for that to end.
        threading.Thread(target=self.on_message, args=(message,), daemon=True).start()


@contextmanager
def run_logger(run: RunFolder, *, enabled: bool = True) -> Iterator[logging.Logger]:
    """Yield a logger that appends to the log file of a run, made at its first message, or to nothing."""
    logger = logging.getLogger(f"dsocr.run.{run.path.resolve().as_posix()}")
    logger.setLevel(logging.INFO)
    logger.propagate = False
    file = logging.FileHandler(run.log, encoding="utf-8", delay=True) if enabled else logging.NullHandler()
    file.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logger.addHandler(file)
    try:
        yield logger
    finally:
        logger.removeHandler(file)
        file.close()


def peak_memory(device: str) -> int | None:
    """Return the peak of torch's allocated bytes on a GPU, of the process's resident set size on a CPU, else None."""
    if device == "cuda":
        return torch.cuda.max_memory_allocated()
    if device != "cpu":
        return None
    if sys.platform == "win32":
        return int(psutil.Process().memory_info().peak_wset)
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
