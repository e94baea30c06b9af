"""Gather a report's contents from a run and its dataset, and choose its lines."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dsocr.data.dataset import Dataset
from dsocr.document import PackedImage, Split
from dsocr.errors import DsocrError, RunError, typed
from dsocr.evaluation.calibration import CalibrationReport
from dsocr.evaluation.compare import Difference, ReadLine, System, compare, describe_dominant_line, read_lines
from dsocr.evaluation.metrics import align, of_hundred
from dsocr.evaluation.scorecard import Scorecard, open_scored_dataset
from dsocr.evaluation.scores import MODEL_LABELS, LineScore, Score, load_lines
from dsocr.evaluation.statistics import Interval
from dsocr.html import counted, percent
from dsocr.inference.review import CheckedShare
from dsocr.runs import History, RunFolder, UnlabelledReport, read_history, read_provenance
from dsocr.text import percentage

_ARROW = "\N{RIGHTWARDS ARROW}"
_SPOKEN = {"base": "the base", "adapter": "the trained model"}
_CHECKED = 0.1
"""The share of lines whose checking is described."""
_USABLE = 0.1
"""Above this CER, correcting is hardly faster than typing."""
_UNBROKEN = re.compile(
    rf"(?<=\d)(?: ?(?=%)| (?=points?\b|{_ARROW}))|(?<=%) (?=CI\b)|(?<=\bp) (?=[=<])|(?<=[=<{_ARROW}]) (?=\d)"
)

MOST_TEXT = 5 * 2**20
"""Characters of HTML, roughly, that lines without images may take."""
LONGEST = 1500
"""Characters of a line that are shown; a loop may write many more."""

_MARKUP = 450
"""Characters of HTML around the texts of a line."""
_SEED = 17
_SAMPLE = 30
_MOST = 30
_MOST_CHANGED = 20

Images = Mapping[str, Path | PackedImage]
"""The image of each line, by its id."""


@dataclass(frozen=True, slots=True)
class Chapter:
    """Lines that are shown together; `note` says how they were chosen."""

    key: str
    title: str
    note: str
    lines: Sequence[ReadLine]


@dataclass(frozen=True, slots=True)
class ReportContents:
    """Everything a report shows of an evaluated run.

    `readings` are the scored lines by model, `images` those of the shown lines by id. `history` is None without
    recorded metrics, `provenance` empty without a record. `warnings` are sentences such as why images are missing.
    """

    run: RunFolder
    card: Scorecard
    readings: Mapping[str, Sequence[LineScore]]
    lines: Sequence[ReadLine]
    chapters: Sequence[Chapter]
    images: Images
    warnings: Sequence[str]
    history: History | None
    provenance: Mapping[str, Any]
    confidence: CalibrationReport | None

    @property
    def labels(self) -> list[str]:
        """Names of the readings in tables."""
        return [MODEL_LABELS[model] for model in self.readings]

    @property
    def scores(self) -> list[Score]:
        """The score of each reading."""
        return [score for score in (self.card.base, self.card.adapter) if score is not None]

    @property
    def title(self) -> str:
        """The title of the report."""
        return f"How well {self.run.path.resolve().name} reads"

    @property
    def subtitle(self) -> str:
        """The measure, and the number of lines and writers."""
        lines = [line.last for line in self.lines]
        return f"Character error rate (CER) on {lines_by_writers(lines)}, {self.card.split} split"

    @property
    def difference(self) -> Difference | None:
        """The trained model compared with the base; None if only one was read."""
        if len(self.readings) < 2:
            return None
        return compare([System(_SPOKEN[model], lines) for model, lines in self.readings.items()]).differences[-1]

    @property
    def answers(self) -> list[str]:
        """Accuracy, comparison with the base and next step, in words that need no statistics."""
        budget = self.confidence.budget if self.confidence else ()
        return [unbroken(text) for text in describe_in_words(self.card, self.difference, budget)]

    @property
    def reliability(self) -> list[Sequence[str]]:
        """The table of calibration errors, heading first; empty without confidences."""
        if (report := self.confidence) is None:
            return []
        count = f"count, {report.split} split of {report.dataset}"
        rows: list[Sequence[str]] = [
            ("confidence of", count, "ECE uncalibrated", "ECE calibrated", "ECE of perfect confidences")
        ]
        for kind, measured in report.kinds.items():
            errors = map(format_error, (measured.before, measured.after, measured.by_chance))
            rows.append((f"{kind}s", f"{measured.count:,}", *errors))
        return rows

    @property
    def sentences(self) -> list[str]:
        """How far to trust the numbers, and the tests."""
        tests = self.difference.details if self.difference else []
        return [unbroken(text) for text in (*self.card.uncertainty, *map(sentence, tests))]


def gather_contents(run: RunFolder, dataset: Path | Dataset | None = None) -> ReportContents:
    """Read the contents of a report; images come from the scored dataset, or from the one that is given.

    Raises RunError for a run without an evaluation. A missing or changed dataset costs images only.
    """
    card, readings = Scorecard.load(run.scorecard), load_lines(run.lines)
    scored = [model for model, score in (("base", card.base), ("adapter", card.adapter)) if score is not None]
    if list(readings) != scored or len({len(lines) for lines in readings.values()}) > 1:
        counts = " and ".join(f"{len(lines)} of {model}" for model, lines in readings.items())
        message = f"The lines are {counts}, but the scorecard is of {' and '.join(scored)}"
        raise RunError(message, code="evaluation-mixed", where=run.lines, hint="run `dsocr evaluate` again")
    lines = read_lines(readings.values())
    chapters = chapters_of(lines, [_SPOKEN[model] for model in readings])
    shown = {line.last.id: line.last.reference for chapter in chapters for line in chapter.lines}
    images, warnings = _find_images(run, dataset, card, shown)
    confidence = CalibrationReport.load(run.confidence)
    if confidence is None and run.confidence.is_file():
        warnings.append(f"{run.confidence.name} cannot be read: run `dsocr evaluate RUN` again.")
    history = read_history(run.path) if run.metrics.is_file() else None
    made = read_provenance(run)
    return ReportContents(run, card, readings, lines, chapters, images, warnings, history, made, confidence)


def _find_images(
    run: RunFolder, folder: Path | Dataset | None, card: Scorecard, references: Mapping[str, str]
) -> tuple[Images, list[str]]:
    """Find the images of the lines with these references, by id, and return warnings too."""
    try:
        dataset = folder if isinstance(folder, Dataset) else open_scored_dataset(run, card, folder)
        # Of folds, the lines of all splits were scored.
        samples = [sample for split in Split for sample in dataset.samples(split, references.keys())]
    except (DsocrError, ValueError) as error:
        return {}, [f"There are no images because the dataset cannot be read: {error}."]
    images = {sample.id: sample.image for sample in samples if sample.text == references[sample.id]}
    part = dataset.card.splits.get(Split(card.split))
    changed = part is not None and card.dataset.get(card.split) not in (None, part.sha256)
    warnings = ["The dataset has changed since these lines were scored."] if changed else []
    if missing := len(references) - len(images):
        warnings.append(f"{missing:,} of {len(references):,} lines are no longer in the dataset as they were scored.")
    return images, warnings


def format_error(error: float | None) -> str:
    """Write a calibration error; empty if it is not known."""
    return "" if error is None else f"{error:.4f}"


def sentence(text: str) -> str:
    """Start with a capital and end with a full stop."""
    return f"{text[:1].upper()}{text[1:].rstrip('.')}."


def format_ends(interval: Interval | None) -> str:
    """Write the ends of an interval in percent; empty if it has none."""
    ends = interval.bounds if interval else None
    return f"{100 * ends[0]:.1f} to {percent(ends[1])}" if ends else ""


def unbroken(text: str) -> str:
    """Keep together a number and its unit, "95 % CI" and "p = 0.01"."""
    return _UNBROKEN.sub("\N{NO-BREAK SPACE}", text)


def lines_by_writers(lines: Sequence[LineScore]) -> str:
    """Count lines and their known writers."""
    writers = len({line.writer for line in lines if line.writer})
    return counted(len(lines), "line") + (f" by {counted(writers, 'writer')}" if writers else "")


def facts(contents: ReportContents) -> Iterator[tuple[str, str]]:
    """Name the scored run and dataset, dates, and the hashes that identify them."""
    card, made = contents.card, contents.provenance
    source = card.settings if "base" in card.settings else made
    revision = source.get("base_revision")
    yield "run", contents.run.path.resolve().name
    yield "base", f"{source.get('base', 'unknown')}{f' at {revision}' if revision else ''}"
    if family := card.settings.get("family"):
        yield "family", str(family)
    for run in made.get("started_from", []):
        lines = run.get("dataset_source") or "unknown lines"
        yield "started from", f"{run['run']}, trained on {lines} from {run['base']}"
    if (unlabelled := UnlabelledReport.of(made)) is not None:
        yield "unlabelled scans", unlabelled.describe()
    if digest := card.settings.get("adapter_sha256"):
        yield "weights", f"sha256 {digest}"
    yield "scored", f"{card.created_at} with dsocr {card.dsocr_version}"
    if "begun_at" in made:
        device = f" on {made['device']}" if made.get("device") else ""
        yield "trained", f"{made['begun_at']} with dsocr {made.get('dsocr_version', 'of unknown version')}{device}"
    for split, digest in card.dataset.items():
        yield f"{split} split", f"sha256 {digest}"


def settings(contents: ReportContents) -> Iterator[tuple[str, str]]:
    """List every setting the lines were read with, and the versions of the software."""
    made, listed = contents.provenance, {"base", "base_revision", "family", "adapter_sha256"}
    yield from flat({name: value for name, value in contents.card.settings.items() if name not in listed})
    yield from flat({name: made[name] for name in ("packages", "machine", "python") if name in made})


def flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Flatten nested settings, without any that are None."""
    for name, value in values.items():
        full = f"{prefix}{name.replace('_', ' ')}"
        if isinstance(value, Mapping):
            yield from flat(value, f"{full}: ")
        elif value is not None:
            yield full, _format_setting(value, ", ")


