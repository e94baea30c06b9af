"""What was read of a page: its lines, where they stand, and their texts; as JSON for the journal."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from dsocr.data.sources.layout import Outline, Region
from dsocr.inference.inputs.finding import InputPage


@dataclass(frozen=True, slots=True)
class ReadLine:
    """A line of a page with its text; an empty one where nothing was read.

    `outline` is in pixels of the upright image, None where the line is the whole image. `place` and `id` are those of
    its ALTO or PAGE file. `was_there` says that the text stood there and was kept. `told` is what the prediction says
    beside the text, as JSON lines have it; of a line that was read with others it is what is said of them all.
    """

    id: str
    text: str
    outline: Outline | None = None
    region: Region | None = None
    place: int | None = None
    was_there: bool = False
    told: Mapping[str, Any] = field(default_factory=dict)

    @property
    def confidence(self) -> float | None:
        """How sure the model was of the line, 0-1; None where it is not known."""
        known = self.told.get("confidence")
        return float(known) if isinstance(known, int | float) else None


@dataclass(frozen=True, slots=True)
class ReadPage:
    """A page that was read: `size` in pixels, upright; lines in reading order.

    `refused` tells of lines that could not be cut, `unmatched` counts regions that were answered with another number of
    lines than are drawn there.
    """

    page: InputPage
    size: tuple[int, int]
    lines: tuple[ReadLine, ...]
    refused: tuple[str, ...] = ()
    unmatched: int = 0

    def as_json(self) -> dict[str, Any]:
        """What the journal keeps; the page itself is found anew."""
        return {
            "size": self.size,
            "lines": [asdict(line) for line in self.lines],
            "refused": self.refused,
            "unmatched": self.unmatched,
        }

    @classmethod
    def from_json(cls, page: InputPage, told: Mapping[str, Any]) -> "ReadPage":
        """The page that `as_json` told of."""
        lines = tuple(_line(line) for line in told["lines"])
        return cls(page, (told["size"][0], told["size"][1]), lines, tuple(told["refused"]), told["unmatched"])

    @property
    def written(self) -> tuple[ReadLine, ...]:
        """The lines that have a text."""
        return tuple(line for line in self.lines if line.text)


def _line(told: Mapping[str, Any]) -> ReadLine:
    region = told["region"]
    return ReadLine(
        told["id"],
        told["text"],
        _outline(told["outline"]),
        Region(region["id"], _outline(region["outline"])) if region else None,
        told["place"],
        told["was_there"],
        told["told"],
    )


def _outline(told: Mapping[str, Any] | None) -> Outline | None:
    if told is None:
        return None
    left, top, right, bottom = told["box"]
    polygon, baseline = (tuple((x, y) for x, y in told[name]) for name in ("polygon", "baseline"))
    return Outline((left, top, right, bottom), polygon, baseline)
