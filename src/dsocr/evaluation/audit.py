"""Audit: rank lines by how probably their text is wrong, and show them on a page, in a table and as JSON.

For each line a model that never saw it gives probabilities of the given text, of its own reading, and of texts in
between that have one place as read. These become a few numbers, the evidence. A logistic regression learns from
mistakes that are planted into the same lines, against the lines as they are; few of these are wrong (learning from
positive and unlabelled examples; Elkan and Noto 2008). Weights of evidence for a mistake cannot be negative.

The real mistakes are counted otherwise: somebody judges the first lines of the list and a random sample of the others.
"""

import json
import math
import random
import statistics
import sys
import unicodedata
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain, takewhile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from pydantic import TypeAdapter
from rapidfuzz.distance import Levenshtein

from dsocr.data.check.text_checks import TO_CYRILLIC, TO_LATIN, find_look_alikes
from dsocr.data.splits import page_key
from dsocr.document import Sample
from dsocr.evaluation.result_pages import differences
from dsocr.evaluation.statistics import Floats, beta_quantile, fit_logistic
from dsocr.formats.tables import read_spreadsheet, spreadsheet
from dsocr.html import Thumbnails, counted, render
from dsocr.io.work import write_file
from dsocr.text import align_spans

KINDS = ("added", "missing", "other", "script", "shifted", "spelling", "swapped")
"""Kinds of mistakes that are planted."""
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
_SHRINKAGE = 1.0
_SIGNS = ".,;:-'’()\"«»"
_LONG = 4
"""Least letters of a word that gets another ending."""


@dataclass(frozen=True, slots=True)
class ReadSample:
    """A sample, the reading of a model that did not see it, and the log probabilities of texts.

    `plain` is the reading without a language model. `likelihoods` has the probabilities given the image, `language`
    those of a language model (empty if there is none); both of all texts that `texts_to_score` lists.
    """

    sample: Sample
    read: str
    plain: str
    planted: Sequence[str]
    likelihoods: Mapping[str, float]
    language: Mapping[str, float]

    def to_dict(self) -> dict[str, Any]:
        """Return all but the sample as JSON values."""
        return {
            "id": self.sample.id,
            "read": self.read,
            "plain": self.plain,
            "planted": self.planted,
            "likelihoods": {text: round(value, 3) for text, value in self.likelihoods.items()},
            "language": {text: round(value, 3) for text, value in self.language.items()},
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], sample: Sample) -> "ReadSample":
        """Rebuild a line from `to_dict`. Raises ValueError for anything else."""
        line = _LINE.validate_python({**values, "sample": sample})
        needed = set(texts_to_score(line.read, line.plain, [sample.text, *line.planted]))
        has_all = needed <= line.likelihoods.keys() and (not line.language or needed <= line.language.keys())
        if values.get("id") != sample.id or not has_all:
            raise ValueError(f"not a reading of {sample.id}")
        return line


_LINE = TypeAdapter(ReadSample)


def lines_near(samples: Sequence[Sample], most: int) -> list[list[int]]:
    """Return the places of up to `most` lines before and after each line on its page, or by its writer without pages.

    The nearest come first.
    """
    pages: dict[object, list[int]] = defaultdict(list)
    for place, sample in enumerate(samples):
        page = page_key(sample.document, sample.page)
        pages[("writer", sample.writer) if page is None else page].append(place)
    near: list[list[int]] = [[] for _ in samples]
    for places in pages.values():
        for number, place in enumerate(places):
            distances = [(abs(at - number), other) for at, other in enumerate(places) if 0 < abs(at - number) <= most]
            near[place] = [other for _, other in sorted(distances)]
    return near


def plant_mistakes(samples: Sequence[Sample], seed: int = 17) -> list[list[str]]:
    """Plant about `PLANTED` mistakes of different kinds into each line, each on its own."""
    draw = random.Random(seed)  # noqa: S311 - not a secret
    planted = []
    for sample, near in zip(samples, lines_near(samples, 2), strict=True):
        mistakes = [_plant(kind, sample.text, samples, near, draw) for kind in draw.sample(KINDS, PLANTED)]
        planted.append([mistake for mistake in mistakes if mistake.strip() and mistake != sample.text])
    return planted


