"""What the text policy makes of the transcriptions that a source yields."""

import re
import unicodedata
from dataclasses import replace

from dsocr.data.notes import Notes
from dsocr.data.sources.layout import LeftOut, Reason, SourceImage, SourceLine
from dsocr.text import Change, TextPolicy, is_blank

_HALF = re.compile("[\ud800-\udfff]")
"""What JSON can write and UTF-8 cannot."""

_AROUND = 20
"""Characters that an example shows on either side of a change."""
_LONGEST = 60
_DROPPED = {
    "struck": (Reason.STRUCK, "the transcription holds struck-out text, which the policy drops"),
    "unclear": (Reason.UNCLEAR, "the transcription holds an unclear place, which the policy drops"),
}


def with_text(image: SourceImage, notes: Notes, policy: TextPolicy) -> SourceImage:
    """The image with texts as they are stored; lines without one are left out, and an image may be left with none."""
    lines = []
    for line in image.lines:
        revision = policy.revise(line.text)
        if problem := _problem(line, revision.text, revision.dropped):
            notes.add(problem)
            continue
        for rule in dict.fromkeys(change.rule for change in revision.changes):
            first = next(change for change in revision.changes if change.rule == rule)
            notes.add_change(rule, line.where, _told(first))
        lines.append(replace(line, text=revision.text))
    return replace(image, lines=tuple(lines))


def _problem(line: SourceLine, text: str, dropped: str | None) -> LeftOut | None:
    if is_blank(text):
        left = "nothing is left of the transcription" if not is_blank(line.text) else "the transcription is empty"
        return LeftOut(Reason.NO_TEXT, line.where, left)
    if _HALF.search(text):
        return LeftOut(Reason.BAD_SOURCE, line.where, "the transcription holds half of a character")
    if dropped:
        reason, message = _DROPPED[dropped]
        return LeftOut(reason, line.where, message)
    return None


def _told(change: Change) -> str:
    """The changed part of a text, before and after, with what cannot be seen written as its number."""
    before, after = change.before, change.after
    same = next((place for place, letter in enumerate(before) if after[place : place + 1] != letter), len(before))
    start = max(same - _AROUND, 0)
    return f"{_part(before, start)} -> {_part(after, start)}"


def _part(text: str, start: int) -> str:
    part = text[start : start + _LONGEST]
    shown = "".join(_shown(character) for character in part)
    return f"'{'…' if start else ''}{shown}{'…' if start + _LONGEST < len(text) else ''}'"


def _shown(character: str) -> str:
    """A character as a person can see it: what joins another, shows nothing or is no plain space by its number."""
    hidden = unicodedata.category(character) in {"Mn", "Cc", "Cf", "Co", "Cs", "Zl", "Zp"}
    if hidden or (character.isspace() and character != " "):
        return f"\\u{ord(character):04x}"
    return character
