"""A character n-gram of the texts that a line recogniser was trained on, and the CTC beam search that asks it.

The model knows only transcriptions, the base's and the archive's, so it does not
modernise the spelling. It is stored as counts in JSON, with a line for each context.
"""

import json
import math
import unicodedata
from bisect import bisect_left
from collections import ChainMap, Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from heapq import nlargest
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from dsocr.errors import ConfigError, ModelError
from dsocr.html import counted
from dsocr.io.encodings import refusing_json
from dsocr.io.files import until_changed

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
_FLOOR = 1e-12
"""The lowest probability of a character at a step, so that every text that fits has a path."""
_FAINT = 0.01
"""Letters less likely than this times the one in the text are no alternative to it."""
_IGNORED = 1e-4
"""Alternatives less likely than this, compared with the text, are ignored."""
_MAX_EXPONENT = 600.0
_MAX_KNOWN = 300_000
"""Probabilities kept for the next lines, in about 60 MB."""
_MAX_TEXT = 16 << 20
_MAX_FILE = 256 << 20
"""Bytes of a text file, and of a stored model."""
_compact = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_FOLLOWERS = '"followers":{'
_END_OF_FOLLOWERS = "}}"


def read_other_texts(setting: str) -> list[str]:
    """Read the lines of the UTF-8 text file that a setting names, in NFC with single spaces; none for auto and none.

    Raises ConfigError if it cannot be read.
    """
    if setting in ("auto", "none"):
        return []
    path = Path(setting)
    try:
        if path.stat().st_size > _MAX_TEXT:
            raise ValueError(f"it has more than {_MAX_TEXT >> 20} MiB")
        content = unicodedata.normalize("NFC", path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        hint = "give the path of a UTF-8 text file, auto or none"
        message = f"generation.language_model: cannot read text: {error}"
        raise ConfigError(message, code="language-model-text", where=path, hint=hint) from error
    return [text for line in content.splitlines() if (text := " ".join(line.split()))]


def describe_other_texts(count: int, setting: str, *, helped: bool) -> str:
    """Return a sentence: whether the language model includes the texts that its setting names."""
    lines = f"{counted(count, 'line')} of {setting}"
    if helped:
        return f"the language model has the {lines}: it reads the validation lines better with them"
    return f"the {lines} were not shown to help the language model, so it does not have them"


class LetterScores(NamedTuple):
    """The log probability of each letter of a text and of its end, and where each letter is, in 0..1."""

    log_probabilities: list[float]
    positions: list[float]


@dataclass(slots=True)
class LanguageModel:
    """Counts of characters after each `ORDER - 1` or fewer, and the weight of the model in the search.

    Probabilities are interpolated by Witten and Bell's method (1991). `gain` has the CER on the validation split,
    without and with it; `others`, which is not stored, counts the texts without images in it.
    """

    followers: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    weight: float = 0.0
    gain: tuple[float, float] = (0.0, 0.0)
    others: int = 0
    _known: dict[tuple[str, str], float] = field(default_factory=dict, repr=False)
    _seen: dict[str, list[tuple[Mapping[str, int], int, int]]] = field(default_factory=dict, repr=False)

    @classmethod
    def fit(cls, texts: Iterable[str]) -> Self:
        """Count the characters of lines and of their ends; of a large text, only those found twice."""
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
        pruned = {}
        for context, counts in self.followers.items():
            bound = least if len(context) > 2 else 0
            if kept := {character: count for character, count in counts.items() if count >= bound}:
                pruned[context] = kept
        self.followers = pruned

    def merge(self, other: "LanguageModel", times: int = 1) -> "LanguageModel":
        """Return a model of these counts and of another's, each counted several times; without a weight."""
        merged: dict[str, Mapping[str, int]] = {}
        for context, counts in other.followers.items():
            both = Counter(self.followers.get(context, {}))
            both.update({character: times * count for character, count in counts.items()})
            merged[context] = both
        return LanguageModel(ChainMap(merged, self.followers))  # type: ignore[arg-type]

    def log_probability(self, character: str, before: str) -> float:
        """Return how likely a character is after a text, over how likely it is after any, as a logarithm.

        The network has learnt how frequent each character is, so only the preceding ones add something.
        """
        context = (_PADDING + before)[1 - ORDER :]
        known = self._known.get((character, context))
        if known is None:
            anywhere = value = 1 / (len(self.followers.get("", ())) + 1)
            for place, (counts, kinds, total) in enumerate(self._counts(context)):
                value = (counts.get(character, 0) + kinds * value) / total
                if place == 0:
                    anywhere = value
            known = math.log(value / anywhere)
            if len(self._known) >= _MAX_KNOWN:
                self._known.clear()
                self._seen.clear()
            self._known[character, context] = known
        return known

    def score(self, text: str) -> float:
        """Return the sum of `log_probability` over the characters of a text and its end."""
        return math.fsum(self.log_probability(character, text[:at]) for at, character in enumerate(text + _END))

    def _counts(self, context: str) -> list[tuple[Mapping[str, int], int, int]]:
        """Return what followed no context to the longest end of this one that was seen, its kinds, and both sums."""
        seen = self._seen.get(context)
        if seen is None:
            shorter = self._counts(context[1:]) if context else []
            counts = self.followers.get(context) if len(shorter) == len(context) else None
            last = [(counts, len(counts), sum(counts.values()) + len(counts))] if counts is not None else []
            seen = self._seen[context] = [*shorter, *last]
        return seen

    def to_json(self) -> str:
        """Return the counts and the weight as JSON, with a line for each context, in the order of their bytes."""
        head = _compact({"weight": self.weight, "gain": self.gain})
        lines = sorted(f"{_compact(context)}:{_compact(counts)}" for context, counts in self.followers.items())
        return head.removesuffix("}") + f",{_FOLLOWERS}\n" + ",\n".join(lines) + f"\n{_END_OF_FOLLOWERS}"

    @classmethod
    def load(cls, folder: Path) -> "LanguageModel | None":
        """Load the model of a folder of trained weights; None if it has none. Raises ModelError if it is damaged.

        The counts of the last one are kept until its file changes. Nothing changes the counts of
        a model that was loaded.
        """
        return cls(*_keep_model(folder)) if (folder / FILE).is_file() else None


class _StoredCounts(Mapping[str, Mapping[str, int]]):
    """The counts in the lines of a file, each parsed when it is asked for: a page needs few, and all take a second."""

    def __init__(self, path: Path, lines: list[bytes]) -> None:
        self._path, self._lines = path, lines
        self._known: dict[str, Mapping[str, int] | None] = {}

    def get(self, context: str, default: Any = None) -> Any:
        """Return what followed a context."""
        if context not in self._known:
            start = f"{_compact(context)}:".encode()
            place = bisect_left(self._lines, start)
            lines = [line for line in self._lines[place : place + 1] if line.startswith(start)]
            self._known[context] = self._parse(lines).get(context)
        counts = self._known[context]
        return default if counts is None else counts

    def _parse(self, lines: list[bytes]) -> Mapping[str, Mapping[str, int]]:
        with _refusing(self._path):
            return _checked(json.loads(f"{{{b''.join(lines).removesuffix(b',').decode()}}}"))

    def __getitem__(self, context: str) -> Mapping[str, int]:
        if (counts := self.get(context)) is None:
            raise KeyError(context)
        return counts  # type: ignore[no-any-return]

    def __iter__(self) -> Iterator[str]:
        """Parse all counts at once."""
        self._known = dict(self._parse(self._lines))
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._lines)


