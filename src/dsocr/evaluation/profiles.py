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
    """The rates of each model's lines under each profile, by profile and model; all read the same lines."""
    references = [comparable(line.reference) for line in next(iter(lines_by_model.values()))]
    counted = {model: _Raw(references, lines) for model, lines in lines_by_model.items()}
    rates = {}
    for profile in chosen:
        folded = profile.folded(references)
        rates[profile.name] = {model: raw.under(profile, folded) for model, raw in counted.items()}
    return rates


Counts = tuple[int, int, int, int, int, int]
"""Errors and length of one line: characters, words, words with punctuation apart."""


class _Raw:
    """The lines of a model as they are; a profile counts anew only those that it changes."""

    def __init__(self, references: Sequence[str], lines: Sequence[LineScore]) -> None:
        self._references = references
        self._predictions = [comparable(line.prediction) for line in lines]
        self._counts = _count(references, self._predictions)
        self._sums = [sum(column) for column in zip(*self._counts, strict=True)] or [0] * 6

    def under(self, profile: Profile, references: Sequence[str]) -> Rates:
        predictions = profile.folded(self._predictions)
        texts = zip(references, self._references, predictions, self._predictions, strict=True)
        changed = [place for place, (a, b, c, d) in enumerate(texts) if a != b or c != d]
        anew = _count([references[place] for place in changed], [predictions[place] for place in changed])
        sums = list(self._sums)
        for place, counts in zip(changed, anew, strict=True):
            before = self._counts[place]
            for column in range(6):
                sums[column] += counts[column] - before[column]
        return Rates(ErrorRate(*sums[0:2]), ErrorRate(*sums[2:4]), ErrorRate(*sums[4:6]))


def _count(references: Sequence[str], predictions: Sequence[str]) -> list[Counts]:
    texts = zip(references, predictions, _apart(references), _apart(predictions), strict=True)
    return [_counts_of(*line) for line in texts]


def _counts_of(reference: str, prediction: str, apart: str, predicted_apart: str) -> Counts:
    words, words_apart = reference.split(), apart.split()
    if reference == prediction:
        return 0, len(reference), 0, len(words), 0, len(words_apart)
    return (
        Levenshtein.distance(reference, prediction),
        len(reference),
        Levenshtein.distance(words, prediction.split()),
        len(words),
        Levenshtein.distance(words_apart, predicted_apart.split()),
        len(words_apart),
    )


def _apart(texts: Sequence[str]) -> list[str]:
    return with_words_apart("\n".join(texts)).split("\n") if texts else []
