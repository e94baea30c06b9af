"""The differences of two texts as HTML: what was not read is struck out, what was added is underlined.

Colours help, but nothing is told by them alone; a screen reader says deletion and insertion.
"""

from html import escape

from dsocr.evaluation.metrics import Stretch, stretches

LONGEST = 1500
"""Characters of a line that are shown; what a loop wrote beyond them is counted."""

_JOINERS = "\u200c\u200d"
"""Invisible, and part of the spelling of some scripts."""


def differences(reference: str, prediction: str) -> str:
    """The prediction against its reference, with `del` and `ins`; a long one is cut, and says so."""
    drawn, shown, hidden = [], 0, 0
    for stretch in stretches(reference, prediction):
        room = LONGEST - shown
        length = max(len(stretch.written), len(stretch.read))
        drawn.append(_drawn(Stretch(stretch.written[:room], stretch.read[:room])))
        shown += min(length, room)
        hidden += max(length - room, 0)
    return "".join(drawn) + _more(hidden)


def shortened(text: str) -> str:
    """A text as HTML, cut where it is longer than a report shows."""
    return visible(text[:LONGEST]) + _more(len(text) - LONGEST)


def visible(text: str) -> str:
    """The text escaped; in the place of a control character, which could turn the page around, stands a sign for it."""
    return escape("".join(sign if sign.isprintable() or sign in _JOINERS else "\ufffd" for sign in text))


def _drawn(stretch: Stretch) -> str:
    if stretch.right:
        return visible(stretch.written)
    left_out = f"<del>{visible(stretch.written)}</del>" if stretch.written else ""
    return left_out + (f"<ins>{visible(stretch.read)}</ins>" if stretch.read else "")


def _more(hidden: int) -> str:
    return f' <span class="quiet">... and {hidden:,} characters more</span>' if hidden > 0 else ""
