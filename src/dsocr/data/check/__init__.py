"""Check a dataset for mistakes: in images, texts, pairs of both, and splits."""

import csv
import io
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from dsocr.data.check import image_checks, split_checks, text_checks
from dsocr.data.check.findings import SEVERITIES, CheckedSample, Example, Finding, Problem, Severity
from dsocr.data.dataset import Dataset
from dsocr.formats.tables import escape_formula
from dsocr.io.work import explain_disk_errors, write_file

__all__ = ["Finding", "Findings", "check_dataset"]

_SAMPLE_CHECKS = (
    text_checks.check_letters,
    text_checks.check_habits,
    text_checks.check_repeats,
    image_checks.check_densities,
    image_checks.check_neighbours,
    image_checks.check_brightness,
    image_checks.check_sizes,
    image_checks.check_line_heights,
    image_checks.check_outlines,
    split_checks.check_duplicates,
    split_checks.check_near_duplicates,
)
_DATASET_CHECKS = (split_checks.check_balance, split_checks.check_crossing, split_checks.check_hashes)


class _Processor(Protocol):
    def unknown_characters(self, text: str) -> str: ...

    def text_ids(self, text: str) -> Sequence[int]: ...

    def distortion(self, width: int, height: int) -> float: ...


@dataclass
class Findings:
    """All findings of a check, errors first. `samples` holds every sample of the dataset as the checks saw it."""

    dataset: Dataset | None = None
    samples: list[CheckedSample] = field(default_factory=list)
    _examples: dict[tuple[str, Severity, str], list[Example]] = field(default_factory=dict, repr=False)

    def extend(self, problems: Iterable[Problem]) -> None:
        """Add problems."""
        for problem in problems:
            self._examples.setdefault(problem[:3], []).append(problem.example)

    def __iter__(self) -> Iterator[Finding]:
        findings = [Finding(*kind, tuple(examples)) for kind, examples in self._examples.items()]
        return iter(sorted(findings, key=lambda finding: SEVERITIES.index(finding.severity)))

    def __len__(self) -> int:
        return len(self._examples)

    def of(self, severity: Severity) -> list[Finding]:
        """The findings of one severity."""
        return [finding for finding in self if finding.severity == severity]

    def summary(self) -> str:
        """The number of errors, warnings and notes."""
        totals = {severity: sum(finding.count for finding in self.of(severity)) for severity in SEVERITIES}
        counts = ", ".join(f"{total:,} {kind}{'s' * (total != 1)}" for kind, total in totals.items())
        return counts if self else "no findings"

    def __str__(self) -> str:
        lines = [line for finding in self for line in (str(finding), *(f"    {text}" for text in finding.details()))]
        return "\n".join([*lines, self.summary()])

    def to_json(self, path: str | Path | None = None) -> str:
        """All findings with all their places as JSON; also written to `path` if given."""
        content = json.dumps([finding.to_dict() for finding in self], ensure_ascii=False, indent=2)
        return _write(path, content + "\n") if path else content

    def to_csv(self, path: str | Path | None = None) -> str:
        """A CSV table with a row for every place; also written to `path` if given."""
        table = io.StringIO()
        writer = csv.writer(table, lineterminator="\n")
        places = ("place", "where", "source", "sample", "other", "detail")
        writer.writerow(["code", "severity", *places, "message", "remedy"])
        for finding in self:
            for example in finding.examples:
                cells = *(getattr(example, name) for name in places), finding.message, finding.remedy
                writer.writerow([finding.code, finding.severity, *map(escape_formula, cells)])
        return _write(path, table.getvalue())

    def to_html(self, path: str | Path | None = None) -> str:
        """A page with the findings and their images, in one file; also written to `path` if given."""
        from dsocr.data.check.findings_page import render_page

        return _write(path, render_page(list(self), self.samples, self.dataset))

    def _repr_html_(self) -> str:
        from dsocr.html import render

        return render(__package__, "findings_table.html.jinja", findings=list(self), summary=self.summary())


def _write(path: str | Path | None, content: str) -> str:
    if path is not None:
        with explain_disk_errors(Path(path).parent, where=Path(path)):
            write_file(Path(path), content)
    return content


def check_dataset(
    dataset: Dataset,
    processor: _Processor | None = None,
    *,
    max_text_tokens: int | None = None,
    workers: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Findings:
    """Run every check on a dataset.

    With the `processor` of a base, its tokenizer and resolution are checked too: characters it cannot write, texts of
    more than `max_text_tokens` tokens, and images whose letters it sees too tall or too wide. `workers` is the number
    of processes that measure images: 1 stays in this one, None starts one per core if the dataset is worth it.
    `progress` gets the samples done and the total.
    """
    findings = Findings(dataset)
    samples = findings.samples
    total = sum(part.samples for part in dataset.card.splits.values())
    for item in image_checks.read_samples(dataset, workers):
        samples.append(item)
        if progress:
            progress(len(samples), max(total, len(samples)))
    findings.extend(image_checks.check_readable(samples))
    if dataset.card.unit != "layout":
        findings.extend(text_checks.check_empty(samples))
    if processor:
        findings.extend(text_checks.check_tokens(samples, processor.text_ids, max_text_tokens))
        findings.extend(image_checks.check_distortion(samples, processor.distortion))
        findings.extend(text_checks.check_unknown_characters(samples, processor.unknown_characters))
    for check_samples in _SAMPLE_CHECKS:
        findings.extend(check_samples(samples))
    for check_splits in _DATASET_CHECKS:
        findings.extend(check_splits(dataset, samples))
    return findings
