"""What a check hands back, what it is handed, and what can be done about each kind of finding."""

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt
from PIL import Image

from dsocr.document import Sample

_FEW = 0.001
"""The share of pixels that may be specks, so that they count as neither the darkest nor the lightest."""
_SIDE = 2048
"""Longer images are made smaller before they are looked at; letters stay."""
_HASH = (9, 8)
_SMALL = (64, 16)
_INK = 0.4
"""Ink differs from the paper by at least this share of what the strongest stroke differs by."""
_FAINTEST = 24


@dataclass(frozen=True, slots=True)
class Look:
    """How an image looks, in about a kilobyte.

    `darkest`, `middle` and `lightest` are grey levels (0-255), the outer two without specks; `black` and `white` are
    the shares of pixels at either end; `ink` is how many pixels wide the writing is, margins left out, at the image's
    own size; `hash` is its dHash (64 bit: where it grows lighter from left to right, on a grid of 8 x 8); `small`
    holds the greys of the image at 64 x 16 pixels.
    """

    darkest: int
    middle: int
    lightest: int
    black: float
    white: float
    ink: int
    hash: int
    small: bytes


def look_at(image: Image.Image) -> Look:
    """The look of an upright picture, RGB or L."""
    shrink = max(1, max(image.size) // _SIDE)
    grey = (image.reduce(shrink) if shrink > 1 else image).convert("L")
    counts = np.asarray(grey.histogram(), dtype=np.float64)
    shares = np.cumsum(counts) / counts.sum()
    darkest, middle, lightest = (int(level) for level in np.searchsorted(shares, (_FEW, 0.5, 1 - _FEW)))
    return Look(
        darkest,
        middle,
        lightest,
        black=float(shares[2]),
        white=float(1 - shares[252]),
        ink=min(image.width, shrink * _ink_width(grey, darkest, middle, lightest)),
        hash=_difference_hash(grey),
        small=grey.resize(_SMALL, Image.Resampling.BOX).tobytes(),
    )


def likeness(one: Look, other: Look) -> float:
    """The correlation of two images at 64 x 16 pixels: 1 for the same picture in any light, 0 for an even one."""
    return float(_standard(one) @ _standard(other))


def is_inverted(look: Look) -> bool:
    """Whether the writing is lighter than what it stands on."""
    return look.lightest - look.middle > 2 * (look.middle - look.darkest)


def _ink_width(grey: Image.Image, darkest: int, middle: int, lightest: int) -> int:
    """From the first column with ink to the last; the whole width where nothing differs from the paper."""
    values = np.asarray(grey)
    inverted = lightest - middle > middle - darkest
    least = max(_FAINTEST, _INK * max(lightest - middle, middle - darkest))
    inked = values.max(axis=0) > middle + least if inverted else values.min(axis=0) < middle - least
    columns = np.flatnonzero(inked)
    return int(columns[-1] - columns[0] + 1) if len(columns) else grey.width


def _difference_hash(grey: Image.Image) -> int:
    cells = np.asarray(grey.resize(_HASH, Image.Resampling.BOX), dtype=np.int16)
    return int.from_bytes(np.packbits(cells[:, 1:] > cells[:, :-1]).tobytes(), "big")


def _standard(look: Look) -> npt.NDArray[np.float32]:
    """The small image with mean 0 and length 1, so that a product of two is their correlation."""
    values = np.frombuffer(look.small, dtype=np.uint8).astype(np.float32)
    values -= values.mean()
    length = float(np.linalg.norm(values))
    return values / length if length else values


Severity = Literal["error", "warning", "note"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")
EXAMPLES = 10

FIXES = {
    "unreadable-image": "Copy or scan the image again, or drop its line from the source and prepare again.",
    "empty-text": "Transcribe the line, or drop it from the source and prepare again.",
    "long-text": "Cut the image into lines, or raise max_text_tokens.",
    "many-tokens": "Raise max_text_tokens and generation.max_new_tokens, or choose a base that knows the script.",
    "distorted-image": "Set the resolution to base, or to fold for lines.",
    "unknown-characters": "Replace the characters in the source, or choose a base that knows them.",
    "look-alikes": "Write the whole word in one script, as dsocr check --fix -o NEW does where that is certain.",
    "invisible-characters": "dsocr check --fix -o NEW deletes them, or writes plain spaces; or do so in the source.",
    "decomposed-characters": "dsocr check --fix -o NEW writes them as one; or prepare again with Unicode form NFC.",
    "mojibake": "Prepare again with --mojibake repair, or read the source in the encoding it was written in.",
    "old-spelling": "Nothing, if the scans are spelt so; ask of the base whether it knows the letters.",
    "seen-once": "Look whether it is a slip; if not, a model will hardly learn it from one place.",
    "unseen-in-train": "Add lines with it to training, or do not expect it to be read.",
    "rare-characters": "Add lines with them to training; a character is learnt from its many shapes.",
    "few-samples": "Give the test a larger share (--split), or say with every score how small it is.",
    "few-writers": "Give the test more hands, or say with every score whose it is.",
    "markup-in-text": "Keep them if they are to be read; if not, let prepare's text policy take them out.",
    "mixed-punctuation": "Write each in one way, or let the metric's profile fold them; the scans decide.",
    "text-repeats": "Look at both images: one of the two texts may have been copied there.",
    "all-same-text": "Look at the table: a column may have been filled down.",
    "mixed-yo": "Write ё or е as the scans do, or one of them everywhere, unless these are two words.",
    "text-too-long": "Look at the pair: the text may belong to another image, or to several lines.",
    "text-too-short": "Look at the pair: the text may belong to another image, or lack its end.",
    "neighbours-swapped": "Compare the two lines with their images, and exchange the texts in the source.",
    "lines-shifted": "Compare the lines with their images from here on; one text is missing or stands twice.",
    "pairs-disagree": "Compare the first lines with their images; one text too few shifts all that follow.",
    "writer-crosses": "Prepare with --writer, and with --split-by writer, if new hands are to be read.",
    "document-crosses": "Prepare with --document, so that whole documents go to a split.",
    "page-crosses": "Prepare with --page, so that whole pages go to a split.",
    "text-crosses": "Prepare with --split-by text or writer+text, if the same texts were written many times.",
    "no-writer": "Give --writer a pattern or column that tells every writer, and prepare again.",
    "duplicate-image": "Drop one of the two, as dsocr check --fix -o NEW does in train where the texts are the same.",
    "texts-disagree": "Look at the image, and keep the transcription that is right.",
    "image-crosses": "Drop one of the two from the source, and prepare again.",
    "blank-image": "Look at the image: drop it, or cut the line again.",
    "saturated-image": "Scan again with less light or more, before the thin strokes are lost.",
    "low-resolution": "Scan or cut it again with more pixels; enlarging adds nothing.",
    "inverted-image": "Invert it, or scan it as the others; a model learns the few odd ones badly.",
    "unusual-aspect": "Look at the image: cut it into its lines, or cut the whole line.",
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
    example is of no sample; `others` are those of the samples they were compared with, in the same way. `by_split`
    counts the findings in each split.
    """

    code: str
    severity: Severity
    message: str
    where: str
    count: int = 1
    examples: tuple[str, ...] = ()
    fix: str = ""
    samples: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    by_split: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Checked:
    """A sample with where it stands, and its image file's hash, its width and height, and what it looks like.

    They are None where it cannot be read. Its geometry is left out, for there are as many of these as samples.
    """

    where: str
    sample: Sample
    digest: str | None
    size: tuple[int, int] | None
    look: Look | None = None


_Place = tuple[str, str, str, str]
"""Where it is and what is said there, the sample's id, that of the sample it was compared with, and its split."""


@dataclass
class Findings:
    """Places collected by kind, each kind one finding in the end."""

    places: dict[tuple[str, Severity, str], list[_Place]] = field(default_factory=lambda: defaultdict(list))

    def add(
        self, code: str, severity: Severity, message: str, item: Checked, detail: str = "", other: Checked | None = None
    ) -> None:
        """One more sample of a kind.

        `detail` is what its example says beside the place, `other` the sample that it was compared with.
        """
        place = f"{item.where}: {detail}" if detail else item.where
        self.places[code, severity, message].append(
            (place, item.sample.id, other.sample.id if other else "", item.sample.split)
        )

    def add_place(self, code: str, severity: Severity, message: str, where: str) -> None:
        """One more place of a kind that is of no single sample."""
        self.places[code, severity, message].append((where, "", "", where.partition("/")[0]))

    def listed(self) -> list[Finding]:
        """Errors first, then warnings, then notes."""
        found = [_finding(*kind, places) for kind, places in self.places.items()]
        return sorted(found, key=lambda finding: SEVERITIES.index(finding.severity))


def _finding(code: str, severity: Severity, message: str, places: list[_Place]) -> Finding:
    examples, samples, others, _ = zip(*places[:EXAMPLES], strict=True)
    return Finding(
        code,
        severity,
        message,
        where=examples[0].partition(": ")[0],
        count=len(places),
        examples=examples,
        fix=FIXES[code],
        samples=samples,
        others=others,
        by_split=dict(Counter(split for *_, split in places)),
    )
