"""Read lines of a dataset with a run or a base, and compare readings page by page."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import dsocr
from dsocr.data.splits import page_key
from dsocr.document import Sample
from dsocr.evaluation.metrics import character_errors
from dsocr.images import open_image
from runner import bootstrap


def count_errors(run: str | Path, samples: Sequence[Sample]) -> list[tuple[str, int, int]]:
    """Read lines with a run or a base; return the page, the character errors and the length of each."""
    predictions = dsocr.load(run).read([open_image(sample.image) for sample in samples])
    rows = []
    for sample, prediction in zip(samples, predictions, strict=True):
        rate = character_errors(sample.text, prediction.text)
        rows.append((page_key(sample.document, sample.page) or sample.id, rate.errors, rate.length))
    return rows


def cer_of(rows: Sequence[tuple[str, int, int]]) -> float:
    """Return the CER of counted lines in percent."""
    return 100 * sum(errors for _, errors, _ in rows) / sum(length for *_, length in rows)


def by_page(rows: Sequence[tuple[str, int, int]]) -> NDArray[np.int64]:
    """Return errors and lengths `(pages, 2)`."""
    pages: dict[str, NDArray[np.int64]] = {}
    for page, errors, length in rows:
        pages.setdefault(page, np.zeros(2, np.int64))[:] += errors, length
    return np.array([pages[page] for page in sorted(pages)])


def reduction(before: NDArray[np.int64], after: NDArray[np.int64]) -> str:
    """Return the relative reduction of errors in percent with its interval; pages are drawn with both readings."""

    def relative(drawn: NDArray[np.intp]) -> float:
        return 100 * (1 - float(after[drawn, 0].sum()) / max(1, int(before[drawn, 0].sum())))

    low, high = bootstrap(len(before), relative)
    return f"{relative(np.arange(len(before))):.1f} ({low:.1f} to {high:.1f})"
