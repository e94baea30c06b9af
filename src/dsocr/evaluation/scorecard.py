"""The card that sets base beside adapter on one split, and its file, `scorecard.json` in the run folder."""

import json
import math
import platform
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any, Self, get_args

from dsocr import __version__
from dsocr.errors import DataError, RunError
from dsocr.evaluation.breakdown import KINDS, Averages, Characters, Groups
from dsocr.evaluation.metrics import ErrorRate
from dsocr.evaluation.profiles import STRUCK_MARKS, TOKENIZERS, Rates, profiles, rates_by_profile
from dsocr.evaluation.scores import Hand, LineScore, Score, Scores
from dsocr.evaluation.statistics import FEWEST, Interval
from dsocr.runs import to_json, write_atomically
from dsocr.text import Marks, comparable

WIDE = 0.25
"""The share of a rate to either side of it from which an interval is called too wide to tell."""


def certainty(score: Score) -> tuple[str, ...]:
    """What to know before the CER of a score is quoted; nothing where it has no interval to speak of."""
    interval = score.intervals.get("cer")
    return tuple(_sentences(score, interval)) if interval else ()


def _sentences(score: Score, interval: Interval) -> Iterator[str]:
    unit, many = interval.unit, f"{interval.clusters} {interval.unit}{'' if interval.clusters == 1 else 's'}"
    if interval.low is None or interval.high is None:
        yield f"How far the CER can be trusted cannot be said: {interval.reason}."
        return
    yield (
        f"The CER of {score.cer.rate:.2%} would lie between {interval.low:.2%} and {interval.high:.2%} on other "
        f"{unit}s like these ({interval.level:.0%} interval over {many})."
    )
    if interval.high - interval.low > 2 * WIDE * score.cer.rate:
        yield f"That is wide: {many} are too few to tell the CER within a quarter of itself."
    if unit == "page":
        yield f"Fewer than {FEWEST} writers are known, so this says nothing about hands that the test does not have."
    if unit == "line":
        yield (
            f"Fewer than {FEWEST} writers and {FEWEST} pages are known, so every line counts by itself: lines of one "
            "hand go wrong together, and the interval is too narrow for other hands."
        )


FORMAT = "dsocr-scorecard"
FORMAT_VERSION = 2

MEANING = (
    "CER and WER are edits over reference length, pooled over all lines: 0 is perfect, and above 1 is possible. "
    "Texts are compared in NFC with white space collapsed; case, punctuation and ё/е count, and punctuation belongs to "
    "its word. Nothing is clipped or left out: an empty prediction costs its whole reference, a runaway one (cut off, "
    "or over twice its reference and 20 characters) all that it wrote."
)


def _versions() -> dict[str, str]:
    """Python and the packages that readings and scores depend on."""
    packages = ("torch", "transformers", "peft", "numpy", "rapidfuzz")
    return {"python": platform.python_version(), **{name: version(name) for name in packages}}


