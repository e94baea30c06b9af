"""What a check of a dataset sees of each sample, and what it finds: every kind of problem with all its places."""

import csv
import io
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from dsocr.data.dataset import Dataset
from dsocr.document import Sample, describe_place
from dsocr.formats.tables import escape_formula
from dsocr.io.work import explain_disk_errors, write_file

Severity = Literal["error", "warning", "note"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")

REMEDIES = {
    "unreadable-image": "Copy or scan the image again, or drop its line from the source and prepare again.",
    "empty-text": "Transcribe the line, or drop it from the source and prepare again.",
    "long-text": "Cut the image into lines, or raise max_text_tokens.",
    "many-tokens": "Raise max_text_tokens and generation.max_new_tokens, or choose a base that knows the script.",
    "distorted-image": "Set input.resolution to one that keeps letters' shape, for example wrap, or a larger one.",
    "unknown-characters": "Replace the characters in the source, or choose a base that knows them.",
    "look-alikes": "Write each word in one script; `dsocr check --fix -o NEW` does so where the script is certain.",
    "invisible-characters": "Remove them in the source; `dsocr check --fix -o NEW` deletes them or writes spaces.",
    "decomposed-characters": "Prepare again with Unicode form NFC; `dsocr check --fix -o NEW` composes them.",
    "mojibake": "Prepare again with --mojibake repair, or read the source in its original encoding.",
    "old-spelling": "Nothing if the scans are spelled like this; check that the base knows these letters.",
    "seen-once": "Check for a typo. If it is none, expect the model not to learn it from one example.",
    "unseen-in-train": "Add training lines that contain it, or do not expect it to be read.",
    "rare-characters": "Add training lines that contain them; a character is learned from its many shapes.",
    "few-samples": "Give the test split a larger share (--split), or report its size with every score.",
    "few-writers": "Put more writers into the test split, or report their number with every score.",
    "markup-in-text": "Keep the marks if the model should write them; otherwise let the text policy remove them.",
    "mixed-punctuation": "Use one sign for each, as the scans do, or let the metric profile fold them.",
    "text-repeats": "Look at both images: one of the two texts may be a copying mistake.",
    "all-same-text": "Look at the table: a column may have been filled down.",
    "mixed-yo": "Write ё or е as the scans do, or one of them everywhere, unless these are two different words.",
    "text-too-long": "Look at the pair: the text may belong to another image, or to several lines.",
    "text-too-short": "Look at the pair: the text may belong to another image, or its end may be missing.",
    "neighbours-swapped": "Compare both lines with their images, and swap the texts in the source.",
    "lines-shifted": "Compare the lines with their images from here on; a text is missing or appears twice.",
    "pairs-disagree": "Compare the first lines with their images; one missing text shifts all that follow.",
    "writer-crosses": "Prepare with --writer, and with --split-by writer to test on unseen writers.",
    "document-crosses": "Prepare with --document, so that each document goes to one split.",
    "page-crosses": "Prepare with --page, so that each page goes to one split.",
    "text-crosses": "Prepare with --split-by text or writer+text if the same texts were written many times.",
    "no-writer": "Give --writer a pattern or column that names every writer, and prepare again.",
    "duplicate-image": "Drop one of the two; `dsocr check --fix -o NEW` does so in train if the texts are equal.",
    "texts-disagree": "Look at the image, and keep the correct transcription.",
    "image-crosses": "Drop one of the two from the source, and prepare again.",
    "blank-image": "Look at the image: drop it, or cut the line again.",
    "saturated-image": "Scan again with a better exposure before thin strokes are lost.",
    "low-resolution": "Scan or cut it again with more pixels; enlarging adds nothing.",
    "inverted-image": "Invert it, or scan it like the others; a model learns a few odd ones badly.",
    "unusual-aspect": "Look at the image: split it into its lines, or cut the whole line.",
    "outline-off-baseline": "Prepare again: lines are then cropped by their baselines. Or correct the outlines first.",
    "turned-image": "Rotate it in the source, or drop it, and prepare again.",
    "near-duplicate-image": "Keep the better of the two; `dsocr check --fix -o NEW` drops the later one in train.",
    "near-image-crosses": "Keep one of the two: `dsocr check --fix -o NEW` drops it from train. Or give both one page.",
    "metadata-short": "Prepare again, or copy what is left with `dsocr check --fix -o NEW`.",
    "hash-differs": "Prepare again if the change was an accident; the counts in the card are outdated.",
}
"""Code of a finding -> what to do about it."""

_SHOWN = 4
"""Places of a finding that are printed."""


@dataclass(frozen=True, slots=True)
class ImageStats:
    """Statistics of an image in about a kilobyte.

    `darkest`, `median` and `lightest` are grey levels (0-255), specks ignored; `black` and `white` are the shares of
    pixels at either end. `ink_width` is the width of the writing in pixels without its margins, `dhash` a 64-bit
    difference hash, `thumbnail` the grey levels at 64 x 16 pixels.
    """

    darkest: int
    median: int
    lightest: int
    black: float
    white: float
    ink_width: int
    dhash: int
    thumbnail: bytes

    @property
    def is_blank(self) -> bool:
        """Whether there is nothing to read: less contrast than this is the grain of empty paper."""
        return self.lightest - self.darkest < 32

    @property
    def is_inverted(self) -> bool:
        """Whether the writing is lighter than its background."""
        return self.lightest - self.median > 2 * (self.median - self.darkest)


@dataclass(frozen=True, slots=True)
class CheckedSample:
    """A sample and its place (`split/metadata.jsonl:line`), with its image's SHA-256, (width, height) and statistics.

    The last three are None if the image cannot be read; `error` then says why. `is_off_baseline` compares the outline
    on the page with its baseline. The geometry itself is dropped, because all samples are held in memory at once.
    """

    where: str
    sample: Sample
    digest: str | None = None
    size: tuple[int, int] | None = None
    stats: ImageStats | None = None
    error: str | None = None
    is_off_baseline: bool = False

    @property
    def place(self) -> str:
        """Where the archive has it; where the dataset has it, if that is unknown."""
        return self.sample.place if self.sample.source else self.where

    @property
    def text(self) -> str:
        """The sample's transcription."""
        return self.sample.text


@dataclass(frozen=True, slots=True)
class Example:
    """One place of a finding: file and line, details, and the ids of the sample and the one it was compared with.

    The ids are empty if the place is not a sample, or if nothing was compared. `place` is where the archive has it, and
    `source` the same for programs, as `0008.xml:43`; empty if unknown.
    """

    where: str
    detail: str = ""
    sample: str = ""
    other: str = ""
    split: str = ""
    place: str = ""
    source: str = ""

    def __str__(self) -> str:
        return f"{self.both_places}: {self.detail}" if self.detail else self.both_places

    @property
    def both_places(self) -> str:
        """Where the archive has it, then where the dataset has it."""
        return f"{self.place} ({self.where})" if self.place else self.where


@dataclass(frozen=True, slots=True)
class Finding:
    """One kind of problem with all its places, in the order of the dataset."""

    code: str
    severity: Severity
    message: str
    examples: tuple[Example, ...]

    @property
    def where(self) -> str:
        """The first place, as `split/metadata.jsonl:line`."""
        return self.examples[0].where

    @property
    def place(self) -> str:
        """The first place, where the archive has it and then where the dataset has it."""
        return self.examples[0].both_places

    @property
    def count(self) -> int:
        """Number of places."""
        return len(self.examples)

    @property
    def remedy(self) -> str:
        """What to do about it."""
        return REMEDIES[self.code]

    @property
    def by_split(self) -> dict[str, int]:
        """Number of places in each split."""
        return dict(Counter(example.split for example in self.examples))

    def __str__(self) -> str:
        times = f" ({self.count} times)" if self.count > 1 else ""
        return f"{self.severity}: {self.place}: {self.message}{times} [{self.code}]"

    def details(self) -> list[str]:
        """The first places, if they say more than the finding itself, and the remedy, a line each."""
        examples = [str(example) for example in self.examples[:_SHOWN] if example.detail or self.count > 1]
        return [*examples, f"fix: {self.remedy}"]

    def to_dict(self) -> dict[str, Any]:
        """The finding as JSON types."""
        names = ("code", "severity", "message", "remedy", "where", "count", "by_split")
        return {name: getattr(self, name) for name in names} | {"examples": [asdict(each) for each in self.examples]}


@dataclass
class Findings:
    """All findings of a check, errors first. `samples` holds every sample of the dataset as the checks saw it."""

    dataset: Dataset | None = None
    samples: list[CheckedSample] = field(default_factory=list)
    _found: dict[tuple[str, Severity, str], list[Example]] = field(default_factory=dict, repr=False)

    def add(
        self,
        code: str,
        severity: Severity,
        message: str,
        place: CheckedSample | str,
        detail: str = "",
        other: CheckedSample | None = None,
    ) -> None:
        """Add a problem of a sample, or of a file if `place` is a path.

        `detail` is specific to the place, `other` the sample it was compared with.
        """
        if isinstance(place, str):
            example = Example(place, detail, split=place.partition("/")[0])
        else:
            other_id = other.sample.id if other else ""
            sample = place.sample
            known = (describe_place(sample.source, sample.page), sample.source or "") if sample.source else ("", "")
            example = Example(place.where, detail, sample.id, other_id, sample.split, *known)
        self._found.setdefault((code, severity, message), []).append(example)

    def __iter__(self) -> Iterator[Finding]:
        findings = [Finding(*kind, tuple(examples)) for kind, examples in self._found.items()]
        return iter(sorted(findings, key=lambda finding: SEVERITIES.index(finding.severity)))

    def __len__(self) -> int:
        return len(self._found)

    def of(self, severity: Severity) -> list[Finding]:
        """The findings of one severity."""
        return [finding for finding in self if finding.severity == severity]

    def summary(self) -> str:
        """The number of errors, warnings and notes."""
        if not self:
            return "no findings"
        totals = {severity: sum(finding.count for finding in self.of(severity)) for severity in SEVERITIES}
        return ", ".join(f"{total:,} {kind}" if total == 1 else f"{total:,} {kind}s" for kind, total in totals.items())

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
        columns = ["code", "severity", "place", "where", "source", "sample", "other", "detail", "message", "remedy"]
        writer.writerow(columns)
        for finding in self:
            for example in finding.examples:
                where = [example.place, example.where, example.source, example.sample, example.other, example.detail]
                cells = (*where, finding.message, finding.remedy)
                writer.writerow([finding.code, finding.severity, *(escape_formula(cell or "") for cell in cells)])
        return _write(path, table.getvalue())

    def to_html(self, path: str | Path | None = None, *, source: str | Path | None = None) -> str:
        """A page with the findings and their images, in one file; also written to `path` if given.

        `source` is what the dataset was prepared from, to show the page around a line as well.
        """
        from dsocr.data.check.findings_page import render_page

        return _write(path, render_page(self, None if source is None else Path(source)))

    def _repr_html_(self) -> str:
        from dsocr.html import render

        return render(__package__, "findings_table.html.jinja", findings=list(self), summary=self.summary())


def _write(path: str | Path | None, content: str) -> str:
    if path is not None:
        with explain_disk_errors(Path(path).parent, where=Path(path)):
            write_file(Path(path), content)
    return content
