"""What is wrong or doubtful in a dataset folder, as findings: unreadable images, bad texts, leaks between splits.

Knows no model: what a tokenizer cannot write and how long a text becomes is asked of functions that are handed in.
"""

import hashlib
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from dsocr.data.card import split_hash
from dsocr.data.dataset import Dataset
from dsocr.data.images import decode_image, read_bytes
from dsocr.data.prepare import Progress
from dsocr.data.splits import crossing
from dsocr.errors import DataError
from dsocr.samples import Sample, Split
from dsocr.text import comparable, is_blank

Severity = Literal["error", "warning", "note"]
EXAMPLES = 10
MOST_DISTORTION = 1.5
"""Letters this many times taller or wider than they are on paper are no longer what a model has learnt to read."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One kind of mistake: how often it occurs, the first place, and more of them in `examples`."""

    code: str
    severity: Severity
    message: str
    where: str
    count: int = 1
    examples: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Checked:
    """A sample with where it stands, its image file's hash and its width and height; None where it cannot be read."""

    where: str
    sample: Sample
    digest: str | None
    size: tuple[int, int] | None


@dataclass
class _Findings:
    """Places collected by kind, each kind one finding in the end."""

    places: dict[tuple[str, Severity, str], list[str]] = field(default_factory=lambda: defaultdict(list))

    def add(self, code: str, severity: Severity, message: str, where: str) -> None:
        self.places[code, severity, message].append(where)

    def listed(self) -> list[Finding]:
        """Errors first, then warnings, then notes."""
        order = ("error", "warning", "note")
        found = [
            Finding(code, severity, message, places[0].partition(": ")[0], len(places), tuple(places[:EXAMPLES]))
            for (code, severity, message), places in self.places.items()
        ]
        return sorted(found, key=lambda finding: order.index(finding.severity))


def check_dataset(
    dataset: Dataset,
    *,
    unknown_characters: Callable[[str], str] | None = None,
    count_tokens: Callable[[str], int] | None = None,
    max_text_tokens: int | None = None,
    distortion: Callable[[int, int], float] | None = None,
    progress: Progress | None = None,
) -> list[Finding]:
    """All findings about a dataset, errors first; none means that nothing doubtful was found.

    `unknown_characters` gives the characters of a text that the base's tokenizer cannot write; `count_tokens` a text's
    length in tokens, which `max_text_tokens` limits; `distortion` how much taller than true the letters of an image of
    some width and height are shown to the model.
    """
    findings = _Findings()
    checked = list(_read_all(dataset, findings, progress))
    _check_texts(checked, findings)
    if count_tokens and max_text_tokens is not None:
        _check_lengths(checked, findings, count_tokens, max_text_tokens)
    if distortion:
        _check_shapes(checked, findings, distortion)
    if unknown_characters:
        _check_characters(checked, findings, unknown_characters)
    _check_crossing(dataset, checked, findings)
    _check_duplicates(checked, findings)
    _check_hashes(dataset, checked, findings)
    return findings.listed()


def _read_all(dataset: Dataset, findings: _Findings, progress: Progress | None) -> Iterator[_Checked]:
    """Every sample with its image decoded once, and a finding where that fails."""
    numbered = [pair for split in Split for pair in dataset.numbered(split)]
    for done, (where, sample) in enumerate(numbered, start=1):
        digest = size = None
        try:
            data = read_bytes(sample.image)
            digest = hashlib.sha256(data).hexdigest()
            size = decode_image(data, name=sample.image).image.size
        except DataError as error:
            place = f"{where}: {sample.id}: {error.message}"
            findings.add("unreadable-image", "error", "the image cannot be read", place)
        yield _Checked(where, sample, digest, size)
        if progress:
            progress(done, len(numbered))


def _check_texts(checked: list[_Checked], findings: _Findings) -> None:
    for item in checked:
        if is_blank(item.sample.text):
            findings.add("empty-text", "error", "the transcription is empty", item.where)


def _check_lengths(
    checked: list[_Checked], findings: _Findings, count_tokens: Callable[[str], int], limit: int
) -> None:
    message = f"the transcription is longer than the {limit} tokens there is room for"
    for item in checked:
        tokens = count_tokens(item.sample.text)
        if tokens > limit:
            findings.add("long-text", "error", message, f"{item.where}: {tokens} tokens")


