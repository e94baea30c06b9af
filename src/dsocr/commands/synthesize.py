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
    _print_left_out(printer, report)
    print_prepared(printer, report.prepared)


def _print_left_out(printer: Printer, report: "SynthesisReport") -> None:
    """Everything that was not drawn: files, fonts, lines."""
    _list(printer, "not read", [f"{name}: {fault}" for name, fault in report.broken.items()])
    lines = [
        f"{name} {lacks}: {'draws nothing' if name in report.useless else f'{lacks.lines} lines not drawn in it'}"
        for name, lacks in report.lacking.items()
    ]
    _list(printer, "fonts that lack letters", lines)
    _list(printer, "lines that no font of their split can draw", report.undrawn)
    for what, count in report.passed_over.items():
        printer.say(f"passed over: {count} {what}")


def _list(printer: Printer, title: str, lines: list[str]) -> None:
    if not lines:
        return
    printer.say(f"{title}: {len(lines)}")
    for line in lines[:_LISTED]:
        printer.say(f"  {line}")
    if len(lines) > _LISTED:
        printer.say("  ...")
