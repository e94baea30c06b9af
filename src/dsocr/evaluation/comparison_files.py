"""A comparison as files: the numbers, the lines that changed, the plot."""

import json
from collections.abc import Iterator
from pathlib import Path

from dsocr.errors import DataError
from dsocr.evaluation.comparison import Comparison
from dsocr.runs import to_json, write_atomically, writing_folder, writing_whole

NUMBERS, CHANGES, PLOT = "comparison.json", "changes.jsonl", "writers.svg"


def refuse_existing(out: Path, *, overwrite: bool) -> None:
    """An error where something lies that is not to be replaced; a folder is, only if a comparison made it."""
    if not out.exists():
        return
    if not overwrite:
        raise DataError("is there already", where=out, hint="name another place, or give --overwrite")
    if out.is_dir() and not (out / NUMBERS).is_file():
        raise DataError("is a folder that no comparison has made", where=out, hint="name another folder")


def write_comparison(found: Comparison, out: Path) -> None:
    """Write the folder `out`: `comparison.json`, `changes.jsonl` with every line that changed, `writers.svg`."""
    out.parent.mkdir(parents=True, exist_ok=True)
    with writing_folder(out) as folder:
        write_atomically(folder / NUMBERS, to_json(found.as_dict()))
        with writing_whole(folder / CHANGES) as file:
            for row in _changes(found):
                file.write(json.dumps(row, ensure_ascii=False) + "\n")
        if found.plot:
            write_atomically(folder / PLOT, found.plot + "\n")


def _changes(found: Comparison) -> Iterator[dict[str, object]]:
    for difference in found.differences:
        sides = {"first": difference.first.name, "second": difference.second.name}
        for change in (*difference.better, *difference.worse):
            yield {"readings": sides, **change.as_dict()}
