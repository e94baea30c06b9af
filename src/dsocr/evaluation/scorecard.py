"""The scorecard: base and adapter compared on one split, also by group of lines and by character; `scorecard.json`."""

import json
import platform
import re
import textwrap
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from html import escape
from importlib.metadata import version
from importlib.resources import files
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any, Self, get_args

import numpy as np
from pydantic import BaseModel, Field, TypeAdapter
from rapidfuzz.distance import Levenshtein

from dsocr import __version__
from dsocr.config import load_run_config
from dsocr.data.dataset import Dataset
from dsocr.data.splits import length_bounds, script_of
from dsocr.document import Split
from dsocr.errors import RunError
from dsocr.evaluation.metrics import DEFAULT_STRUCK_MARKS, ProfileRates, pool, profile_rates, profiles
from dsocr.evaluation.scores import (
    FAILURE_LABELS,
    MODEL_LABELS,
    LineScore,
    Score,
    Scores,
    WriterStatus,
    align_readings,
)
from dsocr.evaluation.statistics import LEVEL, MIN_CLUSTERS, withheld_interval
from dsocr.html import counted
from dsocr.io.encodings import reading_json
from dsocr.io.work import write_file
from dsocr.runs import RunFolder, to_json
from dsocr.text import Marks, comparable, percentage

FORMAT = "dsocr-scorecard"
FORMAT_VERSION = 4

DEFINITION = (
    "CER and WER are edits over reference length, pooled over all lines: 0 is perfect, and above 1 is possible. "
    "Texts are compared in NFC with white space collapsed; case, punctuation and ё/е count, and punctuation belongs to "
    "its word. Nothing is clipped or left out: an empty prediction costs its whole reference, and a runaway one (cut "
    "off, or longer than twice its reference plus 20 characters) everything it wrote."
)

METHODS = (
    "Error rates are pooled over all lines (edits over reference length). Intervals are at 95 %, with whole writers as "
    "clusters (pages where fewer than five writers are known, else lines), and do not include the randomness of "
    "training. They use the jackknife standard error over clusters of the cube root of the rate (share of exact lines: "
    "the arcsine of its square root), Student's t with Satterthwaite's degrees of freedom, and a shift for skewness "
    "(Johnson 1978). Two systems are compared by the Wilcoxon signed-rank test over the clusters' log ratios of errors."
)
"""A paragraph that a paper can quote."""

TOKENIZERS = {
    "white_space": "words are separated by white space; punctuation belongs to its word (wer)",
    "punctuation_apart": "every character that is not a letter, mark or number is a word (wer_punctuation_apart)",
}
"""How words are counted, by name."""

WIDE_INTERVAL = 0.25
"""An interval that extends further than this share of the CER to either side is reported as wide."""

WRITER_STATUS_LABELS: dict[WriterStatus, str] = {
    "known": "known writers, new lines",
    "new": "new writers",
    "unknown": "unknown writers",
}
TEXT_LABELS = {"seen": "texts that training has seen", "new": "other texts"}
PROFILE_LABELS = {
    "without_case": "without case",
    "without_punctuation": "without punctuation",
    "without_accents": "without accents",
    "yo_as_e": "ё as е",
    "pre_reform": "modernised spelling",
    "digits_only": "numbers only",
    "without_struck": "without struck-out text",
}

GROUP_KINDS = ("writer", "page", "source", "length", "script")
MAX_GROUPS = 40
"""Groups of a kind that are listed; the others are pooled."""
MAX_CHARACTERS = 60
"""Characters and edits that are listed; the others are counted."""

_LOCATION = re.compile(r"#.*|:\d+$", re.DOTALL)
"""The location of a line within its source file."""
_PACKAGES = ("torch", "transformers", "peft", "numpy", "rapidfuzz")
"""Packages that predictions and scores depend on."""
_WIDTH = 88
_WORST = 10
_MAX_TEXT = 160


@dataclass(frozen=True, slots=True)
class LineGroup:
    """Scores of the lines that share a writer, page, ...; the name is None where that is not known."""

    name: str | None
    scores: Scores


