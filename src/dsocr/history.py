"""What a run wrote down while it trained, read back from its metrics.jsonl."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from dsocr.errors import RunError
from dsocr.runs import RunFolder


@dataclass(frozen=True, slots=True)
class History:
    """What a run wrote down: its rows of training and of validation."""

    name: str
    training: Sequence[dict[str, float]]
    validation: Sequence[dict[str, float]]

    @property
    def best(self) -> dict[str, float] | None:
        """The reading with the lowest CER, the first of equal ones."""
        readings = [row for row in self.validation if row.get("cer") is not None]
        return min(readings, key=lambda row: row["cer"], default=None)


def read_history(folder: Path, name: str | None = None) -> History:
    """What stands in a run's metrics.jsonl; a last line that was torn is left out.

    A run that was resumed wrote some steps twice: the later row counts. Raises RunError where there is no such file, no
    step in it, or a line that is none of ours.
    """
    path = RunFolder.named(folder).metrics
    if not path.is_file():
        raise RunError("has no metrics.jsonl", where=folder, hint="give run folders in which a training has begun")
    history = _history(path)
    if not history.training:
        raise RunError("holds no step of a training", where=path)
    return replace(history, name=name or folder.resolve().name)


def _history(path: Path) -> History:
    rows: dict[tuple[str, int], dict[str, float]] = {}
    lines = path.read_text(encoding="utf-8").splitlines()
    for number, text in enumerate(lines, 1):
        try:
            row = json.loads(text)
            rows[row["kind"], row["step"]] = row
        except (ValueError, KeyError, TypeError) as error:
            if number < len(lines):
                raise RunError("is not a row of metrics", where=f"{path}:{number}") from error
    kinds = {kind: [rows[key] for key in sorted(rows) if key[0] == kind] for kind in ("train", "validation")}
    return History(path.parent.name, kinds["train"], kinds["validation"])


def elapsed_until(run: RunFolder, step: int) -> float:
    """The seconds that a run had trained when it wrote down its last step up to this one; 0 where it wrote none."""
    if not step or not run.metrics.is_file():
        return 0.0
    rows = _history(run.metrics).training
    return max((row.get("elapsed_seconds") or 0.0 for row in rows if row["step"] <= step), default=0.0)
