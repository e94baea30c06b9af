"""`dsocr preflight`."""

import json as json_
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dsocr.commands.quiet import quiet_libraries
from dsocr.commands.training import train_line
from dsocr.console import Printer

if TYPE_CHECKING:
    from dsocr.training.learning_checks import Check


def preflight_command(printer: Printer, path: Path, overrides: Sequence[str], *, json: bool) -> int:
    """`dsocr preflight`: 1 where a check refuses, else 0."""
    from dsocr.config import load_config
    from dsocr.training.requirements import demand_named

    config = load_config(path, overrides)
    demand_named(config)
    from dsocr.training.preflight import preflight

    quiet_libraries()
    with printer.progress("learning five samples by heart", "steps") as tell:
        found = preflight(config, progress=tell)
    if json:
        printer.result(json_.dumps(found.as_dict(), ensure_ascii=False, indent=2))
        return 1 if found.refused else 0
    for check in found.checks:
        print_check(printer, check)
    if found.refused:
        printer.result(f"refused: {', '.join(check.name for check in found.refused)}")
        return 1
    printer.say(f"next: {train_line(path, overrides)}")
    return 0


def print_check(printer: Printer, check: "Check") -> None:
    """A line for the verdict, then what to do, then what to look at."""
    printer.result(f"{check.verdict:<8} {check.name}: {check.message}")
    if check.fix:
        printer.result(f"{'':<9}-> {check.fix}")
    for line in check.details:
        printer.result(f"{'':<11}{line}")
