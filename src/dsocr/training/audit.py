"""Audit a dataset: read every line with a model that never saw it, and rank lines by how surely their text is wrong."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from dsocr.config import load_config
from dsocr.document import Sample
from dsocr.evaluation.mistakes import ReadSample, plant_mistakes, texts_to_score
from dsocr.evaluation.report.audit_page import Audit, rank_lines, write_audit
from dsocr.images import open_image
from dsocr.inference.confidence import Prediction
from dsocr.inference.reader import LocalReader
from dsocr.models.generation import batches
from dsocr.runs import RunFolder
from dsocr.training.folds import Rows, read_folds
from dsocr.training.many_runs import ManyProgress

LISTED = 100
"""Lines on the page and in the table."""
_TRAINING = {"max_steps": 100, "report_to": "none"}
"""Few steps: `small` has learnt most of what 800 lines of new hands teach (docs/lab/experiments.md)."""
_VALIDATION = {"every_steps": 50, "max_samples": 100}


def audit(
    dataset: Path,
    *,
    output: Path | None = None,
    folds: int | None = None,
    lines: int = LISTED,
    overrides: Sequence[str] = (),
    changes: Mapping[str, object] | None = None,
    overwrite: bool = False,
    progress: ManyProgress | None = None,
    on_message: Callable[[str], None] | None = None,
) -> Audit:
    """Rank the lines of a dataset by how surely their transcription is wrong, and estimate how many are.

    Trains on all folds but one, for each, and reads its lines; see `read_folds` for `folds`, `overwrite` and what is
    raised. `overrides` are texts such as `base=nano`, `changes` dotted keys of the configuration and their values.
    Writes the page and the table of the first `lines` lines and the list of all into `output`, `runs/NAME-audit` if
    not given, where a stopped audit resumes.
    """
    name = dataset.resolve().name
    output = output or Path("runs") / f"{name}-audit"
    training = dict(_TRAINING)
    if any(key.startswith("training.epochs") for key in (*overrides, *(changes or {}))):
        del training["max_steps"]
    settings = {"dataset": dataset, "output": output, "training": training, "validation": _VALIDATION}
    config = load_config({**settings, "guard": {"lines": 0}}, overrides, changes=changes)
    folds_read = read_folds(
        config,
        read_fold,
        name="audit",
        folds=folds,
        overwrite=overwrite,
        progress=progress,
        on_message=on_message,
    )
    read = [
        ReadSample.from_dict(row, sample)
        for fold in folds_read
        for sample, row in zip(fold.samples, fold.rows, strict=True)
    ]
    result = rank_lines(read, name=name, folder=output)
    write_audit(result, lines)
    return result


def read_fold(run: RunFolder, samples: Sequence[Sample], report: Callable[[int], None]) -> Rows:
    """Read the lines of a fold, and score their texts, readings and planted mistakes; see `ReadSample`."""
    reader = LocalReader.of_run(run)
    model = reader.processor.language_model
    planted, done, rows = plant_mistakes(samples), 0, Rows()
    for batch in batches(list(zip(samples, planted, strict=True)), 4 * reader.generation.batch_size):
        images = [open_image(sample.image) for sample, _ in batch]
        read = list(reader.read((sample.id, image) for (sample, _), image in zip(batch, images, strict=True)))
        texts = [
            texts_to_score(
                prediction.text, plain_of(prediction), [sample.text, *(mistake.text for mistake in mistakes)]
            )
            for (sample, mistakes), prediction in zip(batch, read, strict=True)
        ]
        scores = []
        for part in batches(list(zip(images, texts, strict=True)), reader.generation.batch_size):
            scores += reader.processor.family.log_likelihoods(
                reader.network, reader.processor, [image for image, _ in part], [wanted for _, wanted in part]
            )
        for (sample, mistakes), prediction, wanted, values in zip(batch, read, texts, scores, strict=True):
            likelihoods = dict(zip(wanted, values, strict=True))
            language = {text: model.score(text) for text in wanted} if model else {}
            rows.append(
                ReadSample(sample, prediction.text, plain_of(prediction), mistakes, likelihoods, language).to_dict()
            )
        done += len(batch)
        report(done)
    return rows


def plain_of(prediction: Prediction) -> str:
    """Return what was read without a language model."""
    return prediction.text if prediction.plain is None else prediction.plain
