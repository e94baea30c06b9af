"""Predictions as JSON lines: the text, how sure each word of it is, and what there is to look at."""

import json
from collections.abc import Iterable
from pathlib import Path

from dsocr.inference.transcriber import Prediction
from dsocr.runs import writing_whole


def write_jsonl(predictions: Iterable[Prediction], path: Path, *, characters: bool = False) -> int:
    """One JSON object a line, in the order of the predictions; gives their number.

    `characters` adds the confidence of each character.
    """
    count = 0
    with writing_whole(path) as file:
        for prediction in predictions:
            file.write(json.dumps(prediction.as_dict(characters=characters), ensure_ascii=False) + "\n")
            count += 1
    return count
