"""What a report of a run is made of, read from its folder and its dataset."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dsocr.document import Split
from dsocr.errors import DsocrError, RunError
from dsocr.evaluation.evaluate import scored_dataset
from dsocr.evaluation.report.asides import Aside, read_asides
from dsocr.evaluation.report.choosing import Chapter, ReadLine, chapters_of, read_lines
from dsocr.evaluation.report.lines import Images
from dsocr.evaluation.scorecard import Scorecard
from dsocr.evaluation.scores import LineScore, load_lines
from dsocr.history import History, read_history
from dsocr.runs import RunFolder


@dataclass(frozen=True, slots=True)
class Material:
    """The card of a run, the lines behind it by reading, the chapters in which some are shown, and their images.

    `warnings` are sentences on what a reader should know of them, such as why pictures are missing. `history` is None
    where no curves were written down, `provenance` empty where nothing is known.
    """

    run: RunFolder
    card: Scorecard
    readings: Mapping[str, Sequence[LineScore]]
    lines: Sequence[ReadLine]
    chapters: Sequence[Chapter]
    images: Images
    warnings: Sequence[str] = ()
    history: History | None = None
    provenance: Mapping[str, Any] | None = None
    asides: Sequence[Aside] = ()


def gather(run: RunFolder, dataset: Path | None = None) -> Material:
    """The material of an evaluated run; pictures come from the dataset that was scored, or from the one that is given.

    Raises RunError where the run was not evaluated. A dataset that is gone or was changed costs pictures only.
    """
    card, readings = Scorecard.load(run.scorecard), load_lines(run.lines)
    scored = [model for model, score in (("base", card.base), ("adapter", card.adapter)) if score is not None]
    if list(readings) != scored:
        message = f"holds lines of {' and '.join(readings)}, and the scorecard is of {' and '.join(scored)}"
        raise RunError(message, where=run.lines, hint="run `dsocr evaluate` again")
    sizes = {len(lines) for lines in readings.values()}
    if len(sizes) > 1:
        raise RunError("base and adapter have not the same lines", where=run.lines, hint="run `dsocr evaluate` again")
    lines = read_lines(readings)
    chapters = chapters_of(lines, list(readings))
    shown = {line.last.id: line.last.reference for chapter in chapters for line in chapter.lines}
    images, warnings = _images(run, dataset, card, shown)
    asides, told = read_asides(run, card)
    warnings += told
    return Material(run, card, readings, lines, chapters, images, warnings, _history(run), _provenance(run), asides)


def _images(
    run: RunFolder, folder: Path | None, card: Scorecard, references: Mapping[str, str]
) -> tuple[Images, list[str]]:
    """The images of the lines with these references, by id, and what is to be told of them."""
    try:
        dataset = scored_dataset(run, card, folder)
        samples = dataset.samples(Split(card.split), references.keys())
    except (DsocrError, ValueError) as error:
        return {}, [f"There are no pictures, because the dataset cannot be read: {error}."]
    images = {sample.id: sample.image for sample in samples if sample.text == references[sample.id]}
    part = dataset.card.splits.get(Split(card.split))
    changed = part is not None and card.dataset.get(card.split) not in (None, part.sha256)
    warnings = ["The dataset was changed after these lines were scored."] if changed else []
    if missing := len(references) - len(images):
        told = f"{missing:,} of the {len(references):,} lines that would have a picture"
        warnings.append(f"{told} are not in the dataset as they were scored.")
    return images, warnings


def _history(run: RunFolder) -> History | None:
    return read_history(run.path) if run.metrics.is_file() else None


def _provenance(run: RunFolder) -> dict[str, Any]:
    try:
        found = json.loads(run.provenance.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise RunError("is not JSON", where=run.provenance) from error
    return found if isinstance(found, dict) else {}
