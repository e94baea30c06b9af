"""`dsocr synthesize`."""

from pathlib import Path
from typing import TYPE_CHECKING

from dsocr.commands.prepare import print_prepared
from dsocr.console import Printer

if TYPE_CHECKING:
    from dsocr.data.synthesize import SynthesisReport

_LISTED = 10


def synthesize_command(
    printer: Printer,
    fonts: Path,
    text: Path,
    out: Path,
    *,
    count: int,
    seed: int,
    augmentation: str,
    split: str,
    height: int,
    strict: bool,
    overwrite: bool,
) -> None:
    """`dsocr synthesize`."""
    from dsocr.commands.preview import chosen_augmentation
    from dsocr.data.synthesize import synthesize

    with printer.progress("drawing", "lines") as tell:
        report = synthesize(
            fonts,
            text,
            out,
            count=count,
            seed=seed,
            augmentation=chosen_augmentation(augmentation),
            split=split,
            height=height,
            strict=strict,
            overwrite=overwrite,
            progress=tell,
        )
    _print_problems(printer, report)
    print_prepared(printer, report.prepared)


def _print_problems(printer: Printer, report: "SynthesisReport") -> None:
    """Everything that was not drawn: files, fonts, lines."""
    from dsocr.data.synthesize import shorten_letters

    _list(printer, "not read", [f"{name}: {reason}" for name, reason in report.broken.items()])
    lines = [
        f"{name} lacks {shorten_letters(letters)}: "
        f"{'draws nothing' if name in report.unused else f'{count} lines not drawn in it'}"
        for name, (count, letters) in report.missing.items()
    ]
    _list(printer, "fonts that lack letters", lines)
    _list(printer, "lines that no font of their split can draw", report.undrawn)
    for what, count in report.skipped.items():
        printer.say(f"skipped: {count} {what}")


def _list(printer: Printer, title: str, lines: list[str]) -> None:
    if not lines:
        return
    printer.say(f"{title}: {len(lines)}")
    for line in lines[:_LISTED]:
        printer.say(f"  {line}")
    if len(lines) > _LISTED:
        printer.say("  ...")
