"""Named ways to compare texts, side by side: what of a rate is case, punctuation, spelling, or a misread letter.

A profile folds reference and prediction alike and scores what is left. `raw` is what the other scores count.
"""

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from rapidfuzz.distance import Levenshtein

from dsocr.evaluation.metrics import ErrorRate, with_words_apart
from dsocr.evaluation.scores import LineScore, finite
from dsocr.text import Marks, TextPolicy, comparable, remove_matches, struck_pattern

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
            lambda text: remove_matches(struck, text),
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


_BLOCKS = (
    (0x0000, 0x007F, "Basic Latin"),
    (0x0080, 0x00FF, "Latin-1 Supplement"),
    (0x0100, 0x017F, "Latin Extended-A"),
    (0x0180, 0x024F, "Latin Extended-B"),
    (0x0250, 0x02AF, "IPA Extensions"),
    (0x02B0, 0x02FF, "Spacing Modifier Letters"),
    (0x0300, 0x036F, "Combining Diacritical Marks"),
    (0x0370, 0x03FF, "Greek and Coptic"),
    (0x0400, 0x04FF, "Cyrillic"),
    (0x0500, 0x052F, "Cyrillic Supplement"),
    (0x0530, 0x058F, "Armenian"),
    (0x0590, 0x05FF, "Hebrew"),
    (0x0600, 0x06FF, "Arabic"),
    (0x0700, 0x074F, "Syriac"),
    (0x0750, 0x077F, "Arabic Supplement"),
    (0x0900, 0x097F, "Devanagari"),
    (0x0980, 0x09FF, "Bengali"),
    (0x0A00, 0x0A7F, "Gurmukhi"),
    (0x0A80, 0x0AFF, "Gujarati"),
    (0x0B00, 0x0B7F, "Oriya"),
    (0x0B80, 0x0BFF, "Tamil"),
    (0x0C00, 0x0C7F, "Telugu"),
    (0x0C80, 0x0CFF, "Kannada"),
    (0x0D00, 0x0D7F, "Malayalam"),
    (0x0D80, 0x0DFF, "Sinhala"),
    (0x0E00, 0x0E7F, "Thai"),
    (0x0F00, 0x0FFF, "Tibetan"),
    (0x10A0, 0x10FF, "Georgian"),
    (0x1200, 0x137F, "Ethiopic"),
    (0x1C80, 0x1C8F, "Cyrillic Extended-C"),
    (0x1E00, 0x1EFF, "Latin Extended Additional"),
    (0x1F00, 0x1FFF, "Greek Extended"),
    (0x2000, 0x206F, "General Punctuation"),
    (0x2070, 0x209F, "Superscripts and Subscripts"),
    (0x20A0, 0x20CF, "Currency Symbols"),
    (0x20D0, 0x20FF, "Combining Diacritical Marks for Symbols"),
    (0x2100, 0x214F, "Letterlike Symbols"),
    (0x2150, 0x218F, "Number Forms"),
    (0x2190, 0x21FF, "Arrows"),
    (0x2200, 0x22FF, "Mathematical Operators"),
    (0x2500, 0x257F, "Box Drawing"),
    (0x25A0, 0x25FF, "Geometric Shapes"),
    (0x2600, 0x26FF, "Miscellaneous Symbols"),
    (0x2C60, 0x2C7F, "Latin Extended-C"),
    (0x2DE0, 0x2DFF, "Cyrillic Extended-A"),
    (0x2E00, 0x2E7F, "Supplemental Punctuation"),
    (0x3000, 0x303F, "CJK Symbols and Punctuation"),
    (0x3040, 0x309F, "Hiragana"),
    (0x30A0, 0x30FF, "Katakana"),
    (0x4E00, 0x9FFF, "CJK Unified Ideographs"),
    (0xA640, 0xA69F, "Cyrillic Extended-B"),
    (0xA720, 0xA7FF, "Latin Extended-D"),
    (0xAC00, 0xD7AF, "Hangul Syllables"),
    (0xE000, 0xF8FF, "Private Use Area"),
    (0xFB00, 0xFB4F, "Alphabetic Presentation Forms"),
    (0xFF00, 0xFFEF, "Halfwidth and Fullwidth Forms"),
    (0xFFF0, 0xFFFF, "Specials"),
)
"""First and last code point and name, from Unicode's Blocks.txt; blocks keep their bounds for good."""

_FIRSTS = [first for first, _, _ in _BLOCKS]


def block_of(character: str) -> str:
    """The name of a character's block; of one that is not in the table, its 256 code points: `U+1F600-1F6FF`."""
    code = ord(character)
    _, last, name = _BLOCKS[bisect_right(_FIRSTS, code) - 1]
    return name if code <= last else f"U+{code & ~0xFF:04X}-{code | 0xFF:04X}"
