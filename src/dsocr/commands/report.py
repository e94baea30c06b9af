"""`dsocr report`."""

import json as json_
from pathlib import Path

from dsocr.console import Printer


def report_command(
    printer: Printer, path: Path, *, dataset: Path | None, out: Path | None, markdown: bool, json: bool
) -> None:
    """`dsocr report`."""
    written, warnings = draw_report(printer, path, dataset=dataset, out=out, markdown=markdown)
    if json:
        told = {"report": str(written), "bytes": written.stat().st_size, "warnings": warnings}
        printer.result(json_.dumps(told, ensure_ascii=False))
        return
    printer.result(f"report: {written}")


def draw_report(
    printer: Printer, path: Path, *, dataset: Path | None = None, out: Path | None = None, markdown: bool = False
) -> tuple[Path, list[str]]:
    """Write the report of an evaluated run and tell its warnings; hands back where it is, and the warnings."""
    from dsocr.evaluation.report.report import write_report
    from dsocr.runs import RunFolder

    with printer.progress("drawing", "lines") as progress:
        written, contents = write_report(
            RunFolder.begun(path), dataset=dataset, out=out, markdown=markdown, progress=progress
        )
    for warning in contents.warnings:
        printer.complain(f"warning: {warning}")
    return written, list(contents.warnings)
