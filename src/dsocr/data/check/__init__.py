"""Check a dataset for mistakes: in images, texts, pairs of both, and splits."""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from markupsafe import Markup

from dsocr.data.check import image_checks, split_checks, text_checks
from dsocr.data.check.findings import SEVERITIES, CheckedSample, Example, Finding, Problem, Severity
from dsocr.data.check.leaks import LeakReport, leak_tables, report_leaks
from dsocr.data.check.text_checks import find_invisible, printable
from dsocr.data.dataset import Dataset
from dsocr.document import Split
from dsocr.errors import typed
from dsocr.formats.tables import spreadsheet
from dsocr.html import Thumbnails, counted, render
from dsocr.io.work import explain_disk_errors, write_file
from dsocr.runs import to_json
from dsocr.text import is_blank

__all__ = ["Finding", "Findings", "check_dataset"]

_SAMPLE_CHECKS = (
    text_checks.check_letters,
    text_checks.check_habits,
    text_checks.check_repeats,
    image_checks.check_densities,
    image_checks.check_neighbours,
    image_checks.check_brightness,
    image_checks.check_sizes,
    image_checks.check_crops,
    split_checks.check_duplicates,
    split_checks.check_near_duplicates,
)
_DATASET_CHECKS = (split_checks.check_balance, split_checks.check_crossing, split_checks.check_hashes)


@dataclass
class Findings:
    """All findings of a check, errors first. `samples` holds every sample of the dataset as the checks saw it."""

    dataset: Dataset | None = None
    samples: list[CheckedSample] = field(default_factory=list, repr=False)
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

    @cached_property
    def splits(self) -> LeakReport | None:
        """The separation of the dataset's splits."""
        return report_leaks(self.dataset) if self.dataset else None

    def of(self, severity: Severity) -> list[Finding]:
        """The findings of one severity."""
        return [finding for finding in self if finding.severity == severity]

    def summary(self) -> str:
        """Whether anything prevents training, the places to look at, and the number of notes on the dataset."""
        errors, warnings, notes = map(self.of, SEVERITIES)
        places = {example.where for finding in (*errors, *warnings) for example in finding.examples}
        stops = f"{counted(len(errors), 'error')} to correct before training" if errors else "nothing prevents training"
        counts = [f"{counted(len(places), 'place')} to look at"] * bool(places)
        counts += [counted(len(notes), "note")] * bool(notes)
        return "; ".join(filter(None, (stops, ", ".join(counts)))) if self else "no findings"

    def __str__(self) -> str:
        lines = [line for finding in self for line in (str(finding), f"    fix: {finding.remedy}")]
        return "\n".join([*lines, self.summary()])

    def to_json(self, path: str | Path | None = None) -> str:
        """All findings with all their places as JSON; also written to `path` if given."""
        return _write(path, to_json([finding.to_dict() for finding in self]))

    def to_csv(self, path: str | Path | None = None) -> str:
        """A CSV table with a row for every place; also written to `path` if given."""
        places = ("place", "where", "source", "sample", "other", "detail")
        table: list[Sequence[object]] = [("code", "severity", *places, "message", "remedy")]
        for finding in self:
            for example in finding.examples:
                cells = *(getattr(example, name) for name in places), finding.message, finding.remedy
                table.append((finding.code, finding.severity, *cells))
        return _write(path, spreadsheet(table))

    def to_html(self, path: str | Path | None = None) -> str:
        """A page with the findings and their images, in one file; also written to `path` if given."""
        return _write(path, render_page(self))

    def _repr_html_(self) -> str:
        return render(__package__, "findings_table.html.jinja", findings=list(self), summary=self.summary())


def _write(path: str | Path | None, content: str) -> str:
    if path is not None:
        with explain_disk_errors(Path(path).parent, where=Path(path)):
            write_file(Path(path), content)
    return content


_THUMBNAIL = (800, 160)
MAX_BYTES = 12 * 2**20
"""Bytes of embedded images; later examples are listed without theirs."""
_FIRST = 10
"""Examples of a finding that are visible at once."""
_MAX_EXAMPLES = 1000
"""Examples of a finding on the page; JSON and CSV list all."""


def render_page(report: Findings) -> str:
    """Render findings with their examples and images, and how far apart the splits are, as one HTML page."""
    by_id, dataset, findings = {item.sample.id: item.sample for item in report.samples}, report.dataset, list(report)
    thumbnails = Thumbnails(_THUMBNAIL, MAX_BYTES)

    def illustrated(examples: Iterable[Example]) -> list[tuple[Example, list[tuple[Markup, str]]]]:
        """Pair examples with their images and the text below each."""
        pairs = ((example, (example.sample, example.other)) for example in examples)
        return [
            (example, [(thumbnails.of(by_id[id_].image), by_id[id_].text) for id_ in ids if id_ in by_id])
            for example, ids in pairs
        ]

    # The first examples of every finding before the rest of any, because room for images is limited.
    first = [illustrated(finding.examples[:_FIRST]) for finding in findings]
    rest = [illustrated(finding.examples[_FIRST:_MAX_EXAMPLES]) for finding in findings]
    return render(
        __package__,
        "findings.html.jinja",
        style="findings.css",
        script="findings.js",
        verdict=report.summary(),
        name=dataset.folder.resolve().name if dataset else "a dataset",
        scans=f"dsocr workbench {typed(dataset.card.source)}" if dataset else "",
        severities=SEVERITIES,
        tables=leak_tables(report.splits) if report.splits else [],
        all_splits=list(Split),
        findings=findings,
        examples=list(zip(findings, first, rest, strict=True)),
        # Several findings of one code differ by their message.
        anchor=lambda finding: f"{finding.code}-{hashlib.sha256(finding.message.encode()).hexdigest()[:6]}",
        marked=_marked,
    )


def _marked(text: str) -> Sequence[tuple[bool, str]]:
    """Split a text into characters, each with whether it is invisible; those are shown as their code point."""
    invisible = set(find_invisible(text))
    return [(sign in invisible, printable(sign) if sign in invisible else sign) for sign in text]


def check_dataset(
    dataset: Dataset,
    processor: Any = None,
    *,
    max_text_tokens: int | None = None,
    workers: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Findings:
    """Run every check on a dataset.

    With the `Processor` of a base, its tokenizer and resolution are checked too: characters it cannot write, texts of
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
    if dataset.card.unit != "layout":
        empty = (item for item in samples if is_blank(item.text))
        findings.extend(Problem("empty-text", "error", "Transcription is empty", item) for item in empty)
    if dataset.card.unit == "line":
        findings.extend(image_checks.check_lines(samples))
    if processor:
        findings.extend(text_checks.check_tokens(samples, processor.text_ids, max_text_tokens))
        findings.extend(image_checks.check_distortion(samples, processor.distortion))
        findings.extend(text_checks.check_unknown_characters(samples, processor.unknown_characters))
    for check_samples in _SAMPLE_CHECKS:
        findings.extend(check_samples(samples))
    for check_splits in _DATASET_CHECKS:
        findings.extend(check_splits(dataset, samples))
    return findings
