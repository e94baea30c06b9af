"""The card that sets base beside adapter on one split, and its file, `scorecard.json` in the run folder."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self, get_args

from dsocr import __version__
from dsocr.errors import DataError, RunError
from dsocr.evaluation.scores import Hand, LineScore, Score
from dsocr.runs import to_json, write_atomically

MEANING = (
    "CER and WER are edits over reference length, pooled over all lines: 0 is perfect, and above 1 is possible. "
    "Texts are compared in NFC with white space collapsed; case, punctuation and ё/е count. Nothing is clipped or left "
    "out: an empty prediction costs its whole reference, a runaway one (cut off, or over twice its reference and 20 "
    "characters) all that it wrote."
)


@dataclass(frozen=True, slots=True)
class Scores:
    """The same lines read twice, by the base alone and with the adapter; None where one did not read."""

    base: Score | None = None
    adapter: Score | None = None

    def as_dict(self) -> dict[str, Any]:
        """`base` and `adapter`, each a score or null."""
        return {"base": self.base and self.base.as_dict(), "adapter": self.adapter and self.adapter.as_dict()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """The scores that `as_dict` wrote."""
        base, adapter = values["base"], values["adapter"]
        return cls(base and Score.from_dict(base), adapter and Score.from_dict(adapter))


@dataclass(frozen=True, slots=True)
class Scorecard:
    """What a model is worth on one split.

    `dataset` holds the hash of each split, `settings` whatever the predictions were made with, `by_hands` the same
    scores for known and new hands, and `worst` the lines that cost most, as the adapter (else the base) read them.
    """

    split: str
    base: Score | None
    adapter: Score | None
    by_hands: Mapping[Hand, Scores] = field(default_factory=dict)
    worst: Sequence[LineScore] = ()
    dataset: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    guard: Mapping[str, Any] | None = None
    meaning: str = MEANING
    made_at: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    dsocr_version: str = __version__

    def as_dict(self) -> dict[str, Any]:
        """The card as JSON holds it: `base.cer` and `adapter.cer` are fractions; see `Score.as_dict`."""
        return {
            "split": self.split,
            **Scores(self.base, self.adapter).as_dict(),
            "by_hands": {hand: scores.as_dict() for hand, scores in self.by_hands.items()},
            "worst": [line.as_dict() for line in self.worst],
            "dataset": dict(self.dataset),
            "settings": dict(self.settings),
            "guard": None if self.guard is None else dict(self.guard),
            "meaning": self.meaning,
            "made_at": self.made_at,
            "dsocr_version": self.dsocr_version,
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """The card that `as_dict` wrote."""
        scores = Scores.from_dict(values)
        built: dict[str, Any] = {
            "base": scores.base,
            "adapter": scores.adapter,
            "by_hands": {hand: Scores.from_dict(both) for hand, both in values["by_hands"].items()},
            "worst": tuple(LineScore.from_dict(line) for line in values["worst"]),
        }
        return cls(**{**values, **built})

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
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise RunError("is not a scorecard that this version can read", where=path) from error


def make_scorecard(
    split: str,
    base: Sequence[LineScore] | None,
    adapter: Sequence[LineScore] | None,
    *,
    base_seconds: float | None = None,
    adapter_seconds: float | None = None,
    dataset: Mapping[str, str] | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Scorecard:
    """The card of the same lines as the base and as the adapter read them; None for one that did not read."""
    if base is not None and adapter is not None and {line.id for line in base} != {line.id for line in adapter}:
        raise DataError("base and adapter did not read the same lines, so their scores cannot stand side by side")
    return Scorecard(
        split=split,
        base=None if base is None else Score.of(base, base_seconds),
        adapter=None if adapter is None else Score.of(adapter, adapter_seconds),
        by_hands={hand: scores for hand in get_args(Hand) if (scores := _of_hand(hand, base, adapter)) is not None},
        worst=worst_lines(base or () if adapter is None else adapter),
        dataset=dataset or {},
        settings=settings or {},
    )


def worst_lines(lines: Sequence[LineScore], count: int = 10) -> tuple[LineScore, ...]:
    """The lines with the most character errors, which are those that raise the pooled CER most, worst first."""
    wrong = [line for line in lines if line.cer.errors]
    return tuple(sorted(wrong, key=lambda line: (-line.cer.errors, -line.cer.rate, line.id))[:count])


def _of_hand(hand: Hand, base: Sequence[LineScore] | None, adapter: Sequence[LineScore] | None) -> Scores | None:
    """The scores of the lines in such a hand; None where there are none."""

    def pooled(lines: Sequence[LineScore] | None) -> Score | None:
        chosen = [line for line in lines or () if line.hand == hand]
        return Score.of(chosen) if chosen else None

    scores = Scores(pooled(base), pooled(adapter))
    return None if scores == Scores() else scores
