"""The folder of a run that trains: its lock, its first files, going back to a checkpoint, and running out of memory."""

import os
import platform
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from uuid import uuid4

from filelock import FileLock, Timeout

from dsocr import __version__
from dsocr.config import RunConfig
from dsocr.data.dataset import Dataset
from dsocr.errors import RunError, setting
from dsocr.io.encodings import read_object
from dsocr.io.files import rename
from dsocr.io.work import remove_path, write_file
from dsocr.job import TEMPORARY, kept_names
from dsocr.runs import RunFolder, UnlabelledReport, to_json

_PACKAGES = ("torch", "transformers", "peft", "accelerate", "Pillow", "numpy")


class RunLock:
    """Keeps other processes out of a run folder as long as this one lives; a crash leaves no lock behind.

    A folder that does not exist is made and locked by `acquire`, so a run that is refused makes none.
    """

    def __init__(self, run: RunFolder) -> None:
        self._run = run
        self._lock = FileLock(run.lock, timeout=0)
        self._holder = run.lock.with_name(f"{run.lock.name}.json")

    def __enter__(self) -> Self:
        if self._run.path.is_dir():
            self._lock_folder()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._lock.is_locked:
            self._holder.unlink(missing_ok=True)
            self._lock.release()

    def acquire(self) -> None:
        """Make and lock the folder, unless it is locked. Raises RunError if another process was faster."""
        if self._lock.is_locked:
            return
        self._run.path.mkdir(parents=True, exist_ok=True)
        self._lock_folder()
        if any(path.name not in kept_names(self._run) for path in self._run.path.iterdir()):
            hint = "run the same command again"
            raise RunError("another process has begun this run", code="run-begun", where=self._run.path, hint=hint)

    def _lock_folder(self) -> None:
        try:
            self._lock.acquire()
        except Timeout as error:
            holder, name = read_object(self._holder), "another process"
            if holder.keys() >= {"process", "machine", "since"}:
                name = f"process {holder['process']} on {holder['machine']} since {holder['since']}"
            hint = "wait until it ends, or stop it"
            raise RunError(
                f"{name} is training this run", code="run-locked", where=self._run.path, hint=hint
            ) from error
        half_written = [path for path in self._run.path.iterdir() if TEMPORARY.fullmatch(path.name)]
        for path in [*half_written, *self._run.checkpoints.glob(".*.tmp")]:
            remove_path(path)
        since = datetime.now(UTC).isoformat("T", "seconds")
        write_file(self._holder, to_json({"process": os.getpid(), "machine": platform.node(), "since": since}))


def start_run(
    run: RunFolder, config: RunConfig, dataset: Dataset, unlabelled: UnlabelledReport | None, **about: Any
) -> None:
    """Prepare the locked folder of a new run: checkpoints, no metrics, and the provenance; `about` is part of it."""
    run.checkpoints.mkdir(exist_ok=True)
    run.metrics.unlink(missing_ok=True)
    provenance = {
        "begun_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "dsocr_version": __version__,
        "base": config.base,
        "base_revision": config.base_revision,
        "dataset": dataset.card.hashes,
        "dataset_source": dataset.card.source,
        "fold": dataset.fold,
        "python": sys.version.split()[0],
        "packages": {name: version(name) for name in _PACKAGES},
        "machine": f"{platform.system()} {platform.machine()}",
        "unlabelled": unlabelled and asdict(unlabelled),
        **about,
    }
    write_file(run.provenance, to_json(provenance))


def clear_run(run: RunFolder, *, but: Path | None = None) -> None:
    """Remove all that a run left, except the folder `but`; its configuration last, which makes the folder a run's."""
    if run.checkpoints.is_dir():  # renamed first, so that nothing resumes from half of them
        rename(run.checkpoints, run.checkpoints.with_name(f".{run.checkpoints.name}.{uuid4().hex[:8]}.tmp"))
    kept = {run.path / name for name in kept_names(run)} | {run.config, but}
    others = [path for path in run.path.iterdir() if path not in kept]
    for path in [*others, run.config]:
        remove_path(path)


@contextmanager
def explain_out_of_memory(config: RunConfig) -> Iterator[None]:
    """Turn running out of memory into RunError with settings that take less; the run folder stays as it is."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        from dsocr.models.loading import choose_device, is_out_of_memory

        if not is_out_of_memory(error):
            raise
        hint = f"run it again with {describe_lighter_settings(config)}"
        checkpoint = max(RunFolder(config.output).checkpoints.glob("step-*"), default=None)
        if checkpoint is not None:
            settings = "micro_batch_size and gradient_checkpointing"
            hint += f" (with only {settings} changed it resumes from {checkpoint.name})"
        message = f"training ran out of memory on the {choose_device().type.upper()}"
        # `from None`: the traceback would keep the batch in memory.
        raise RunError(message, code="out-of-memory", where=config.output, hint=hint) from None


def describe_lighter_settings(config: RunConfig) -> str:
    """Describe up to three settings that take less memory, starting with settings that only change the speed."""
    from dsocr.models.loading import choose_device, choose_dtype

    training, device = config.training, choose_device()
    smaller = [n for n in range(1, training.micro_batch_size // 2 + 1) if training.batch_size % n == 0]
    sizes = [choose_dtype(precision, device).itemsize for precision in ("auto", training.precision)]
    options = [
        ("training.micro_batch_size", max(smaller, default=1), bool(smaller)),
        ("training.gradient_checkpointing", True, not training.gradient_checkpointing),
        ("training.precision", "auto", sizes[0] < sizes[1]),
        ("training.attention", "sdpa", training.attention != "sdpa"),
        ("adapter.target_modules", "decoder", config.adapter.target_modules != "decoder"),
        ("adapter.r", config.adapter.r // 2, config.adapter.r > 1),
        ("training.max_text_tokens", max(training.max_text_tokens // 2, 1), True),
    ]
    lighter = [setting(key, value) for key, value, applies in options if applies]
    return f"{' '.join(lighter[:3])} or a smaller input.resolution"


@contextmanager
def preserved_process() -> Iterator[None]:
    """Restore what a run changes in its process: random numbers, warning filters, log levels and threads."""
    import torch
    from transformers.utils import logging

    from dsocr.training.checkpoint import preserved_random

    verbosity, threads = logging.get_verbosity(), torch.get_num_threads()
    try:
        with preserved_random(), warnings.catch_warnings():
            yield
    finally:
        logging.set_verbosity(verbosity)
        torch.set_num_threads(threads)