@dataclass(frozen=True, slots=True)
class LineGroups:
    """All lines by one kind of group: the largest groups (lengths in ascending order), and the `others` pooled."""

    top: tuple[LineGroup, ...]
    others: int = 0
    others_scores: Scores | None = None

    @classmethod
    def compute(cls, kind: str, lines_by_model: Mapping[str, Sequence[LineScore]]) -> Self:
        """Group lines; all models must have read the same lines in the same order."""
        places: dict[str | None, list[int]] = {}
        for place, name in enumerate(_group_names(kind, next(iter(lines_by_model.values())))):
            places.setdefault(name, []).append(place)
        ranked = sorted(places, key=lambda name: (-len(places[name]), name is None, name or ""))
        listed, others = ranked[:MAX_GROUPS], ranked[MAX_GROUPS:]
        if kind == "length":
            listed.sort(key=lambda name: int((name or "0").split("-")[0]))

        def score(chosen: Sequence[int]) -> Scores:
            selected = {model: [lines[place] for place in chosen] for model, lines in lines_by_model.items()}
            return Scores.compute(selected, intervals=kind == "writer")  # over the writer's pages, else lines

        rest = [place for name in others for place in places[name]]
        top = tuple(LineGroup(name, score(places[name])) for name in listed)
        return cls(top, len(others), score(rest) if rest else None)


def _group_names(kind: str, lines: Sequence[LineScore]) -> Sequence[str | None]:
    if kind == "length":  # ranges with about the same number of lines, such as `21-34` characters
        lengths = [line.cer.length for line in lines]
        least = min(lengths)
        bounds = [least, *(bound for bound in length_bounds(lengths) if bound > least), max(lengths) + 1]
        places = (bisect_right(bounds, length) for length in lengths)
        return [f"{bounds[place - 1]}-{bounds[place] - 1}" for place in places]
    if kind == "script":
        return [script_of(line.reference) for line in lines]
    if kind != "source":
        return [*map(attrgetter(kind), lines)]
    # The folder `letters` for `letters/17.xml:12`, the file `lines.csv` for `lines.csv:12`.
    paths = [line.source and _LOCATION.sub("", line.source) for line in lines]
    return [path and (path.rpartition("/")[0] or path) for path in paths]


@dataclass(frozen=True, slots=True)
class MacroAverage:
    """The mean of `count` rates, None if there are none; `skipped` have no reference text and so no rate."""

    cer: float | None
    wer: float | None
    count: int
    skipped: int = 0


@dataclass(frozen=True, slots=True)
class Averages:
    """Macro averages over lines, known writers and pages, and quantiles of the lines' CER, interpolated linearly."""

    macro_over_lines: MacroAverage
    macro_over_writers: MacroAverage
    macro_over_pages: MacroAverage
    median_line_cer: float | None
    p90_line_cer: float | None

    @classmethod
    def compute(cls, lines: Sequence[LineScore]) -> Self:
        """Average the rates of some lines."""
        rates = [line.cer.rate for line in lines if line.cer.length]
        median, p90 = (float(value) for value in np.quantile(rates, [0.5, 0.9])) if rates else (None, None)
        return cls(_macro("id", lines), _macro("writer", lines), _macro("page", lines), median, p90)


def _macro(kind: str, lines: Sequence[LineScore]) -> MacroAverage:
    """Average the pooled rates of the lines of each writer, page or id that is known."""
    groups: dict[str, list[LineScore]] = {}
    for line in lines:
        if (name := getattr(line, kind)) is not None:
            groups.setdefault(name, []).append(line)
    pooled = [(pool(line.cer for line in group), pool(line.wer for line in group)) for group in groups.values()]
    counted = [(cer.rate, wer.rate) for cer, wer in pooled if cer.length]
    if not counted:
        return MacroAverage(None, None, 0, len(pooled))
    cer, wer = np.mean(counted, axis=0)
    return MacroAverage(float(cer), float(wer), len(counted), len(pooled) - len(counted))


@dataclass(frozen=True, slots=True)
class CharacterCount:
    """How often a character of the references occurs, and how often it was not read."""

    character: str
    count: int
    errors: int


@dataclass(frozen=True, slots=True)
class Edit:
    """How often a character of the references was read as another; one of both is empty if it was left out or added."""

    reference: str
    prediction: str
    count: int


