"""A comparison as files: the page to look at, alone or with the numbers, the lines that changed and the plot."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

from dsocr.errors import DataError
from dsocr.evaluation.compare import Comparison
from dsocr.evaluation.report.report import render_comparison_page, writers_svg
from dsocr.runs import to_json, write_atomically, writing_folder, writing_whole

PAGE, NUMBERS, CHANGES, PLOT = "comparison.html", "comparison.json", "changes.jsonl", "writers.svg"


def refuse_existing(out: Path, *, overwrite: bool) -> None:
    """An error where something lies that is not to be replaced; a folder is, only if a comparison made it."""
    if not out.exists():
        return
    if not overwrite:
        raise DataError("is there already", where=out, hint="name another place, or give --overwrite")
    if out.is_dir() and not (out / NUMBERS).is_file():
        raise DataError("is a folder that no comparison has made", where=out, hint="name another folder")


def write_comparison(found: Comparison, out: Path, progress: Callable[[int, int], None] | None = None) -> None:
    """Write `out`: the page alone where it ends in .html, else a folder.

    The folder has `comparison.html`, `comparison.json`, `writers.svg`, and in `changes.jsonl` every line that changed.
    `progress` gets the number of illustrated lines done and of all.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    page = render_comparison_page(found, progress)
    if out.suffix.lower() == ".html":
        write_atomically(out, page)
        return
    with writing_folder(out) as folder:
        write_atomically(folder / PAGE, page)
        write_atomically(folder / NUMBERS, to_json(found.as_dict()))
        with writing_whole(folder / CHANGES) as file:
            for row in _changes(found):
                file.write(json.dumps(row, ensure_ascii=False) + "\n")
        if found.groups:
            write_atomically(folder / PLOT, writers_svg(found, standalone=True))


def _changes(found: Comparison) -> Iterator[dict[str, object]]:
    for difference in found.differences:
        sides = {"first": difference.first.name, "second": difference.second.name}
        for change in (*difference.better, *difference.worse):
            yield {"readings": sides, **change.as_dict()}
