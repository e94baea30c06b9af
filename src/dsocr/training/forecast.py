"""The recipe of a forecast: trainings on ever more of the training split, each scored on the same lines.

Each is a run of its own in `forecast/` of the run folder, the one on all samples is the run itself: what is finished is
not trained again, and what was interrupted goes on from its last checkpoint.
"""

import gc
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from dsocr.config import RunConfig
from dsocr.data.dataset import Dataset, training_samples
from dsocr.data.splits import page_key
from dsocr.document import Sample, Split
from dsocr.errors import ConfigError, RunError
from dsocr.evaluation.evaluate import require_samples
from dsocr.evaluation.learning_curve import CurvePoint, Forecast, ScoredLine
from dsocr.evaluation.metrics import character_errors
from dsocr.evaluation.report.pages import write_forecast
from dsocr.images import open_image
from dsocr.inference.reader import LocalReader
from dsocr.runs import RunFolder, to_json, write_atomically
from dsocr.training.callbacks import Report
from dsocr.training.distributed import launched
from dsocr.training.setup import total_steps
from dsocr.training.train import Say, TrainResult, is_trained, train

SIZES = (0.125, 0.25, 0.5, 1.0)
_FEWEST_SAMPLES = 4
_AGAIN = "give --overwrite to train it again"
_OTHER_FOLDER = "train it again with `dsocr train --overwrite`, or name another folder with --set output=..."


class Trainer(Protocol):
    """What trains one run; `training.train.train`, or a stand-in."""

    def __call__(  # noqa: D102
        self, config: RunConfig, *, overwrite: bool = ..., report: Report | None = ..., say: Say | None = ...
    ) -> TrainResult: ...


