"""What was read as JSON lines: the text, how sure each word of it is, and what there is to look at.

Lines on pages also tell their page, region, box, polygon and baseline, in pixels of the upright image.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from dsocr.data.sources.layout import written
from dsocr.data.targets.filling import Step
from dsocr.inference.pages import ReadLine, ReadPage
from dsocr.inference.transcriber import Prediction
from dsocr.runs import writing_whole


def write_jsonl(pages: Iterable[ReadPage], path: Path, step: Step) -> None:
    """One object a line, pages and lines in order; lines with no text are there too."""
    with writing_whole(path) as file:
        for page in pages:
            for line in page.lines:
                file.write(json.dumps(_row(page, line), ensure_ascii=False) + "\n")


def row_of(prediction: Prediction, *, characters: bool = False) -> dict[str, Any]:
    """A prediction as JSON holds it; confidences are rounded to what they can tell.

    `characters` adds the confidence of each character.
    """
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


def _row(page: ReadPage, line: ReadLine) -> dict[str, Any]:
    row: dict[str, Any] = {"id": line.id, "text": line.text, **line.told}
    if line.was_there:
        row["was_there"] = True
    if line.outline is not None:
        row |= {
            "page": page.page.id,
            "region": line.region.id if line.region else None,
            "bbox": line.outline.box,
            "polygon": written(line.outline.polygon),
            "baseline": written(line.outline.baseline),
        }
    return row


def _rounded(confidence: float | None) -> float | None:
    return None if confidence is None else round(confidence, 4)
