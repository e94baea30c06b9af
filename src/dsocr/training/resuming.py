"""Where an interrupted training goes on, and what stands in its run folder by then."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dsocr.runs import RunFolder, cut_back
from dsocr.sealing import damage
from dsocr.training.checkpoints import (
    best_path,
    latest_checkpoint,
    load_trainer_state,
    load_weights,
    remove_leftovers,
    step_of,
)
from dsocr.training.validation import Validation

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Resumption:
    """A checkpoint that is whole, and the Trainer's own account of where it stood then."""

    checkpoint: Path
    state: dict[str, Any]

    @classmethod
    def find(cls, run: RunFolder, say: Say) -> "Resumption | None":
        """The newest checkpoint that is whole; None where there is none yet. RunError where all are damaged."""
        checkpoint = latest_checkpoint(run.checkpoints, say)
        return None if checkpoint is None else cls.at(checkpoint)

    @classmethod
    def at(cls, checkpoint: Path) -> "Resumption":
        """A checkpoint that is known to be whole."""
        return cls(checkpoint, load_trainer_state(checkpoint))

    @property
    def step(self) -> int:
        """Optimizer steps that were made."""
        return step_of(self.checkpoint)

    def clean(self, run: RunFolder) -> None:
        """Bring the run folder back to where it stood at the checkpoint."""
        remove_leftovers(run.checkpoints)
        cut_back(run.metrics, self.step)

    def restore(self, validation: Validation | None, run: RunFolder, say: Say) -> None:
        """Bring the validation back to where it stood at the checkpoint."""
        known = self.state["stateful_callbacks"].get(Validation.__name__)
        if validation is None or known is None:
            return
        validation.restore(known)
        if validation.best_step and (fault := damage(best := best_path(run.checkpoints, validation.best_step))):
            say(f"the best adapter, {best.name}, is damaged ({fault}): the next reading counts as the best so far")
            validation.forget_best()

    def is_at_the_end(self, validation: Validation | None) -> bool:
        """True where all steps were made, or patience had run out: nothing is left to train."""
        if validation is not None and validation.out_of_patience:
            return True
        return bool(self.step >= self.state["max_steps"])

    def load(self, model: Any, validation: Validation | None) -> None:
        """The weights of a training that was at its end; a best adapter that was lost is read anew from them."""
        load_weights(self.checkpoint, model)
        if validation is not None and not validation.best_step:
            validation.read(model, self.step)
