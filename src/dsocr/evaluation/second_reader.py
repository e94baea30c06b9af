"""A second reader: fit the vote of several readings on the validation split, and measure what it brings.

The vote is a conditional logit (McFadden 1974): in each span on which readings differ, the probability of a candidate
grows with its score. It is used only if it reads the validation lines clearly better than the best reader alone; else
the first reader's text is kept, unless the best one is clearly better. Lines that trained a reader are left out.
"""

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter, ValidationError
from rapidfuzz.distance import Levenshtein

from dsocr.config import load_run_config
from dsocr.data.dataset import image_hash, training_images
from dsocr.document import Sample, Split
from dsocr.errors import DataError, DsocrError
from dsocr.evaluation.calibration import JudgedLine, fit_calibration, logistic_map
from dsocr.evaluation.compare import System, compare
from dsocr.evaluation.metrics import character_errors, percentage
from dsocr.evaluation.report.result_pages import write_comparison
from dsocr.evaluation.scores import WriterStatus, score_lines
from dsocr.evaluation.statistics import Clusters, Floats, clusters_of
from dsocr.images import open_image
from dsocr.inference.combine import Combiner, SpanUnit, Vote, choose_text, combine, divide
from dsocr.inference.confidence import Prediction
from dsocr.inference.prediction_files import PlacedTexts, PredictionFile, match, parse_name, read_predictions
from dsocr.inference.reader import LocalReader
from dsocr.inference.transcribe import adapter_digest
from dsocr.models.base_folder import embedded_bases
from dsocr.models.decoded import ScoredText
from dsocr.runs import READING, ReadingSettings, RunFolder, to_json, write_atomically
from dsocr.text import TextPolicy

COMBINED = "combined"
"""The name of the combined reading."""

_FOLDS = 10
_PRECISION = 1.0
"""Precision of the normal prior of the weights, around no bias and half of each reader's log odds."""
_STANDARD_ERRORS = 2.0
"""By how many a vote, or another reader than the first, must read the validation split better, lines taken as
independent."""
_UNITS: tuple[SpanUnit, ...] = ("character", "word")

Readings = Sequence[Prediction | None]
"""The readings of one line, in the order of the readers."""


@dataclass(frozen=True, slots=True)
class _Choice:
    """A span on which readings differ: the features of each candidate (candidates, features), and its errors."""

    features: Floats
    errors: Floats


def fit_vote(names: Sequence[str], lines: Sequence[Readings], references: Sequence[str], clusters: Clusters) -> Vote:
    """Fit how the readings of lines are combined, and decide whether they are.

    Lines of the same cluster are in the same fold of the cross-validation. The confidences are fitted on the text that
    is kept or voted. Raises DataError without lines.
    """
    if not lines:
        raise DataError("there are no lines to fit a vote on", code="no-lines")
    alone = [
        np.array([_errors(line[reader], text) for line, text in zip(lines, references, strict=True)])
        for reader in range(len(names))
    ]
    best = min(range(len(names)), key=lambda reader: alone[reader].sum())
    kept = best if _is_clear(alone[0] - alone[best]) else 0
    vote = Vote(tuple(names), kept=kept)
    length = max(1, sum(map(len, references)))
    folds = clusters.of_line % _FOLDS
    fitted: list[tuple[int, Vote, NDArray[Any]]] = []
    for unit in _UNITS:
        choices = [_choices(line, text, unit) for line, text in zip(lines, references, strict=True)]
        held_out = np.zeros(len(lines))
        for fold in set(folds.tolist()):
            learnt = [one for own, other in zip(choices, folds, strict=True) if other != fold for one in own]
            trial = Vote(tuple(names), _fit_weights(learnt, len(names)), unit, kept=None)
            for place in np.flatnonzero(folds == fold).tolist():
                held_out[place] = _errors(combine(lines[place], trial), references[place])
        weights = _fit_weights([one for own in choices for one in own], len(names))
        fitted.append((int(held_out.sum()), Vote(tuple(names), weights, unit, kept=None), held_out))
    total, trial, held_out = min(fitted, key=lambda one: one[0])
    if _is_clear(alone[best] - held_out):
        vote = trial
    cers = (*(float(one.sum()) / length for one in alone), total / length)
    vote = replace(vote, lines=len(lines), cers=cers)
    return _fit_confidences(vote, lines, references)


def _is_clear(gains: Floats) -> bool:
    """Whether errors saved in each line are more than chance would save."""
    return float(gains.sum()) > _STANDARD_ERRORS * math.sqrt(float((gains**2).sum()))


