"""`dsocr evaluate --scale-sweep`."""

import json as json_
from pathlib import Path

from dsocr.commands.quiet import quiet_libraries
from dsocr.console import Printer
from dsocr.samples import Split


def sweep_command(
    printer: Printer, path: Path, *, dataset: Path | None, split: Split, limit: int | None, json: bool
) -> None:
    """`dsocr evaluate --scale-sweep`."""
    from dsocr.runs import RunFolder

    run = RunFolder.open(path)
    from dsocr.evaluation.strength import sweep, write_sweep  # slow, and not needed to say that there is no such run

    quiet_libraries()
    with printer.progress("reading", "strengths") as tell:
        read = sweep(run, dataset=dataset, split=split, limit=limit, progress=tell)
    data, picture = write_sweep(read, run)
    if json:
        printer.result(json_.dumps(read.as_dict(), ensure_ascii=False, indent=2))
        return
    rows = []
    for point in read.points:
        rates = [f"{rate:.2%}" for rate in (point.target.rate, point.guard.adapter.rate)]
        told = "the base" if not point.strength else "beyond the margin" if point.guard.is_beyond else ""
        rows.append(([f"{point.strength:g}", *rates, f"{point.guard.drop:+.1f}", told], ""))
    printer.table(["strength", f"CER, {split}", "CER, guard set", "points worse", ""], rows)
    printer.result(read.sentence)
    printer.say(f"sweep:   {data}")
    printer.say(f"picture: {picture}")
    if 0 < read.chosen.strength < 1:
        printer.say(f"next:    dsocr export {path} --adapter FOLDER --scale {read.chosen.strength:g}")
    else:
        printer.say(f"next:    dsocr evaluate {path}")
