"""Records of a check: a sample with its measurements, a problem with its place, and its remedy."""

from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple

from dsocr.document import Sample, describe_place

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
    "mojibake": "Prepare again with --text-policy mojibake=repair, or read the source in its original encoding.",
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
    "several-lines": "Prepare pages with --unit page, or find their lines with `dsocr align`; else correct the text.",
    "text-too-long": "Look at the pair: the image may be sideways, or the text belong to another image or to several.",
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
    "unusual-aspect": "Look at the image: if letters are cut off, correct the outline and prepare again.",
    "outline-off-baseline": "Prepare again: lines are then cropped by their baselines. Or correct the outlines first.",
    "near-duplicate-image": "Keep the better of the two; `dsocr check --fix -o NEW` drops the later one in train.",
    "near-image-crosses": "Keep one of the two: `dsocr check --fix -o NEW` drops it from train. Or give both one page.",
    "metadata-short": "Prepare again, or copy the rest with `dsocr check --fix -o NEW`.",
    "hash-differs": "Prepare again if the change was an accident; the counts in the card are outdated.",
}
"""Code of a finding -> its remedy."""


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
        """Whether the contrast is no more than the grain of empty paper."""
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
        """The sample's place in the archive if known, else in the dataset."""
        return self.sample.place if self.sample.source else self.where

    @property
    def text(self) -> str:
        """The sample's transcription."""
        return self.sample.text


class Problem(NamedTuple):
    """A problem of a sample, or of a file if `place` is a path; `other` is the sample it was compared with."""

    code: str
    severity: Severity
    message: str
    place: CheckedSample | str
    detail: str = ""
    other: CheckedSample | None = None

    @property
    def example(self) -> "Example":
        """The place without the sample, which stays in memory otherwise."""
        if isinstance(self.place, str):
            return Example(self.place, self.detail, split=self.place.partition("/")[0])
        sample, other = self.place.sample, self.other.sample.id if self.other else ""
        known = (describe_place(sample.source, sample.page), sample.source) if sample.source else ("", "")
        return Example(self.place.where, self.detail, sample.id, other, sample.split, *known)


@dataclass(frozen=True, slots=True)
class Example:
    """One place of a finding: file and line, details, and the ids of the sample and the one it was compared with.

    The ids are empty without a sample or a comparison. `place` and `source` are the place in the archive, for people
    and as `0008.xml:43`; empty if unknown.
    """

    where: str
    detail: str = ""
    sample: str = ""
    other: str = ""
    split: str = ""
    place: str = ""
    source: str = ""


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
        """The first place, in the archive and in the dataset."""
        first = self.examples[0]
        return f"{first.place} ({first.where})" if first.place else first.where

    @property
    def count(self) -> int:
        """Number of places."""
        return len(self.examples)

    @property
    def remedy(self) -> str:
        """The remedy."""
        return REMEDIES[self.code]

    @property
    def by_split(self) -> dict[str, int]:
        """Number of places in each split."""
        return dict(Counter(example.split for example in self.examples))

    def __str__(self) -> str:
        times = f" ({self.count} times)" if self.count > 1 else ""
        return f"{self.severity}: {self.place}: {self.message}{times} [{self.code}]"

    def to_dict(self) -> dict[str, Any]:
        """The finding as JSON types."""
        names = ("code", "severity", "message", "remedy", "where", "count", "by_split")
        return {name: getattr(self, name) for name in names} | {"examples": [asdict(each) for each in self.examples]}
