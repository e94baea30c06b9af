"""`dsocr curves`."""

from collections.abc import Sequence
from pathlib import Path

from dsocr.console import Printer


def curves_command(printer: Printer, runs: Sequence[Path], out: Path) -> None:
    """`dsocr curves`."""
    from dsocr.evaluation.report.pages import write_curves

    for history in write_curves(runs, out):
        best = history.best
        told = "" if best is None else f", best validation CER {best['cer']:.2%} at step {best['step']}"
        printer.say(f"{history.name}: {history.training[-1]['step']} steps{told}")
    printer.result(f"curves: {out}")