def _errors(reading: Prediction | None, reference: str) -> int:
    return character_errors(reference, "" if reading is None else reading.text).errors


def _choices(line: Readings, reference: str, unit: SpanUnit) -> list[_Choice]:
    """Return the spans on which it matters for the errors of a line which candidate is taken.

    The others are read as by the first reader meanwhile. A line that some reader lacks teaches nothing.
    """
    readings = [reading for reading in line if reading is not None]
    if len(readings) < len(line):
        return []
    found = []
    spans = divide(readings, unit)
    texts = [span.texts[0] for span in spans]
    for place, span in enumerate(spans):
        candidates = span.candidates
        if len(candidates) == 1:
            continue
        tried = ["".join([*texts[:place], candidate, *texts[place + 1 :]]) for candidate in candidates]
        errors = np.array([Levenshtein.distance(text, reference) for text in tried], dtype=np.float64)
        if errors.max() > errors.min():
            found.append(_Choice(np.array([span.features(one) for one in candidates]), errors))
    return found


def _fit_weights(choices: Sequence[_Choice], readers: int) -> tuple[float, ...]:
    """Return the maximum a posteriori weights; a choice counts as many times as it can save errors."""
    from scipy.optimize import minimize

    prior = np.array([0.0] * readers + [0.5] * readers + [0.0])
    if not choices:
        return tuple(prior.tolist())
    features = np.concatenate([one.features for one in choices])
    sizes = np.array([len(one.errors) for one in choices])
    starts = np.cumsum(sizes) - sizes
    right = np.concatenate([one.errors == one.errors.min() for one in choices])
    times = np.array([one.errors.max() - one.errors.min() for one in choices])

    def loss(weights: Floats) -> tuple[float, Floats]:
        scores = features @ weights
        likely = np.exp(scores - np.repeat(np.maximum.reduceat(scores, starts), sizes))
        likely /= np.repeat(np.add.reduceat(likely, starts), sizes)
        chance = np.maximum(np.add.reduceat(likely * right, starts), 1e-300)
        pull = np.repeat(times, sizes) * (likely * right / np.repeat(chance, sizes) - likely)
        away = weights - prior
        total = _PRECISION / 2 * float(away @ away) - float(times @ np.log(chance))
        return total, _PRECISION * away - features.T @ pull

    fitted: list[float] = minimize(loss, prior, jac=True, method="L-BFGS-B").x.tolist()
    return tuple(fitted)


def _fit_confidences(vote: Vote, lines: Sequence[Readings], references: Sequence[str]) -> Vote:
    """Return the vote with the confidences that follow from the odds of its readers and from disputes."""
    inputs: list[tuple[float, float, float]] = []
    right: list[bool] = []
    for line, reference in zip(lines, references, strict=True):
        present = [number for number, reading in enumerate(line) if reading is not None]
        text, characters = choose_text([reading for reading in line if reading is not None], vote.among(present))
        judged = JudgedLine.compute(ScoredText(text), reference)
        inputs += [(1.0, one.odds, float(one.disputed)) for one in characters]
        right += judged.characters
    if inputs:
        offset, slope, disputed = logistic_map(np.array(inputs), np.array(right, np.float64), np.array(vote.doubt), 4.0)
        vote = replace(vote, doubt=(offset, max(slope, 0.0), disputed))
    judged_lines = []
    for line, reference in zip(lines, references, strict=True):
        combined = combine(line, vote)
        judged_lines.append(JudgedLine.compute(ScoredText(combined.text, combined.scores), reference))
    return replace(vote, calibration=fit_calibration(judged_lines))


def describe_vote(vote: Vote) -> str:
    """Describe in a sentence whether readings are combined, and why."""
    notes = "".join(f" {note}" for note in vote.notes)
    if not vote.lines:
        return (
            f"The readings are not combined, because no vote of {' and '.join(vote.names)} was fitted. The text is "
            f"that of {vote.names[0]}; where readings differ, confidences are lower.{notes}"
        )
    best = min(range(len(vote.names)), key=lambda reader: vote.cers[reader])
    if vote.kept not in (None, best):
        notes = f" {vote.names[best]} is not clearly better.{notes}"
    alone, voted = percentage(vote.cers[best], 1), percentage(vote.cers[-1], 1)
    where = f"on {vote.lines} validation lines"
    if vote.kept is None:
        return f"{' and '.join(vote.names)} are combined: {voted} CER {where}, {vote.names[best]} alone {alone}.{notes}"
    return (
        f"The readings are not combined, because that is not clearly better {where}: {voted} CER, {vote.names[best]} "
        f"alone {alone}. The text is that of {vote.names[vote.kept]}; where readings differ, confidences are lower."
        f"{notes}"
    )


