"""Predictions as JSON lines: `id`, `text`, `tokens`, `truncated`, `read_again`."""

import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

from dsocr.inference.transcriber import Prediction
from dsocr.runs import writing_whole


def write_jsonl(predictions: Iterable[Prediction], path: Path) -> int:
    """One JSON object a line, in the order of the predictions; gives their number."""
    count = 0
    with writing_whole(path) as file:
        for prediction in predictions:
            file.write(json.dumps(asdict(prediction), ensure_ascii=False) + "\n")
            count += 1
    return count
