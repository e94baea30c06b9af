"""`dsocr calibrate`."""

import json as json_
from pathlib import Path
from typing import TYPE_CHECKING

from dsocr.commands.quiet import quiet_libraries
from dsocr.console import Printer
from dsocr.errors import typed

if TYPE_CHECKING:
    from dsocr.evaluation.calibration import Reliability


def calibrate_command(printer: Printer, path: Path, *, dataset: Path | None, limit: int | None, json: bool) -> None:
    """`dsocr calibrate`."""
    from dsocr.evaluation.calibrate import calibrate
    from dsocr.evaluation.calibration import budget_sentence
    from dsocr.runs import CALIBRATION, RunFolder

    quiet_libraries()
    run = RunFolder.open(path)
    with printer.progress("reading", "lines") as tell:
        report = calibrate(run, dataset=dataset, limit=limit, progress=tell)
    if json:
        printer.result(json_.dumps(report.as_dict(), ensure_ascii=False, indent=2))
        return
    printer.say(report.origin)
    for kind, found in report.kinds.items():
        printer.say(f"{kind + 's:':12}calibration error {found.before:.4f}, fitted {found.after:.4f}{_chance(found)}")
    printer.result(budget_sentence(report.budget))
    printer.say(report.foretold)
    printer.say(f"calibration: {run.adapter / CALIBRATION}")
    printer.say(f"page:        {run.confidence_page}")
    printer.say(f"next:        dsocr transcribe {typed(path)} SCANS -o texts.jsonl")


def _chance(found: "Reliability") -> str:
    if found.by_chance is None:
        return ""
    return f" ({found.debiased:.4f} without what chance adds; perfect ones by chance: {found.by_chance:.4f})"
