"""The recipe of a calibration: the validation split read, a scale fitted for each confidence, and the test split asked.

Lines that the adapter was trained on are never used: it is surer of them than of any others. A dataset with a test
split only asks what is fitted already.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from dsocr.document import Sample, Split
from dsocr.errors import DataError
from dsocr.evaluation.calibration import CalibrationReport, Judged, fit_calibration, measured
from dsocr.evaluation.evaluate import dataset_of
from dsocr.evaluation.report.pages import render_calibration
from dsocr.images import open_image
from dsocr.inference.confidence import UNCALIBRATED, Calibration, ScoredText
from dsocr.models.checkpoint import require_readable_adapter
from dsocr.runs import RunFolder, to_json, write_atomically

if TYPE_CHECKING:
    from dsocr.inference.reader import Transcriber

Progress = Callable[[int, int], None]
"""Told after each line: how many are read, and how many there are, both splits together."""


def calibrate(
    run: RunFolder, *, dataset: Path | None = None, limit: int | None = None, progress: Progress | None = None
) -> CalibrationReport:
    """Fit a finished run's confidences on a validation split, save them beside its weights, and measure them on test.

    The dataset is the run's own unless another is given; `limit` reads the first so many samples of each split only.
    Without a validation split what the run keeps is measured as it is; a DataError where it keeps nothing, or where
    there is no test split either.
    """
    opened = dataset_of(run, dataset)
    fitted, asked = (opened.samples(split)[:limit] for split in (Split.VALIDATION, Split.TEST))
    kept = Calibration.load(run.adapter) if asked and not fitted else UNCALIBRATED
    if not fitted and not kept.lines:
        hint = "give a dataset that has one: --dataset"
        raise DataError("has no validation split to fit confidences on", where=opened.folder, hint=hint)
    require_readable_adapter(run.adapter)
    from dsocr.inference.reader import Transcriber

    transcriber = replace(Transcriber.of_run(run, merged=True), calibration=UNCALIBRATED)
    total = len(fitted) + len(asked)

    def read(samples: Sequence[Sample], before: int) -> list[Judged]:
        judged = []
        for done, line in enumerate(judged_lines(transcriber, samples), start=before + 1):
            judged.append(line)
            if progress is not None:
                progress(done, total)
        return judged

    known = read(fitted, 0)
    calibration = fit_calibration(known) if known else kept
    if known:
        calibration.save(run.adapter)
    unseen = read(asked, len(fitted))
    split = Split.TEST if unseen else Split.VALIDATION
    report = measured(calibration, opened.folder.resolve().name, split, unseen or known, fitted=bool(known))
    write_atomically(run.confidence, to_json(report.as_dict()))
    write_atomically(run.confidence_page, render_calibration(report, run.path.resolve().name))
    return report


def judged_lines(transcriber: "Transcriber", samples: Sequence[Sample]) -> Iterator[Judged]:
    """Each sample as it was read beside its transcription."""
    shown = ((sample.id, open_image(sample.image)) for sample in samples)
    for sample, prediction in zip(samples, transcriber.read(shown), strict=True):
        yield Judged.of(ScoredText(prediction.text, prediction.scores), sample.text)
