"""When two transcriptions are the same text: the policy texts are stored under, the profile they are compared under.

Knows nothing about files, models or metrics.
"""

import re
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, Literal

from dsocr.text_rules import (
    Marks,
    struck_pattern,
    unclear_pattern,
    with_plain_hyphens,
    with_words_joined,
    without,
    without_invisible,
    without_mojibake,
)

_SPACES_BUT_NEWLINES = re.compile(r"[^\S\n]+")

Marked = Literal["keep", "strip", "drop-line"]


@dataclass(frozen=True, slots=True)
class Change:
    """What one rule made of a text."""

    rule: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Revision:
    """A text as it is stored, each rule that changed it, and the rule because of which it is not stored at all."""

    text: str
    changes: tuple[Change, ...] = ()
    dropped: str | None = None


@dataclass(frozen=True, slots=True)
class TextPolicy:
    """What `prepare` does to a transcription before it is stored; recorded in the dataset card and in the run.

    `unicode` is a Unicode normal form, NFC by default, so that й is one character and not two. `spaces` "collapse"
    turns every run of white space, no-break spaces too, into one space and strips both ends; newlines between the
    lines of a page stay. `invisible` "strip" drops control and zero-width characters, soft hyphens and byte order
    marks, but not the joiners of scripts that are spelt with them. `mojibake` "repair" undoes UTF-8 read as another
    encoding, where that is exact. `hyphen_signs` "hyphen" writes `¬` and `⸗` as `-`; `line_end_hyphens` "join" makes
    words whole that a line's end breaks. `struck` and `unclear` say what becomes of text between the pairs of
    `struck_marks`, and of the signs in `unclear_marks`: "strip" drops them, "drop-line" the whole transcription.
    """

    unicode: Literal["NFC", "keep"] = "NFC"
    spaces: Literal["collapse", "keep"] = "collapse"
    invisible: Literal["strip", "keep"] = "strip"
    mojibake: Literal["keep", "repair"] = "keep"
    hyphen_signs: Literal["keep", "hyphen"] = "keep"
    line_end_hyphens: Literal["keep", "join"] = "keep"
    struck: Marked = "keep"
    struck_marks: Marks = ((">", "<"), ("~~", "~~"), ("<del>", "</del>"), ("[[", "]]"))
    unclear: Marked = "keep"
    unclear_marks: tuple[str, ...] = ("[?]", "[unclear]", "[нрзб]", "[нрзб.]", "[неразб.]", "><", "xxx")

    def __post_init__(self) -> None:
        if not all(mark.strip() for pair in (*self.struck_marks, self.unclear_marks) for mark in pair):
            raise ValueError("a mark must not be empty or white space")

    def apply(self, text: str) -> str:
        """The text as it is stored, learnt and written out; applying it again changes nothing."""
        return self.revise(text).text

    def revise(self, text: str) -> Revision:
        """The text as `apply` gives it, with what was changed, and whether the policy is to drop it.

        The end of a line or file at the end of a text is not told as a change.
        """
        changes: list[Change] = []
        settled = False
        while not settled:
            settled = True
            for rule, function in self._rules():
                before, text = text, function(text)
                if before != text:
                    settled = False
                    if before.rstrip("\r\n") != text:
                        changes.append(Change(rule, before, text))
        return Revision(text, tuple(changes), self._dropped(text))

    def _rules(self) -> Iterator[tuple[str, Callable[[str], str]]]:
        """Each rule that is asked for; later ones rely on earlier ones."""
        if self.mojibake == "repair":
            yield "mojibake", without_mojibake
        if self.invisible == "strip":
            yield "invisible", without_invisible
        if self.unicode == "NFC":
            yield "unicode", lambda text: unicodedata.normalize("NFC", text)
        if self.hyphen_signs == "hyphen":
            yield "hyphen_signs", with_plain_hyphens
        if self.unclear == "strip":
            yield "unclear", lambda text: without(unclear_pattern(self.unclear_marks), text)
        if self.struck == "strip":
            yield "struck", lambda text: without(struck_pattern(self.struck_marks), text)
        if self.line_end_hyphens == "join":
            yield "line_end_hyphens", with_words_joined
        if self.spaces == "collapse":
            yield "spaces", _collapsed

    def _dropped(self, text: str) -> str | None:
        if self.unclear == "drop-line" and unclear_pattern(self.unclear_marks).search(text):
            return "unclear"
        if self.struck == "drop-line" and struck_pattern(self.struck_marks).search(text):
            return "struck"
        return None

    def as_dict(self) -> dict[str, Any]:
        """The policy as it stands in a card, in lists as JSON has them."""
        marks = {"struck_marks": [list(pair) for pair in self.struck_marks], "unclear_marks": list(self.unclear_marks)}
        return asdict(self) | marks


def _collapsed(text: str) -> str:
    lines = (_SPACES_BUT_NEWLINES.sub(" ", line).strip() for line in text.splitlines())
    return "\n".join(line for line in lines if line)


def comparable(text: str) -> str:
    """The text as metrics see it, profile `raw`: NFC, every run of white space one space, nothing else folded."""
    return " ".join(unicodedata.normalize("NFC", text).split())


def letters_of(text: str) -> str:
    """What remains the same where two people transcribed one line: letters and digits, case and ё folded."""
    text = unicodedata.normalize("NFC", text)
    return "".join(character for character in text.casefold() if character.isalnum()).replace("ё", "е")


def is_blank(text: str) -> bool:
    """True where a transcription holds nothing one could read: no text, white space, or invisible characters only."""
    return all(character.isspace() or unicodedata.category(character) in {"Cf", "Cc"} for character in text)
