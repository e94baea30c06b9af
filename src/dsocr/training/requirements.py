"""What must hold before a training begins, as far as files tell: fast, without torch, and nothing is written.

Also the lock that keeps a second training out of a run folder.
"""

import json
import os
import platform
import re
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Self

from filelock import FileLock, Timeout

from dsocr.config import RunConfig
from dsocr.data.dataset import Dataset
from dsocr.errors import RunError
from dsocr.models.base_folder import find_base_metadata
from dsocr.runs import RunFolder, to_json, write_atomically
from dsocr.training.callbacks import require_trackers

_TEMPORARY = re.compile(r"\.(\.lock\.json|config\.yaml|provenance\.json|metrics\.jsonl)\.[0-9a-f]{8}\.tmp")
"""Files of a training that was killed while it wrote them."""
_RESUMABLE_CHANGES = ("micro_batch_size", "gradient_checkpointing", "num_workers", "report_to")
"""Settings of the training section that do not change what is trained, so that a run may resume with others."""


class RunLock:
    """Keeps other trainings out of a run folder as long as this process lives.

    The operating system holds the lock, so a crash leaves none behind. A folder that does not exist is made and locked
    by `acquire`, so that a training that is refused makes none.
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
        if any(path.name not in self.file_names(self._run) for path in self._run.path.iterdir()):
            hint = "run the same command again"
            raise RunError("another process has begun this run", code="run-begun", where=self._run.path, hint=hint)

    @staticmethod
    def file_names(run: RunFolder) -> set[str]:
        """Return the names of the lock's own files."""
        return {run.lock.name, f"{run.lock.name}.json"}

    def _lock_folder(self) -> None:
        try:
            self._lock.acquire()
        except Timeout as error:
            raise RunError(
                f"{self._describe_holder()} is training this run",
                code="run-locked",
                where=self._run.path,
                hint="wait until it ends, or stop it",
            ) from error
        for path in self._run.path.iterdir():
            if _TEMPORARY.fullmatch(path.name):
                path.unlink(missing_ok=True)
        holder = {
            "process": os.getpid(),
            "machine": platform.node(),
            "since": datetime.now(UTC).isoformat("T", "seconds"),
        }
        write_atomically(self._holder, to_json(holder))

    def _describe_holder(self) -> str:
        try:
            holder: dict[str, Any] = json.loads(self._holder.read_text(encoding="utf-8"))
            return f"process {holder['process']} on {holder['machine']} since {holder['since']}"
        except (OSError, ValueError, KeyError, TypeError):
            return "another process"


def require_sources(config: RunConfig) -> Dataset:
    """Open the dataset of a configuration; raise if it, base, resolution, prompt, guard set or a tracker is missing."""
    dataset = Dataset.open(config.dataset, fold=config.fold)
    folder = find_base_metadata(config.base, config.base_revision)
    require_trackers(config.training.report_to)
    # Slow imports, which the refusals above need not wait for.
    from dsocr.evaluation.evaluate import GuardSet
    from dsocr.models.family import recognize

    recognize(folder).validate_input(config.input.resolution, config.input.prompt)
    GuardSet.load(config.guard, config.base)
    return dataset


def require_trainable(run: RunFolder, *, overwrite: bool, hint: str = "name another folder with `output:`") -> None:
    """Raise RunError if the folder holds something else than a run, or a finished run that is not to be overwritten."""
    if run.path.exists() and not run.path.is_dir():
        raise RunError("is a file, and a run needs a folder", code="run-is-file", where=run.path, hint=hint)
    if not run.path.is_dir():
        return
    others = {path.name for path in run.path.iterdir() if not _TEMPORARY.fullmatch(path.name)} - kept_names(run)
    if others and not run.config.is_file():
        raise RunError("is not empty and not a run folder", code="not-a-run", where=run.path, hint=hint)
    if run.adapter.is_dir() and not overwrite:
        hint = "name another folder with --set output=..., or give --overwrite"
        raise RunError("holds a finished run", code="run-finished", where=run.path, hint=hint)


def require_same_settings(run: RunFolder, config: RunConfig, recorded: RunConfig) -> None:
    """Raise RunError if the run was begun with settings that change what is trained."""
    ours, theirs = config.model_dump(), recorded.model_dump()
    for values in (ours, theirs):
        del values["output"]
        for name in _RESUMABLE_CHANGES:
            del values["training"][name]
    if different := [key for key in ours if ours[key] != theirs[key]]:
        raise RunError(
            f"holds {'a' if run.adapter.is_dir() else 'an unfinished'} run with other settings: {', '.join(different)}",
            code="other-settings",
            where=run.path,
            hint=f"resume it with `{run.resume_command}`, or give --overwrite",
        )


def kept_names(run: RunFolder) -> set[str]:
    """Return the names in a run folder that overwriting keeps: the lock, and trainings of a forecast."""
    return {*RunLock.file_names(run), run.forecast.name}
