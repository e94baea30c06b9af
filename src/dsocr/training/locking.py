"""One training at a time in a run folder."""

import json
import os
import platform
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Self

from filelock import FileLock, Timeout

from dsocr.errors import RunError
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