@dataclass(frozen=True, slots=True)
class Second:
    """Another reader: a network, or what another tool read.

    `digest` changes with a network, `run` is the folder of one that was trained.
    """

    name: str
    source: LocalReader | PredictionFile
    digest: str | None
    run: RunFolder | None = None

    @classmethod
    def open(cls, text: str) -> "Second":
        """Open `NAME=PLACE`, or a place that names itself: a run, an adapter, a base, or predictions of another tool.

        Raises DsocrError if it is none of these, or cannot be read.
        """
        name, path = parse_name(text)
        place = path.as_posix() if path.name != text else text
        if path.is_dir() and ((path / READING).is_file() or (path / "config.yaml").is_file()):
            run = RunFolder.to_read_with(path)
            return cls(name, LocalReader.of_run(run), adapter_digest(run.adapter), run)
        if path.exists() and not (path / "config.json").is_file():
            return cls(name, read_predictions(path), None)
        shipped = RunFolder(embedded_bases().get(place, path))
        if (shipped.path / READING).is_file():
            return cls(name, LocalReader.of_run(shipped), adapter_digest(shipped.adapter))
        return cls(name, LocalReader.of_base(place), f"base {place}")


def open_seconds(run: RunFolder, places: Sequence[str]) -> list[Second]:
    """Open other readers. Raises DataError if two readers have the same name."""
    names = [run.path.resolve().name, COMBINED, *(parse_name(place)[0] for place in places)]
    if twice := {name for name in names if names.count(name) > 1}:
        message, hint = f"two readers are called {min(twice)!r}", "name the second: --second NAME=PLACE"
        raise DataError(message, code="duplicate-name", hint=hint)
    return [Second.open(place) for place in places]


ReadSamples = Callable[[Sequence[Sample], LocalReader], Iterable[Prediction]]
"""Reads samples with a reader, in their order."""


def _read_second(second: Second, samples: Sequence[Sample], policy: TextPolicy, read: ReadSamples) -> Readings:
    """Return a prediction for each sample; None for one that a file does not have."""
    if isinstance(second.source, LocalReader):
        return list(read(samples, second.source))
    texts, _ = match(second.source, samples, policy, missing="empty")
    found = ((sample.id, texts[sample.id]) for sample in samples)
    return [Prediction(id_, one.text, 0, one.truncated) if one.found else None for id_, one in found]


def fit_on(
    run: RunFolder, first: LocalReader, seconds: Sequence[Second], samples: Sequence[Sample], read: ReadSamples
) -> Vote:
    """Fit the vote of a run and other readers on samples that trained none of them, and store it in the run."""
    trained, notes = _find_trained(run, seconds, samples)
    samples = [one for one in samples if one.id not in set().union(*trained.values())]
    names = (run.path.resolve().name, *(one.name for one in seconds))
    if not samples:
        return Vote(names, notes=tuple(notes))
    # Files first: one that lacks these lines is an error, which needs no reading to be found.
    in_order = sorted(seconds, key=lambda one: isinstance(one.source, LocalReader))
    found = {one.name: _read_second(one, samples, first.text_policy, read) for one in in_order}
    readings = [list(read(samples, first)), *(found[one.name] for one in seconds)]
    lines = list(zip(*readings, strict=True))
    vote = fit_vote(names, lines, [sample.text for sample in samples], clusters_of(samples))
    vote = replace(vote, digests=_digests(run, seconds), notes=tuple(notes))
    stored = _stored_votes(run) | {"+".join(names[1:]): asdict(vote)}
    write_atomically(run.votes, to_json(stored))
    return vote


def _find_trained(
    run: RunFolder, seconds: Sequence[Second], samples: Sequence[Sample]
) -> tuple[dict[str, set[str]], list[str]]:
    """Return the ids of the samples that trained each reader, or what it started from, and sentences on them."""
    runs = {run.path.resolve().name: run, **{one.name: one.run for one in seconds if one.run is not None}}
    digests = {sample.id: image_hash(sample) for sample in samples}
    trained, notes = {}, []
    for name, reader in runs.items():
        try:
            made = json.loads(reader.provenance.read_text(encoding="utf-8")).get("started_from", [])
            folders = [reader.path, *(Path(one["run"]) for one in made)]
            known = set().union(*(training_images(load_run_config(RunFolder(one).config)) for one in folders))
        except (DsocrError, OSError, ValueError, KeyError, TypeError, AttributeError):
            known = set()
            notes.append(f"Which lines trained {name} is not known: its dataset or its records are gone.")
        trained[name] = {id_ for id_, digest in digests.items() if digest in known}
        if trained[name]:
            notes.append(f"{len(trained[name])} of {len(samples)} validation lines trained {name} and are left out.")
    return trained, notes


