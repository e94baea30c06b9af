"""Signals that ask a training to end: the running step is finished, and a checkpoint written."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from dsocr.training.launching import rank_and_count
from dsocr.training.ranks import Ranks, launched

# Ctrl-C and `kill`; on Windows Ctrl-Break too, as which closing the window, logging off and shutting down arrive.
_SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGBREAK") if hasattr(signal, name)]

_SAID = "finishing the running step, then a checkpoint"
_ONCE_MORE = "; once more ends it at once, with the checkpoint before"


class Interruption(TrainerCallback):
    """Ends a training after the step in which a signal comes; a second signal ends the process as it always would.

    `say` is told so in a sentence. It must stand after the callbacks that may end a training for good. Of several
    processes all end after the same step, whichever heard it; a launcher, which may pass on a signal twice, ends those
    that take too long.
    """

    def __init__(self, say: Callable[[str], None], ranks: Ranks | None = None) -> None:
        self._say = say
        self._ranks = ranks or Ranks()
        self.signal: int | None = None

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Signals are heard inside; outside the main thread Python lets nobody hear them, and nothing happens."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        former = {number: signal.signal(number, self._heard) for number in _SIGNALS}
        try:
            yield
        finally:
            for number, handler in former.items():
                signal.signal(number, handler)

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Save and stop, where it was asked for."""
        self.signal = max(self._ranks.gathered(self.signal or 0)) or None
        if self.signal is not None:
            control.should_save = control.should_training_stop = True

    def _heard(self, number: int, frame: FrameType | None) -> None:
        self.signal = number
        alone = rank_and_count()[1] == 1
        if alone:
            for other in _SIGNALS:  # the system's own answer also ends a process that is deep in a computation
                signal.signal(other, signal.SIG_DFL)
        # A signal may come while something is being printed; only another thread can wait for that to end.
        threading.Thread(target=self._say, args=(_SAID + (_ONCE_MORE if alone else ""),), daemon=True).start()


def ignore_interrupts() -> None:
    """Let this process hear no Ctrl-C, which a terminal sends to worker processes too: the training ends them.

    A launcher sends the signal that asks a training to end to its worker processes as well: they hear the next one.
    """
    for number in _SIGNALS:
        if number != signal.SIGTERM:
            signal.signal(number, signal.SIG_IGN)
        elif launched().count > 1:
            signal.signal(number, lambda number, frame: signal.signal(number, signal.SIG_DFL) and None)
