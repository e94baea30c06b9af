"""`dsocr prepare` and `dsocr sources`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dsocr.console import Printer
from dsocr.errors import ConfigError

if TYPE_CHECKING:
    from dsocr.data.prepare import PrepareReport


def prepare_command(
    printer: Printer,
    source: Path,
    out: Path,
    *,
    format: str | None,
    writer: str | None,
    page: str | None,
    split: str,
    split_by: str | None,
    seed: int,
    columns: Sequence[str],
    strict: bool,
    overwrite: bool,
) -> None:
    """`dsocr prepare`."""
    from dsocr.data.prepare import prepare

    with printer.progress("preparing", "images") as tell:
        report = prepare(
            source,
            out,
            format=format,
            writer=writer,
            page=page,
            split=split,
            split_by=_split_by(split_by),  # type: ignore[arg-type]
            seed=seed,
            columns=_columns(columns),
            strict=strict,
            overwrite=overwrite,
            progress=tell,
        )
    print_prepared(printer, report)


def _split_by(name: str | None) -> str | None:
    if name not in (None, "writer", "page", "text"):
        raise ConfigError(f"--split-by: must be writer, page or text, not {name!r}")
    return name


def _columns(pairs: Sequence[str]) -> Mapping[str, str]:
    if bad := [pair for pair in pairs if not pair.partition("=")[2]]:
        raise ConfigError(f"--column: {bad[0]!r} does not read kind=NAME", hint="for example --column text=label")
    return dict(pair.split("=", 1) for pair in pairs)


def print_prepared(printer: Printer, report: "PrepareReport") -> None:
    """What a dataset folder holds, what is not in it, and what to do next."""
    card = report.card
    printer.say(f"{'split':<12}{'samples':>9}{'writers':>9}{'pages':>8}{'characters':>12}")
    for split, part in card.splits.items():
        row = f"{split:<12}{part.samples:>9}{part.writers:>9}{part.pages:>8}{part.characters:>12}"
        printer.say(row)
    printer.say(f"read as {card.source_format}; split by {card.split_by}")
    for reason, left_out in card.left_out.items():
        printer.say(f"left out, {reason}: {left_out.count}")
        for example in left_out.examples[:3]:
            printer.say(f"  {example}")
    for kind, unmatched in card.unmatched.items():
        printer.say(f"no {kind} found in the name of {unmatched.count}, e.g. {unmatched.examples[0]}")
    printer.result(f"dataset: {report.dataset}")
    printer.say(f"next:    dsocr check {report.dataset}")


def sources_command(printer: Printer) -> None:
    """`dsocr sources`."""
    from dsocr.data.sources import FORMATS

    for format_ in FORMATS.values():
        printer.result(f"{format_.name:<10}{format_.title}")
        printer.result(f"{'':<10}dsocr prepare {format_.example}")
    printer.say("prepare finds out which it is and says it; --format NAME decides where a folder holds several")
