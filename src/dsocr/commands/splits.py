"""`dsocr splits`."""

import json as json_
from pathlib import Path

from dsocr.console import Printer
from dsocr.errors import ConfigError


def splits_command(printer: Printer, folder: Path, *, fold: int | None, json: bool, markdown: bool) -> None:
    """`dsocr splits`."""
    from dsocr.data.dataset import Dataset
    from dsocr.data.leaks import leak_tables, report_leaks, summarise, to_markdown

    if json and markdown:
        raise ConfigError("--json and --markdown exclude each other")
    report = report_leaks(Dataset.open(folder, fold=fold))
    if json:
        printer.result(json_.dumps({**report.as_dict(), "quote": summarise(report)}, ensure_ascii=False, indent=2))
    elif markdown:
        printer.result(to_markdown(report).rstrip("\n"))
    else:
        for title, header, rows in leak_tables(report):
            printer.result(f"{title}:")
            printer.table(header, [(row, "") for row in rows])
            printer.result("")
        for split, facts in report.splits.items():
            if facts.sha256:
                printer.result(f"{split}: sha256 {facts.sha256}")
        printer.result(f"\nto quote:\n{summarise(report)}")
