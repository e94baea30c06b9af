"""Which characters go wrong: by reference character, confused pairs, insertions, deletions, blocks, and like letters.

Of the alignments with the fewest edits one is taken, rapidfuzz's, so a single pair may be another as well; texts are
compared as the CER does, and all counts together are its errors.
"""

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, Self

import numpy as np
from rapidfuzz.distance import Levenshtein

from dsocr.data.splits import length_bounds, script_of
from dsocr.evaluation.metrics import ErrorRate
from dsocr.evaluation.profiles import block_of
from dsocr.evaluation.scores import LineScore, Scores
from dsocr.text import comparable

SHOWN = 60
"""So many characters and pairs stand on a card by name; of the rest, their count."""

ALIKE = ("инпт", "шщм", "ьъ", "ао")
"""Small Russian letters that one hand writes alike."""


@dataclass(frozen=True, slots=True)
class CharacterCount:
    """A character of the references (None: all others together), how often it stands there, and what became of it."""

    character: str | None
    count: int
    substituted: int
    deleted: int

    @property
    def errors(self) -> int:
        """How often it was not read."""
        return self.substituted + self.deleted


@dataclass(frozen=True, slots=True)
class Confusion:
    """How often `reference` was read as `prediction`."""

    reference: str
    prediction: str
    count: int


@dataclass(frozen=True, slots=True)
class Tally:
    """The commonest of some things with how often they came, and how many others came how often together."""

    shown: tuple[tuple[str, int], ...]
    others: int = 0
    others_count: int = 0

    @classmethod
    def of(cls, counts: Counter[str]) -> Self:
        """The tally of some counts."""
        ranked = _ranked(counts)
        return cls(tuple(ranked[:SHOWN]), len(ranked[SHOWN:]), sum(count for _, count in ranked[SHOWN:]))

    def as_dict(self) -> dict[str, Any]:
        """The tally as JSON holds it."""
        shown = [{"character": character, "count": count} for character, count in self.shown]
        return {"shown": shown, "others": self.others, "others_count": self.others_count}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """The tally that `as_dict` wrote."""
        return cls(**{**values, "shown": tuple((one["character"], one["count"]) for one in values["shown"])})


@dataclass(frozen=True, slots=True)
class BlockCount:
    """A Unicode block: its characters in the references, those of them not read, and those added by the prediction."""

    block: str
    count: int
    errors: int
    inserted: int


@dataclass(frozen=True, slots=True)
class LikeLetters:
    """Letters that are written alike, case folded: how many stand in the references, and how many as one another."""

    letters: str
    count: int
    errors: int
    confused: int


@dataclass(frozen=True, slots=True)
class Characters:
    """What became of the characters of some lines; `substitutions`, `deletions` and `insertions` are all errors.

    `by_character` and `confusions` begin with the commonest errors and are cut off, what is left out being counted.
    """

    count: int
    substitutions: int
    deletions: int
    insertions: int
    by_character: tuple[CharacterCount, ...]
    others: int
    confusions: tuple[Confusion, ...]
    other_pairs: int
    other_pairs_count: int
    deleted: Tally
    inserted: Tally
    blocks: tuple[BlockCount, ...]
    alike: tuple[LikeLetters, ...]

    @classmethod
    def of(cls, lines: Sequence[LineScore]) -> Self:
        """The errors in some lines."""
        counts = Counter[str]()
        pairs, deleted, inserted = Counter[tuple[str, str]](), Counter[str](), Counter[str]()
        for line in lines:
            reference = comparable(line.reference)
            counts.update(reference)
            if line.cer.errors:
                _count_edits(reference, comparable(line.prediction), pairs, deleted, inserted)
        return cls._counted(counts, pairs, deleted, inserted)

    @classmethod
    def _counted(
        cls, counts: Counter[str], pairs: Counter[tuple[str, str]], deleted: Counter[str], inserted: Counter[str]
    ) -> Self:
        substituted = Counter[str]()
        for (character, _), count in pairs.items():
            substituted[character] += count
        errors = Counter({character: substituted[character] + deleted[character] for character in counts})
        wrong = [character for character, count in _ranked(errors) if count][:SHOWN]
        named = [
            CharacterCount(character, counts[character], substituted[character], deleted[character])
            for character in wrong
        ]
        rest = CharacterCount(
            None,
            counts.total() - sum(one.count for one in named),
            substituted.total() - sum(one.substituted for one in named),
            deleted.total() - sum(one.deleted for one in named),
        )
        ranked = sorted(pairs.items(), key=lambda item: (-item[1], item[0]))
        return cls(
            count=counts.total(),
            substitutions=pairs.total(),
            deletions=deleted.total(),
            insertions=inserted.total(),
            by_character=(*named, *([rest] if rest.count else [])),
            others=len(counts) - len(named),
            confusions=tuple(Confusion(*pair, count) for pair, count in ranked[:SHOWN]),
            other_pairs=len(ranked[SHOWN:]),
            other_pairs_count=sum(count for _, count in ranked[SHOWN:]),
            deleted=Tally.of(deleted),
            inserted=Tally.of(inserted),
            blocks=_by_block(counts, errors, inserted),
            alike=tuple(_like(letters, counts, errors, pairs) for letters in ALIKE),
        )

    def as_dict(self) -> dict[str, Any]:
        """The counts as JSON holds them."""
        return {
            "count": self.count,
            "substitutions": self.substitutions,
            "deletions": self.deletions,
            "insertions": self.insertions,
            "by_character": [asdict(one) | {"errors": one.errors} for one in self.by_character],
            "others": self.others,
            "confusions": [asdict(one) for one in self.confusions],
            "other_pairs": self.other_pairs,
            "other_pairs_count": self.other_pairs_count,
            "deleted": self.deleted.as_dict(),
            "inserted": self.inserted.as_dict(),
            "blocks": [asdict(one) for one in self.blocks],
            "alike": [asdict(one) for one in self.alike],
        }

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """The counts that `as_dict` wrote."""
        named = ({name: row[name] for name in row if name != "errors"} for row in values["by_character"])
        built = {
            "by_character": tuple(CharacterCount(**row) for row in named),
            "confusions": tuple(Confusion(**row) for row in values["confusions"]),
            "deleted": Tally.from_dict(values["deleted"]),
            "inserted": Tally.from_dict(values["inserted"]),
            "blocks": tuple(BlockCount(**row) for row in values["blocks"]),
            "alike": tuple(LikeLetters(**row) for row in values["alike"]),
        }
        return cls(**{**values, **built})


