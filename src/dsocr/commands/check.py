"""`dsocr check`."""

from pathlib import Path
from typing import TYPE_CHECKING

from dsocr.console import Printer
from dsocr.errors import ConfigError

if TYPE_CHECKING:
    from dsocr.data.check import Finding, Findings
    from dsocr.data.dataset import Dataset


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
    from dsocr.data.check import check_for_base
    from dsocr.models.family import load_processor

    encoder = load_processor(base, resolution, prompt, revision)
    with Printer(quiet=printer.quiet or json).progress("checking", "samples") as tell:
        findings = check_for_base(dataset, encoder, max_text_tokens=max_text_tokens, workers=workers, progress=tell)
    if html is not None:
        findings.to_html(html)
    if json:
        printer.result(findings.to_json())
    else:
        _print(printer, dataset.folder, findings, html)
    return 1 if findings.of("error") else 0


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
    if report.duplicates_left:
        printer.say(f"left in validation and test: {report.duplicates_left} samples that stand there twice")
    if report.dataset is None:
        printer.say(f"nothing to fix, so {out} was not written")
        return dataset
    printer.say(f"dataset: {out} (every change is listed in {out / 'fixes.jsonl'})")
    return Dataset.open(out, fold=dataset.fold)


def _print(printer: Printer, folder: Path, findings: "Findings", html: Path | None) -> None:
    for finding in findings:
        print_finding(printer, finding)
    printer.result(f"{folder}: {findings.summary()}")
    if html is not None:
        printer.result(f"page: {html}")
    if not findings.of("error"):
        printer.say("next: dsocr train CONFIG (configs/ holds recipes to copy)")


def print_finding(printer: Printer, finding: "Finding") -> None:
    """One finding with its first places and what to do about it."""
    times = f" ({finding.count} times)" if finding.count > 1 else ""
    printer.result(f"{finding.severity}: {finding.where}: {finding.message}{times} [{finding.code}]")
    for example in finding.examples[:4]:
        if example.detail or finding.count > 1:
            printer.say(f"    {example}")
    printer.say(f"    fix: {finding.remedy}")
