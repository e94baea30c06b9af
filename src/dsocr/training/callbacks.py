"""What a training leaves for people and machines while it runs: metrics.jsonl, TensorBoard, a log, and progress."""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import psutil
import torch
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from dsocr.history import elapsed_until
from dsocr.runs import RunFolder, append_jsonl
from dsocr.training.validation import Board, ValidationReading


@dataclass(frozen=True, slots=True)
class TrainingProgress:
    """Where a training stands. `reading` is the last one of the validation split, None before the first."""

    step: int
    steps: int
    loss: float | None
    learning_rate: float | None
    reading: ValidationReading | None
    samples_per_second: float
    seconds_left: float

    @property
    def cer(self) -> float | None:
        """The CER of the last reading."""
        return None if self.reading is None else self.reading.cer


Report = Callable[[TrainingProgress], None]


class Recorder(TrainerCallback):
    """Writes every logged step and every reading of the validation split to wherever people look."""

    def __init__(self, run: RunFolder, *, batch_size: int, report: Report | None = None) -> None:
        self._run = run
        self._samples_per_step = batch_size
        self._report = report
        self._log = training_log(run)
        self._board: Board | None = None
        self._started, self._first_step, self._first_tokens = 0.0, 0, 0
        self._before = 0.0
        self._loss: float | None = None
        self._learning_rate: float | None = None
        self._reading: ValidationReading | None = None

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Start the clock; a resumed training counts only the steps it makes itself."""
        self._started, self._first_step = time.monotonic(), state.global_step
        self._first_tokens = state.num_input_tokens_seen
        self._before = elapsed_until(self._run, state.global_step)
        self._board = Board(self._run.tensorboard, purge_step=state.global_step + 1)
        self._log.info("training from step %d to step %d", state.global_step, state.max_steps)

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Tell where the training stands."""
        if self._report is not None:
            self._report(self._progress(state))

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, float] | None = None,
        **kwargs: Any,
    ) -> None:
        """Record one logged step; the Trainer's closing summary holds no loss of a step and is left out."""
        if not logs or "loss" not in logs:
            return
        self._loss, self._learning_rate = logs["loss"], logs["learning_rate"]
        rate = self._progress(state).samples_per_second
        row = {
            "loss": logs["loss"],
            "learning_rate": logs["learning_rate"],
            "gradient_norm": logs.get("grad_norm"),
            "samples_per_second": rate,
            "tokens_per_second": self._tokens_per_second(state),
            "memory_bytes": _used_memory(args.device),
        }
        place = {"kind": "train", "step": state.global_step, "epoch": state.epoch, "elapsed_seconds": self._elapsed()}
        append_jsonl(self._run.metrics, {**place, **row})
        if self._board is not None:
            self._board.curve("train", row, state.global_step)
        self._log.info("step %d: loss %.4f, learning rate %.2e", state.global_step, *list(row.values())[:2])

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Close the files."""
        self._log.info("training ended at step %d", state.global_step)
        if self._board is not None:
            self._board.close()

    def record_validation(self, reading: ValidationReading) -> None:
        """Record one reading of the validation split."""
        self._reading = replace(reading, lines=())
        row = {"kind": "validation", **reading.as_dict(), "elapsed_seconds": self._elapsed()}
        append_jsonl(self._run.metrics, row)
        if self._board is not None:
            values = {"loss": reading.loss, "cer": reading.cer, "runaway_rate": reading.runaway_rate}
            self._board.curve("validation", values, reading.step)
            self._board.lines(reading.lines, reading.step)
            if reading.guard is not None:
                self._board.guard(reading.guard, reading.step)
        self._log.info(
            "step %d: validation loss %.4f, CER %.2f %%, %d empty, %d runaway of %d%s",
            reading.step,
            reading.loss,
            100 * reading.cer,
            reading.empty,
            reading.runaway,
            reading.samples,
            ", the best so far" if reading.best else "",
        )
        if reading.guard is not None:
            level = logging.WARNING if reading.guard.exceeds_margin else logging.INFO
            self._log.log(level, "step %d: %s", reading.step, reading.guard.message)

    def _elapsed(self) -> float:
        """Seconds of training until now, those before an interruption counted and the pause not."""
        return self._before + time.monotonic() - self._started

    def _tokens_per_second(self, state: TrainerState) -> float | None:
        """Tokens, image slots counted and padding not, a second since training began or was taken up again."""
        seen = state.num_input_tokens_seen - self._first_tokens
        return seen / max(time.monotonic() - self._started, 1e-9) if seen else None

    def _progress(self, state: TrainerState) -> TrainingProgress:
        seconds = time.monotonic() - self._started
        steps_made = max(state.global_step - self._first_step, 1)
        per_step = seconds / steps_made
        return TrainingProgress(
            state.global_step,
            state.max_steps,
            self._loss,
            self._learning_rate,
            self._reading,
            self._samples_per_step / max(per_step, 1e-9),
            per_step * (state.max_steps - state.global_step),
        )


def training_log(run: RunFolder) -> logging.Logger:
    """The run's own log file with time stamps, the same logger for the same run folder."""
    logger = logging.getLogger(f"dsocr.run.{run.path.resolve().as_posix()}")
    if not logger.handlers:
        logger.setLevel(logging.INFO)
        logger.propagate = False
        handler = logging.FileHandler(run.log, encoding="utf-8")
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
        logger.addHandler(handler)
    return logger


def silent_log() -> logging.Logger:
    """A log that nobody reads: of several processes the first alone writes."""
    logger = logging.getLogger("dsocr.run")
    logger.propagate = False
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())
    return logger


def close_training_log(run: RunFolder) -> None:
    """Close the run's log file."""
    logger = logging.getLogger(f"dsocr.run.{run.path.resolve().as_posix()}")
    for handler in list(logger.handlers):
        logger.removeHandler(handler)
        handler.close()


def _used_memory(device: torch.device) -> int:
    """Return the bytes in use: on a GPU the most that torch has allocated so far, elsewhere the resident set size."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return int(psutil.Process().memory_info().rss)
