"""What can be put right in a transcription without seeing its image: signs that nobody sees, letters of two scripts."""

import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass

from dsocr.data.checking.letters import NO_BREAK, invisible
from dsocr.data.checking.scripts import in_one_script
from dsocr.text import is_blank

_HYPHEN_AT_LINE_END = re.compile("\u00ad+[^\\S\n]*(?=\n|$)")


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that was put right: the code of the finding it answers, the text before and after."""

    code: str
    before: str
    after: str


def clean(text: str) -> list[Step]:
    """The steps that put a text right, in their order; none where there is nothing to put right.

    A text of which nothing would be left is not touched, nor are private letters, whose meaning only their font knows.
    """
    steps = []
    for code, repaired in _REPAIRS.items():
        after = repaired(text)
        if after != text and not is_blank(after):
            steps.append(Step(code, text, after))
            text = after
    return steps


def _composed(text: str) -> str:
    return unicodedata.normalize("NFC", text)


def _visible(text: str) -> str:
    """The text without what nobody sees; a soft hyphen at the end of a line is one that is seen there."""
    if not invisible(text):
        return text
    text = _HYPHEN_AT_LINE_END.sub("-", text)
    for character in invisible(text):
        if unicodedata.category(character) == "Co":
            continue
        if character in NO_BREAK or character.isspace():
            text = re.sub(f" *{re.escape(character)}[{re.escape(character)} ]*", " ", text)
        else:
            text = text.replace(character, "")
    return "\n".join(line.strip(" ") for line in text.split("\n"))


_REPAIRS: dict[str, Callable[[str], str]] = {
    "decomposed-characters": _composed,
    "invisible-characters": _visible,
    "look-alikes": in_one_script,
}
