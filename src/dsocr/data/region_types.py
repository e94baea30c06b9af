"""Types of regions, learnt from pages that have them: by where a line is on its page, and how its text is made up.

A page number is short, stands apart in a corner and is made of digits. Extremely randomized trees (Geurts, Ernst and
Wehenkel 2006) learn that from ten pages, on which a network would learn the lines by heart. They are kept as the lines
that they were learnt from, and grown again where they are needed: there is nothing to unpickle.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from dsocr.document import Line, Outline, Page, Region, bounds_of_boxes
from dsocr.errors import ModelError
from dsocr.io.files import until_changed

TYPES_FILE = "region_types.safetensors"
"""Name of the file beside the weights of a detector."""
_NAMES = "names"
"""Where the file has the names of types, whose indices are its tensor `types`."""
_MOST = 400
"""Lines of a type that are learnt from, at most; of more, some throughout the pages are."""
_TREES = 100
_WIDE = 0.6
"""Quantile of widths from which lines say where the text of a page is: notes and numbers are shorter."""
_FAR = 30.0
"""Line heights to the next line where there is none."""
_NUMBER = re.compile(r"[\W\d]*\d[\W\drv]*(bis)?")
"""Also folios (`12v`) and numbers in brackets."""
_SHORT = 20
"""Characters of a text that may be a number."""
_ROMAN = re.compile(r"[ivxlcIVXLC\W]+")

Numbers = NDArray[np.float32]


def main_type(kind: str) -> str:
    """Return a type without what SegmOnto adds to it: `MarginTextZone` of `MarginTextZone:note#1`."""
    return re.split(r"[:#]", kind, maxsplit=1)[0].strip()


@dataclass(frozen=True, eq=False)
class RegionTypes:
    """What lines of each type look like: numbers `(N, F)` and the types `(N,)` of lines that were drawn."""

    numbers: Numbers
    types: NDArray[np.str_]

    @classmethod
    def learn(cls, pages: Iterable[Page]) -> "RegionTypes | None":
        """Learn from the lines of pages whose regions have types; None if there are not two types to tell apart."""
        rows: dict[str, list[Numbers]] = {}
        for page in pages:
            lines = [line for line in page.lines if line.outline]
            kinds = [main_type(line.region.kind) if line.region else "" for line in lines]
            if not any(kinds) or page.size is None:
                continue
            for kind, row in zip(kinds, describe_lines(lines, page.size), strict=True):
                if kind:
                    rows.setdefault(kind, []).append(row)
        if len(rows) < 2:
            return None
        chosen = {kind: [drawn[index] for index in _spread(len(drawn))] for kind, drawn in sorted(rows.items())}
        types = [kind for kind, lines in chosen.items() for _ in lines]
        return cls(np.array([row for lines in chosen.values() for row in lines]), np.array(types))

    @property
    def counts(self) -> Mapping[str, int]:
        """The lines of each type, the commonest first."""
        return dict(Counter(self.types.tolist()).most_common())

    def predict(self, lines: Sequence[Line], size: tuple[int, int]) -> list[str]:
        """Return the type of each of the lines of a page of this size, all of which have outlines."""
        if not lines:
            return []
        is_read = any(line.text for line in lines)
        trees = self._by_place_and_text if is_read else self._by_place
        return [str(kind) for kind in trees.predict(describe_lines(lines, size)[:, : trees.n_features_in_])]

    @cached_property
    def _by_place(self) -> Any:
        return self._grow(len(_PLACES))

    @cached_property
    def _by_place_and_text(self) -> Any:
        has_texts = self.numbers[:, len(_PLACES) :].any()
        return self._grow(len(_PLACES) + len(_TEXTS)) if has_texts else self._by_place

    def _grow(self, columns: int) -> Any:
        """Grow the trees that tell the types by the first columns of numbers."""
        from sklearn.ensemble import ExtraTreesClassifier

        # Rare types weigh as much as common ones, and no leaf is a single line.
        trees = ExtraTreesClassifier(_TREES, class_weight="balanced_subsample", min_samples_leaf=2, random_state=0)
        return trees.fit(self.numbers[:, :columns], self.types)

    def to_bytes(self) -> bytes:
        """Return the content of a file."""
        names, indices = np.unique(self.types, return_inverse=True)
        about = {_NAMES: json.dumps(names.tolist(), ensure_ascii=False)}
        content: bytes = save({"numbers": self.numbers, "types": indices.astype(np.int64)}, about)
        return content

    @classmethod
    def open(cls, path: Path) -> "RegionTypes":
        """Open a file. Raises ModelError if it is damaged."""
        try:
            with safe_open(path, framework="numpy") as file:
                numbers, indices = file.get_tensor("numbers"), file.get_tensor("types")
                names = np.array(json.loads(file.metadata()[_NAMES]), str)
            types = names[indices]
        except (OSError, ValueError, KeyError, TypeError, IndexError, SafetensorError) as error:
            raise _damaged(path) from error
        expected = (types.size or -1, len(_PLACES) + len(_TEXTS))
        if types.ndim != 1 or numbers.shape != expected or not np.isfinite(numbers).all():
            raise _damaged(path)
        return cls(numbers, types)


def _damaged(path: Path) -> ModelError:
    return ModelError(
        "is not what a run writes", code="region-types-damaged", where=path, hint="train the detector again"
    )


def _spread(count: int) -> list[int]:
    """Indices of so many lines, from the first to the last, or of some throughout."""
    return [round(place) for place in np.linspace(0, count - 1, min(count, _MOST))]


def type_names(kinds: Iterable[str]) -> frozenset[str]:
    """Return types as `is_among` compares them."""
    return frozenset(main_type(kind).casefold() for kind in kinds)


def is_among(line: Line, types: Set[str]) -> bool:
    """Whether the region of a line is of one of these types in lower case, or of none that is known."""
    kind = main_type(line.region.kind) if line.region else ""
    return not kind or kind.casefold() in types


# Numbers of a line

_PLACES = (
    "middle across",
    "middle down",
    "width",
    "height",
    "left of the text",
    "right of the text",
    "above the text",
    "below the text",
    "to the middle of the text",
    "width of the text",
    "usual width",
    "gap above",
    "gap below",
    "beside",
    "begin alike",
    "end alike",
    "before",
    "after",
    "lines",
)
"""What is known of the place of a line: the first columns of `describe_lines`."""
_TEXTS = ("length", "digits", "capitals", "signs", "words", "density", "number", "Roman number", "capital")
"""What is known of a text, all 0 without any: the other columns."""


def describe_lines(lines: Sequence[Line], size: tuple[int, int]) -> Numbers:
    """Return numbers `(N, F)` for the lines of a page, all of which have outlines: of their places and their texts."""
    boxes = np.array([line.outline.box for line in lines if line.outline], float).reshape(-1, 4)
    height = max(float(np.median(boxes[:, 3] - boxes[:, 1])), 1.0)
    texts = [
        _describe_text(line.text, width / height) for line, width in zip(lines, boxes[:, 2] - boxes[:, 0], strict=True)
    ]
    numbers: Numbers = np.hstack([_describe_places(boxes, size, height), np.array(texts)]).astype(np.float32)
    return numbers


def _describe_places(boxes: NDArray[np.float64], size: tuple[int, int], height: float) -> NDArray[np.float64]:
    """Numbers for boxes `(N, 4)`: parts of the page, or of the usual height of its lines."""
    left, top, right, bottom = boxes.T
    across, down = size
    widths, middles, levels = right - left, (left + right) / 2, (top + bottom) / 2
    wide = widths >= np.quantile(widths, _WIDE)
    begin, end = np.median(left[wide]), np.median(right[wide])
    count, rows = len(boxes), []
    for number in range(count):
        over = (left < right[number]) & (right > left[number])
        gaps = np.delete((levels - levels[number])[over], np.count_nonzero(over[:number]))
        rows.append(
            (
                -gaps[gaps < 0].max(initial=-_FAR * height) / height,
                gaps[gaps >= 0].min(initial=_FAR * height) / height,
                np.count_nonzero(abs(levels - levels[number]) < height / 2) - 1,
                (np.count_nonzero(abs(left - left[number]) < height) - 1) / count,
                (np.count_nonzero(abs(right - right[number]) < height) - 1) / count,
            )
        )
    order = np.argsort(np.argsort(levels, kind="stable"), kind="stable")
    page = (
        middles / across,
        levels / down,
        widths / across,
        (bottom - top) / height,
        (left - begin) / across,
        (right - end) / across,
        (top - top[wide].min()) / down,
        (bottom - bottom[wide].max()) / down,
        (middles - (begin + end) / 2) / across,
        np.full(count, (end - begin) / across),
        widths / max(float(np.median(widths)), 1.0),
    )
    return np.column_stack([*page, np.array(rows), order, count - order, np.full(count, count)])


def _describe_text(text: str, room: float) -> tuple[float, ...]:
    """Numbers for the text of a line that is `room` times as wide as the lines of its page are high."""
    if not text:
        return (0.0,) * len(_TEXTS)
    digits, capitals = (sum(map(is_, text)) / len(text) for is_ in (str.isdigit, str.isupper))
    signs = sum(not letter.isalnum() and not letter.isspace() for letter in text) / len(text)
    is_short = len(text) <= _SHORT
    numbers = (is_short and bool(kind.fullmatch(text)) for kind in (_NUMBER, _ROMAN))
    kinds = (*numbers, text[:1].isupper())
    return (len(text), digits, capitals, signs, len(text.split()), len(text) / max(room, 0.1), *map(float, kinds))


# Regions of lines


def load_region_types(folder: Path) -> RegionTypes | None:
    """Open what is beside a detector's weights; None if it learnt no types."""
    path = folder / TYPES_FILE
    return RegionTypes.open(path) if path.is_file() else None


keep_region_types = until_changed(load_region_types, TYPES_FILE)
"""The same once a process, or again if another training has written into the folder."""


def name_regions(
    lines: Sequence[Line], size: tuple[int, int], known: RegionTypes, *, cells: Set[str] = frozenset()
) -> list[Line]:
    """Return the lines that were found on a page with the regions that they are in: one for each type in a block.

    Lines of a block follow each other by type, so that a note beside a text does not interrupt it. Lines whose region
    is among `cells` stay as they are.
    """
    groups: dict[tuple[str, str], list[Line]] = {}
    for line, kind in zip(lines, known.predict(lines, size), strict=True):
        block = line.region.id if line.region else ""
        if block not in cells:
            groups.setdefault((block, kind), []).append(line)
    named: list[Line] = []
    for number, ((_, kind), group) in enumerate(groups.items(), start=1):
        region = Region(f"r{number}", _around(group), kind)
        named += [replace(line, region=region) for line in group]
    others = iter(named)
    return [line if line.region and line.region.id in cells else next(others) for line in lines]


def _around(lines: Sequence[Line]) -> Outline:
    return Outline(bounds_of_boxes(line.outline.box for line in lines if line.outline))
