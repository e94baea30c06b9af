"""What to look at first: lines in the order of doubt, with their doubtful words marked.

A line that is flagged comes before all others; among alike ones, the one of which least is likely to be right.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dsocr.inference.foretelling import Checked, foretold_curve
from dsocr.runs import writing_whole

DOUBTFUL = 0.5
"""A word is marked that is likelier wrong than right."""
_GRAVE = ("empty", "looping", "truncated", "overruled", "other_resolution", "tried_again")
"""Flags, the gravest first."""
_OPEN, _CLOSE = "⟦", "⟧"


def write_review(rows: Iterable[Mapping[str, Any]], path: Path) -> list[Checked]:
    """`confidence<TAB>flags<TAB>id<TAB>text`, the most doubtful first, doubtful words in ⟦⟧.

    Gives what the confidences foretell that checking them in this order brings.
    """
    # Only what is written is held, and how long it is: the rows of many pages would not fit into memory.
    ordered = sorted(
        ((_sureness(row), _listed(row), (row.get("confidence"), len(row["text"]))) for row in rows),
        key=lambda kept: kept[0],
    )
    with writing_whole(path) as file:
        file.writelines(listed for _, listed, _ in ordered)
    return foretold_curve(told for _, _, told in ordered)


def _listed(row: Mapping[str, Any]) -> str:
    confidence = "" if row.get("confidence") is None else f"{row['confidence']:.3f}"
    text = marked(str(row["text"]), row.get("words", ())).replace("\n", " / ")
    return f"{confidence}\t{','.join(row.get('flags', ()))}\t{row['id']}\t{text}\n"


def marked(text: str, words: Sequence[Mapping[str, Any]]) -> str:
    """The text with its doubtful words in ⟦⟧."""
    pieces, end = [], 0
    for word in words:
        if word["confidence"] < DOUBTFUL:
            pieces += [text[end : word["start"]], _OPEN, text[word["start"] : word["end"]], _CLOSE]
            end = word["end"]
    return "".join([*pieces, text[end:]])


def _sureness(row: Mapping[str, Any]) -> tuple[int, float]:
    flags = row.get("flags", ())
    gravest = min((_GRAVE.index(flag) for flag in flags if flag in _GRAVE), default=len(_GRAVE))
    confidence = row.get("confidence")
    return gravest, 0.0 if confidence is None else float(confidence)
