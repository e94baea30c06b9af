"""Whether what a training names is there, and its run folder free, as files tell; writes nothing, loads no network."""

import json
import os
import platform
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Self

from filelock import FileLock, Timeout

from dsocr.config import RunConfig
from dsocr.data.dataset import Dataset
from dsocr.errors import RunError
from dsocr.evaluation.evaluate import GuardSet
from dsocr.models.checkpoint import find_base_metadata
from dsocr.models.family import recognize
from dsocr.runs import RunFolder, to_json, write_atomically


class RunLock:
    """Keeps other trainings out of a run folder, for as long as this process lives and no longer.

    The operating system holds the lock, so that a crash leaves none behind. A folder that is not there yet is locked
    by `take`, so that a training which does not begin makes none.
    """

    def __init__(self, run: RunFolder) -> None:
        self._run = run
        self._lock = FileLock(run.lock, timeout=0)
        self._holder = run.lock.with_name(f"{run.lock.name}.json")

    def __enter__(self) -> Self:
        if self._run.path.is_dir():
            self._acquire()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._lock.is_locked:
            self._holder.unlink(missing_ok=True)
            self._lock.release()

    def take(self) -> None:
        """Make the folder and lock it, where that was not done. Raises RunError where another process was faster."""
        if self._lock.is_locked:
            return
        self._run.path.mkdir(parents=True, exist_ok=True)
        self._acquire()
        if any(path.name not in self.names(self._run) for path in self._run.path.iterdir()):
            raise RunError(
                "was begun by another process meanwhile", where=self._run.path, hint="run the same command again"
            )

    @staticmethod
    def names(run: RunFolder) -> set[str]:
        """The names of the lock's own files, which say nothing about what a folder holds."""
        return {run.lock.name, f"{run.lock.name}.json"}

    def _acquire(self) -> None:
        try:
            self._lock.acquire()
        except Timeout as error:
            raise RunError(
                f"is being trained by {self._other()}", where=self._run.path, hint="wait until it ends, or stop it"
            ) from error
        facts = {
            "process": os.getpid(),
            "machine": platform.node(),
            "since": datetime.now(UTC).isoformat("T", "seconds"),
        }
        write_atomically(self._holder, to_json(facts))

    def _other(self) -> str:
        """The process that holds the lock, as far as it can be told."""
        try:
            facts: dict[str, Any] = json.loads(self._holder.read_text(encoding="utf-8"))
            return f"process {facts['process']} on {facts['machine']} since {facts['since']}"
        except (OSError, ValueError, KeyError, TypeError):
            return "another process"


def demand_named(config: RunConfig) -> Dataset:
    """The dataset of a configuration; an error where it, the base, resolution, prompt or guard set is not there."""
    dataset = Dataset.open(config.dataset, fold=config.fold)
    folder = find_base_metadata(config.base, config.base_revision)
    recognize(folder).validate_input(config.input.resolution, config.input.prompt)
    GuardSet.load(config.guard, config.base)
    return dataset


def refuse_run(run: RunFolder, *, overwrite: bool, another: str = "give `output:` another folder") -> None:
    """An error where the run folder is of something else, or of a finished run; `another` is how to name another."""
    if run.path.exists() and not run.path.is_dir():
        raise RunError("is a file, and a run needs a folder", where=run.path, hint=another)
    others = {path.name for path in run.path.iterdir()} - beside(run) if run.path.is_dir() else set()
    if others and not run.config.is_file():
        raise RunError("is not empty and not a run folder", where=run.path, hint=another)
    if run.adapter.is_dir() and not overwrite:
        raise RunError(
            "holds a finished run",
            where=run.path,
            hint="name another folder with --set output=..., or give --overwrite",
        )


def refuse_other_settings(run: RunFolder, config: RunConfig, begun: RunConfig) -> None:
    """An error where the unfinished run was begun with settings that change what is learnt."""
    if different := _differences(config, begun):
        raise RunError(
            f"holds {'a' if run.adapter.is_dir() else 'an unfinished'} run with other settings: {', '.join(different)}",
            where=run.path,
            hint=f"resume it with `{run.resume_command}`, or give --overwrite",
        )


def beside(run: RunFolder) -> set[str]:
    """Names in a run folder that are none of the run's own: its lock, and trainings on fewer samples."""
    return {*RunLock.names(run), run.forecast.name}


def _differences(config: RunConfig, other: RunConfig) -> list[str]:
    ours, theirs = config.model_dump(), other.model_dump()
    ours.pop("output"), theirs.pop("output")
    # They change how it is computed, not what is learnt: a run whose memory ended goes on with less of it.
    for name in ("micro_batch_size", "gradient_checkpointing"):
        ours["training"].pop(name), theirs["training"].pop(name)
    return [f"{key}" for key in ours if ours[key] != theirs[key]]