def _plant(kind: str, text: str, samples: Sequence[Sample], near: Sequence[int], draw: random.Random) -> str:
    """Return the text with a mistake; an empty one if it has no place for one of this kind."""
    words, other = text.split(" "), draw.choice(samples).text
    changed: list[str] = []
    match kind:
        case "missing":
            changed = [" ".join(words[:place] + words[place + 1 :]) for place in range(len(words))]
        case "added":
            place = draw.randrange(len(words) + 1)
            changed = [" ".join([*words[:place], word, *words[place:]]) for word in (*words, *other.split(" "))]
        case "swapped" | "shifted":
            changed = [samples[place].text for place in near]
        case "other":
            changed = [other]
        case "script":
            look_alikes = {**TO_CYRILLIC, **TO_LATIN}
            changed = [_put(text, at, look_alikes[sign]) for at, sign in enumerate(text) if sign in look_alikes]
        case _:
            changed = draw.choice([spellings for spellings in _respell(text, other) if spellings] or [[]])
    return draw.choice(changed or [""])


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


def _places(given: str, read: str) -> list[_Place]:
    """Return the places where words differ, the largest first."""
    old, new = given.split(" "), read.split(" ")
    places = []
    for was, became in align_spans(old, new):
        if old[was] != new[became]:
            text = " ".join([*old[: was.start], *new[became], *old[was.stop :]])
            places.append(_Place(text, " ".join(old[was]), " ".join(new[became])))
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
    for difference in differences_of(line, given):
        longer = len(difference.read) - len(difference.given)
        if longer >= _MISSING:
            missing = max(missing, difference.gain)
        elif longer <= -_ADDED:
            added = max(added, difference.gain)
        else:
            other = max(other, difference.gain)
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
    planted = np.array([weigh(line, mistake, hard) for line, hard in weighed for mistake in line.planted])
    if not len(planted):
        return natural[:, 0]
    # The sides of the regression weigh the same, so that its log odds are the log ratio of densities.
    sides = (natural, planted)
    rows = np.concatenate(sides)
    labels, weight = (
        np.concatenate([np.full(len(side), value) for side, value in zip(sides, values, strict=True)])
        for values in ((0.0, 1.0), (0.5, 0.5 * len(natural) / len(planted)))
    )
    inputs = np.column_stack([np.ones(len(rows)), (rows - rows.mean(0)) / (rows.std(0) + 1e-6)])
    free = {"hardness", "uncertainty"}
    fitted = fit_logistic(
        inputs,
        labels,
        weight=weight,
        prior=np.zeros(inputs.shape[1]),
        precision=np.array([0.0, *[_SHRINKAGE] * len(Evidence._fields)]),
        bounds=[(None, None), *((None, None) if name in free else (0, None) for name in Evidence._fields)],
    )
    return natural[:, 0] if fitted is None else np.asarray(inputs[: len(natural)] @ fitted, dtype=np.float64)


@dataclass(frozen=True, slots=True)
class WordDifference:
    """Words as given and as read, and how much likelier the line is as read there, as a natural logarithm."""

    given: str
    read: str
    gain: float


def differences_of(line: ReadSample, given: str) -> list[WordDifference]:
    """Return the words of a line that are read otherwise than given, largest gain first."""
    differences = [
        WordDifference(place.given, place.read, line.likelihoods[place.text] - line.likelihoods[given])
        for place in _places(given, line.read)
    ]
    return sorted(differences, key=lambda difference: -difference.gain)


def explain(line: ReadSample, near: Sequence[ReadSample]) -> str:
    """Explain why the text of a line may be wrong, given the lines near it, the nearest first."""
    given, read = line.sample.text, line.read

    def likeness(text: str) -> float:
        return float(Levenshtein.normalized_similarity(read, text))

    nearest = max(near, key=lambda other: likeness(other.sample.text), default=None)
    if nearest and likeness(nearest.sample.text) > likeness(given) + _ALIKE and likeness(given) < 1 - _UNLIKE:
        return f"the text of a line nearby, {nearest.sample.place}"
    if likeness(given) < _UNLIKE:
        return "the text of another line"
    if any(find_look_alikes(given)):
        return "a letter of another script"
    return "read as it is given" if given == read else "read in another way"