@dataclass(frozen=True, slots=True)
class Scorecard:
    """What a model is worth on one split; docs/guide/scorecard.md and `schema()` say it key by key.

    `by_hands` holds the same scores for known and new hands, `groups` by writer, page, source, length and script;
    `averages` and `characters` are by model, `profiles` by name and model. `worst` are the lines that cost most, as the
    adapter (else the base) read them. `dataset` holds the hash of each split, `settings` whatever the predictions were
    made with. `certainty` and `remarks` are sentences: how far to trust the CER, and what is unusual about this card.
    `guard` is what became of the guard set, as `GuardReading.as_dict` writes it, None where none was read.
    """

    split: str
    base: Score | None
    adapter: Score | None
    by_hands: Mapping[Hand, Scores] = field(default_factory=dict)
    certainty: Sequence[str] = ()
    remarks: Sequence[str] = ()
    averages: Mapping[str, Averages] = field(default_factory=dict)
    profiles: Mapping[str, Mapping[str, Rates]] = field(default_factory=dict)
    profile_meanings: Mapping[str, str] = field(default_factory=dict)
    groups: Mapping[str, Groups] = field(default_factory=dict)
    characters: Mapping[str, Characters] = field(default_factory=dict)
    worst: Sequence[LineScore] = ()
    dataset: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    guard: Mapping[str, Any] | None = None
    meaning: str = MEANING
    made_at: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    dsocr_version: str = __version__
    versions: Mapping[str, str] = field(default_factory=_versions)

    @property
    def scores(self) -> Scores:
        """The headlines of both models."""
        return Scores(self.base, self.adapter)

    def as_dict(self) -> dict[str, Any]:
        """The card as JSON holds it: `base.cer` and `adapter.cer` are fractions; see `Score.as_dict`."""
        return {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "split": self.split,
            **self.scores.as_dict(),
            "by_hands": {hand: scores.as_dict() for hand, scores in self.by_hands.items()},
            "certainty": list(self.certainty),
            "remarks": list(self.remarks),
            "averages": {model: averages.as_dict() for model, averages in self.averages.items()},
            "profiles": {
                name: {
                    "meaning": self.profile_meanings[name],
                    **{model: rates.as_dict() for model, rates in both.items()},
                }
                for name, both in self.profiles.items()
            },
            "tokenizers": dict(TOKENIZERS),
            "groups": {kind: groups.as_dict() for kind, groups in self.groups.items()},
            "characters": {model: characters.as_dict() for model, characters in self.characters.items()},
            "worst": [line.as_dict() for line in self.worst],
            "dataset": dict(self.dataset),
            "settings": dict(self.settings),
            "guard": None if self.guard is None else dict(self.guard),
            "meaning": self.meaning,
            "made_at": self.made_at,
            "dsocr_version": self.dsocr_version,
            "versions": dict(self.versions),
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """The card that `as_dict` wrote; ValueError for another thing, or a card of another version."""
        if (values["format"], values["format_version"]) != (FORMAT, FORMAT_VERSION):
            raise ValueError(f"a card of version {values['format_version']}")
        scores = Scores.from_dict(values)
        named = {name: dict(both) for name, both in values["profiles"].items()}
        built: dict[str, Any] = {
            "base": scores.base,
            "adapter": scores.adapter,
            "by_hands": {hand: Scores.from_dict(both) for hand, both in values["by_hands"].items()},
            "certainty": tuple(values["certainty"]),
            "remarks": tuple(values["remarks"]),
            "averages": {model: Averages.from_dict(averages) for model, averages in values["averages"].items()},
            "profile_meanings": {name: both.pop("meaning") for name, both in named.items()},
            "profiles": {
                name: {model: Rates.from_dict(rates) for model, rates in both.items()} for name, both in named.items()
            },
            "groups": {kind: Groups.from_dict(groups) for kind, groups in values["groups"].items()},
            "characters": {model: Characters.from_dict(counts) for model, counts in values["characters"].items()},
            "worst": tuple(LineScore.from_dict(line) for line in values["worst"]),
        }
        plain = {name: values[name] for name in values if name not in ("format", "format_version", "tokenizers")}
        return cls(**{**plain, **built})

    def save(self, path: Path) -> None:
        """Write the card as JSON."""
        write_atomically(path, to_json(self.as_dict()))

    @classmethod
    def load(cls, path: Path) -> Self:
        """The card in a file that `save` wrote."""
        try:
            return cls.from_dict(json.loads(path.read_text(encoding="utf-8")))
        except FileNotFoundError as error:
            raise RunError("no such file", where=path, hint="run `dsocr evaluate` on the run folder first") from error
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            hint = "run `dsocr evaluate` again"
            raise RunError("is not a scorecard that this version can read", where=path, hint=hint) from error


def schema() -> dict[str, Any]:
    """The JSON Schema of `scorecard.json`, which is shipped beside this module."""
    text = files(__package__).joinpath("scorecard.schema.json").read_text(encoding="utf-8")
    values: dict[str, Any] = json.loads(text)
    return values


def make_scorecard(
    split: str,
    base: Sequence[LineScore] | None,
    adapter: Sequence[LineScore] | None,
    *,
    base_seconds: float | None = None,
    adapter_seconds: float | None = None,
    dataset: Mapping[str, str] | None = None,
    settings: Mapping[str, Any] | None = None,
    remarks: Sequence[str] = (),
    struck_marks: Marks = STRUCK_MARKS,
) -> Scorecard:
    """The card of the same lines as the base and as the adapter read them; None for one that did not read."""
    lines = _side_by_side(base, adapter)
    seconds = {"base": base_seconds, "adapter": adapter_seconds}
    scores = Scores(**{model: Score.of(read, seconds[model], intervals=True) for model, read in lines.items()})
    chosen = profiles(struck_marks)
    last = next(reversed(lines.values()))
    return Scorecard(
        split=split,
        base=scores.base,
        adapter=scores.adapter,
        by_hands={hand: _of_hand(hand, lines) for hand in get_args(Hand) if any(line.hand == hand for line in last)},
        certainty=certainty(scores.last),
        remarks=tuple(remarks),
        averages={model: Averages.of(read) for model, read in lines.items()},
        profiles=rates_by_profile(lines, chosen),
        profile_meanings={profile.name: profile.meaning for profile in chosen},
        groups={kind: Groups.of(kind, lines) for kind in KINDS},
        characters={model: Characters.of(read) for model, read in lines.items()},
        worst=worst_lines(last),
        dataset=dataset or {},
        settings=settings or {},
    )


def worst_lines(lines: Sequence[LineScore], count: int = 10) -> tuple[LineScore, ...]:
    """The lines with the most character errors, which are those that raise the pooled CER most, worst first."""
    wrong = [line for line in lines if line.cer.errors]
    return tuple(sorted(wrong, key=lambda line: (-line.cer.errors, -line.cer.rate, line.id))[:count])


def _side_by_side(
    base: Sequence[LineScore] | None, adapter: Sequence[LineScore] | None
) -> dict[str, Sequence[LineScore]]:
    """The lines of those that read, base first, in one order."""
    read = {model: lines for model, lines in (("base", base), ("adapter", adapter)) if lines is not None}
    if not any(read.values()):
        raise DataError("there is no line to score")
    if base is None or adapter is None:
        return read
    by_id = {line.id: line for line in base}
    if len(by_id) < len(base) or len(base) != len(adapter) or by_id.keys() != {line.id for line in adapter}:
        raise DataError("base and adapter did not read the same lines, so their scores cannot stand side by side")
    changed = [line.id for line in adapter if by_id[line.id].reference != line.reference]
    if changed:
        raise DataError(f"base and adapter were scored against other references, {len(changed)} in all: {changed[0]}")
    return {"base": [by_id[line.id] for line in adapter], "adapter": adapter}


def _of_hand(hand: Hand, lines_by_model: Mapping[str, Sequence[LineScore]]) -> Scores:
    chosen = {model: [line for line in lines if line.hand == hand] for model, lines in lines_by_model.items()}
    return Scores.of(chosen, intervals=True)


HANDS: dict[Hand, str] = {
    "known": "new lines of known hands",
    "new": "new hands",
    "unknown": "unknown hands",
}

FAILED = {
    "empty": "nothing was read",
    "truncated": "cut off before its end",
    "looping": "caught in a loop",
    "over_long": "far too long",
    "wrong_script": "in another script",
}

PROFILES = {
    "without_case": "without case",
    "without_punctuation": "without punctuation",
    "yo_as_e": "ё as е",
    "pre_reform": "old spelling as new",
    "digits_only": "numbers alone",
    "without_struck": "without struck-out text",
}

WIDTH = 88
Row = tuple[str, str, str]


def render_table(card: Scorecard) -> str:
    """Base beside adapter, then the lines that cost most; ends with a newline."""
    blocks = [_scores(card), *(_wrapped(sentence) for sentence in (*card.remarks, *card.certainty, card.meaning))]
    if card.worst:
        blocks.append("\n".join(["Lines with the most errors", *map(_line, card.worst[:5])]))
    return "\n\n".join(blocks) + "\n"


def _wrapped(sentence: str) -> str:
    return textwrap.fill(sentence, WIDTH)


def _scores(card: Scorecard) -> str:
    pair = (card.base, card.adapter)
    alone = next(iter(card.by_hands), None) if len(card.by_hands) == 1 else None
    title = f"{card.split} split" + (f", {HANDS[alone]}" if alone else "")
    rows = [(title, "base", "adapter"), *_rows("", pair)]
    groups = {} if alone else card.by_hands  # a single group would repeat the whole
    for hand, scores in groups.items():
        rows += [("", "", ""), (HANDS[hand], "", ""), *_rows("  ", (scores.base, scores.adapter))]
    rows += [("", "", ""), ("CER by other counts", "", ""), *_other_counts(card)]
    return aligned(rows)


def _rows(indent: str, pair: Sequence[Score | None]) -> Iterable[Row]:
    base, adapter = (_column(score) if score else {} for score in pair)
    for name in dict.fromkeys([*base, *adapter]):
        none = "-" if name.strip().endswith("interval") else "0"
        yield f"{indent}{name}", base.get(name, none if base else "-"), adapter.get(name, none if adapter else "-")


def _column(score: Score) -> dict[str, str]:
    seconds = {} if score.seconds is None else {"seconds": f"{score.seconds:.1f}"}
    return {
        "CER": _percent(score.cer),
        **_interval(score.intervals.get("cer")),
        "WER": _percent(score.wer),
        "lines": str(score.lines),
        "exact": str(score.exact),
        "empty": str(score.empty),
        "runaway": str(score.runaway),
        **{name: str(score.failures[name]) for name in ("looping", "wrong_script") if score.failures[name]},
        **seconds,
    }


def _interval(interval: Interval | None) -> dict[str, str]:
    if interval is None or interval.low is None or interval.high is None:
        return {}
    return {f"  {interval.level:.0%} interval": f"{interval.low:.1%}-{interval.high:.1%}"}


def _other_counts(card: Scorecard) -> Iterable[Row]:
    """The CER under each profile that has text, and the macro mean over lines."""
    raw = card.profiles.get("raw", {})
    for name, title in PROFILES.items():
        both = card.profiles.get(name, {})
        changed = any(rates.cer != raw[model].cer for model, rates in both.items())
        if changed and any(rates.cer.length for rates in both.values()):
            cells = {model: _percent(rates.cer) for model, rates in both.items()}
            yield f"  {title}", cells.get("base", "-"), cells.get("adapter", "-")
    means = {model: averages.macro_over_lines.cer for model, averages in card.averages.items()}
    cells = {model: f"{mean:.2%}" for model, mean in means.items() if mean is not None}
    yield "  macro: mean over lines", cells.get("base", "-"), cells.get("adapter", "-")


def _percent(errors: ErrorRate) -> str:
    return f"{errors.rate:.2%}" if math.isfinite(errors.rate) else "no text"


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Rows in columns, the first to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    sides = "<" + ">" * (len(widths) - 1)
    return "\n".join(
        "  ".join(f"{cell:{side}{width}}" for cell, side, width in zip(row, sides, widths, strict=True)).rstrip()
        for row in rows
    )


def _line(line: LineScore) -> str:
    facts = [f"{line.cer.errors} {'error' if line.cer.errors == 1 else 'errors'} in {line.cer.length} characters"]
    facts += [said for failure, said in FAILED.items() if getattr(line, failure)]
    texts = [f"    reference   {shown(line.reference)}", f"    prediction  {shown(line.prediction)}"]
    return "\n".join([f"  {line.id}: {', '.join(facts)}", *texts])


def shown(text: str, longest: int = 160) -> str:
    """On one line, cut where a loop fills pages, and without the control characters that could drive a terminal."""
    text = "".join(character if character.isprintable() else "?" for character in comparable(text))
    return text if len(text) <= longest else f"{text[:longest]}... ({len(text)} characters)"
