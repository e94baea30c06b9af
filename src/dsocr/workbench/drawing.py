"""A page's lines drawn over its picture, and a text tinted where it is doubtful, as SVG and HTML."""

from collections.abc import Sequence
from html import escape

from dsocr.workbench.lines import Line, State

_COLOUR_BY_STATE = {
    State.UNREAD: "#64748b",
    State.READ: "#d97706",
    State.ACCEPTED: "#059669",
    State.UNREADABLE: "#9333ea",
}
DOUBT = 0.95
"""A character less likely right than this is tinted, the deeper the less likely."""


def drawn(lines: Sequence[Line], chosen: int | None) -> str:
    """The outlines of a page's lines as SVG in its pixels, one of them chosen."""
    return "".join(_outline(line, is_chosen=line.number == chosen) for line in lines)


def _outline(line: Line, *, is_chosen: bool) -> str:
    left, top, right, bottom = line.outline.box
    points = line.outline.polygon or ((left, top), (right, top), (right, bottom), (left, bottom))
    where = " ".join(f"{x},{y}" for x, y in points)
    colour = _COLOUR_BY_STATE[line.state]
    look = 'fill-opacity="0.22" stroke-width="5"' if is_chosen else 'fill-opacity="0.06" stroke-width="2"'
    return f'<polygon points="{where}" fill="{colour}" stroke="{colour}" {look} vector-effect="non-scaling-stroke"/>'


def tinted(text: str, characters: Sequence[float]) -> str:
    """A text as HTML; where it is doubtful it stands on a ground, and says how likely it is right."""
    if len(characters) != len(text):  # what stands there is not what the model read
        return escape(text)
    return "".join(_letter(letter, likely) for letter, likely in zip(text, characters, strict=True))


def _letter(letter: str, likely: float) -> str:
    if likely >= DOUBT:
        return escape(letter)
    strength = round(25 + 60 * (1 - likely / DOUBT))
    ground = f"background:color-mix(in srgb, #f59e0b {strength}%, transparent);border-bottom:2px solid #b45309"
    return f'<span style="{ground}" title="{likely:.0%}">{escape(letter)}</span>'
