"""The file of scored lines, `lines.jsonl` in the run folder: a JSON object a line, for those who look past the card."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from dsocr.errors import RunError
from dsocr.evaluation.scores import LineScore
from dsocr.runs import writing_whole

MODELS = ("base", "adapter")


def write_lines(path: Path, lines_by_model: Mapping[str, Sequence[LineScore]]) -> None:
    """Every line as each model read it: `{"model": "base", ...}` with the fields of `LineScore`."""
    with writing_whole(path) as file:
        for model, lines in lines_by_model.items():
            for line in lines:
                file.write(json.dumps({"model": model, **line.as_dict()}, ensure_ascii=False) + "\n")


def load_lines(path: Path) -> dict[str, list[LineScore]]:
    """The lines by model, in the order of the file; a model that did not read is missing.

    Raises RunError for a file that is not there, damaged, or of a version that wrote other fields.
    """
    lines: dict[str, list[LineScore]] = {}
    seen: set[tuple[str, str]] = set()
    for number, row in enumerate(_rows(path), start=1):
        try:
            values = json.loads(row)
            model = values.pop("model")
            if model not in MODELS:
                raise RunError(f"model: must be base or adapter, not {model!r}", where=f"{path}:{number}")
            line = LineScore.from_dict(values)
            if (model, line.id) in seen:
                raise RunError(f"{line.id!r} is there twice as read by {model}", where=f"{path}:{number}")
            seen.add((model, line.id))
            lines.setdefault(model, []).append(line)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            hint = "run `dsocr evaluate` again"
            problem = "is no scored line that this version can read"
            raise RunError(problem, where=f"{path}:{number}", hint=hint) from error
    if not lines:
        raise RunError("holds no scored line", where=path, hint="run `dsocr evaluate` again")
    return lines


def _rows(path: Path) -> list[str]:
    try:
        return [row for row in path.read_text(encoding="utf-8").split("\n") if row]
    except FileNotFoundError as error:
        raise RunError("no such file", where=path, hint="run `dsocr evaluate` on the run folder first") from error
    except (OSError, ValueError) as error:
        raise RunError(f"cannot be read: {error}", where=path) from error