def _checked(followers: Mapping[str, dict[str, int]]) -> Mapping[str, Mapping[str, int]]:
    if set(map(type, chain.from_iterable(map(dict.values, followers.values())))) - {int}:
        raise ValueError("its counts are not whole numbers")
    return followers


def _refusing(path: Path) -> AbstractContextManager[None]:
    return refusing_json(path, ModelError, "language-model-invalid", message="Cannot read language model")


def _read_model(folder: Path) -> tuple[Mapping[str, Mapping[str, int]], float, tuple[float, float]]:
    """Read the counts, the weight and the gain of a model; former releases wrote all of it in one line."""
    path = folder / FILE
    with _refusing(path):
        if path.stat().st_size > _MAX_FILE:
            raise ValueError(f"more than {_MAX_FILE >> 20} MiB")
        content = path.read_bytes()
        head, *lines = content.splitlines()
        if in_lines := head.endswith(_FOLLOWERS.encode()):
            if lines.pop() != _END_OF_FOLLOWERS.encode() or lines != sorted(lines):
                raise ValueError("its lines are incomplete or not sorted")
            content = head + _END_OF_FOLLOWERS.encode()
        values = json.loads(content)
        followers = _StoredCounts(path, lines) if in_lines else _checked(values["followers"])
        without, with_model = map(float, values["gain"])
        return followers, float(values["weight"]), (without, with_model)


