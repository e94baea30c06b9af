"""`dsocr doctor`."""

import json as json_
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from dsocr.commands.quiet import quiet_libraries
from dsocr.console import Printer

if TYPE_CHECKING:
    from dsocr.doctor import Fact


def doctor_command(printer: Printer, *, json: bool) -> int:
    """`dsocr doctor`: 1 where something required is missing or broken, else 0."""
    from dsocr.doctor import examine

    with suppress(ImportError, OSError):  # what is wrong with transformers is told below
        quiet_libraries()
    facts = examine(Path.cwd())
    fatal = [fact.name for fact in facts if fact.fatal]
    if json:
        told = {"ready": not fatal, "facts": [asdict(fact) for fact in facts]}
        printer.result(json_.dumps(told, ensure_ascii=False, indent=2))
        return 1 if fatal else 0
    printer.table(["name", "state", "found"], [_fact_row(fact) for fact in facts])
    if fatal:
        printer.result(f"not ready: {', '.join(fatal)}")
        return 1
    printer.result("ready")
    printer.say("next: dsocr demo, or dsocr prepare YOUR_SCANS -o data/yours")
    return 0


def _fact_row(fact: "Fact") -> tuple[Sequence[str], str]:
    found = f"{fact.found}\nhint: {fact.hint}" if fact.hint else fact.found
    return (fact.name, fact.state, found), "red" if fact.fatal else "" if fact.state == "ok" else "yellow"
