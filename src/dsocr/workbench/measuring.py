"""How well the model read the lines that somebody has accepted since."""

from collections.abc import Mapping
from dataclasses import dataclass

from dsocr.evaluation.metrics import ErrorRate, character_errors
from dsocr.workbench.lines import State
from dsocr.workbench.store import Store


@dataclass(frozen=True, slots=True)
class Tally:
    """How many lines are in each state, and the pooled errors of the model in the lines that were `judged`."""

    counts: Mapping[State, int]
    errors: ErrorRate
    judged: int

    @classmethod
    def of(cls, store: Store) -> "Tally":
        """What a store holds at this moment."""
        pairs = store.judged()
        return cls(store.counts(), sum((character_errors(*pair) for pair in pairs), ErrorRate()), len(pairs))