def _count_edits(
    reference: str,
    prediction: str,
    pairs: Counter[tuple[str, str]],
    deleted: Counter[str],
    inserted: Counter[str],
) -> None:
    for edit in Levenshtein.editops(reference, prediction):
        if edit.tag == "replace":
            pairs[reference[edit.src_pos], prediction[edit.dest_pos]] += 1
        elif edit.tag == "delete":
            deleted[reference[edit.src_pos]] += 1
        else:
            inserted[prediction[edit.dest_pos]] += 1


def _by_block(counts: Counter[str], errors: Counter[str], inserted: Counter[str]) -> tuple[BlockCount, ...]:
    blocks: dict[str, list[int]] = {}
    for column, counter in enumerate((counts, errors, inserted)):
        for character, count in counter.items():
            blocks.setdefault(block_of(character), [0, 0, 0])[column] += count
    return tuple(
        BlockCount(block, *blocks[block]) for block in sorted(blocks, key=lambda block: (-blocks[block][0], block))
    )


def _like(letters: str, counts: Counter[str], errors: Counter[str], pairs: Counter[tuple[str, str]]) -> LikeLetters:
    members = set(letters + letters.upper())
    confused = sum(
        count
        for (reference, prediction), count in pairs.items()
        if reference in members and prediction in members and reference.lower() != prediction.lower()
    )
    return LikeLetters(letters, _sum(counts, members), _sum(errors, members), confused)


def _sum(counts: Counter[str], members: Iterable[str]) -> int:
    return sum(counts[member] for member in members)


def _ranked(counts: Counter[str]) -> list[tuple[str, int]]:
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


KINDS = ("writer", "page", "source", "length", "script")
_PLACE = re.compile(r"#.*|:\d+$", re.DOTALL)
"""Where in its file a line stands."""

GROUPS_SHOWN = 40
"""So many groups of a kind stand on a card by name; the others are pooled."""


@dataclass(frozen=True, slots=True)
class Group:
    """Some lines by what they share; the name is None for lines of which it is not known."""

    name: str | None
    scores: Scores

    def as_dict(self) -> dict[str, Any]:
        """The group as JSON holds it."""
        return {"name": self.name, **self.scores.as_dict()}


