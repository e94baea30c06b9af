"""`dsocr compare`."""

import json as json_
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dsocr.console import Printer
from dsocr.document import Split

if TYPE_CHECKING:
    from dsocr.evaluation.predictions import Missing


def compare_command(
    printer: Printer,
    given: Sequence[str],
    *,
    base: bool,
    dataset: Path | None,
    split: Split | None,
    missing: "Missing",
    columns: Sequence[str],
    encoding: str | None,
    out: Path | None,
    overwrite: bool,
    json: bool,
) -> None:
    """`dsocr compare`."""
    from dsocr.commands.prepare import named_columns
    from dsocr.evaluation.compare import compare, render_comparison
    from dsocr.evaluation.predictions import gather_systems
    from dsocr.evaluation.report.comparison import PAGE, require_free, write_comparison

    if out is not None:
        require_free(out, overwrite=overwrite)
    gathered = gather_systems(
        given,
        base=base,
        dataset=dataset,
        split=split,
        missing=missing,
        columns=named_columns(columns),
        encoding=encoding,
    )
    found = compare(gathered.systems, images=gathered.images, about=gathered.about)
    if json:
        printer.result(json_.dumps(found.to_dict(), ensure_ascii=False, indent=2))
    else:
        printer.result(render_comparison(found))
    if out is not None:
        with printer.progress("drawing", "lines") as progress:
            write_comparison(found, out, progress)
        printer.say(f"look at: {out if out.is_file() else out / PAGE}")
