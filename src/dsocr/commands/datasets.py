"""Public functions that make, check and show datasets."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from dsocr.config import RunConfig, load_config
from dsocr.console import Printer, current_reporter, progress_bar, with_progress
from dsocr.data.convert import convert as _convert
from dsocr.data.dataset import Dataset
from dsocr.data.prepare import prepare as _prepare
from dsocr.errors import ConfigError, option
from dsocr.formats import SOURCE_FORMATS
from dsocr.formats.format import Format
from dsocr.io.processes import ProgressCallback
from dsocr.options import Changes, Count, Output, Rare, StrPath, between

if TYPE_CHECKING:
    from dsocr.data.check import Finding, Findings
    from dsocr.data.check.leaks import LeakReport
    from dsocr.data.fix import FixReport

prepare = with_progress(_prepare, "preparing", "images")
convert = with_progress(_convert, "converting", "images")


def source_formats() -> Sequence[Format]:
    """Return the formats that `prepare` reads."""
    return list(SOURCE_FORMATS.values())


@dataclass(frozen=True, slots=True)
class CheckReport:
    """What `check` found in a dataset, how its splits are separated, and what was fixed before, if anything was."""

    dataset: Dataset
    findings: "Findings"
    splits: "LeakReport"
    fixes: "FixReport | None" = None

    def to_dict(self) -> dict[str, object]:
        """Return the findings and the splits in JSON's types."""
        from dsocr.data.check.leaks import summarise

        splits = {**self.splits.as_dict(), "quote": summarise(self.splits)}
        return {"findings": [finding.to_dict() for finding in self.findings], "splits": splits}


def check(
    dataset: StrPath,
    *,
    changes: Changes | None = None,
    html: StrPath | None = None,
    source: StrPath | None = None,
    csv: StrPath | None = None,
    markdown: StrPath | None = None,
    workers: Rare[Count | None] = None,
    fix: bool = False,
    corrections: StrPath | None = None,
    encoding: str | None = None,
    output: Output | None = None,
    overwrite: bool = False,
    progress: ProgressCallback | None = None,
) -> CheckReport:
    """Find what would spoil a training, and report the splits.

    Args:
        dataset: Dataset folder, or a configuration that names one.
        changes: Change a setting, as base=nano, fold=2 or training.max_text_tokens=200; repeatable.
        html: Also write the findings, with images, to this page.
        source: What the dataset was prepared from, to show the page around a line in the page of findings.
        csv: Also write every place of every finding to this table.
        markdown: Also write how the data is split to this Markdown file, to quote.
        workers: Number of processes; one per core if not given.
        fix: Repair what is certain in a new dataset, then check that.
        corrections: Table of corrected texts for `fix`, such as the audit.csv of `audit`.
        encoding: Encoding of the corrections if it is not UTF-8, e.g. cp1251.
        output: Dataset folder for `fix` to write.
        overwrite: Replace what an earlier command wrote there.
        progress: Called with the samples done and in total, instead of a progress bar.

    Raises:
        ConfigError: Options do not go together, or the configuration has problems.
        DataError: There is no dataset, or it cannot be read or written.
    """
    for name, file in {"html": html, "csv": csv, "markdown": markdown}.items():
        if file is not None and (Path(file).is_dir() or not Path(file).absolute().parent.is_dir()):
            hint = "name a file in an existing folder"
            raise ConfigError(f"{option(name, file)} cannot be written", code="option-invalid", hint=hint)
    if fix != (output is not None):
        code, both = "option-missing" if fix else "option-invalid", f"{option('fix')} and {option('output', 'NEW')}"
        raise ConfigError(f"{both} go together", code=code, hint="give both or neither")
    if corrections is not None and not fix:
        message = f"{option('corrections', ...)} is for {option('fix')}"
        raise ConfigError(message, code="option-invalid", hint=f"give {option('fix')} too")
    config = load_recipe(dataset, changes)
    opened, fixes = Dataset.open(config.dataset, fold=config.fold), None
    if output is not None:
        from dsocr.data.fix import fix_dataset

        table = None if corrections is None else Path(corrections)
        with progress_bar(progress, "copying", "samples") as copied:
            fixes = fix_dataset(
                opened, Path(output), corrections=table, encoding=encoding, overwrite=overwrite, progress=copied
            )
        opened = opened if fixes.dataset is None else Dataset.open(Path(output), fold=opened.fold)
    # Slow, and not needed to say that there is no dataset.
    from dsocr.data.check import check_dataset
    from dsocr.data.check.leaks import report_leaks, to_markdown
    from dsocr.models.loading import load_processor
    from dsocr.training.preview import text_limit

    processor = load_processor(config.base, config.input.resolution, config.input.prompt, config.base_revision)
    limit = text_limit(processor, config)
    with progress_bar(progress, "checking", "samples") as done:
        findings = check_dataset(opened, processor, max_text_tokens=limit, workers=workers, progress=done)
    splits = report_leaks(opened)
    if html is not None:
        findings.to_html(Path(html), source=None if source is None else Path(source))
    if csv is not None:
        findings.to_csv(Path(csv))
    if markdown is not None:
        Path(markdown).write_text(to_markdown(splits), encoding="utf-8", newline="\n")
    return CheckReport(opened, findings, splits, fixes)


def print_finding(printer: Printer, finding: "Finding") -> None:
    """Print a finding with its first places and what to do about it."""
    printer.result(str(finding))
    for line in finding.details():
        printer.message(f"    {line}")


def load_recipe(source: StrPath, changes: Changes | None) -> RunConfig:
    """Load a configuration, or the default one for a dataset folder, with changes."""
    path = Path(source)
    named = path if path.suffix in {".yaml", ".yml"} else {"dataset": path, "output": path}
    if isinstance(changes, Mapping):
        return load_config(named, changes=changes)
    return load_config(named, changes or ())


def preview(
    data: StrPath,
    *,
    output: Output = "preview.html",
    samples: Annotated[int, between(1, 200)] = 8,
    epochs: Annotated[int, between(1, 50)] = 4,
    changes: Changes | None = None,
    as_model: bool = False,
) -> RunConfig:
    """Show training samples with their augmentation; return the configuration that they are shown for.

    Args:
        data: Dataset folder, or a configuration that names one.
        output: Page to write, an .html file.
        samples: Number of training samples, evenly spread.
        epochs: Number of epochs to show each of them in.
        changes: Change a setting, as seed=3 or training.augmentation=light; repeatable.
        as_model: Show images as the model sees them, with their number of tokens.

    Raises:
        ConfigError: The configuration has problems.
        DataError: There is no dataset, or the page cannot be written.
    """
    from dsocr.data.contact_sheet import sheet_writer

    write = sheet_writer(Path(output))
    config = load_recipe(data, changes)
    from dsocr.job import resolve
    from dsocr.training.preview import preview as draw_rows

    job = resolve(config, overwrite=True)
    config = job.config
    assert job.base is not None, "a detector has no preview"
    processor = job.base.processor(config.input.resolution, config.input.prompt)
    rows = list(draw_rows(job, processor, samples=samples, epochs=epochs, as_model=as_model))
    how = f"augmentation {config.training.augmentation}, seed {config.seed}"
    how += f", as {config.base} sees it at {processor.resolution_name}" if as_model else ""
    write(f"{config.dataset.resolve().name}: {how}", rows)
    current_reporter().message(f"{len(rows)} samples in {epochs} epochs, {how}")
    return config
