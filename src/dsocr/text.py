"""When two transcriptions are the same text: the policy texts are stored under, the profile they are compared under.

Knows nothing about files, models or metrics.
"""

import re
import unicodedata
from dataclasses import asdict, dataclass
from typing import Literal

_SPACES = re.compile(r"\s+")
_SPACES_BUT_NEWLINES = re.compile(r"[^\S\n]+")


@dataclass(frozen=True, slots=True)
class TextPolicy:
    """What `prepare` does to a transcription before it is stored; recorded in the dataset card and in the run.

    `unicode` is a Unicode normal form, NFC by default, so that й is one character and not two. `spaces` "collapse"
    turns every run of white space into one space and strips both ends; newlines between the lines of a page stay.
    """

    unicode: Literal["NFC", "keep"] = "NFC"
    spaces: Literal["collapse", "keep"] = "collapse"

    def apply(self, text: str) -> str:
        """The text as it is stored, learnt and written out."""
        if self.unicode == "NFC":
            text = unicodedata.normalize("NFC", text)
        if self.spaces == "collapse":
            lines = (_SPACES_BUT_NEWLINES.sub(" ", line).strip() for line in text.splitlines())
            text = "\n".join(line for line in lines if line)
        return text

    def as_dict(self) -> dict[str, str]:
        """The policy as it stands in a card."""
        return asdict(self)


def comparable(text: str) -> str:
    """The text as metrics see it, profile `raw`: NFC, every run of white space one space, nothing else folded."""
    return _SPACES.sub(" ", unicodedata.normalize("NFC", text)).strip()


def letters_of(text: str) -> str:
    """What remains the same where two people transcribed one line: letters and digits, case and ё folded."""
    text = unicodedata.normalize("NFC", text)
    return "".join(character for character in text.casefold() if character.isalnum()).replace("ё", "е")


def is_blank(text: str) -> bool:
    """True where a transcription holds nothing one could read: no text, white space, or invisible characters only."""
    return all(character.isspace() or unicodedata.category(character) in {"Cf", "Cc"} for character in text)
