"""Two texts as one, in which is marked what the prediction left out and what it added."""

from itertools import groupby

from rapidfuzz.distance import Levenshtein

from dsocr.text import comparable


def marked_differences(reference: str, prediction: str) -> str:
    """The reference with `[-left out-]` and `{+added+}`, as wdiff marks them; what is the same stands plain.

    Texts are compared as the metrics compare them, so the marks are the errors that the CER counts.
    """
    reference, prediction = comparable(reference), comparable(prediction)
    parts = []
    for same, edits in groupby(Levenshtein.opcodes(reference, prediction), key=lambda edit: edit.tag == "equal"):
        stretch = list(edits)  # edits beside each other are marked as one
        old = reference[stretch[0].src_start : stretch[-1].src_end]
        new = prediction[stretch[0].dest_start : stretch[-1].dest_end]
        parts.append(old if same else (f"[-{old}-]" if old else "") + (f"{{+{new}+}}" if new else ""))
    return "".join(parts)
