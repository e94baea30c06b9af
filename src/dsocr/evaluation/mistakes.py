"""Find lines whose transcription is probably wrong: how much likelier is a model's reading than the given text?

For each line a model that never saw it gives probabilities of the given text, of its own reading, and of texts in
between that have one place as read. These become a few numbers, the evidence. A logistic regression learns from
mistakes that are planted into the same lines, against the lines as they are; few of these are wrong (learning from
positive and unlabelled examples; Elkan and Noto 2008). Weights of evidence for a mistake cannot be negative.

Planted mistakes do not tell how many real ones there are. Those are counted: somebody judges the first lines of the
list and a random sample of the others.
"""

import math
import random
import statistics
import unicodedata
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
from pydantic import BaseModel
from rapidfuzz.distance import Levenshtein
from scipy.optimize import minimize
from scipy.special import expit
from scipy.stats import binomtest

from dsocr.data.check.text_checks import TO_CYRILLIC, TO_LATIN, find_look_alikes
from dsocr.data.splits import page_key
from dsocr.document import Sample
from dsocr.evaluation.statistics import Floats

KINDS = {
    "swapped": "swapped with the line beside it",
    "shifted": "the text of a line nearby",
    "other": "the text of another line",
    "missing": "a word is missing",
    "added": "a word too many",
    "script": "a letter of another script",
    "spelling": "spelled in another way",
}
"""Kinds of mistakes that are planted, and how they are described."""
LABELS = {**KINDS, "same": "read as it is given"}
"""The results of `kind_of`, and how they are described."""
PLANTED = 2
"""Mistakes that are planted into each line, one at a time."""
_PLACES = 8
"""Differences of a line that are looked at one by one, the largest first."""
_MISSING, _ADDED = 3, 2
"""Least characters by which a place is longer or shorter as read where a word is missing or too many."""
_NEAR = 4
"""Lines before and after a line whose text it may have."""
_PRIOR_LINES = 3
"""Lines that the whole dataset counts as in how hard a writer is to read."""
_ALIKE, _UNLIKE = 0.2, 0.4
"""How much more similar a reading must be to a text nearby than to its own; most similarity of a text to another's."""
_HARD_SWAP = 0.7
"""The share of planted neighbours whose own line has the text too, as where two lines were swapped."""
_SHRINKAGE = 1.0
_SIGNS = ".,;:-'’()\"«»"
_LONG = 4
"""Least letters of a word that gets another ending."""


class Planted(NamedTuple):
    """A mistake made on purpose: its kind, the wrong text, and the line that got the right one, if any."""

    kind: str
    text: str
    swapped_with: int | None = None


@dataclass(frozen=True, slots=True)
class ReadSample:
    """A sample, the reading of a model that did not see it, and the log probabilities of texts.

    `plain` is the reading without a language model. `likelihoods` has the probabilities given the image, `language`
    those of a language model (empty if there is none); both of all texts that `texts_to_score` lists.
    """

    sample: Sample
    read: str
    plain: str
    planted: Sequence[Planted]
    likelihoods: Mapping[str, float]
    language: Mapping[str, float]

    def to_dict(self) -> dict[str, Any]:
        """Return all but the sample as JSON values."""
        return {
            "id": self.sample.id,
            "read": self.read,
            "plain": self.plain,
            "planted": [list(mistake) for mistake in self.planted],
            "likelihoods": {text: round(value, 3) for text, value in self.likelihoods.items()},
            "language": {text: round(value, 3) for text, value in self.language.items()},
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], sample: Sample) -> "ReadSample":
        """Rebuild a line from `to_dict`. Raises ValueError for anything else."""
        row = _Row.model_validate(values)
        given = [sample.text, *(mistake.text for mistake in row.planted)]
        needed = set(texts_to_score(row.read, row.plain, given))
        has_all = needed <= row.likelihoods.keys() and (not row.language or needed <= row.language.keys())
        if row.id != sample.id or not has_all:
            raise ValueError(f"not a reading of {sample.id}")
        return cls(sample, row.read, row.plain, row.planted, row.likelihoods, row.language)


class _Row(BaseModel):
    id: str
    read: str
    plain: str
    planted: list[Planted]
    likelihoods: dict[str, float]
    language: dict[str, float]


def pages_of(samples: Sequence[Sample]) -> dict[object, list[int]]:
    """Return the places of the samples of each page in their order; of a writer where pages are unknown."""
    pages: dict[object, list[int]] = defaultdict(list)
    for place, sample in enumerate(samples):
        page = page_key(sample.document, sample.page)
        pages[("writer", sample.writer) if page is None else page].append(place)
    return pages