_keep_model = until_changed(_read_model, FILE, most=1)
"""What was parsed stays for the next page."""


def search(
    probabilities: NDArray[np.float32],
    characters: Sequence[str],
    num_beams: int,
    model: LanguageModel | None = None,
    weight: float = 0.0,
) -> str:
    """Return the likeliest text for `(T, classes)` probabilities by prefix beam search (Hannun et al. 2014)."""
    places, classes = np.nonzero(probabilities[:, 1:] > _RARE)
    likely = list(
        zip([characters[i] for i in classes.tolist()], probabilities[places, classes + 1].tolist(), strict=True)
    )
    ends = np.searchsorted(places, np.arange(len(probabilities)), side="right").tolist()
    beams = {"": (1.0, 0.0)}  # text -> probability of the paths that end in a blank, and of the others
    scores = {"": 0.0}

    def rank(item: tuple[str, tuple[float, float]]) -> float:
        return math.log(sum(item[1])) + weight * scores[item[0]]

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
        return rank(item) + (weight * model.log_probability(_END, item[0]) if model else 0.0)

    return max(beams.items(), key=final)[0]


def score_letters(
    probabilities: NDArray[np.float32],
    classes: Sequence[int],
    characters: Sequence[str],
    model: LanguageModel | None = None,
    weight: float = 0.0,
) -> LetterScores:
    """Return how likely each letter of a text is, and where it is, for `(T, classes)` probabilities.

    The text competes with its neighbours, which differ in one place: another letter, one fewer or one more. Each counts
    with all its paths through the probabilities and, as in the search, with the language model. What could be missing
    before a letter counts against that letter, and a letter behind the last one against the end.
    """
    text = "".join(characters[number - 1] for number in classes)
    paths = _Paths.of(np.maximum(probabilities, _FLOOR).astype(np.float64), np.array(classes, dtype=np.int64))
    known = [model.log_probability(c, text[:at]) for at, c in enumerate(text + _END)] if model else []
    against = [0.0] * (len(text) + 1)

    def compare(start: int, end: int, new: str, odds: float) -> None:
        """Count the text with other letters from `start` to `end` against the letter there."""
        if odds < _IGNORED:
            return
        if model is not None:
            changed, last = text[:start] + new + text[end:] + _END, start + len(new) + ORDER - 1
            gains = (model.log_probability(changed[at], changed[:at]) for at in range(start, min(last, len(changed))))
            odds *= math.exp(weight * (math.fsum(gains) - math.fsum(known[start : end + ORDER - 1])))
        against[start] += odds

    peaks = paths.peaks()
    for place, odds in enumerate(paths.odds_without_letters()):
        compare(place, place + 1, "", odds)
    edits = _likely_edits(probabilities, classes, peaks)
    for edit, odds in zip(edits, paths.odds_of_edits(edits), strict=True):
        compare(edit.start, edit.end, characters[edit.number - 1], odds)
    return LetterScores([-math.log1p(odds) for odds in against], [(peak + 0.5) / len(probabilities) for peak in peaks])


class _Edit(NamedTuple):
    """A character, by its class, in place of the letters of a text from `start` to `end`, one or none."""

    start: int
    end: int
    number: int


def _likely_edits(probabilities: NDArray[np.float32], classes: Sequence[int], peaks: Sequence[int]) -> list[_Edit]:
    """Return other and further letters that are likely at some step between the letters around them."""

    numbers = 1 + np.flatnonzero(probabilities[:, 1:].max(0) > _RARE)
    columns = probabilities[:, numbers]

    def likely(begin: int, end: int, least: float) -> list[int]:
        classes_there: list[int] = numbers[columns[begin:end].max(0, initial=0.0) > least].tolist()
        return classes_there

    edits, bounds = [], [-1, *peaks, len(probabilities)]
    for place, (before, letter) in enumerate(pairwise((0, *classes, 0))):
        begin, end = bounds[place] + 1, bounds[place + 1]
        edits += [_Edit(place, place, number) for number in likely(begin, end, _RARE) if number != before]
        if letter:
            least = max(_RARE, _FAINT * float(probabilities[end, letter]))
            others = likely(begin, bounds[place + 2], least)
            edits += [_Edit(place, place + 1, number) for number in others if number != letter]
    return edits