def _check_shapes(checked: list[_Checked], findings: _Findings, distortion: Callable[[int, int], float]) -> None:
    factors = [(item, distortion(*item.size)) for item in checked if item.size is not None]
    told = [(item, factor) for item, factor in factors if not 1 / MOST_DISTORTION <= factor <= MOST_DISTORTION]
    if not told:
        return
    typical = statistics.median(factor for _, factor in told)
    shown = f"{typical:.1f} times too tall" if typical > 1 else f"{1 / typical:.1f} times too wide"
    message = f"at this resolution letters are shown out of shape, here typically {shown}; the resolution base keeps it"
    for item, factor in told:
        width, height = item.size or (0, 0)
        place = f"{item.where}: {width} x {height} pixels, height is stretched {factor:.2f} times as much as width"
        findings.add("distorted-image", "warning", message, place)


def _check_characters(checked: list[_Checked], findings: _Findings, unknown_characters: Callable[[str], str]) -> None:
    unknown = {item.where: unknown_characters(item.sample.text) for item in checked}
    counts = Counter("".join(unknown.values()))
    told = ", ".join(f"{_shown(character)} {count}x" for character, count in counts.most_common(20))
    for where, characters in unknown.items():
        if characters:
            message = f"{len(counts)} characters that the base does not know: {told}"
            findings.add("unknown-characters", "warning", message, f"{where}: {''.join(dict.fromkeys(characters))}")


def _shown(character: str) -> str:
    return character if character.isprintable() and not character.isspace() else f"U+{ord(character):04X}"


def _check_crossing(dataset: Dataset, checked: list[_Checked], findings: _Findings) -> None:
    """Writers, pages and texts in more than one split: an error where the card promises otherwise."""
    kinds: dict[str, Callable[[Sample], str | None]] = {
        "writer": lambda sample: sample.writer,
        "page": lambda sample: sample.page,
        "text": lambda sample: comparable(sample.text),
    }
    split_by = dataset.card.split_by
    for kind, value_of in kinds.items():
        severity: Severity = "error" if kind == split_by else _unpromised(kind, split_by)
        promise = f", although the dataset is split by {kind}" if kind == split_by else ""
        message = f"a {kind} stands in more than one split{promise}"
        crossed = crossing((value_of(item.sample), item.sample.split) for item in checked)
        first = {value_of(item.sample): item.where for item in reversed(checked)}
        for value, splits in crossed.items():
            findings.add(f"{kind}-crosses", severity, message, f"{first[value]}: {value!r} in {' and '.join(splits)}")
    if split_by == "writer":
        for item in checked:
            if item.sample.writer is None:
                message = "the writer is not known, so the split by writer promises nothing for it"
                findings.add("no-writer", "warning", message, item.where)


def _unpromised(kind: str, split_by: str) -> Severity:
    """A page in two splits leaks even where pages were not the unit, unless the user chose texts."""
    return "warning" if kind == "page" and split_by in {"writer", "given"} else "note"


def _check_duplicates(checked: list[_Checked], findings: _Findings) -> None:
    seen: dict[str, _Checked] = {}
    for item in checked:
        if item.digest is None:
            continue
        first = seen.setdefault(item.digest, item)
        if first is item:
            continue
        place = f"{item.where}: same as {first.where}"
        if first.sample.split == item.sample.split:
            findings.add("duplicate-image", "warning", "an image stands twice in a split", place)
        else:
            findings.add("image-crosses", "error", "the same image stands in more than one split", place)


def _check_hashes(dataset: Dataset, checked: list[_Checked], findings: _Findings) -> None:
    """Whether the files are those that the card was written for."""
    message = "the files have changed since the card was written"
    for split in Split:
        card = dataset.card.splits.get(split)
        where = f"{split}/metadata.jsonl"
        digests = [item.digest for item in checked if item.sample.split == split]
        if card is None:
            if digests:
                findings.add("hash-differs", "warning", "the card does not tell of this split", where)
            continue
        known = [digest for digest in digests if digest]
        metadata = dataset.metadata(split).read_bytes()
        if len(known) < len(digests) or split_hash(metadata, known) != card.sha256:
            findings.add("hash-differs", "warning", message, where)
