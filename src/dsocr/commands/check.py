"""`dsocr check`."""

import json as json_
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from dsocr.console import Printer
from dsocr.errors import ConfigError

if TYPE_CHECKING:
    from dsocr.data.checks import Finding


_SEVERITIES = ("error", "warning", "note")


def check_command(
    printer: Printer, path: Path, *, base: str, max_text_tokens: int, html: Path | None, json: bool
) -> int:
    """`dsocr check`: 1 where there are errors, else 0."""
    from dsocr.config import load_config
    from dsocr.data.dataset import Dataset

    resolution, prompt, revision, folder, fold = None, "free_ocr", None, path, None
    if path.suffix in (".yaml", ".yml"):
        config = load_config(path)
        base, max_text_tokens, folder = config.base, config.training.max_text_tokens, config.dataset
        resolution, prompt, revision = config.input.resolution, config.input.prompt, config.base_revision
        fold = config.fold
    dataset = Dataset.open(folder, fold=fold)
    if html is not None and not html.absolute().parent.is_dir():
        raise ConfigError(f"--html: there is no folder {html.parent}", hint="make it, or write the page elsewhere")
    # Slow, and not needed to say that there is no dataset.
    from dsocr.data.checking.page import write_page
    from dsocr.model.loading import load_encoder
    from dsocr.training.preflight import check_for_base

    encoder = load_encoder(base, resolution, prompt, revision)
    with Printer(quiet=printer.quiet or json).progress("checking", "samples") as tell:
        findings = check_for_base(dataset, encoder, max_text_tokens=max_text_tokens, progress=tell)
    errors = sum(finding.count for finding in findings if finding.severity == "error")
    if html is not None:
        write_page(html, dataset, findings)
    if json:
        printer.result(json_.dumps([asdict(finding) for finding in findings], ensure_ascii=False, indent=2))
        return 1 if errors else 0
    for finding in findings:
        print_finding(printer, finding)
    counts = ", ".join(f"{sum(f.count for f in findings if f.severity == kind)} {kind}s" for kind in _SEVERITIES)
    printer.result(f"{folder}: {counts}" if findings else f"{folder}: nothing to complain about")
    if html is not None:
        printer.result(f"page: {html}")
    if not errors:
        printer.say("next: dsocr train CONFIG (configs/ holds recipes to copy)")
    return 1 if errors else 0


def print_finding(printer: Printer, finding: "Finding") -> None:
    """One finding with its first places and what to do about it."""
    times = f" ({finding.count} times)" if finding.count > 1 else ""
    printer.result(f"{finding.severity}: {finding.where}: {finding.message}{times} [{finding.code}]")
    for example in finding.examples[:4]:
        if example != finding.where:
            printer.say(f"    {example}")
    printer.say(f"    fix: {finding.fix}")
