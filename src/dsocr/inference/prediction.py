"""What was read of one image, how sure each part of it is, and why one should look at it."""

from dataclasses import asdict, dataclass, field, replace
from itertools import accumulate
from typing import Any

from dsocr.inference.confidence import Word
from dsocr.inference.spans import TokenScore
from dsocr.text import is_blank


@dataclass(frozen=True, slots=True)
class Prediction:
    """The transcription of one image. `tokens` counts the end token; `truncated` means that none came.

    `tried_again` is a line that ran into a loop and was read a second time, and where that looped too a third time at
    another resolution; `other_resolution` says that its text comes from there. `looping` is one that always ran into a
    loop: its first text is cut off where that begins. `overruled` counts the tokens at which the guard forbade what the
    model would have written. `confidence` is the share of the text that is likely to be right, `words` has the
    likelihood of each word, `characters` of each character, `lines` that share for each line of the text, and `scores`
    what all was told from; None and empty where nothing is known.
    """

    id: str
    text: str
    tokens: int
    truncated: bool
    tried_again: bool = False
    other_resolution: bool = False
    looping: bool = False
    overruled: int = 0
    confidence: float | None = None
    words: tuple[Word, ...] = ()
    characters: tuple[float, ...] = field(default=(), repr=False)
    lines: tuple[float | None, ...] = field(default=(), repr=False)
    scores: tuple[TokenScore, ...] = field(default=(), repr=False)

    @property
    def flags(self) -> tuple[str, ...]:
        """Why to look at it whatever its confidence; docs/guide/confidence.md says what each means."""
        told = {
            "empty": is_blank(self.text),
            "looping": self.looping,
            "truncated": self.truncated,
            "overruled": self.overruled > 0,
            "tried_again": self.tried_again,
            "other_resolution": self.other_resolution,
        }
        return tuple(name for name, true in told.items() if true)

    def parted(self) -> "list[Prediction]":
        """A prediction for each line of the text, with what is told of that; what is told of the whole stays."""
        texts = self.text.split("\n")
        begins = [0, *accumulate(len(text) + 1 for text in texts)]
        confidences = self.lines or (None,) * len(texts)
        return [
            replace(
                self,
                text=text,
                confidence=confidence,
                words=tuple(
                    replace(word, start=word.start - begin, end=word.end - begin)
                    for word in self.words
                    if begin <= word.start < begin + len(text)
                ),
                characters=self.characters[begin : begin + len(text)],
                lines=(confidence,),
                scores=(),
            )
            for text, begin, confidence in zip(texts, begins, confidences, strict=False)
        ]

    def as_dict(self, *, characters: bool = False) -> dict[str, Any]:
        """The prediction as JSON holds it, confidences rounded to what they can tell; `characters` adds theirs."""
        told: dict[str, Any] = {
            "id": self.id,
            "text": self.text,
            "confidence": _rounded(self.confidence),
            "flags": list(self.flags),
            "words": [asdict(word) | {"confidence": _rounded(word.confidence)} for word in self.words],
            "tokens": self.tokens,
            "truncated": self.truncated,
        }
        return told | ({"characters": list(map(_rounded, self.characters))} if characters else {})


def _rounded(confidence: float | None) -> float | None:
    return None if confidence is None else round(confidence, 4)