def _format_setting(value: object, separator: str = " ") -> str:
    """Write a value on one line, a newline in a prompt as `\\n`."""
    if isinstance(value, list | tuple):
        return separator.join(map(_format_setting, value))
    return "yes" if value is True else "no" if value is False else str(value).replace("\n", "\\n")


def commands(contents: ReportContents) -> list[str]:
    """Write the commands that train, score and report again, quoted where a path has spaces."""
    run, card = contents.run, contents.card
    if "folds" in card.settings:
        base = "" if card.base else " --no-base"
        return [f"dsocr evaluate {typed(run.config.as_posix())} --folds{base}"]
    limit, dataset = card.settings.get("limit"), card.settings.get("dataset")
    options = f" --dataset {typed(dataset)}" if dataset else ""
    options += f" --split {card.split}" + (f" --limit {limit}" if limit else "") + ("" if card.base else " --no-base")
    if not card.adapter:
        base = typed(str(card.settings.get("base")))
        return [f"dsocr evaluate {base}{options} -o {typed(run.path.as_posix())}"]
    return [
        f"dsocr train {typed(run.config.as_posix())} --set output=runs/again",
        f"dsocr evaluate runs/again{options}",
        "dsocr report runs/again",
    ]


def describe_in_words(
    card: Scorecard, difference: Difference | None, budget: Sequence[CheckedShare] = ()
) -> Iterator[str]:
    """Describe the accuracy of the trained model (else the base), its comparison with the base and the next step.

    `budget` is the measured benefit of checking the first lines of a review list.
    """
    yield from _describe_scores(card, difference)
    if difference is not None:
        yield sentence(difference.summary)
    yield from _describe_writers(card)
    if seen := card.by_text.get("seen"):
        unseen = of_hundred(card.by_text["new"].final.cer.rate, "letter")
        known = f"{seen.final.lines:,} of {card.scores.final.lines:,} lines"
        yield f"{known} have a text that training has seen; on the others {unseen} are wrong."
    yield from _describe_checking(budget)
    yield _describe_next(card, difference)