@dataclass(frozen=True, slots=True)
class Groups:
    """All lines by one kind of group: those with the most lines by name (lengths in order), the others together."""

    shown: tuple[Group, ...]
    others: int = 0
    others_scores: Scores | None = None

    @classmethod
    def of(cls, kind: str, lines_by_model: Mapping[str, Sequence[LineScore]]) -> Self:
        """The groups of a kind; the models read the same lines in the same order."""
        names = _names(kind, next(iter(lines_by_model.values())))
        places: dict[str | None, list[int]] = {}
        for place, name in enumerate(names):
            places.setdefault(name, []).append(place)
        ranked = sorted(places, key=lambda name: (-len(places[name]), name is None, name or ""))
        named, others = ranked[:GROUPS_SHOWN], ranked[GROUPS_SHOWN:]
        if kind == "length":
            named.sort(key=lambda name: int((name or "0").split("-")[0]))

        def scored(chosen: Sequence[int]) -> Scores:
            return Scores.of({model: [lines[place] for place in chosen] for model, lines in lines_by_model.items()})

        rest = [place for name in others for place in places[name]]
        return cls(
            tuple(Group(name, scored(places[name])) for name in named), len(others), scored(rest) if rest else None
        )

    def as_dict(self) -> dict[str, Any]:
        """The groups as JSON holds them."""
        return {
            "shown": [group.as_dict() for group in self.shown],
            "others": self.others,
            "others_scores": self.others_scores and self.others_scores.as_dict(),
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """The groups that `as_dict` wrote."""
        rest = values["others_scores"]
        shown = tuple(Group(group["name"], Scores.from_dict(group)) for group in values["shown"])
        return cls(shown, values["others"], rest and Scores.from_dict(rest))


def _names(kind: str, lines: Sequence[LineScore]) -> list[str | None]:
    if kind == "length":
        return _bands([line.cer.length for line in lines])
    if kind == "script":
        return [script_of(line.reference) for line in lines]
    if kind == "source":
        return [_collection(line.source) for line in lines]
    return [getattr(line, kind) for line in lines]


def _collection(source: str | None) -> str | None:
    """Of `letters/17.xml:12` the folder, `letters`; of a file at the top, such as `lines.csv:12`, the file."""
    if source is None:
        return None
    folder, _, file = _PLACE.sub("", source).rpartition("/")
    return folder or file


def _bands(lengths: Sequence[int]) -> list[str | None]:
    """The length band of each line, `21-34` characters; the bands hold about as many lines each."""
    bounds = [min(lengths), *(bound for bound in length_bounds(lengths) if bound > min(lengths)), max(lengths) + 1]
    return [
        f"{bounds[place - 1]}-{bounds[place] - 1}" for place in (bisect_right(bounds, length) for length in lengths)
    ]


Grouped = Literal["writer", "page", "source"]


@dataclass(frozen=True, slots=True)
class MacroMean:
    """The mean of `of` rates, None where there are none; `left_out` have no text in their references, and no rate."""

    cer: float | None
    wer: float | None
    of: int
    left_out: int = 0


@dataclass(frozen=True, slots=True)
class Averages:
    """The macro means over lines, and over writers and pages as far as they are known, and quantiles of the lines' CER.

    Quantiles lie between two lines where they fall between them (linear interpolation).
    """

    macro_over_lines: MacroMean
    macro_over_writers: MacroMean
    macro_over_pages: MacroMean
    median_line_cer: float | None
    p90_line_cer: float | None

    @classmethod
    def of(cls, lines: Sequence[LineScore]) -> Self:
        """The averages of some lines."""
        rates = [line.cer.rate for line in lines if line.cer.length]
        median, p90 = np.quantile(rates, [0.5, 0.9]) if rates else (None, None)
        return cls(
            _macro([(line.cer, line.wer) for line in lines]),
            _macro(list(pooled_by("writer", lines).values())),
            _macro(list(pooled_by("page", lines).values())),
            None if median is None else float(median),
            None if p90 is None else float(p90),
        )

    def as_dict(self) -> dict[str, Any]:
        """The averages as JSON holds them."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """The averages that `as_dict` wrote."""
        macro = {name: MacroMean(**value) for name, value in values.items() if name.startswith("macro")}
        return cls(**{**values, **macro})


def pooled_by(what: Grouped, lines: Sequence[LineScore]) -> dict[str, tuple[ErrorRate, ErrorRate]]:
    """CER and WER of each writer, page or source that is known, pooled, in the order in which they come."""
    sums: dict[str, list[int]] = {}
    for line in lines:
        name: str | None = getattr(line, what)
        if name is not None:
            counts = sums.setdefault(name, [0, 0, 0, 0])
            for place, count in enumerate((line.cer.errors, line.cer.length, line.wer.errors, line.wer.length)):
                counts[place] += count
    return {name: (ErrorRate(*counts[:2]), ErrorRate(*counts[2:])) for name, counts in sums.items()}


def _macro(rates: Sequence[tuple[ErrorRate, ErrorRate]]) -> MacroMean:
    counted = [(cer.rate, wer.rate) for cer, wer in rates if cer.length]
    if not counted:
        return MacroMean(None, None, 0, len(rates))
    cer, wer = np.mean(counted, axis=0)
    return MacroMean(float(cer), float(wer), len(counted), len(rates) - len(counted))
