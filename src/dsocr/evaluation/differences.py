"""Two texts as one, in which is marked what the prediction left out and what it added."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

from rapidfuzz.distance import Levenshtein

from dsocr.text import comparable


@dataclass(frozen=True, slots=True)
class Stretch:
    """A stretch of a line: what stands there, and what was read instead; equal where it was read rightly."""

    written: str
    read: str

    @property
    def right(self) -> bool:
        """True where it was read as it is written."""
        return self.written == self.read


def stretches(reference: str, prediction: str) -> Iterator[Stretch]:
    """The line cut where right and wrong reading meet; edits beside each other are one stretch.

    Texts are compared as the metrics compare them, so the wrong stretches hold the errors that the CER counts.
    """
    reference, prediction = comparable(reference), comparable(prediction)
    for _, edits in groupby(Levenshtein.opcodes(reference, prediction), key=lambda edit: edit.tag == "equal"):
        run = list(edits)
        yield Stretch(reference[run[0].src_start : run[-1].src_end], prediction[run[0].dest_start : run[-1].dest_end])


def marked_differences(reference: str, prediction: str) -> str:
    """The reference with `[-left out-]` and `{+added+}`, as wdiff marks them; what is the same stands plain."""
    return "".join(map(_marked, stretches(reference, prediction)))


def _marked(stretch: Stretch) -> str:
    if stretch.right:
        return stretch.written
    left_out = f"[-{stretch.written}-]" if stretch.written else ""
    return left_out + (f"{{+{stretch.read}+}}" if stretch.read else "")
