"""A character n-gram of the texts that a line recogniser was trained on, and the CTC beam search that asks it.

The model knows only transcriptions, those that the base was trained on and those of the archive, so it does not
modernise the spelling. It is stored as counts in JSON.
"""

import json
import math
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from heapq import nlargest
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from dsocr.errors import ConfigError, ModelError

FILE = "language_model.json"
"""Its name in a folder of trained weights."""

ORDER = 6
_END = "\n"
_PADDING = "\n" * (ORDER - 1)
_RARE = 1e-3
"""Characters less likely than this at a step are not followed there."""
_UNLIKELY = 1e-6
"""Texts less likely than this times the likeliest are not followed."""
_LARGE = 1_000_000
"""Characters of texts above which n-grams of four and more are dropped if they are found once."""
_MAX_KNOWN = 300_000
"""Probabilities kept for the next lines, in about 60 MB."""
_MAX_TEXT = 16 << 20
_MAX_FILE = 256 << 20
"""Bytes of a text file, and of a stored model."""


def read_texts(path: Path) -> list[str]:
    """Read the lines of a UTF-8 text file, in NFC with single spaces. Raises ConfigError if it cannot be read."""
    try:
        if path.stat().st_size > _MAX_TEXT:
            raise ValueError(f"it has more than {_MAX_TEXT >> 20} MiB")
        content = unicodedata.normalize("NFC", path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        hint = "give the path of a UTF-8 text file, auto or none"
        message = f"generation.language_model: cannot read text: {error}"
        raise ConfigError(message, code="language-model-text", where=path, hint=hint) from error
    return [text for line in content.splitlines() if (text := " ".join(line.split()))]


class Alignment(NamedTuple):
    """For each character of a text, its highest probability along the line and where it is, in 0..1."""

    probabilities: list[float]
    positions: list[float]


@dataclass(slots=True)
class LanguageModel:
    """Counts of which character follows which `ORDER - 1` or fewer, and the weight of the model in the search.

    Probabilities are interpolated by Witten and Bell's method (1991). `gain` has the CER on the validation split,
    without and with it.
    """

    followers: dict[str, dict[str, int]] = field(default_factory=dict)
    weight: float = 0.0
    gain: tuple[float, float] = (0.0, 0.0)
    _known: dict[tuple[str, str], float] = field(default_factory=dict, repr=False)
    _totals: dict[str, int] = field(default_factory=dict, repr=False)

    @classmethod
    def fit(cls, texts: Iterable[str]) -> Self:
        """Count the characters of lines and of their ends; of a large text, only what is found twice."""
        followers: dict[str, dict[str, int]] = {}
        total = 0
        for text in texts:
            total += len(text)
            padded = _PADDING + text + _END
            for place in range(len(_PADDING), len(padded)):
                for length in range(ORDER):
                    counts = followers.setdefault(padded[place - length : place], {})
                    counts[padded[place]] = counts.get(padded[place], 0) + 1
        model = cls(followers)
        if total > _LARGE:
            model.prune(2)
        return model

    def prune(self, least: int) -> None:
        """Drop n-grams of four characters and more that were counted less than `least` times."""
        for context in [context for context in self.followers if len(context) > 2]:
            counts = self.followers.pop(context)
            if kept := {character: count for character, count in counts.items() if count >= least}:
                self.followers[context] = kept

    def merge(self, other: "LanguageModel", times: int = 1) -> "LanguageModel":
        """Return a model of these counts and of another's, each counted several times; without a weight."""
        followers = {context: dict(counts) for context, counts in self.followers.items()}
        for context, counts in other.followers.items():
            merged = followers.setdefault(context, {})
            for character, count in counts.items():
                merged[character] = merged.get(character, 0) + times * count
        return LanguageModel(followers)

    def log_probability(self, character: str, before: str) -> float:
        """Return how likely a character is after a text, over how likely it is after any, as a logarithm.

        The network has learnt how frequent each character is, so only what comes before adds something.
        """
        key = character, (_PADDING + before)[1 - ORDER :]
        known = self._known.get(key)
        if known is None:
            known = math.log(self._probability(*key) / self._probability(character, ""))
            if len(self._known) >= _MAX_KNOWN:
                self._known.clear()
            self._known[key] = known
        return known

    def score(self, text: str) -> float:
        """Return the sum of `log_probability` over the characters of a text and its end."""
        return math.fsum(self.log_probability(character, text[:at]) for at, character in enumerate(text + _END))

    def _probability(self, character: str, context: str) -> float:
        value = 1 / (len(self.followers.get("", ())) + 1)
        for start in range(len(context), -1, -1):  # from no context to all of it
            counts = self.followers.get(context[start:])
            if counts is not None:
                total = self._totals.get(context[start:])
                if total is None:
                    total = self._totals[context[start:]] = sum(counts.values())
                value = (counts.get(character, 0) + len(counts) * value) / (total + len(counts))
        return value

    def to_json(self) -> str:
        """Return the counts and the weight as JSON."""
        values = {"weight": self.weight, "gain": self.gain, "followers": self.followers}
        return json.dumps(values, ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def load(cls, folder: Path) -> "LanguageModel | None":
        """Load the model of a folder of trained weights; None if it has none. Raises ModelError if it is damaged."""
        path = folder / FILE
        if not path.is_file():
            return None
        try:
            if path.stat().st_size > _MAX_FILE:
                raise ValueError(f"it has more than {_MAX_FILE >> 20} MiB")
            values: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            followers = values["followers"]
            if set(map(type, chain.from_iterable(map(dict.values, followers.values())))) - {int}:
                raise ValueError("its counts are not whole numbers")
            without, with_model = map(float, values["gain"])
            return cls(followers, float(values["weight"]), (without, with_model))
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise ModelError(
                f"Cannot read language model: {error}", code="language-model-invalid", where=path
            ) from error


def search(
    probabilities: NDArray[np.float32],
    characters: Sequence[str],
    num_beams: int,
    model: LanguageModel | None = None,
    weight: float | None = None,
) -> str:
    """Return the likeliest text for `(T, classes)` probabilities by prefix beam search (Hannun et al. 2014)."""
    share = (model.weight if weight is None else weight) if model else 0.0
    places, classes = np.nonzero(probabilities[:, 1:] > _RARE)
    likely = list(
        zip([characters[i] for i in classes.tolist()], probabilities[places, classes + 1].tolist(), strict=True)
    )
    ends = np.searchsorted(places, np.arange(len(probabilities)), side="right").tolist()
    beams = {"": (1.0, 0.0)}  # text -> probability of the paths that end in a blank, and of those that do not
    scores = {"": 0.0}

    def rank(item: tuple[str, tuple[float, float]]) -> float:
        return math.log(sum(item[1])) + share * scores[item[0]]

    start = 0
    for blank, end in zip(probabilities[:, 0].tolist(), ends, strict=True):
        if start == end:  # nothing but the blank
            beams = {text: (ended + unended, 0.0) for text, (ended, unended) in beams.items()}
            continue
        longer_beams: dict[str, tuple[float, float]] = {}
        for text, (ended, unended) in beams.items():
            both, last, repeated = ended + unended, text[-1:], 0.0
            for character, p in likely[start:end]:
                if character == last:
                    repeated, grown = unended * p, ended * p
                else:
                    grown = both * p
                if grown > _UNLIKELY:
                    longer = text + character
                    before = longer_beams.get(longer)
                    longer_beams[longer] = (before[0], before[1] + grown) if before else (0.0, grown)
            if both * blank + repeated > _UNLIKELY:
                before = longer_beams.get(text, (0.0, 0.0))
                longer_beams[text] = both * blank, before[1] + repeated
        former, scores, start = scores, {}, end
        for text in longer_beams:
            known = former.get(text)
            if known is None:
                known = former[text[:-1]] + model.log_probability(text[-1], text[:-1]) if model else 0.0
            scores[text] = known
        kept = nlargest(num_beams, longer_beams.items(), key=rank)
        most = max(sum(pair) for _, pair in kept)
        beams = {text: (ended / most, unended / most) for text, (ended, unended) in kept}

    def final(item: tuple[str, tuple[float, float]]) -> float:
        return rank(item) + (share * model.log_probability(_END, item[0]) if model else 0.0)

    return max(beams.items(), key=final)[0]


def align(probabilities: NDArray[np.float32], classes: Sequence[int]) -> Alignment:
    """Return where the likeliest path through `(T, classes)` probabilities reads each character of a text."""
    if not classes:
        return Alignment([], [])
    states = np.zeros(2 * len(classes) + 1, dtype=np.int64)
    states[1::2] = classes
    logs = np.log(np.maximum(probabilities[:, states], 1e-12))
    skips = np.zeros(len(states), dtype=bool)  # from one character to the next without a blank
    skips[3::2] = states[3::2] != states[1:-2:2]
    best = np.full(len(states), -np.inf)
    best[:2] = logs[0, :2]
    steps = np.zeros(logs.shape, dtype=np.int8)
    for place in range(1, len(logs)):
        next_state, over_blank = np.full_like(best, -np.inf), np.full_like(best, -np.inf)
        next_state[1:], over_blank[2:] = best[:-1], best[:-2]
        options = np.stack([best, next_state, np.where(skips, over_blank, -np.inf)])
        steps[place] = options.argmax(0)
        best = options.max(0) + logs[place]
    state = len(states) - 1 if best[-1] > best[-2] else len(states) - 2
    aligned = Alignment([0.0] * len(classes), [0.0] * len(classes))
    for place in range(len(logs) - 1, -1, -1):
        probability = float(probabilities[place, states[state]])
        if state % 2 and probability > aligned.probabilities[state // 2]:
            aligned.probabilities[state // 2], aligned.positions[state // 2] = probability, (place + 0.5) / len(logs)
        state -= int(steps[place, state])
    return aligned