def load_vote(run: RunFolder, seconds: Sequence[Second]) -> Vote:
    """Return the stored vote of these readers as they are now; one that keeps the run's text if there is none."""
    names = (run.path.resolve().name, *(one.name for one in seconds))
    try:
        vote = TypeAdapter(Vote).validate_python(_stored_votes(run).get("+".join(names[1:])))
    except ValidationError:
        return Vote(names)
    return vote if vote.digests == _digests(run, seconds) else Vote(names)


def _digests(run: RunFolder, seconds: Sequence[Second]) -> tuple[str | None, ...]:
    return (adapter_digest(run.adapter), *(one.digest for one in seconds))


def _stored_votes(run: RunFolder) -> dict[str, Any]:
    try:
        votes = json.loads(run.votes.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return votes if isinstance(votes, dict) else {}


def make_combiner(
    run: RunFolder, places: Sequence[str], progress: Callable[[int, int], None] | None = None
) -> Combiner:
    """Open other readers for transcribing with a run, with the vote that was fitted for them.

    If none was, it is fitted on the validation split of the run's dataset, if that is there and all can read it.
    """
    seconds = open_seconds(run, places)
    vote = load_vote(run, seconds)
    if not vote.lines and all(isinstance(one.source, LocalReader) for one in seconds) and run.config.is_file():
        samples = _validation_samples(run)
        done = 0

        def read(some: Sequence[Sample], reader: LocalReader) -> Iterator[Prediction]:
            nonlocal done
            for prediction in reader.read((sample.id, open_image(sample.image)) for sample in some):
                yield prediction
                done += 1
                if progress is not None:
                    progress(done, len(samples) * (1 + len(seconds)))

        if samples:
            vote = fit_on(run, LocalReader.of_run(run), seconds, samples, read)
    policy = ReadingSettings.load(run.adapter).text_policy
    sources = [
        PlacedTexts(one.source, policy) if isinstance(one.source, PredictionFile) else one.source for one in seconds
    ]
    return Combiner(vote, sources)


def _validation_samples(run: RunFolder) -> list[Sample]:
    from dsocr.evaluation.evaluate import open_dataset

    try:
        return open_dataset(run).samples(Split.VALIDATION)
    except DsocrError:
        return []


def score_combined(
    run: RunFolder,
    first: LocalReader,
    seconds: Sequence[Second],
    samples: Sequence[Sample],
    readings: Sequence[Prediction],
    validation: Sequence[Sample],
    statuses: Mapping[str | None, WriterStatus],
    read: ReadSamples,
) -> dict[str, Any]:
    """Score a run, other readers, and all combined, on the same samples; the run has read them as `readings`.

    The vote is fitted on the `validation` samples; without any, a stored one is used. Writes the numbers and the page
    into the run folder, and returns a summary for JSON.
    """
    vote = fit_on(run, first, seconds, validation, read) if validation else load_vote(run, seconds)
    others = [_read_second(one, samples, first.text_policy, read) for one in seconds]
    trained, _ = _find_trained(run, seconds, samples)
    lines = list(zip(readings, *others, strict=True))
    columns = [readings, *others, [combine(line, vote) for line in lines]]
    systems = []
    for name, column in zip((*vote.names, COMBINED), columns, strict=True):
        texts = {
            sample.id: found or Prediction(sample.id, "", 0, truncated=False)
            for sample, found in zip(samples, column, strict=True)
        }
        absent = sum(found is None for found in column)
        notes = [f"{absent} lines have no prediction and count as empty"] if absent else []
        if trained.get(name):
            notes.append(f"{len(trained[name])} of these lines trained it, so its scores and the combined are too good")
        systems.append(System(name, score_lines(samples, texts, statuses), notes))
    images = {sample.id: sample.image for sample in samples}
    comparison = compare(systems, images=images, about={"vote": describe_vote(vote)})
    write_atomically(run.combined, to_json({"vote": asdict(vote), **comparison.to_dict()}))
    write_comparison(comparison, run.combined_page)
    cers = dict(zip((*vote.names, COMBINED), vote.cers, strict=False))
    return {
        "summary": describe_vote(vote),
        "combined": vote.kept is None,
        "validation_lines": vote.lines,
        "readers": [
            {"name": one.name, **one.score.to_dict(), "validation_cer": cers.get(one.name)}
            for one in comparison.systems
        ],
    }
