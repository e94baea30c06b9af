"""`dsocr evaluate --scale-sweep`."""

import json as json_
from pathlib import Path
from typing import TYPE_CHECKING

from dsocr.commands.quiet import quiet_libraries
from dsocr.commands.report import draw_report
from dsocr.console import Printer
from dsocr.errors import ConfigError, typed
from dsocr.samples import Split

if TYPE_CHECKING:
    from dsocr.evaluation.strength import Sweep


def sweep_command(
    printer: Printer,
    path: Path,
    *,
    dataset: Path | None,
    split: Split,
    limit: int | None,
    with_base: bool,
    report: bool,
    json: bool,
) -> None:
    """`dsocr evaluate --scale-sweep`; the report of a run that was scored already is drawn anew, with the sweep."""
    from dsocr.evaluation.strength import sweep, write_sweep
    from dsocr.runs import RunFolder

    if not with_base:
        message = "--no-base: a sweep compares with the base, which is the adapter at strength 0"
        raise ConfigError(message, hint="leave out --no-base or --scale-sweep")
    quiet_libraries()
    run = RunFolder.open(path)
    with printer.progress("reading", "strengths") as tell:
        read = sweep(run, dataset=dataset, split=split, limit=limit, progress=tell)
    data, picture = write_sweep(read, run)
    if json:
        printer.result(json_.dumps(read.as_dict(), ensure_ascii=False, indent=2))
    else:
        _print_sweep(printer, read)
        printer.say(f"sweep:   {data}")
        printer.say(f"picture: {picture}")
    if report and run.scorecard.is_file():
        printer.say(f"report:  {draw_report(printer, path)[0]}")
    if 0 < read.chosen.strength < 1:
        printer.say(f"next:    dsocr export {typed(path)} --adapter FOLDER --scale {read.chosen.strength:g}")
    else:
        printer.say(f"next:    dsocr evaluate {typed(path)}")


def _print_sweep(printer: Printer, read: "Sweep") -> None:
    from dsocr.evaluation.metrics import spoken_points

    rows = []
    for point in read.points:
        rates = [f"{rate:.2%}" for rate in (point.target.rate, point.guard.adapter.rate)]
        told = "the base" if not point.strength else "beyond the margin" if point.guard.is_beyond else ""
        rows.append(([f"{point.strength:g}", *rates, spoken_points(point.guard.drop), told], ""))
    printer.table(["strength", f"CER, {read.split}", "CER, guard set", "points worse", ""], rows)
    printer.result(read.sentence)
