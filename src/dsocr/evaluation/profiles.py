"""Named ways to compare texts, side by side: what of a rate is case, punctuation, spelling, or a misread letter.

A profile folds reference and prediction alike and scores what is left. `raw` is what the other scores count.
"""

import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from rapidfuzz.distance import Levenshtein

from dsocr.evaluation.metrics import ErrorRate, with_words_apart
from dsocr.evaluation.scores import LineScore, finite
from dsocr.text import TextPolicy, comparable
from dsocr.text_rules import Marks, struck_pattern, without

TOKENIZERS = {
    "white_space": "words are what white space divides; punctuation belongs to its word (wer)",
    "punctuation_apart": "every sign that is no letter, mark or number is a word of its own (wer_punctuation_apart)",
}
"""How words are counted, by name."""


@dataclass(frozen=True, slots=True)
class Profile:
    """A way to compare. `fold` takes texts that `text.comparable` has passed, one a line, and keeps the line breaks."""

    name: str
    meaning: str
    fold: Callable[[str], str]

    def folded(self, texts: Sequence[str]) -> list[str]:
        """What is left of each text; many at once, because folding a long text is much faster than many short ones."""
        if not texts:
            return []
        together = "\n".join(texts)
        folded = self.fold(together)
        if folded == together:
            return list(texts)
        # Where a sign is gone, an accent may meet another letter.
        spaced = _SPACES.sub(" ", unicodedata.normalize("NFC", folded))
        return _AROUND_BREAK.sub("\n", spaced).strip(" ").split("\n")


_SPACES = re.compile(" {2,}")
_AROUND_BREAK = re.compile(r" ?\n ?")


_NO_DIGITS = re.compile(r"[^\d\n]+")
_YO = (("ё", "е"), ("Ё", "Е"))
_REFORM = tuple(zip("ѣѢіІїЇѵѴѳѲ", "еЕиИиИиИфФ", strict=True))
_FINAL_HARD_SIGN = re.compile(r"(?<=\w)[ъЪ](?!\w)")


def _replaced(text: str, pairs: Iterable[tuple[str, str]]) -> str:
    """Not `str.translate`, which looks up every character."""
    for old, new in pairs:
        text = text.replace(old, new)
    return text


def _without_punctuation(text: str) -> str:
    signs = (character for character in set(text) if unicodedata.category(character).startswith("P"))
    return _replaced(text, ((sign, "") for sign in signs))


def _reformed(text: str) -> str:
    return _FINAL_HARD_SIGN.sub("", _replaced(text, _REFORM))


STRUCK_MARKS = TextPolicy().struck_marks
"""The marks of struck-out text where nobody says otherwise."""


def profiles(struck_marks: Marks = STRUCK_MARKS) -> tuple[Profile, ...]:
    """All profiles, `raw` first; struck-out text stands between the pairs of `struck_marks`."""
    struck = struck_pattern(struck_marks)
    return (
        Profile("raw", "case, punctuation, ё and е, every letter as written", lambda text: text),
        Profile("without_case", "case folded (Unicode casefold)", str.casefold),
        Profile(
            "without_punctuation",
            "all characters of Unicode's categories P* removed, in every script; как-то is one word",
            _without_punctuation,
        ),
        Profile("yo_as_e", "ё read as е", lambda text: _replaced(text, _YO)),
        Profile("pre_reform", "ѣ read as е, і, ї and ѵ as и, ѳ as ф, and no ъ at the end of a word", _reformed),
        Profile(
            "digits_only",
            "numbers alone: digits of every script (Nd), with one space for all between two numbers",
            lambda text: _NO_DIGITS.sub(" ", text),
        ),
        Profile(
            "without_struck",
            "struck-out text removed, with its marks: " + " ".join("...".join(pair) for pair in struck_marks),
            lambda text: without(struck, text),
        ),
    )


@dataclass(frozen=True, slots=True)
class Rates:
    """What some lines are worth under one profile: characters, words, and words with punctuation apart."""

    cer: ErrorRate
    wer: ErrorRate
    apart: ErrorRate

    def as_dict(self) -> dict[str, Any]:
        """The rates as JSON holds them; null over no text."""
        return {
            "cer": finite(self.cer.rate),
            "wer": finite(self.wer.rate),
            "wer_punctuation_apart": finite(self.apart.rate),
            "characters": self.cer.length,
            "character_errors": self.cer.errors,
            "words": self.wer.length,
            "word_errors": self.wer.errors,
            "words_punctuation_apart": self.apart.length,
            "word_errors_punctuation_apart": self.apart.errors,
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """The rates that `as_dict` wrote, rebuilt from their counts."""
        return cls(
            ErrorRate(values["character_errors"], values["characters"]),
            ErrorRate(values["word_errors"], values["words"]),
            ErrorRate(values["word_errors_punctuation_apart"], values["words_punctuation_apart"]),
        )


def rates_by_profile(
    lines_by_model: Mapping[str, Sequence[LineScore]], chosen: Sequence[Profile] = profiles()
) -> dict[str, dict[str, Rates]]:
    """The rates of each model's lines under each profile, by profile and model."""
    counted = {model: _Raw(lines) for model, lines in lines_by_model.items()}
    return {profile.name: {model: raw.under(profile) for model, raw in counted.items()} for profile in chosen}


Counts = tuple[int, int, int, int, int, int]
"""Errors and length of one line: characters, words, words with punctuation apart."""


class _Raw:
    """The lines of a model as they are; a profile counts anew only those that it changes."""

    def __init__(self, lines: Sequence[LineScore]) -> None:
        self._references = [comparable(line.reference) for line in lines]
        self._predictions = [comparable(line.prediction) for line in lines]
        self._counts = _count(self._references, self._predictions)

    def under(self, profile: Profile) -> Rates:
        references, predictions = profile.folded(self._references), profile.folded(self._predictions)
        changed = [
            place
            for place, texts in enumerate(
                zip(references, predictions, self._references, self._predictions, strict=True)
            )
            if texts[:2] != texts[2:]
        ]
        counts = list(self._counts)
        anew = _count([references[place] for place in changed], [predictions[place] for place in changed])
        for place, count in zip(changed, anew, strict=True):
            counts[place] = count
        sums = [sum(column) for column in zip(*counts, strict=True)] or [0] * 6
        return Rates(ErrorRate(*sums[0:2]), ErrorRate(*sums[2:4]), ErrorRate(*sums[4:6]))


def _count(references: Sequence[str], predictions: Sequence[str]) -> list[Counts]:
    texts = zip(references, predictions, _apart(references), _apart(predictions), strict=True)
    return [
        (
            Levenshtein.distance(reference, prediction),
            len(reference),
            *_word_errors(reference, prediction),
            *_word_errors(apart, predicted_apart),
        )
        for reference, prediction, apart, predicted_apart in texts
    ]


def _apart(texts: Sequence[str]) -> list[str]:
    return with_words_apart("\n".join(texts)).split("\n") if texts else []


def _word_errors(reference: str, prediction: str) -> tuple[int, int]:
    words = reference.split()
    return (0 if reference == prediction else Levenshtein.distance(words, prediction.split())), len(words)