@dataclass(frozen=True, slots=True)
class Edits:
    """The most frequent edits of a kind, and the number and total count of the `others`."""

    top: tuple[Edit, ...]
    others: int
    others_count: int

    @classmethod
    def compute(cls, counts: Counter[tuple[str, str]]) -> Self:
        """Rank counted edits."""
        edits = (Edit(*pair, count) for pair, count in counts.items())
        ranked = sorted(edits, key=lambda edit: (-edit.count, edit.reference, edit.prediction))
        rest = ranked[MAX_CHARACTERS:]
        return cls(tuple(ranked[:MAX_CHARACTERS]), len(rest), sum(edit.count for edit in rest))


@dataclass(frozen=True, slots=True)
class CharacterErrors:
    """Character errors of some lines; `substitutions`, `deletions` and `insertions` together are all of them.

    `by_character` lists the characters that are misread most. Of all alignments with the fewest edits, rapidfuzz's is
    used, so a single pair can be ambiguous; the sums are not.
    """

    count: int
    substitutions: int
    deletions: int
    insertions: int
    by_character: tuple[CharacterCount, ...]
    substituted: Edits
    deleted: Edits
    inserted: Edits

    @classmethod
    def compute(cls, lines: Sequence[LineScore]) -> Self:
        """Count the errors in some lines."""
        counts, misread = Counter[str](), Counter[str]()
        edits = {tag: Counter[tuple[str, str]]() for tag in ("replace", "delete", "insert")}
        for line in lines:
            reference, prediction = comparable(line.reference), comparable(line.prediction)
            counts.update(reference)
            for edit in Levenshtein.editops(reference, prediction) if line.cer.errors else ():
                before = "" if edit.tag == "insert" else reference[edit.src_pos]
                edits[edit.tag][before, "" if edit.tag == "delete" else prediction[edit.dest_pos]] += 1
                misread[before] += 1
        del misread[""]
        ranked = sorted(misread.items(), key=lambda item: (-item[1], item[0]))[:MAX_CHARACTERS]
        return cls(
            count=counts.total(),
            substitutions=edits["replace"].total(),
            deletions=edits["delete"].total(),
            insertions=edits["insert"].total(),
            by_character=tuple(CharacterCount(character, counts[character], errors) for character, errors in ranked),
            substituted=Edits.compute(edits["replace"]),
            deleted=Edits.compute(edits["delete"]),
            inserted=Edits.compute(edits["insert"]),
        )


