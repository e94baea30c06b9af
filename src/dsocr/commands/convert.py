"""`dsocr convert`."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dsocr.commands.prepare import named_columns, print_left_out
from dsocr.console import Printer

if TYPE_CHECKING:
    from dsocr.data.convert import ConvertReport


def convert_command(
    printer: Printer,
    source: Path,
    out: Path,
    *,
    to: str,
    format: str | None,
    writer: str | None,
    page: str | None,
    document: str | None,
    columns: Sequence[str],
    encoding: str | None,
    strict: bool,
    overwrite: bool,
) -> None:
    """`dsocr convert`."""
    from dsocr.data.convert import convert

    with printer.progress("converting", "images") as tell:
        report = convert(
            source,
            out,
            to=to,
            format=format,
            writer=writer,
            page=page,
            document=document,
            columns=named_columns(columns),
            encoding=encoding,
            strict=strict,
            overwrite=overwrite,
            progress=tell,
        )
    _print_converted(printer, report)


def _print_converted(printer: Printer, report: "ConvertReport") -> None:
    card = report.conversion
    printer.say(f"read as {card.source_format}, written as {card.target}: {card.images} images, {card.lines} lines")
    for split, lines in card.splits.items():
        printer.say(f"  {split or 'no split':<12}{lines:>9} lines")
    for remark in card.notes:
        printer.say(remark)
    for sentence in card.left_behind:
        printer.say(f"left behind: {sentence}")
    print_left_out(printer, card.skipped, card.unmatched)
    printer.result(f"written: {report.output}")
    printer.say(f"next:    {report.next}")
