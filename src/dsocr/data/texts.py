"""What the text policy makes of the transcriptions that a source yields."""

import re
from dataclasses import replace

from dsocr.data.notes import Notes
from dsocr.data.sources.layout import LeftOut, Reason, SourceImage
from dsocr.text import TextPolicy, is_blank

_HALF = re.compile("[\ud800-\udfff]")
"""What JSON can write and UTF-8 cannot."""


def with_text(image: SourceImage, notes: Notes, policy: TextPolicy) -> SourceImage:
    """The image with texts as they are stored; lines without one are left out, and an image may be left with none."""
    lines = []
    for line in image.lines:
        text = policy.apply(line.text)
        if is_blank(text):
            notes.add(LeftOut(Reason.NO_TEXT, line.where, "the transcription is empty"))
        elif _HALF.search(text):
            notes.add(LeftOut(Reason.BAD_SOURCE, line.where, "the transcription holds half of a character"))
        else:
            lines.append(replace(line, text=text))
    return replace(image, lines=tuple(lines))