@dataclass(frozen=True, slots=True)
class Scorecard:
    """The scores of a base and an adapter on one split; docs/reference/scorecard.md and `schema()` explain each key.

    `by_text` has lines whose text was trained on ("seen") and the others ("new"), empty if all are of one kind.
    `averages` and `characters` are by model, `profiles` by name and model, `groups` by kind. `worst` are the lines with
    the most errors of the adapter (else the base). `dataset` has the hash of each split. `uncertainty` says in
    sentences how far to trust the CER, `notes` what is peculiar. `folder` has the files that `evaluate` wrote.

    `print(card)` shows the table; notebooks show a short one.
    """

    split: str
    base: Score | None
    adapter: Score | None
    by_writer_status: Mapping[WriterStatus, Scores] = field(default_factory=dict)
    by_text: Mapping[str, Scores] = field(default_factory=dict)
    uncertainty: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    averages: Mapping[str, Averages] = field(default_factory=dict)
    profiles: Mapping[str, Mapping[str, ProfileRates]] = field(default_factory=dict)
    profile_definitions: Mapping[str, str] = field(default_factory=dict)
    groups: Mapping[str, LineGroups] = field(default_factory=dict)
    characters: Mapping[str, CharacterErrors] = field(default_factory=dict)
    worst: tuple[LineScore, ...] = ()
    dataset: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    definition: str = DEFINITION
    methods: str = METHODS
    created_at: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    dsocr_version: str = __version__
    versions: Mapping[str, str] = field(
        default_factory=lambda: {"python": platform.python_version(), **{name: version(name) for name in _PACKAGES}}
    )
    folder: Annotated[Path | None, Field(exclude=True)] = field(default=None, compare=False)

    @property
    def scores(self) -> Scores:
        """The scores of both models."""
        return Scores(self.base, self.adapter)

    @property
    def cer(self) -> float:
        """The adapter's CER (else the base's), as a fraction."""
        return self.scores.final.cer.rate

    @property
    def wer(self) -> float:
        """The adapter's WER (else the base's), as a fraction."""
        return self.scores.final.wer.rate

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % interval of `cer`, as fractions; None if the lines are too few for one."""
        interval = self.scores.final.interval
        return interval.bounds if interval else None

    def __str__(self) -> str:
        return render_table(self)

    def _repr_html_(self) -> str:
        """Return the main scores as text for notebooks."""
        rows = [(f"{self.split} split", *MODEL_LABELS.values()), *_score_rows("", self.scores)]
        return f"<pre>{escape(align_columns(rows))}</pre>"

    def to_dict(self) -> dict[str, Any]:
        """Return the card for JSON; rates are fractions, those of errors with their counts."""
        head = {"format": FORMAT, "format_version": FORMAT_VERSION}
        return {**head, **_CARD.dump_python(self, mode="json"), "tokenizers": dict(TOKENIZERS)}

    def save(self, path: Path) -> None:
        """Write the card as JSON."""
        write_file(path, to_json(self.to_dict()))

    @classmethod
    def load(cls, path: Path) -> "Scorecard":
        """Read a card that `save` wrote."""
        if not path.is_file():
            hint = "run `dsocr evaluate` on the run folder first"
            raise RunError("no such file", code="scorecard-missing", where=path, hint=hint)
        message, hint = "not a scorecard that this version can read", "run `dsocr evaluate` again"
        with reading_json(path, RunError, "scorecard-invalid", message=message, hint=hint) as values:
            if values["format"] != FORMAT or values["format_version"] != FORMAT_VERSION:
                raise ValueError(f"unsupported scorecard format version {values['format_version']}")
            if missing := [field.name for field in fields(cls) if field.name not in {*values, "folder"}]:
                raise ValueError(f"missing: {', '.join(missing)}")
            _Settings.model_validate(values["settings"], strict=True)
            card = _CARD.validate_python(values)
            models = {name for name in ("base", "adapter") if getattr(card, name)}
            if not (Split(card.split) and models and models <= card.averages.keys() & card.characters.keys()):
                raise ValueError("scores of a model are missing")
            return card


def open_dataset(run: RunFolder, folder: Path | None = None, fold: int | None = None) -> Dataset:
    """Open a dataset folder, by default the run's own with the splits it was trained on."""
    if folder is not None:
        return Dataset.open(folder, fold=fold)
    config = load_run_config(run.config)
    return Dataset.open(config.dataset, fold=config.fold)


def open_scored_dataset(run: RunFolder, card: Scorecard, folder: Path | None = None) -> Dataset:
    """Open the dataset of a scorecard, by default from its place at that time. Raises DsocrError if it is gone."""
    scored = folder or card.settings.get("dataset")
    return open_dataset(run, None if scored is None else Path(scored), card.settings.get("fold"))


_CARD = TypeAdapter(Scorecard)


class _Settings(BaseModel):
    """The settings of a card that others use."""

    base: str | None = None
    base_revision: str | None = None
    family: str | None = None
    dataset: str | None = None
    fold: int | None = None
    limit: int | None = None
    adapter_sha256: str | None = None


def schema() -> dict[str, Any]:
    """Return the JSON Schema of `scorecard.json`."""
    values: dict[str, Any] = json.loads(files(__package__).joinpath("scorecard.schema.json").read_bytes())
    return values


