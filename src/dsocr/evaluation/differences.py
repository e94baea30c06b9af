"""Two texts as one, in which is marked what the prediction left out and what it added."""

from rapidfuzz.distance import Levenshtein

from dsocr.text import comparable


def marked_differences(reference: str, prediction: str) -> str:
    """The reference with `[-left out-]` and `{+added+}`, as wdiff marks them; what is the same stands plain.

    Texts are compared as the metrics compare them, so the marks are the errors that the CER counts.
    """
    reference, prediction = comparable(reference), comparable(prediction)
    parts = []
    for edit in Levenshtein.opcodes(reference, prediction):
        old, new = reference[edit.src_start : edit.src_end], prediction[edit.dest_start : edit.dest_end]
        if edit.tag == "equal":
            parts.append(old)
            continue
        parts.append((f"[-{old}-]" if old else "") + (f"{{+{new}+}}" if new else ""))
    return "".join(parts)
