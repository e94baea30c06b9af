"""Which line is drawn in which face: no font family and no text in two splits."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from dsocr.data.splits import assign_groups
from dsocr.data.synthesis.faces import Face
from dsocr.errors import DataError
from dsocr.samples import Split

_FEWER_SPLITS = "or leave splits out, e.g. --split 1/0/0"


@dataclass(frozen=True, slots=True)
class LineToDraw:
    """A text, the face to draw it in, and its split."""

    text: str
    face: Face
    split: Split


@dataclass(frozen=True, slots=True)
class Shared:
    """The lines to draw, and the texts that no face of their split can draw."""

    lines: list[LineToDraw]
    undrawn: list[str]


def share_out(
    faces: Sequence[Face], texts: Sequence[str], fractions: Mapping[Split, float], count: int, seed: int
) -> Shared:
    """`count` lines, by their fractions in each split; texts that are fewer are taken again, each in another face.

    Expects the texts in random order. Raises DataError where a split that should have lines gets none.
    """
    parts = _parts(texts, fractions)
    _demand_enough(faces, texts, parts)
    families = _split_of_families(faces, texts, fractions, seed)
    shared = Shared([], [])
    for split, own_texts in parts.items():
        own = [face for face in faces if families[face.family] == split]
        able = {text: [face for face in own if face.can_draw(text)] for text in own_texts}
        shared.undrawn.extend(text for text, found in able.items() if not found)
        drawable = [(text, found) for text, found in able.items() if found]
        if not drawable:
            message = f"none of the {len(own_texts)} lines of text for {split} can be drawn in its fonts"
            raise DataError(message, hint=f"add text, or fonts that have its letters, {_FEWER_SPLITS}")
        for turn in range(max(1, round(count * fractions[split]))):
            round_, place = divmod(turn, len(drawable))
            text, found = drawable[place]
            # One face after another, and another one each time a text comes round again.
            shared.lines.append(LineToDraw(text, found[(round_ + place) % len(found)], split))
    return shared


def _demand_enough(faces: Sequence[Face], texts: Sequence[str], parts: Mapping[Split, Sequence[str]]) -> None:
    """An error where a split would have no text or no font family, none of which stands in two."""
    if bare := [split for split, own in parts.items() if not own]:
        different = "1 line of text leaves" if len(texts) == 1 else f"{len(texts)} different lines of text leave"
        message = f"{different} none for {' and '.join(bare)}, and no line is drawn in two splits"
        raise DataError(message, hint=f"add text, {_FEWER_SPLITS}")
    families = sorted({face.family for face in faces})
    if len(families) < len(parts):
        counted = f"1 font family ({families[0]})" if len(families) == 1 else f"{len(families)} font families"
        message = f"{counted} cannot fill {len(parts)} splits without standing in two of them"
        raise DataError(message, hint=f"add fonts of another family, {_FEWER_SPLITS}")


def _split_of_families(
    faces: Sequence[Face], texts: Sequence[str], fractions: Mapping[Split, float], seed: int
) -> dict[str, Split]:
    """Every font family's split; one that lacks letters of most texts goes to the largest split.

    Alone in a small one it would show the few texts it can draw over and over.
    """
    most = {face.family for face in faces if 2 * sum(map(face.can_draw, texts)) >= len(texts)}
    wanted = sum(fraction > 0 for fraction in fractions.values())
    assigned = most if len(most) >= wanted else {face.family for face in faces}
    largest = max(fractions, key=lambda split: fractions[split])
    splits = assign_groups(dict.fromkeys(assigned, 1), fractions, seed, unit="font family")
    return {face.family: splits.get(face.family, largest) for face in faces}


def _parts(texts: Sequence[str], fractions: Mapping[Split, float]) -> dict[Split, Sequence[str]]:
    """The texts of every split that has a fraction."""
    ends = [round(end * len(texts)) for end in accumulate(fractions.values(), initial=0.0)]
    parts = {split: texts[start:end] for split, (start, end) in zip(fractions, pairwise(ends), strict=True)}
    return {split: part for split, part in parts.items() if fractions[split] > 0}
