"""A training on what was corrected, in a process of its own, watched from the run folder it writes."""

import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from dsocr.config import RunConfig, load_config
from dsocr.errors import DsocrError, RunError
from dsocr.history import read_history
from dsocr.runs import RunFolder, write_atomically
from dsocr.workbench.exporting import export_dataset
from dsocr.workbench.opening import Shelf
from dsocr.workbench.store import Store

_PATIENCE = 60
"""Seconds in which a training that is told to end writes its checkpoint."""
_IN_WORK = re.compile(r"(?:run|dataset)-(\d+)(?:\.yaml)?")


@dataclass(frozen=True, slots=True)
class Standing:
    """How far a training is: steps made, epochs done of all, the best CER read on its validation split.

    `fault` says why it ended without an adapter.
    """

    is_at_work: bool
    steps: int = 0
    share: float | None = None
    cer: float | None = None
    fault: str | None = None


class Training:
    """One training after another, in the work folder of a workbench."""

    def __init__(self, store: Store, shelf: Shelf, work: Path, recipe: RunConfig) -> None:
        self._store = store
        self._shelf = shelf
        self._work = work
        self._recipe = recipe
        self._process: subprocess.Popen[bytes] | None = None
        self._config: RunConfig | None = None
        self._said = work / "training.log"

    @property
    def run(self) -> Path | None:
        """The run folder of the latest training."""
        return self._config.run if self._config else None

    def start(self) -> Path:
        """Make a dataset of the accepted lines and begin to train on it; gives the run folder.

        Raises DataError where there are none, RunError where one is training already.
        """
        if self._process is not None and self._process.poll() is None:
            raise RunError("is training already", where=self._config.run if self._config else self._work)
        taken = [int(found[1]) for path in self._work.iterdir() if (found := _IN_WORK.fullmatch(path.name))]
        number = 1 + max(taken, default=0)
        dataset = self._work / f"dataset-{number}"
        export_dataset(self._store, self._shelf, dataset)
        config = self._recipe.model_copy(update={"dataset": dataset, "run": self._work / f"run-{number}", "fold": None})
        path = self._work / f"run-{number}.yaml"
        write_atomically(path, config.to_yaml())
        command = [sys.executable, "-m", "dsocr", "train", str(path), "--quiet"]
        with self._said.open("wb") as said:
            self._process = _begun(command, said)
        self._config = config
        return config.run

    def standing(self) -> Standing | None:
        """How far the latest training is; None where none was begun."""
        if self._process is None or self._config is None:
            return None
        ended = self._process.poll()
        fault = self._last_words() if ended else None
        try:
            history = read_history(self._config.run)
        except DsocrError:  # it has not written down a step yet
            return Standing(ended is None, fault=fault)
        last = history.training[-1]
        return Standing(ended is None, int(last["step"]), self._share(last), (history.best or {}).get("cer"), fault)

    def end(self) -> None:
        """End a training that is at work, in good order: its checkpoint stays."""
        if self._process is None or self._process.poll() is not None:
            return
        self._process.send_signal(getattr(signal, "CTRL_BREAK_EVENT", signal.SIGTERM))
        try:
            self._process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()

    def _share(self, last: "dict[str, float]") -> float | None:
        training = self._config.training if self._config else None
        if training is None:
            return None
        if training.steps:
            return min(1.0, last["step"] / training.steps)
        return min(1.0, last["epoch"] / training.epochs) if training.epochs else None

    def _last_words(self) -> str:
        lines = self._said.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return "\n".join(lines[-3:]) or "it ended and said nothing"


def _begun(command: Sequence[str], said: BinaryIO) -> subprocess.Popen[bytes]:
    """A process that a terminal's Ctrl-C does not reach: a training that is told twice to end writes no checkpoint."""
    apart: dict[str, Any] = {"start_new_session": True}
    if sys.platform == "win32":
        apart = {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP}
    return subprocess.Popen(command, stdout=said, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, **apart)  # noqa: S603


def recipe_of(run: Path | None, config: Path | None) -> RunConfig | None:
    """The settings to train with: those of a configuration file, else of the run that reads; None without both."""
    if config is not None:
        return load_config(config)
    if run is not None and RunFolder(run).config.is_file():
        return load_config(RunFolder(run).config)
    return None