def _describe_scores(card: Scorecard, difference: Difference | None) -> Iterator[str]:
    score = card.scores.final
    if not score.cer.length:
        return
    if not score.cer.errors:
        yield f"All {counted(score.lines, 'line')} are read without an error."
        return
    rates = [(read.cer.rate, read.wer.rate) for read in (score, card.base) if read]
    texts = [f"{of_hundred(cer, 'letter')} and {of_hundred(wer, 'word')}" for cer, wer in rates]
    harm = "Training did harm: " if difference is not None and difference.verdict == "worse" else ""
    yield f"{harm}{texts[0]} are wrong" + (f", before training {texts[1]}." if card.base and card.adapter else ".")
    counts = [(score.failures["empty"], "not read at all"), (score.runaway, "run away")]
    also = "".join(f", {count:,} {'is' if count == 1 else 'are'} {label}" for count, label in counts if count)
    yield f"{score.exact:,} of {score.lines:,} {'line is' if score.exact == 1 else 'lines are'} perfect{also}."


def _describe_writers(card: Scorecard) -> Iterator[str]:
    """Describe the errors to expect with a writer whom training never saw."""
    new = card.by_writer_status.get("new")
    if new is None:
        yield "No line is by a writer who is surely new, so this does not say how a new writer would be read."
        return
    score = new.final
    tested = counted(new.writers or 0, "new writer") + f", {counted(score.lines, 'line')}"
    text = f"On new writers {of_hundred(score.cer.rate, 'letter')} are wrong ({tested})"
    bounds = score.interval.bounds if score.interval else None
    if bounds is None or bounds[1] > 1:
        yield f"{text}: too few to say how the next one will be read."
        return
    best, worst = (of_hundred(end, "letter") for end in bounds)
    yield f"{text}: on others like them, between {best} and {worst}."