PAGE, TABLE, ALL, JUDGED = "audit.html", "audit.csv", "audit.jsonl", "judged.csv"
FIRST, DRAWN = 20, 30
"""Lines to judge: the first ones, after which the number of wrong texts is estimated, and drawn from the others."""
_SEED = 17
_THUMBNAIL, _LARGE = (1000, 160), (2000, 320)
"""Pixels of pictures; the large ones are of lines to judge, whose accents must be visible."""
_MAX_BYTES = 24 * 2**20
_YES, _NO = ("y", "д", "1", "x"), ("n", "н", "0")
"""Starts of entries in the column `wrong`."""
_SHOWN = 4
"""Differences of a line that are listed."""


def places_to_judge(lines: int) -> tuple[list[int], list[int]]:
    """Return the places of the first lines of a list, and of a random sample of the others, as drawn.

    Whoever judges a part of the sample, from its start, has judged a random sample, too.
    """
    first = min(FIRST, lines)
    rest = range(first, lines)
    return [*range(first)], random.Random(_SEED).sample(rest, min(DRAWN, len(rest)))  # noqa: S311 - not a secret


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
        """Count judgements by place, of the sample up to the first gap; None until the first are judged."""
        first, drawn = places_to_judge(lines)
        if not wrong.keys() >= {*first}:
            return None
        drawn = list(takewhile(wrong.__contains__, drawn))
        first_wrong, drawn_wrong = (sum(wrong[place] for place in places) for places in (first, drawn))
        return cls(lines, len(first), first_wrong, len(drawn), drawn_wrong)

    @property
    def interval(self) -> tuple[int, int]:
        """The exact binomial 95 % interval (Clopper and Pearson 1934) of the number of wrong texts."""
        rest = self.lines - self.first
        if self.drawn == rest:
            return (self.first_wrong + self.drawn_wrong,) * 2
        wrong, right = self.drawn_wrong, self.drawn - self.drawn_wrong
        low = beta_quantile(wrong, right + 1, 0.025) if wrong else 0.0
        high = beta_quantile(wrong + 1, right, 0.975) if right else 1.0
        return self.first_wrong + max(wrong, math.floor(low * rest)), self.first_wrong + math.ceil(high * rest)

    def __str__(self) -> str:
        low, high = self.interval
        drawn = f", and {self.drawn_wrong} of {self.drawn} drawn from the others" if self.drawn else ""
        return (
            f"{self.first_wrong} of the first {self.first} texts are wrong{drawn}: {low:,} to {high:,} of "
            f"{self.lines:,} (exact binomial 95 % interval)."
        )


@dataclass(frozen=True, slots=True)
class SuspectLine:
    """A line with its rank, and in words why its text may be wrong.

    `score` is the logarithm of how much likelier its evidence is in a mistake than in this dataset.
    """

    rank: int
    sample: Sample
    read: str
    score: float
    why: str
    differences: Sequence[WordDifference]

    @property
    def spans(self) -> list[tuple[str, str]]:
        """The given text and the reading: parts tagged "del" (given only), "ins" (read only) or "" (both)."""
        return differences(self.sample.text, self.read, sys.maxsize)[0]

    def to_dict(self) -> dict[str, Any]:
        """Return the line as a row of `audit.jsonl`; `gain` is in natural logarithms."""
        sample = self.sample
        return {
            "rank": self.rank,
            "id": sample.id,
            "score": round(self.score, 3),
            "why": self.why,
            "text": sample.text,
            "read": self.read,
            "differences": [{**asdict(each), "gain": round(each.gain, 2)} for each in self.differences],
            **{name: getattr(sample, name) for name in ("writer", "page", "source")},
        }