ReadRun = Callable[[RunFolder, Sequence[Sample]], dict[str, str]]
"""The texts that a finished run reads on these samples, by their ids."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """One training of the forecast; `done` where it is finished, `replaces` where another lies in its place."""

    config: RunConfig
    samples: int
    steps: int
    done: bool
    replaces: bool


class Watch(Protocol):
    """Told where a forecast stands: steps made and to be made of all trainings together, and what is being done."""

    def __call__(self, done: int, total: int, note: str = "") -> None: ...  # noqa: D102


def forecast(
    config: RunConfig,
    *,
    sizes: Sequence[float] = SIZES,
    split: Split = Split.VALIDATION,
    more: Sequence[int] = (),
    targets: Sequence[float] = (),
    overwrite: bool = False,
    progress: Watch | None = None,
    finished: Callable[[CurvePoint], None] | None = None,
    say: Say | None = None,
    trainer: Trainer = train,
    reader: ReadRun | None = None,
) -> Forecast:
    """Train on shares of the training split, score each on `split`, and say what more samples would bring.

    Each share is trained for as many epochs as the configuration says (or steps, where it says steps), because that is
    what the same recipe would do with more.

    `sizes` are shares up to 1. Writes `forecast.json`, `forecast.html` and `forecast.png` into `forecast/` of the run
    folder. `progress` is told of steps, `finished` of each training that is scored. `overwrite` trains again on fewer
    samples where that was done with other settings; the run itself is never overwritten. Raises ConfigError for sizes
    that are none and in one of several processes, DataError where there is nothing to score on, RunError where a folder
    holds another training.
    """
    if launched().count > 1:
        raise ConfigError("a forecast trains in one process", hint="start `dsocr forecast` itself, not torchrun")
    dataset = Dataset.open(config.dataset, fold=config.fold)
    scored_on = require_samples(dataset, split)
    wanted = list(_trainings(config, len(training_samples(dataset, config)), sizes, overwrite=overwrite))
    total = sum(training.steps for training in wanted if not training.done)
    folder = RunFolder(config.output).forecast
    facts = {"dataset": {name.value: part.sha256 for name, part in dataset.card.splits.items()}, "fold": dataset.fold}
    made, points = 0, []
    for place, training in enumerate(wanted, 1):
        note = f"{place} of {len(wanted)}: {training.samples} samples"
        report = _reporter(progress, made, total, note)
        if not training.done:
            trainer(training.config, overwrite=training.replaces, report=report, say=say)
            made += training.steps
            gc.collect()  # the network goes before the next is loaded: there may be no room for two
        scores = folder / f"{_name(training.samples)}-{split}.json"
        scored = _scored(RunFolder.open(training.config.output), scores, scored_on, facts, reader)
        points.append(CurvePoint(training.samples, training.steps, scored))
        if finished is not None:
            finished(points[-1])
    result = Forecast.compute(split, points, more=more, targets=targets)
    write_atomically(folder / "forecast.json", to_json(result.to_dict()))
    write_forecast(result, config.output.name, folder)
    return result


def _trainings(config: RunConfig, whole: int, sizes: Sequence[float], *, overwrite: bool) -> Iterator[Wanted]:
    if wrong := [size for size in sizes if not 0 < size <= 1]:
        raise ConfigError(f"sizes are shares of the training split, over 0 and up to 1, not {wrong[0]:g}")
    counts = sorted({max(1, round(size * whole)) for size in sizes})
    if counts and counts[0] < min(_FEWEST_SAMPLES, whole):
        raise ConfigError(
            f"the smallest size is {counts[0]} of {whole} samples: too few to learn from",
            hint=f"give --sizes from {_FEWEST_SAMPLES / whole:.2g} on",
        )
    for samples in counts:
        its_own = config if samples == whole else _smaller(config, samples)
        try:
            done, replaces = is_trained(its_own), False
        except RunError as error:
            if samples < whole and overwrite:
                done, replaces = False, True
            else:
                hint = _AGAIN if samples < whole else _OTHER_FOLDER
                raise RunError(error.message, where=error.where, hint=hint) from error
        yield Wanted(its_own, samples, total_steps(its_own, samples), done, replaces)


def _smaller(config: RunConfig, samples: int) -> RunConfig:
    """The same training on fewer samples: as many epochs, as the recipe says it of any number of samples."""
    training = config.training.model_copy(update={"max_samples": samples})
    return config.model_copy(
        update={"output": RunFolder(config.output).forecast / _name(samples), "training": training}
    )


def _name(samples: int) -> str:
    return f"lines-{samples}"


def _reporter(progress: Watch | None, made: int, total: int, note: str) -> Report | None:
    if progress is None:
        return None
    return lambda told: progress(
        made + told.step, total, note + ("" if told.cer is None else f", validation CER {told.cer:.1%}")
    )


def _scored(
    run: RunFolder, path: Path, samples: Sequence[Sample], facts: dict[str, Any], reader: ReadRun | None
) -> Sequence[ScoredLine]:
    """The scores of a finished run, kept in a file as long as run and dataset are the same."""
    made_of = {"trained": _begun_at(run), **facts}
    if (kept := _kept(path, made_of)) is not None:
        return kept
    texts = (reader or _read)(run, samples)
    lines = [_score(sample, texts[sample.id]) for sample in samples]
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, to_json({**made_of, "lines": [asdict(line) for line in lines]}))
    return lines


def _kept(path: Path, made_of: dict[str, Any]) -> list[ScoredLine] | None:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if any(found[name] != value for name, value in made_of.items()):
            return None
        return [ScoredLine(**line) for line in found["lines"]]
    except (OSError, ValueError, KeyError, TypeError):
        return None  # not there, or not of this version: it is made anew


def _begun_at(run: RunFolder) -> str:
    try:
        return str(json.loads(run.provenance.read_text(encoding="utf-8"))["begun_at"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunError("does not say when the training began", where=run.provenance, hint=_AGAIN) from error


def _score(sample: Sample, text: str) -> ScoredLine:
    rate = character_errors(sample.text, text)
    return ScoredLine(sample.id, rate.errors, rate.length, sample.writer, page_key(sample.document, sample.page))


def _read(run: RunFolder, samples: Sequence[Sample]) -> dict[str, str]:
    transcriber = LocalReader.of_run(run)
    images = ((sample.id, open_image(sample.image)) for sample in samples)
    return {prediction.id: prediction.text for prediction in transcriber.read(images)}
