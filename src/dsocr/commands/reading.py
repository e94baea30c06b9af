"""`dsocr evaluate`."""

import json as json_
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dsocr.commands.quiet import quiet_libraries
from dsocr.commands.report import draw_report
from dsocr.console import Printer
from dsocr.document import Split
from dsocr.errors import typed


def evaluate_command(
    printer: Printer,
    path: Path,
    *,
    dataset: Path | None,
    split: Split,
    limit: int | None,
    with_base: bool,
    calibrate: bool,
    report: bool,
    json: bool,
) -> None:
    """`dsocr evaluate`."""
    from dsocr.evaluation.evaluate import evaluate
    from dsocr.evaluation.report.report import drop_reports
    from dsocr.runs import RunFolder

    quiet_libraries()
    run = RunFolder.open(path)
    with printer.progress("reading", "lines") as tell:
        card = evaluate(
            run,
            dataset=dataset,
            split=split,
            limit=limit,
            with_base=with_base,
            calibrate=calibrate,
            progress=tell,
        )
    outdated = drop_reports(run, drawn=report)
    drawn = draw_report(printer, path, dataset=dataset)[0] if report else None
    for sentence in outdated:
        printer.complain(f"note: {sentence}")
    if json:
        printer.result(json_.dumps(card.to_dict(), ensure_ascii=False, indent=2))
        return
    printer.result(str(card))
    print_guard(printer, card.guard)
    printer.say(f"scorecard: {run.scorecard}")
    printer.say(f"lines:     {run.lines}")
    if run.confidence_page.is_file():
        printer.say(f"confidence: {run.confidence_page}")
    if drawn is not None:
        printer.say(f"report:    {drawn}")
    printer.say(f"next:      dsocr transcribe {typed(path)} SCANS -o texts.jsonl")


def print_guard(printer: Printer, guard: Mapping[str, Any] | None) -> None:
    """Print the result of the guard set, if there is one, as a warning if it exceeds its margin."""
    if guard is not None:
        (printer.complain if guard["exceeds_margin"] else printer.say)(guard["message"])
