"""Predictions as plain text: a line each, the image's name and a tab before it."""

from collections.abc import Iterable
from pathlib import Path

from dsocr.inference.transcriber import Prediction
from dsocr.runs import writing_whole


def write_text(predictions: Iterable[Prediction], path: Path) -> int:
    """`name<TAB>text`, a line an image; line breaks inside a text become ` / `. Gives the number of predictions."""
    count = 0
    with writing_whole(path) as file:
        for prediction in predictions:
            file.write(f"{prediction.id}\t{prediction.text.replace(chr(10), ' / ')}\n")
            count += 1
    return count
