"""How well the model read the lines that somebody has accepted since."""

from collections.abc import Iterable

from dsocr.evaluation.metrics import ErrorRate, character_errors
from dsocr.workbench.lines import Line, State


def cer_of_machine(lines: Iterable[Line]) -> tuple[ErrorRate, int]:
    """The pooled errors of what a model read against what was accepted, and over how many lines."""
    judged = [line for line in lines if line.state is State.ACCEPTED and line.machine is not None]
    return sum((character_errors(line.text, line.machine or "") for line in judged), ErrorRate()), len(judged)