def plant_mistakes(samples: Sequence[Sample], seed: int = 17) -> list[list[Planted]]:
    """Plant about `PLANTED` mistakes of different kinds into each line, each on its own."""
    draw = random.Random(seed)  # noqa: S311 - not a secret
    beside: dict[int, list[int]] = defaultdict(list)
    for places in pages_of(samples).values():
        for number, place in enumerate(places):
            beside[place] = places[max(0, number - 2) : number] + places[number + 1 : number + 3]
    planted: list[list[Planted]] = []
    for place, sample in enumerate(samples):
        own_mistakes = []
        for kind in draw.sample(sorted(KINDS), PLANTED):
            mistake = _plant(kind, sample.text, samples, beside[place], draw)
            if mistake is not None and mistake.text.strip() and mistake.text != sample.text:
                own_mistakes.append(mistake)
        planted.append(own_mistakes)
    return planted


def _plant(
    kind: str, text: str, samples: Sequence[Sample], beside: Sequence[int], draw: random.Random
) -> Planted | None:
    words = text.split(" ")
    match kind:
        case "missing":
            place = draw.randrange(len(words))
            return Planted(kind, " ".join(words[:place] + words[place + 1 :]))
        case "added":
            other = draw.choice(samples).text.split(" ")
            place = draw.randrange(len(words) + 1)
            return Planted(kind, " ".join([*words[:place], draw.choice([*words, *other]), *words[place:]]))
        case "swapped" | "shifted":
            if not beside:
                return None
            chosen = draw.choice(beside)
            return Planted(kind, samples[chosen].text, chosen if draw.random() < _HARD_SWAP else None)
        case "other":
            return Planted(kind, draw.choice(samples).text)
        case "script":
            look_alikes = {**TO_CYRILLIC, **TO_LATIN}
            changed = [_put(text, at, look_alikes[sign]) for at, sign in enumerate(text) if sign in look_alikes]
        case _:
            changed = draw.choice(
                [spellings for spellings in _respell(text, draw.choice(samples).text) if spellings] or [[]]
            )
    return Planted(kind, draw.choice(changed)) if changed else None


def _respell(text: str, other: str) -> list[list[str]]:
    """Return the text with one small change, four kinds: mark or number of a letter, letter, sign, ending of a word.

    Letters and endings are taken from another text.
    """
    places = [at for at, sign in enumerate(text) if sign.isalpha()]
    marks = []
    for at in places:
        letter, plain = text[at], unicodedata.normalize("NFD", text[at])[0]
        marks += [_put(text, at, new) for new in ("", letter * 2, letter.swapcase())]
        if plain != letter:  # the likeliest: it counts several times
            marks += [_put(text, at, plain)] * 4
    letters = [_put(text, at, new) for at in places for new in sorted({sign for sign in other if sign.isalpha()})]
    signs = [_put(text, at, new) for at, sign in enumerate(text) if sign in _SIGNS for new in ("", *_SIGNS)]
    endings = []
    for place, word in enumerate(words := text.split(" ")):
        if len(word) >= _LONG and word.isalpha():
            new = sorted(
                {ending[-2:] for ending in other.split(" ") if len(ending) >= _LONG and ending.isalpha()} | {""}
            )
            changed = [word[: -cut or None] + end for cut in (0, 1, 2) for end in new]
            endings += [" ".join([*words[:place], respelled, *words[place + 1 :]]) for respelled in changed]
    return [marks, letters, [*signs, text + ".", text + ","], endings]


def _put(text: str, at: int, new: str) -> str:
    return text[:at] + new + text[at + 1 :]


class _Place(NamedTuple):
    """A place where words are read as others: the text with it as read, the words given, and the words read."""

    text: str
    given: str
    read: str

    @property
    def longer(self) -> int:
        return len(self.read) - len(self.given)


def _places(given: str, read: str) -> list[_Place]:
    """Return the places where words differ, the largest first."""
    old, new = given.split(" "), read.split(" ")
    places = []
    for differs, group in groupby(Levenshtein.opcodes(old, new), key=lambda step: step.tag != "equal"):
        if differs:
            steps = list(group)
            before, after = old[: steps[0].src_start], old[steps[-1].src_end :]
            as_read = new[steps[0].dest_start : steps[-1].dest_end]
            was = " ".join(old[steps[0].src_start : steps[-1].src_end])
            places.append(_Place(" ".join([*before, *as_read, *after]), was, " ".join(as_read)))
    return sorted(places, key=lambda place: -Levenshtein.distance(given, place.text))[:_PLACES]


def texts_to_score(read: str, plain: str, given: Sequence[str]) -> list[str]:
    """Return all texts whose log probability is needed to judge these given texts, each once."""
    texts = [read, plain]
    for text in given:
        texts += [text, *(place.text for place in _places(text, read))]
    return list(dict.fromkeys(texts))


