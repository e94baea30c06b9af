"""`dsocr next`."""

import json as json_
from pathlib import Path

from dsocr.commands.quiet import quiet_libraries
from dsocr.console import Printer


def next_command(
    printer: Printer,
    run: Path,
    source: Path,
    out: Path,
    *,
    count: int,
    format: str | None,
    writer: str | None,
    encoding: str | None,
    strict: bool,
    overwrite: bool,
    json: bool,
) -> None:
    """`dsocr next`."""
    from dsocr.inference.suggest import LIST, SHEET, TABLE, next_lines
    from dsocr.runs import RunFolder

    quiet_libraries()
    folder = RunFolder.open(run)
    with printer.progress("reading", "lines") as tell:
        queue = next_lines(
            folder,
            source,
            out,
            count=count,
            format=format,
            writer=writer,
            encoding=encoding,
            strict=strict,
            overwrite=overwrite,
            progress=tell,
        )
    for item in queue.skipped:
        printer.complain(f"left out, {item.reason}: {item.where}: {item.message}")
    for remark in queue.remarks:
        printer.complain(remark)
    rows = json_.loads((out / LIST).read_text(encoding="utf-8"))["lines"]
    if json:
        told = {"waiting": queue.waiting, "left_out": len(queue.skipped), "lines": rows}
        printer.result(json_.dumps(told, ensure_ascii=False, indent=2))
        return
    for row in rows[:10]:
        printer.say(f"{row['rank']:>3}. {row['where']}: {row['reason']}")
    printer.say(f"{len(queue.choices)} of {queue.waiting} lines that wait for a transcription were chosen")
    printer.result(f"queue: {out}")
    printer.say(f"look:  {out / SHEET}, {out / TABLE}")
    printer.say(f"next:  transcribe them (import {out.as_posix()} into eScriptorium), then dsocr prepare")
