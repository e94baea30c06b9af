"""`dsocr check`."""

import json as json_
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from dsocr.console import Printer
from dsocr.errors import ConfigError

if TYPE_CHECKING:
    from dsocr.data.check.findings import Finding
    from dsocr.data.dataset import Dataset


_SEVERITIES = ("error", "warning", "note")


def check_command(
    printer: Printer,
    path: Path,
    *,
    base: str,
    max_text_tokens: int,
    html: Path | None,
    json: bool,
    workers: int | None = None,
    fix: bool = False,
    out: Path | None = None,
    overwrite: bool = False,
) -> int:
    """`dsocr check`: 1 where there are errors, else 0."""
    from dsocr.config import load_config
    from dsocr.data.dataset import Dataset

    _refuse_options(html, fix, out)
    resolution, prompt, revision, folder, fold = None, "free_ocr", None, path, None
    if path.suffix in (".yaml", ".yml"):
        config = load_config(path)
        base, max_text_tokens, folder = config.base, config.training.max_text_tokens, config.dataset
        resolution, prompt, revision = config.input.resolution, config.input.prompt, config.base_revision
        fold = config.fold
    dataset = Dataset.open(folder, fold=fold)
    if fix and out is not None:
        dataset = _fixed(Printer(quiet=printer.quiet or json), dataset, out, overwrite)
    # Slow, and not needed to say that there is no dataset.
    from dsocr.data.check.findings_page import write_page
    from dsocr.models.deepseek_ocr import load_encoder
    from dsocr.training.preview import survey_for_base

    encoder = load_encoder(base, resolution, prompt, revision)
    with Printer(quiet=printer.quiet or json).progress("checking", "samples") as tell:
        survey = survey_for_base(dataset, encoder, max_text_tokens=max_text_tokens, workers=workers, progress=tell)
    if html is not None:
        write_page(html, dataset, survey)
    if json:
        printer.result(json_.dumps([asdict(finding) for finding in survey.findings], ensure_ascii=False, indent=2))
    else:
        _print(printer, dataset.folder, survey.findings, html)
    return 1 if any(finding.severity == "error" for finding in survey.findings) else 0


def _refuse_options(html: Path | None, fix: bool, out: Path | None) -> None:
    """An error for options that cannot be followed, before anything slow is begun."""
    if html is not None and not html.absolute().parent.is_dir():
        raise ConfigError(f"--html: there is no folder {html.parent}", hint="make it, or write the page elsewhere")
    if html is not None and html.is_dir():
        raise ConfigError(f"--html: {html} is a folder", hint=f"name a file, for example {html / 'check.html'}")
    if fix and out is None:
        raise ConfigError("--fix: a folder for the new dataset is missing", hint="give one with -o NEW")
    if out is not None and not fix:
        raise ConfigError("--out: only --fix writes a dataset", hint="add --fix, or leave it out")


def _fixed(printer: Printer, dataset: "Dataset", out: Path, overwrite: bool) -> "Dataset":
    """The new dataset, after telling what was done; the old one where there was nothing to do."""
    from dsocr.data.dataset import Dataset
    from dsocr.data.fix import fix_dataset

    with printer.progress("copying", "samples") as tell:
        report = fix_dataset(dataset, out, overwrite=overwrite, progress=tell)
    for (code, split), count in sorted(report.counts().items()):
        printer.say(f"fixed in {split}: {count} [{code}]")
    if report.twins_left:
        printer.say(f"left in validation and test: {report.twins_left} samples that stand there twice")
    if report.dataset is None:
        printer.say(f"nothing to fix, so {out} was not written")
        return dataset
    printer.say(f"dataset: {out} (every change is listed in {out / 'fixes.jsonl'})")
    return Dataset.open(out, fold=dataset.fold)


def _print(printer: Printer, folder: Path, findings: list["Finding"], html: Path | None) -> None:
    for finding in findings:
        print_finding(printer, finding)
    totals = {kind: sum(f.count for f in findings if f.severity == kind) for kind in _SEVERITIES}
    counts = ", ".join(f"{count} {kind}s" for kind, count in totals.items())
    printer.result(f"{folder}: {counts}" if findings else f"{folder}: nothing to complain about")
    if html is not None:
        printer.result(f"page: {html}")
    if not totals["error"]:
        printer.say("next: dsocr train CONFIG (configs/ holds recipes to copy)")


def print_finding(printer: Printer, finding: "Finding") -> None:
    """One finding with its first places and what to do about it."""
    times = f" ({finding.count} times)" if finding.count > 1 else ""
    printer.result(f"{finding.severity}: {finding.where}: {finding.message}{times} [{finding.code}]")
    for example in finding.examples[:4]:
        if example != finding.where:
            printer.say(f"    {example}")
    printer.say(f"    fix: {finding.fix}")