class Evidence(NamedTuple):
    """Evidence of a mistake in a line, as numbers of about the same size; all but the last two only speak for it.

    `gain` is how much likelier the reading is than the given text, per character; `missing`, `added` and `other` how
    much likelier the text gets with one place as read that is longer, shorter or as long, if `_eased` relative to how
    hard the writer is to read. `language` is a language model's preference for the reading, and `both` the sum.
    `hardness` and `uncertainty` say how far the reader can be trusted.
    """

    gain: float
    missing: float
    added: float
    missing_eased: float
    added_eased: float
    other_eased: float
    both: float
    language: float
    against: float
    mixed_script: float
    length: float
    hard_gain: float
    hardness: float
    uncertainty: float


def _log1p(value: float) -> float:
    return math.log1p(max(0.0, value))


def _gain(line: ReadSample, given: str) -> float:
    """Return how much likelier the likelier reading is than a given text."""
    best = max(line.likelihoods[line.read], line.likelihoods[line.plain])
    return max(0.0, best - line.likelihoods[given])


def weigh(line: ReadSample, given: str, hardness: float) -> Evidence:
    """Return the evidence that a given text of the line is wrong, for a writer of this hardness."""
    length, gain = max(4, len(given)), _gain(line, given)
    missing = added = other = 0.0
    for place in _places(given, line.read):
        more = line.likelihoods[place.text] - line.likelihoods[given]
        if place.longer >= _MISSING:
            missing = max(missing, more)
        elif place.longer <= -_ADDED:
            added = max(added, more)
        else:
            other = max(other, more)
    language = line.language[line.read] - line.language[given] if line.language else 0.0
    ease = 10 * (hardness + 0.1)
    return Evidence(
        gain=_log1p(10 * gain / length),
        missing=_log1p(missing),
        added=_log1p(added),
        missing_eased=_log1p(missing / ease),
        added_eased=_log1p(added / ease),
        other_eased=_log1p(other / ease),
        both=_log1p(gain + language / 2) / (hardness + 0.3),
        language=_log1p(language),
        against=-_log1p(-language),
        mixed_script=float(any(find_look_alikes(given))),
        length=abs(math.log((len(given) + 2) / (len(line.read) + 2))),
        hard_gain=_log1p(gain) * hardness,
        hardness=hardness,
        uncertainty=-max(line.likelihoods[line.read], line.likelihoods[line.plain]) / max(4, len(line.read)),
    )


def hardness_of(lines: Sequence[ReadSample]) -> list[float]:
    """Return how hard the writer of each line is to read: the usual gain of a character in the writer's other lines."""
    gains = [_gain(line, line.sample.text) / max(4, len(line.sample.text)) for line in lines]
    usual = statistics.median(gains)
    hardness = [usual] * len(lines)
    groups: dict[object, list[int]] = defaultdict(list)
    for place, line in enumerate(lines):
        groups[line.sample.writer or page_key(line.sample.document, line.sample.page)].append(place)
    for places in groups.values():
        for place in places:
            others = [gains[other] for other in places if other != place]
            typical = statistics.median(others) if others else usual
            hardness[place] = (typical * len(others) + usual * _PRIOR_LINES) / (len(others) + _PRIOR_LINES)
    return hardness


def judge(lines: Sequence[ReadSample]) -> Floats:
    """Learn the evidence of planted mistakes, and score all lines by it.

    A score is the logarithm of how much likelier the evidence is in a planted mistake than in the lines as they are.
    """
    weighed = list(zip(lines, hardness_of(lines), strict=True))
    natural = np.array([weigh(line, line.sample.text, hard) for line, hard in weighed])
    planted = np.array([weigh(line, mistake.text, hard) for line, hard in weighed for mistake in line.planted])
    if not len(planted):
        return natural[:, 0]
    # The sides of the regression weigh the same, so that its log odds are the log ratio of densities.
    rows = np.concatenate([natural, planted])
    labels = np.concatenate([np.zeros(len(natural)), np.ones(len(planted))])
    weight = np.concatenate([np.full(len(natural), 0.5 / len(natural)), np.full(len(planted), 0.5 / len(planted))])
    weight *= len(natural)
    mean, spread = rows.mean(0), rows.std(0) + 1e-6
    free = {"hardness", "uncertainty"}
    bounds = [(None, None), *((None, None) if name in free else (0, None) for name in Evidence._fields)]
    inputs = np.concatenate([np.ones((len(rows), 1)), (rows - mean) / spread], axis=1)

    def loss(weights: Floats) -> tuple[float, Floats]:
        odds = inputs @ weights
        slopes = weights.copy()
        slopes[0] = 0
        value = float((weight * (np.logaddexp(0, odds) - labels * odds)).sum() + _SHRINKAGE / 2 * (slopes**2).sum())
        return value, inputs.T @ (weight * (expit(odds) - labels)) + _SHRINKAGE * slopes

    fitted = minimize(loss, np.zeros(inputs.shape[1]), jac=True, method="L-BFGS-B", bounds=bounds)
    return np.asarray(inputs[: len(natural)] @ fitted.x, dtype=np.float64)