def make_scorecard(
    split: str,
    readings: Mapping[str, Sequence[LineScore]],
    seconds: Mapping[str, float] | None = None,
    *,
    struck_marks: Marks = DEFAULT_STRUCK_MARKS,
    folds: Mapping[str, int] | None = None,
    **about: Any,
) -> Scorecard:
    """Make the card of the same lines read by "base", "adapter" or both, with the `seconds` that each took.

    `folds` are those of the lines by id, if an adapter was trained for each; the intervals then include how much these
    differ. `about` are further fields of the card: `dataset`, `settings`, `notes`. Raises DataError if there are no
    lines, or not the same lines and references on both sides.
    """
    lines = align_readings(readings)
    scores = Scores.compute(lines, seconds, intervals=True, folds=folds)
    chosen = profiles(struck_marks)
    rates = {
        model: profile_rates([line.reference for line in read], [line.prediction for line in read], chosen)
        for model, read in lines.items()
    }

    def score(is_chosen: Callable[[LineScore], bool], **folds: Any) -> Scores | None:
        selected = {model: [line for line in read if is_chosen(line)] for model, read in lines.items()}
        return Scores.compute(selected, intervals=True, **folds) if any(selected.values()) else None

    parts = {
        status: score(lambda line, status=status: line.writer_status == status, folds=folds)  # type: ignore[misc]
        for status in get_args(WriterStatus)
    }
    by_status: dict[WriterStatus, Scores] = {status: part for status, part in parts.items() if part}
    if (new := by_status.get("new")) and (count := new.writers or 0) < MIN_CLUSTERS:  # one over pages would mislead
        none = dict.fromkeys(("cer", "wer", "exact"), withheld_interval(count))
        read = {model: replace(getattr(new, model), intervals=none) for model in lines}
        by_status["new"] = replace(new, **read)
    # Lines whose text training has seen flatter the score, as lists and forms do.
    by_text = {"seen": score(lambda line: line.seen_text), "new": score(lambda line: not line.seen_text)}
    wrong = [line for line in lines["adapter" if scores.adapter else "base"] if line.cer.errors]
    return Scorecard(
        split=split,
        base=scores.base,
        adapter=scores.adapter,
        by_writer_status=by_status,
        by_text={name: part for name, part in by_text.items() if part} if all(by_text.values()) else {},
        uncertainty=tuple(_describe_uncertainty(scores.final)),
        averages={model: Averages.compute(read) for model, read in lines.items()},
        profiles={profile.name: {model: rates[model][profile.name] for model in lines} for profile in chosen},
        profile_definitions={profile.name: profile.description for profile in chosen},
        groups={kind: LineGroups.compute(kind, lines) for kind in GROUP_KINDS},
        characters={model: CharacterErrors.compute(read) for model, read in lines.items()},
        worst=tuple(sorted(wrong, key=lambda line: (-line.cer.errors, -line.cer.rate, line.id))[:_WORST]),
        **about,
    )


def _describe_uncertainty(score: Score) -> Iterator[str]:
    interval = score.intervals["cer"]
    unit, clusters = interval.unit, counted(interval.clusters, interval.unit)
    if interval.low is None or interval.high is None:
        yield f"The CER has no confidence interval: {interval.reason}."
        return
    yield (
        f"The CER of {percentage(score.cer.rate, 1)} would lie between {percentage(interval.low, 1)} and "
        f"{percentage(interval.high, 1)} on other {unit}s like these ({percentage(interval.level, 0)} interval over "
        f"{clusters})."
    )
    if interval.high - interval.low > 2 * WIDE_INTERVAL * score.cer.rate:
        yield f"That is wide: {clusters} are too few to know the CER to within a quarter of its value."
    if unit == "page":
        yield f"Fewer than {MIN_CLUSTERS} writers are known, so this does not hold for other writers."
    if unit == "line":
        yield (
            f"Fewer than {MIN_CLUSTERS} writers and {MIN_CLUSTERS} pages are known, so lines are treated as "
            "independent. Errors of one writer are correlated, so the interval is too narrow for other writers."
        )