@dataclass(frozen=True, slots=True)
class Audit:
    """All lines of a dataset, the most suspicious first.

    `wrong` has judgements by a line's place, `corrections` its texts by its id; `shown` lines are on the page.
    """

    name: str
    folder: Path
    lines: Sequence[SuspectLine]
    wrong: Mapping[int, bool]
    corrections: Mapping[str, str]
    shown: int = 100

    @property
    def count(self) -> WrongTexts | None:
        """How many texts are wrong; None until the first lines are judged."""
        return WrongTexts.of(len(self.lines), self.wrong)

    def __str__(self) -> str:
        first, drawn = places_to_judge(len(self.lines))
        done, all_ = len(self.wrong.keys() & {*first, *drawn}), len(first) + len(drawn)
        if done == all_:
            return str(self.count)
        of_all = f"How many of {counted(len(self.lines), 'text')} are wrong"
        said = self.count or f"{of_all} is known roughly once the first {len(first)} of this list are judged."
        return (
            f"{said} Each of {len(drawn)} drawn from the others makes it more exact ({done} of {all_} judged): in "
            f"{PAGE} with one key each, or yes and no in the column `wrong` of {TABLE}. Then run this again."
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the count and the lines on the page as JSON values."""
        count = self.count
        return {
            "dataset": self.name,
            "lines": len(self.lines),
            "wrong": None if count is None else asdict(count) | {"interval": list(count.interval)},
            "list": [line.to_dict() for line in self.lines[: self.shown]],
        }


def rank_lines(read: Sequence[ReadSample], *, name: str, folder: Path) -> Audit:
    """Judge lines and rank them; judgements and corrections in the tables of the folder are kept.

    Of the lines whose evidence is likelier in a mistake, those with an aligned text that nobody accepted come first.
    """
    scores = judge(read)
    unaccepted = np.array([line.sample.aligned is not None for line in read])
    near = lines_near([line.sample for line in read], _NEAR)
    lines = []
    for rank, place in enumerate(np.lexsort((-scores, ~(unaccepted & (scores > 0)))).tolist(), 1):
        line, aligned = read[place], "; an aligned text that nobody accepted" * bool(unaccepted[place])
        why = explain(line, [read[at] for at in near[place]]) + aligned
        lines.append(
            SuspectLine(rank, line.sample, line.read, float(scores[place]), why, differences_of(line, line.sample.text))
        )
    wrong: dict[str, bool] = {}
    corrections: dict[str, str] = {}
    files = [path for path in (folder / TABLE, folder / JUDGED) if path.is_file()]
    for path in sorted(files, key=lambda path: path.stat().st_mtime_ns):  # the later one counts
        for _, cells in read_spreadsheet(path)[1]:
            id_, answer = cells.get("id", ""), cells.get("wrong", "").strip().lower()
            if answer.startswith((*_YES, *_NO)):
                wrong[id_] = answer.startswith(_YES)
            if correction := cells.get("correction"):
                corrections[id_] = correction
    judged = {place: wrong[line.sample.id] for place, line in enumerate(lines) if line.sample.id in wrong}
    return Audit(name, folder, lines, judged, corrections)


def write_audit(audit: Audit) -> None:
    """Write page and table of the first lines and of those to judge, and the list of all, into the audit's folder."""
    to_judge = [*chain(*places_to_judge(len(audit.lines)))]
    places = dict.fromkeys([*to_judge, *range(min(audit.shown, len(audit.lines)))])
    thumbnails, large = Thumbnails(_THUMBNAIL, _MAX_BYTES), Thumbnails(_LARGE, _MAX_BYTES)
    table: list[Sequence[object]] = [("rank", "id", "source", "why", "text", "read", "judge", "wrong", "correction")]
    shown = []
    for place in places:
        line, judged = audit.lines[place], place in to_judge
        image = (large if judged else thumbnails).of(line.sample.image, alt=f"Line {line.rank}")
        answer = {None: "", True: "yes", False: "no"}[audit.wrong.get(place)]
        shown.append((line, image, judged, answer))
        cells = [line.rank, line.sample.id, line.sample.source, line.why, line.sample.text, line.read]
        table.append([*cells, "yes" * judged, answer, audit.corrections.get(line.sample.id)])
    page = render(
        __package__,
        "audit.html.jinja",
        style="audit.css",
        script="audit.js",
        audit=audit,
        first=FIRST,
        lines=shown,
        listed=_SHOWN,
        table=TABLE,
        judged=JUDGED,
        times=lambda gain: f"{math.exp(gain):.0f} times" if gain < math.log(1000) else "more than 1,000 times",
    )
    write_file(audit.folder / PAGE, page)
    write_file(audit.folder / TABLE, "\ufeff" + spreadsheet(table))  # the mark tells spreadsheets that it is UTF-8
    rows = (json.dumps(line.to_dict(), ensure_ascii=False) + "\n" for line in audit.lines)
    write_file(audit.folder / ALL, "".join(rows))
