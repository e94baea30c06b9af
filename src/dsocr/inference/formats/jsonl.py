"""Predictions as JSON lines: the text, how sure each word of it is, and what there is to look at."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from dsocr.inference.transcriber import Prediction
from dsocr.runs import writing_whole


def write_jsonl(predictions: Iterable[Prediction], path: Path, *, characters: bool = False) -> int:
    """One JSON object a line, in the order of the predictions; gives their number.

    `characters` adds the confidence of each character.
    """
    count = 0
    with writing_whole(path) as file:
        for prediction in predictions:
            file.write(json.dumps(row_of(prediction, characters=characters), ensure_ascii=False) + "\n")
            count += 1
    return count


def row_of(prediction: Prediction, *, characters: bool = False) -> dict[str, Any]:
    """A prediction as JSON holds it; confidences are rounded to what they can tell."""
    row: dict[str, Any] = {
        "id": prediction.id,
        "text": prediction.text,
        "confidence": _rounded(prediction.confidence),
        "flags": list(prediction.flags),
        "words": [
            {"text": word.text, "start": word.start, "end": word.end, "confidence": _rounded(word.confidence)}
            for word in prediction.words
        ],
        "tokens": prediction.tokens,
        "truncated": prediction.truncated,
        "read_again": prediction.read_again,
    }
    if characters:
        row["characters"] = list(map(_rounded, prediction.characters))
    return row


def _rounded(confidence: float | None) -> float | None:
    return None if confidence is None else round(confidence, 4)