def render_table(card: Scorecard) -> str:
    """Return the table of the base and the trained model, the notes, and the worst lines; ends with a newline."""
    sentences = (*card.notes, *card.uncertainty, card.definition)
    only = next(iter(card.by_writer_status)) if len(card.by_writer_status) == 1 else None
    title = f"{card.split} split" + (f", {WRITER_STATUS_LABELS[only]}" if only else "")
    rows = [(title, *MODEL_LABELS.values()), *_score_rows("", card.scores)]
    for status, scores in card.by_writer_status.items() if not only else ():  # it would repeat the whole
        interval, title = scores.final.interval, name_writers(status, scores.writers)
        if interval and not (interval.unit == "writer" and interval.bounds):
            title += f" ({f'over {interval.unit}s' if interval.bounds else 'no interval'})"
        rows += [("", "", ""), (title, "", ""), *_score_rows("  ", scores)]
    table = align_columns([*rows, ("", "", ""), ("CER by other counts", "", ""), *_other_rates(card)])
    blocks = [table, *(textwrap.fill(sentence, _WIDTH) for sentence in sentences)]
    worst = ["Lines with the most errors"] if card.worst else []
    for line in card.worst[:5]:
        count = f"{counted(line.cer.errors, 'error')} in {line.cer.length} characters"
        failures = [label for failure, label in FAILURE_LABELS.items() if getattr(line, failure)]
        worst.append(f"  {line.id}: {', '.join([count, *failures])}")
        for name, text in (("reference", line.reference), ("prediction", line.prediction)):
            # On one line, without control characters that could affect the terminal.
            text = "".join(character if character.isprintable() else "?" for character in comparable(text))
            shown = text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]}... ({len(text)} characters)"
            worst.append(f"    {name:<12}{shown}")
    return "\n\n".join([*blocks, *(["\n".join(worst)] if worst else [])]) + "\n"


def name_writers(status: WriterStatus, count: int | None) -> str:
    """Name a group of writers, with their number where it is known."""
    label = WRITER_STATUS_LABELS[status]
    if not count:
        return label
    return f"{count} {label.replace('writers', 'writer', 1) if count == 1 else label}"


def _score_rows(indent: str, scores: Scores) -> Iterator[tuple[str, str, str]]:
    columns = [_column(score) if score else {} for score in (scores.base, scores.adapter)]
    for name in dict.fromkeys(chain(*columns)):
        missing = "-" if name.startswith("  ") else "0"
        base, adapter = (column.get(name, missing if column else "-") for column in columns)
        yield f"{indent}{name}", base, adapter


def _column(score: Score) -> dict[str, str]:
    ends = score.interval.ends if score.interval else ""
    return {
        "CER": percentage(score.cer.rate),
        **({f"  {percentage(LEVEL, 0)} interval": ends} if ends else {}),
        **({"  without runaways": percentage(score.cer_without_runaways.rate)} if score.runaway else {}),
        "WER": percentage(score.wer.rate),
        "lines": str(score.lines),
        "exact": str(score.exact),
        "empty": str(score.failures["empty"]),
        "runaway": str(score.runaway),
        **{name: str(score.failures[name]) for name in ("looping", "wrong_script") if score.failures[name]},
        **({} if score.seconds is None else {"seconds": f"{score.seconds:.1f}"}),
    }


def _other_rates(card: Scorecard) -> Iterator[tuple[str, str, str]]:
    """Yield the CER under each profile that changes it, and the macro average over lines."""
    raw = card.profiles.get("raw", {})
    for name, label in PROFILE_LABELS.items():
        by_model = card.profiles.get(name, {})
        changed = any(rates.cer != raw[model].cer for model, rates in by_model.items())
        if changed and any(rates.cer.length for rates in by_model.values()):
            cells = {model: percentage(rates.cer.rate) for model, rates in by_model.items()}
            yield f"  {label}", cells.get("base", "-"), cells.get("adapter", "-")
    for kind, scores in card.by_text.items():
        base, adapter = (percentage(score.cer.rate) if score else "-" for score in (scores.base, scores.adapter))
        yield f"  {TEXT_LABELS[kind]} ({scores.final.lines} lines)", base, adapter
    means = {model: averages.macro_over_lines.cer for model, averages in card.averages.items()}
    cells = {model: percentage(mean) for model, mean in means.items() if mean is not None}
    yield "  macro average over lines", cells.get("base", "-"), cells.get("adapter", "-")


def align_columns(rows: Sequence[Sequence[str]]) -> str:
    """Format rows as columns, the first one left-aligned, the others right-aligned."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    sides = "<" + ">" * (len(widths) - 1)
    return "\n".join(
        "  ".join(f"{cell:{side}{width}}" for cell, side, width in zip(row, sides, widths, strict=True)).rstrip()
        for row in rows
    )
