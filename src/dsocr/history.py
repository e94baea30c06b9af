"""The metrics that a run recorded while it trained, read from its metrics.jsonl."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dsocr.errors import RunError
from dsocr.runs import RunFolder

Row = dict[str, float]


@dataclass(frozen=True, slots=True)
class History:
    """The recorded rows of training steps and of validations, each in the order of steps."""

    name: str
    training: Sequence[Row]
    validation: Sequence[Row]

    @property
    def best(self) -> Row | None:
        """The validation with the lowest CER, the first of equal ones."""
        scored = [row for row in self.validation if row.get("cer") is not None]
        return min(scored, key=lambda row: row["cer"], default=None)


def read_history(folder: Path, name: str | None = None) -> History:
    """Read the metrics of a run folder; `name` is the folder's name by default.

    A resumed run has recorded some steps twice: the later row counts. An incomplete last line is ignored. Raises
    RunError for a missing or invalid file, or one without training steps.
    """
    path = RunFolder.named(folder).metrics
    if not path.is_file():
        hint = "give run folders whose training has started"
        raise RunError("has no metrics.jsonl", code="metrics-missing", where=folder, hint=hint)
    training, validation = _read_rows(path)
    if not training:
        raise RunError("has no training steps", code="metrics-empty", where=path)
    return History(name or folder.resolve().name, training, validation)


def elapsed_until(run: RunFolder, step: int) -> float:
    """Return the seconds that a run had trained at its last recorded step up to `step`, 0 without one."""
    if not step or not run.metrics.is_file():
        return 0.0
    training, _ = _read_rows(run.metrics)
    return max((row.get("elapsed_seconds") or 0.0 for row in training if row["step"] <= step), default=0.0)


def _read_rows(path: Path) -> tuple[list[Row], list[Row]]:
    rows: dict[tuple[str, int], Row] = {}
    lines = path.read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
            rows[row["kind"], row["step"]] = row
        except (ValueError, KeyError, TypeError) as error:
            if number < len(lines):
                raise RunError("not a row of metrics", code="metrics-invalid", where=f"{path}:{number}") from error
    training, validation = ([rows[key] for key in sorted(rows) if key[0] == kind] for kind in ("train", "validation"))
    return training, validation
