"""Fit the confidences of the embedded base `small` on lines that its training never saw.

    python tools/calibrate_small.py --cache CACHE [--base BASE] [--most 60]

CACHE is that of `pretrain_small.py`: of every source the lines of held-out documents, drawn hands never shown among
them. They are read as `dsocr transcribe` reads pages, twenty lines a page, and `calibration.json` is written into the
base's folder. Run it after each change of weights or of the language model.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from dsocr.document import Split
from dsocr.evaluation.calibration import CalibrationReport, JudgedLine, fit_calibration
from dsocr.inference.reader import LocalReader
from dsocr.models.ctc import LineInput
from dsocr.runs import SHIPPED_BASES, RunFolder
from small_lines import Source, open_cache

PAGE = 20


def read_held_out(reader: LocalReader, source: Source, most: int) -> Iterator[JudgedLine]:
    """Read at most so many held-out lines of a source, spread over all of them in runs of a page."""
    held_out = np.flatnonzero(source.validates)
    pages = [held_out[start : start + PAGE] for start in range(0, len(held_out), PAGE)]
    processor: Any = reader.processor  # a `LineProcessor`
    for number in np.linspace(0, len(pages) - 1, min(len(pages), most // PAGE)).round().astype(int):
        lines = [
            LineInput(processor.canvas, np.repeat(source.line(place)[:, :, None], 3, 2)) for place in pages[number]
        ]
        (read,) = processor.family.decode_pages(reader.network, processor, [lines], reader.generation, reader.otherwise)
        for place, decoded in zip(pages[number], read, strict=True):
            text = reader.text_policy.apply(decoded.text)
            yield JudgedLine.compute(decoded.scored.rewrite(text), source.texts[place])


def main() -> None:
    """Fit, save, and print how well each source is served by a fit on the others."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--base", type=Path, default=SHIPPED_BASES / "small")
    parser.add_argument("--most", type=int, default=60, help="lines of each source")
    arguments = parser.parse_args()
    reader = LocalReader.of_run(RunFolder(arguments.base))
    judged = {
        source.name: list(read_held_out(reader, source, arguments.most))
        for source in open_cache(arguments.cache)
        if source.validates.any()
    }
    for name, lines in judged.items():
        others = [line for other, read in judged.items() if other != name for line in read]
        report = CalibrationReport.compute(fit_calibration(others), lines, dataset=name, split=Split.TEST)
        print(f"{name}: {len(lines)} lines, CER {report.cer:.1%}, ECE of words {report.kinds['word'].after:.3f}")
    fit_calibration([line for read in judged.values() for line in read]).save(arguments.base)


if __name__ == "__main__":
    main()