def _describe_checking(curve: Sequence[CheckedShare]) -> Iterator[str]:
    if len(curve) < 1 / _CHECKED or not curve[0].rest:
        return
    parts = []
    for shares in ([point.share for point in curve], [point.letters for point in curve]):
        share, point = min(zip(shares, curve, strict=True), key=lambda pair: abs(pair[0] - _CHECKED))
        times = point.errors_found / share if share else 1.0
        parts.append(f"{percentage(point.errors_found, 0)} of all wrong letters ({times:.1f} times chance)")
    first = f"the first {percentage(_CHECKED, 0)} of the"
    yield f"Checking {first} lines finds {parts[0]}, {first} letters {parts[1]}."


def _describe_next(card: Scorecard, difference: Difference | None) -> str:
    """Describe the one thing that pays most now."""
    score = card.scores.final
    if difference is not None and difference.difference > 0:
        return "Next: read with the base, or train again with a lower learning rate or on more lines."
    if difference is not None and (dominant := describe_dominant_line(difference.second.lines, "the trained model")):
        return f"Next: {dominant}."
    if score.cer.rate > _USABLE:
        return "Next: transcribe more lines; dsocr forecast estimates their benefit."
    return "Next: dsocr transcribe reads your pages; check the least certain lines first."


def chapters_of(lines: Sequence[ReadLine], names: Sequence[str]) -> list[Chapter]:
    """Choose the lines of a report's chapters, which may overlap; `names` are those of the readings.

    The random sample is the same whenever the number of lines is.
    """
    chapters: list[Chapter] = []

    def add(key: str, title: str, note: str, shown: Sequence[ReadLine], total: int) -> None:
        share = f"All {total:,}" if len(shown) == total else f"{len(shown):,} of {total:,}"
        chapters.append(Chapter(key, title, f"{share}, {note}.", shown))

    def rank(key: str, title: str, note: str, most: int, weight: Callable[[ReadLine], int]) -> None:
        weighty = sorted((line for line in lines if weight(line) > 0), key=lambda line: (-weight(line), line.number))
        add(key, title, note, weighty[:most], len(weighty))

    drawn = np.random.default_rng(_SEED).permutation(len(lines))[:_SAMPLE]
    add("sample", "Random sample", "drawn at random", [lines[n] for n in sorted(drawn)], len(lines))

    first, last = names[0], names[-1]
    unread = f"lines that {last} did not finish, read in another script, or did not read at all"
    rank("worst", "Most errors", "most errors first", _MOST, lambda line: line.last.cer.errors)
    rank("better", f"Better than {first}", "largest improvement first", _MOST_CHANGED, lambda line: line.saved)
    rank("worse", f"Worse than {first}", "largest setback first", _MOST_CHANGED, lambda line: -line.saved)
    failed = lambda line: bool(line.failures) * (line.last.cer.errors + 1)  # noqa: E731
    rank("failures", "Loops and other failures", unread, _MOST, failed)
    return [chapter for chapter in chapters if chapter.lines]


def other_lines(lines: Sequence[ReadLine], chapters: Sequence[Chapter]) -> tuple[list[ReadLine], int]:
    """Return the lines of no chapter, most errors first, as far as there is room, and how many are left."""
    shown = {line.number for chapter in chapters for line in chapter.lines}
    rest = [line for line in lines if line.number not in shown]
    rest.sort(key=lambda line: (-line.last.cer.errors, line.number))
    taken = 0
    for count, line in enumerate(rest):
        taken += _MARKUP + min(len(line.last.reference), LONGEST)
        taken += sum(_MARKUP // 3 + min(len(score.prediction), LONGEST) for score in line.scores)
        if taken > MOST_TEXT:
            return rest[:count], len(rest) - count
    return rest, 0


def differences(reference: str, prediction: str, longest: int = LONGEST) -> tuple[list[tuple[str, str]], int]:
    """Split a prediction into parts tagged "del" (not read), "ins" (added) or "" (right).

    Cut at `longest` characters; the second value is how many are hidden.
    """
    parts: list[tuple[str, str]] = []
    shown = hidden = 0
    for span in align(reference, prediction):
        room = longest - shown
        length = max(len(span.reference), len(span.prediction))
        written, read = span.reference[:room], span.prediction[:room]
        parts += [("", written)] if span.correct else [("del", written), ("ins", read)]
        shown += min(length, room)
        hidden += max(length - room, 0)
    return [(tag, text) for tag, text in parts if text], hidden
