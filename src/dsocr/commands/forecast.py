"""`dsocr forecast`."""

import json as json_
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dsocr.commands.quiet import quiet_libraries
from dsocr.commands.training import print_interrupted
from dsocr.console import Printer
from dsocr.document import Split
from dsocr.errors import Interrupted

if TYPE_CHECKING:
    from dsocr.evaluation.learning_curve import CurvePoint


def forecast_command(
    printer: Printer,
    path: Path,
    overrides: Sequence[str],
    *,
    sizes: Sequence[float],
    split: Split,
    more: Sequence[int],
    targets: Sequence[float],
    overwrite: bool,
    json: bool,
) -> None:
    """`dsocr forecast`."""
    from dsocr.config import load_config
    from dsocr.evaluation.evaluate import require_samples
    from dsocr.training.requirements import demand_named

    config = load_config(path, overrides)
    require_samples(demand_named(config), split)
    # Slow, and not needed to say what is wrong with a configuration.
    from dsocr.evaluation.report.pages import FORECAST_PAGE, explanation
    from dsocr.runs import RunFolder
    from dsocr.training.forecast import SIZES, forecast

    quiet_libraries()

    def finished(point: "CurvePoint") -> None:
        printer.say(f"{point.samples} lines, {point.steps} steps: CER {point.cer:.2%}")

    try:
        with printer.progress("training", "steps") as tell:
            result = forecast(
                config,
                sizes=sizes or SIZES,
                split=split,
                more=more,
                targets=targets,
                overwrite=overwrite,
                progress=tell,
                finished=finished,
                say=printer.complain,
            )
    except Interrupted as interrupted:
        print_interrupted(printer, interrupted, "the same command goes on, without --overwrite")
        raise SystemExit(interrupted.exit_code) from None
    folder = RunFolder(config.output).forecast
    if json:
        printer.result(json_.dumps(result.to_dict(), ensure_ascii=False, indent=2))
        return
    rows = [([f"{point.samples}", f"{point.steps}", f"{point.cer:.2%}"], "") for point in result.points]
    printer.table(["lines", "steps", f"{split} CER"], rows)
    printer.result("")
    for sentence in result.sentences():
        printer.result(sentence)
    printer.say(f"\n{explanation(result)}")
    printer.result(f"forecast: {folder / FORECAST_PAGE}")
