"""What a check hands back, what it is handed, and what can be done about each kind of finding."""

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Literal

from dsocr.data.checking.looks import Look
from dsocr.samples import Sample

Severity = Literal["error", "warning", "note"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")
EXAMPLES = 10

FIXES = {
    "unreadable-image": "Copy or scan the image again, or drop its line from the source and prepare again.",
    "empty-text": "Transcribe the line, or drop it from the source and prepare again.",
    "long-text": "Cut the image into lines, or raise max_text_tokens.",
    "distorted-image": "Set the resolution to base, or to fold for lines.",
    "unknown-characters": "Replace the characters in the source, or choose a base that knows them.",
    "look-alikes": "Write the whole word in one script; a model learns the wrong letter from it.",
    "invisible-characters": "Delete them from the source, or write plain spaces, and prepare again.",
    "mojibake": "Read the source in the encoding it was written in, and prepare again.",
    "old-spelling": "Nothing, if the scans are spelt so; ask of the base whether it knows the letters.",
    "seen-once": "Look whether it is a slip; if not, a model will hardly learn it from one place.",
    "mixed-yo": "Write ё or е as the scans do, or one of them everywhere, unless these are two words.",
    "text-too-long": "Look at the pair: the text may belong to another image, or to several lines.",
    "text-too-short": "Look at the pair: the text may belong to another image, or lack its end.",
    "pairs-disagree": "Compare the first lines with their images; one text too few shifts all that follow.",
    "writer-crosses": "Prepare with --writer, and with --split-by writer, if new hands are to be read.",
    "document-crosses": "Prepare with --document, so that whole documents go to a split.",
    "page-crosses": "Prepare with --page, so that whole pages go to a split.",
    "text-crosses": "Prepare with --split-by text, if the same texts were written many times.",
    "no-writer": "Give --writer a pattern or column that tells every writer, and prepare again.",
    "duplicate-image": "Drop one of the two from the source, and prepare again.",
    "image-crosses": "Drop one of the two from the source, and prepare again.",
    "blank-image": "Look at the image: drop it, or cut the line again.",
    "saturated-image": "Scan again with less light or more, before the thin strokes are lost.",
    "low-resolution": "Scan or cut it again with more pixels; enlarging adds nothing.",
    "turned-image": "Turn it upright in the source, or drop it, and prepare again.",
    "near-duplicate-image": "Keep the better of the two in the source, and prepare again.",
    "near-image-crosses": "Keep one of the two, or give both one --page or --writer, and prepare again.",
    "hash-differs": "Prepare again if the change was not meant; the counts in the card are old.",
}
"""Code -> one sentence that says what to do; no finding goes without."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One kind of mistake: how often it occurs, the first place, and more of them in `examples`.

    `fix` says what to do about it. `samples` are the ids of the samples in `examples`, in their order, empty where an
    example is of no sample.
    """

    code: str
    severity: Severity
    message: str
    where: str
    count: int = 1
    examples: tuple[str, ...] = ()
    fix: str = ""
    samples: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Checked:
    """A sample with where it stands, and its image file's hash, its width and height, and what it looks like.

    They are None where it cannot be read.
    """

    where: str
    sample: Sample
    digest: str | None
    size: tuple[int, int] | None
    look: Look | None = None


@dataclass
class Findings:
    """Places collected by kind, each kind one finding in the end."""

    places: dict[tuple[str, Severity, str], list[tuple[str, str]]] = field(default_factory=lambda: defaultdict(list))

    def add(self, code: str, severity: Severity, message: str, item: Checked, detail: str = "") -> None:
        """One more sample of a kind; `detail` is what its example says beside the place."""
        place = f"{item.where}: {detail}" if detail else item.where
        self.places[code, severity, message].append((place, item.sample.id))

    def add_place(self, code: str, severity: Severity, message: str, where: str) -> None:
        """One more place of a kind that is of no single sample."""
        self.places[code, severity, message].append((where, ""))

    def listed(self) -> list[Finding]:
        """Errors first, then warnings, then notes."""
        found = []
        for (code, severity, message), places in self.places.items():
            examples, samples = zip(*places[:EXAMPLES], strict=True)
            where = examples[0].partition(": ")[0]
            found.append(Finding(code, severity, message, where, len(places), examples, FIXES[code], samples))
        return sorted(found, key=lambda finding: SEVERITIES.index(finding.severity))