class _Paths(NamedTuple):
    """Sums over the paths that write the first letters of a text until a step, and the last ones from a step on.

    States are those of CTC: a blank, the first letter, a blank, ..., the last letter, a blank. `before[t, s]` sums the
    paths of the steps before `t` that end in state `s`, `after[t, s]` those of the steps from `t` on that begin in it.
    They are divided by the exponentials of `scale_before[t]` and `scale_after[t]`; `total` is the logarithm of all.
    """

    probabilities: NDArray[np.float64]
    classes: NDArray[np.int64]
    before: NDArray[np.float64]
    after: NDArray[np.float64]
    scale_before: NDArray[np.float64]
    scale_after: NDArray[np.float64]
    total: float

    @classmethod
    def of(cls, probabilities: NDArray[np.float64], classes: NDArray[np.int64]) -> Self:
        """Sum over the paths of a text, forwards and backwards at once."""
        states = np.zeros(2 * len(classes) + 1, dtype=np.int64)
        states[1::2] = classes
        emitted = probabilities[:, states]
        skips = np.zeros((2, len(states)))  # from a letter to another one without a blank
        skips[0, 3::2] = classes[1:] != classes[:-1]
        skips[1, 3::2] = skips[0, 3::2][::-1]
        skips[:, 1:2] = 1.0  # from the start, which is a state in front of the first blank
        now = np.zeros((2, len(states) + 2))
        now[:, 1] = 1.0
        sums, scales = np.zeros((len(emitted) + 1, *now.shape)), np.zeros((len(emitted) + 1, 2))
        sums[0, :, 2] = 1.0  # nothing is written before the first step
        for step, row in enumerate(np.stack([emitted, emitted[::-1, ::-1]], axis=1), 1):
            now[:, 2:] = row * (now[:, 2:] + now[:, 1:-1] + skips * now[:, :-2])
            now[:, :2] = 0.0
            most = now.max(1, keepdims=True)
            now /= most
            sums[step], scales[step] = now, most[:, 0]
        logs = np.log(np.where(scales > 0, scales, 1.0)).cumsum(0)
        before, after = sums[:, 0, 2:], sums[::-1, 1, :1:-1]
        total = math.log(before[-1, -2:].sum()) + float(logs[-1, 0])
        return cls(probabilities, classes, before, after, logs[:, 0], logs[::-1, 1], total)

    def _share(self, before: NDArray[np.float64], after: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the factor that makes products of sums before and after steps shares of the total, `(steps, 1)`."""
        factors: NDArray[np.float64] = np.exp(np.minimum(before + after - self.total, _MAX_EXPONENT))[:, None]
        return factors

    def peaks(self) -> list[int]:
        """Return the step at which each letter is seen best."""
        seen = self.before[1:, 1::2] * self.after[:-1, 1::2] * self._share(self.scale_before[1:], self.scale_after[:-1])
        steps: list[int] = np.maximum.accumulate(seen.argmax(0)).tolist() if len(self.classes) else []
        return steps

    def odds_without_letters(self) -> list[float]:
        """Return how likely the text is without each of its letters, compared with the text."""
        letters = len(self.classes)
        written = self.before[:, 0:-1:2].copy()
        if letters > 1:
            written[:, 1:-1] += self.before[:, 1:-5:2] * (self.classes[:-2] != self.classes[2:])
            written[:, -1] += self.before[:, -4]
        following = np.zeros_like(written)
        following[:, :-1] = self.after[:, 3::2]
        following[-1:, -1:] = 1.0
        odds: list[float] = (written * following * self._share(self.scale_before, self.scale_after)).sum(0).tolist()
        return odds

    def odds_of_edits(self, edits: Sequence[_Edit]) -> list[float]:
        """Return how likely the text is with each of these changes, compared with the text."""
        if not edits:
            return []
        starts, ends, numbers = np.array(edits).T
        around = np.concatenate([[0], self.classes, [0]])
        before, after = self.before[:-1], self.after[1:]
        entered = before[:, 2 * starts] + before[:, 2 * starts - 1] * ((around[starts] != numbers) & (starts > 0))
        last = after.shape[1] - 1
        left = after[:, 2 * ends] + after[:, np.minimum(2 * ends + 1, last)] * (
            (around[ends + 1] != numbers) & (2 * ends < last)
        )
        left *= self._share(self.scale_before[1:], self.scale_after[1:])
        emitted = self.probabilities[:, numbers] / np.exp(np.diff(self.scale_before))[:, None]
        inside, odds = np.zeros(len(edits)), np.zeros(len(edits))
        for entering, emitting, leaving in zip(entered, emitted, left, strict=True):
            inside = emitting * (inside + entering)
            odds += inside * leaving
        values: list[float] = odds.tolist()
        return values
