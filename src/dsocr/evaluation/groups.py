"""The lines of a split by who wrote them, where they stand, how long they are and in which script."""

import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from dsocr.data.strata import length_bounds, script_of
from dsocr.evaluation.scores import LineScore, Scores

KINDS = ("writer", "page", "source", "length", "script")
_PLACE = re.compile(r"#.*|:\d+$", re.DOTALL)
"""Where in its file a line stands."""

SHOWN = 40
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
        named, others = ranked[:SHOWN], ranked[SHOWN:]
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