@dataclass(frozen=True, slots=True)
class WordDifference:
    """Words as given and as read, and how much likelier the line is as read there, as a natural logarithm."""

    given: str
    read: str
    gain: float


def differences_of(line: ReadSample) -> list[WordDifference]:
    """Return the words of a line that are read differently, largest gain first."""
    given = line.likelihoods[line.sample.text]
    differences = [
        WordDifference(place.given, place.read, line.likelihoods[place.text] - given)
        for place in _places(line.sample.text, line.read)
    ]
    return sorted(differences, key=lambda difference: -difference.gain)


def kind_of(line: ReadSample, others: Sequence[ReadSample]) -> tuple[str, str]:
    """Return the likeliest kind of mistake, a key of `LABELS`, and the id of the line whose text it is, if any.

    `others` are the lines near it, the nearest first.
    """
    given, read = line.sample.text, line.read

    def alike(text: str) -> float:
        return float(Levenshtein.normalized_similarity(read, text))

    likeness = alike(given)
    near = max(others, key=lambda other: alike(other.sample.text), default=None)
    if near is not None and alike(near.sample.text) > likeness + _ALIKE and likeness < 1 - _UNLIKE:
        back = Levenshtein.normalized_similarity(near.read, given)
        return ("swapped" if back > likeness + _ALIKE else "shifted"), near.sample.id
    if likeness < _UNLIKE:
        return "other", ""
    if any(find_look_alikes(given)):
        return "script", ""
    if given == read:
        return "same", ""
    places = _places(given, read)
    gains = {place: line.likelihoods[place.text] - line.likelihoods[given] for place in places}
    best = max(gains, key=lambda place: gains[place], default=None)
    if best is not None and best.longer >= _MISSING:
        return "missing", ""
    return ("added" if best is not None and best.longer <= -_ADDED else "spelling"), ""


def lines_near(samples: Sequence[Sample]) -> list[list[int]]:
    """Return the places of the lines near each line on its page, the nearest first."""
    near: list[list[int]] = [[] for _ in samples]
    for places in pages_of(samples).values():
        for number, place in enumerate(places):
            neighbours = [(abs(at - number), other) for at, other in enumerate(places) if 0 < abs(at - number) <= _NEAR]
            near[place] = [other for _, other in sorted(neighbours)]
    return near


FIRST, DRAWN = 20, 30
"""Lines to judge before anything is said of the number of wrong texts: the first ones, and drawn from the others."""
_SEED = 17


def draw_sample(lines: int, count: int = DRAWN) -> list[int]:
    """Draw places behind the first ones of a list of lines, in their order."""
    rest = range(min(FIRST, lines), lines)
    return sorted(random.Random(_SEED).sample(rest, min(count, len(rest))))  # noqa: S311 - not a secret


@dataclass(frozen=True, slots=True)
class WrongTexts:
    """How many of a dataset's texts are wrong, as judged by somebody: the first of the list, and a sample of the rest.

    Mistakes that were planted say nothing of this: real ones are smaller, and a hard hand hides them.
    """

    lines: int
    first: int
    first_wrong: int
    drawn: int
    drawn_wrong: int

    @classmethod
    def of(cls, lines: int, wrong: Mapping[int, bool]) -> "WrongTexts | None":
        """Count judgements of places in the list; None until the first ones and the sample are all judged."""
        first, drawn = range(min(FIRST, lines)), draw_sample(lines)
        if not all(place in wrong for place in (*first, *drawn)):
            return None
        counts = (sum(wrong[place] for place in places) for places in (first, drawn))
        return cls(lines, len(first), next(counts), len(drawn), next(counts))

    @property
    def interval(self) -> tuple[int, int]:
        """The exact binomial 95 % interval (Clopper and Pearson 1934) of the number of wrong texts."""
        rest = self.lines - self.first
        if self.drawn == rest:
            return (self.first_wrong + self.drawn_wrong,) * 2
        bounds = binomtest(self.drawn_wrong, self.drawn).proportion_ci(0.95, "exact")
        low = max(self.drawn_wrong, math.floor(bounds.low * rest))
        return self.first_wrong + low, self.first_wrong + math.ceil(bounds.high * rest)

    def __str__(self) -> str:
        low, high = self.interval
        return (
            f"{self.first_wrong} of the first {self.first} texts are wrong, and {self.drawn_wrong} of {self.drawn} "
            f"drawn from the others: {low:,} to {high:,} of {self.lines:,} (exact binomial 95 % interval)."
        )
