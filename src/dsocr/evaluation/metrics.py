"""Character and word error rates, edits between two texts, and error rates after text normalisation.

Texts are compared as `text.comparable` normalises them: NFC, white space collapsed, everything else kept.
"""

import math
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import ClassVar

from pydantic import ConfigDict, StrictInt, model_serializer
from rapidfuzz.distance import Levenshtein

from dsocr.errors import DataError
from dsocr.text import (
    Marks,
    TextPolicy,
    align_spans,
    comparable,
    is_looping,
    letter_script,
    remove_matches,
    struck_pattern,
)


@dataclass(frozen=True, slots=True)
class ErrorRate:
    """Edit errors and the reference length they are counted over.

    Adding two pools them, so `sum(rates, ErrorRate())` is the corpus rate: a long line weighs more than a short one, as
    in published results. Nothing is clipped: a prediction much longer than its reference has a rate above 1.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="ignore")  # the rate, which the counts make

    errors: StrictInt = 0
    length: StrictInt = 0

    def __add__(self, other: "ErrorRate") -> "ErrorRate":
        return ErrorRate(self.errors + other.errors, self.length + other.length)

    @property
    def rate(self) -> float:
        """Errors per unit of reference, never NaN: for an empty reference 0 without errors, else infinity."""
        if self.length:
            return self.errors / self.length
        return math.inf if self.errors else 0.0

    @model_serializer
    def to_dict(self) -> dict[str, int | float | None]:
        """Return the rate, None if it is infinite, and its counts for JSON."""
        return {"rate": self.rate if math.isfinite(self.rate) else None, **asdict(self)}


def pool(rates: Iterable[ErrorRate]) -> ErrorRate:
    """Pool error rates: all errors over all lengths."""
    errors = length = 0
    for rate in rates:
        errors += rate.errors
        length += rate.length
    return ErrorRate(errors, length)


def cer(references: str | Sequence[str], predictions: str | Sequence[str]) -> float:
    """Return the character error rate, pooled over all pairs, as a fraction.

    Takes two strings or two sequences of equal length, else raises DataError. Spaces, case and punctuation count. The
    result can exceed 1, and is infinite if all references are empty and a prediction is not.
    """
    return _pooled_rate(character_errors, references, predictions)


def wer(references: str | Sequence[str], predictions: str | Sequence[str]) -> float:
    """Return the word error rate as `cer` does; words are parted by white space, so punctuation belongs to its word."""
    return _pooled_rate(word_errors, references, predictions)


def _pooled_rate(
    count_errors: Callable[[str, str], ErrorRate], references: str | Sequence[str], predictions: str | Sequence[str]
) -> float:
    if isinstance(references, str) != isinstance(predictions, str):
        raise DataError("references and predictions must both be strings or both be lists", code="pair-mismatch")
    pairs = [[texts] if isinstance(texts, str) else list(texts) for texts in (references, predictions)]
    strange = [text for texts in pairs for text in texts if not isinstance(text, str)]
    if strange:
        raise DataError(f"a text is {strange[0]!r}; give an empty string for a line without", code="not-a-text")
    if not any(pairs):
        raise DataError("there are no lines to score", code="no-lines")
    if len(pairs[0]) != len(pairs[1]):
        message = f"got {len(pairs[0])} references and {len(pairs[1])} predictions; give one prediction per reference"
        raise DataError(message, code="pair-mismatch")
    return pool(map(count_errors, *pairs)).rate


def character_errors(reference: str, prediction: str) -> ErrorRate:
    """Count inserted, deleted and substituted code points, spaces included."""
    reference, prediction = comparable(reference), comparable(prediction)
    return ErrorRate(Levenshtein.distance(reference, prediction), len(reference))


def word_errors(reference: str, prediction: str) -> ErrorRate:
    """Count inserted, deleted and substituted words, separated by white space."""
    words, predicted_words = comparable(reference).split(), comparable(prediction).split()
    return ErrorRate(Levenshtein.distance(words, predicted_words), len(words))


_NON_ALPHANUMERIC = re.compile(r"[^\w\s]|_")


def separate_punctuation(text: str) -> str:
    """Put spaces around every character that is not a letter, mark or number, so that it counts as a word.

    A combining accent stays with its letter in every script; `как-то` becomes three words. Line breaks are kept.
    """
    return _NON_ALPHANUMERIC.sub(
        lambda match: match[0] if unicodedata.category(match[0])[0] == "M" else f" {match[0]} ", text
    )


def is_over_long(reference: str, prediction: str) -> bool:
    """Return whether the prediction is longer than twice the reference plus 20 characters.

    Such loops and hallucinations are rare and long, so a few of them can dominate a CER; they are counted separately.
    """
    return len(comparable(prediction)) > 2 * len(comparable(reference)) + 20


def has_new_loop(reference: str, prediction: str) -> bool:
    """Return whether the prediction ends in a loop that the reference does not have."""
    return prediction != reference and is_looping(prediction) and not is_looping(reference)


def is_in_wrong_script(reference: str, prediction: str) -> bool:
    """Return whether most predicted letters are of scripts that the reference does not use, such as Latin for Cyrillic.

    Always False for a reference without letters.
    """
    expected = {letter_script(character) for character in set(reference)} | {None}
    foreign = {character for character in set(prediction) if letter_script(character) not in expected}
    if len(expected) == 1 or not foreign:
        return False
    letters = [character for character in prediction if character.isalpha()]
    return 2 * sum(character in foreign for character in letters) > len(letters)


def align(reference: str, prediction: str) -> Iterator[tuple[str, str]]:
    """Yield spans of reference and prediction, in turn equal and different; the different ones are the CER's errors."""
    reference, prediction = comparable(reference), comparable(prediction)
    for written, read in align_spans(reference, prediction):
        yield reference[written], prediction[read]


def format_difference(points: float) -> str:
    """Format the size of a difference of two rates in percentage points, such as `0.4`.

    A difference that would round to zero gets more digits; below a millionth it is numerical noise and prints as zero.
    """
    size = abs(points) if abs(points) >= 1e-6 else 0.0
    digits = max(1, -math.floor(math.log10(size))) if 0 < size < 0.05 else 1
    return f"{size:.{digits}f}"


def of_hundred(rate: float, noun: str) -> str:
    """Describe a rate in round numbers, such as `9 of 100 letters`; of 1,000 or more where that is less than one."""
    whole = 100
    while rate and round(rate * whole) < 1:
        whole *= 10
    return f"{rate * whole:,.0f} of {whole:,} {noun}s"


def describe_ratios(ratios: Sequence[float]) -> str:
    """Describe how many errors are left, such as `48 to 66 % fewer` for ratios of 0.34 to 0.52."""
    changes = sorted(round(100 * (1 - ratio)) for ratio in ratios)
    words = ["more" if change < 0 else "fewer" for change in changes]
    if len(set(words)) > 1:
        return f"{-changes[0]} % more to {changes[1]} % fewer"
    return f"{' to '.join(map(str, sorted(map(abs, changes))))} % {words[0]}"


def describe_change(points: float) -> str:
    """Describe a difference of two error rates in percentage points, such as `8.3 points better` for -8.3."""
    size = f"{format_difference(points)} points"
    return "no difference" if abs(points) < 1e-6 else f"{size} {'better' if points < 0 else 'worse'}"


def format_change_interval(low: float, high: float) -> str:
    """Format the interval of a difference of two error rates, the ends without a sign where both mean the same."""
    better, worse = map(format_difference, (low, high))
    if low * high > 0:
        return f"{worse} to {better}" if high < 0 else f"{better} to {worse}"
    return f"{better} better to {worse} worse"


@dataclass(frozen=True, slots=True)
class Profile:
    """A text normalisation under which error rates are counted; `normalize` takes comparable texts."""

    name: str
    description: str
    normalize: Callable[[str], str]

    def apply(self, text: str) -> str:
        """Normalise a comparable text, and make it comparable again: a removal can leave two spaces, or an accent."""
        normalized = self.normalize(text)
        return text if normalized == text else comparable(normalized)


_NON_DIGITS = re.compile(r"\D+")
_PRE_REFORM = str.maketrans("ѣѢіІїЇѵѴѳѲ", "еЕиИиИиИфФ")
_FINAL_HARD_SIGN = re.compile(r"(?<=\w)[ъЪ](?!\w)")
_ACCENT = re.compile("[\u0300-\u036f]")
"""Accents of Latin, Greek and Cyrillic letters; the signs of other scripts are letters."""
DEFAULT_STRUCK_MARKS = TextPolicy().struck_marks


def profiles(struck_marks: Marks = DEFAULT_STRUCK_MARKS) -> tuple[Profile, ...]:
    """Return all profiles, `raw` first; `struck_marks` are the pairs of marks around struck-out text."""
    struck = struck_pattern(struck_marks)
    return (
        Profile("raw", "case, punctuation, ё and е, every letter as written", lambda text: text),
        Profile("without_case", "case folded (Unicode casefold)", str.casefold),
        Profile(
            "without_punctuation",
            "all characters of Unicode's categories P* removed, in every script; как-то is one word",
            lambda text: _NON_ALPHANUMERIC.sub(
                lambda match: "" if unicodedata.category(match[0])[0] == "P" else match[0], text
            ),
        ),
        Profile(
            "without_accents",
            "é read as e, à as a; й and ё are letters of their own",
            lambda text: "".join(
                sign if sign in "йЙёЁ" else _ACCENT.sub("", unicodedata.normalize("NFD", sign)) for sign in text
            ),
        ),
        Profile("yo_as_e", "ё read as е", lambda text: text.replace("ё", "е").replace("Ё", "Е")),
        Profile(
            "pre_reform",
            "ѣ read as е, і, ї and ѵ as и, ѳ as ф, and no ъ at the end of a word",
            lambda text: _FINAL_HARD_SIGN.sub("", text.translate(_PRE_REFORM)),
        ),
        Profile(
            "digits_only",
            "only numbers: digits of every script (Nd), with one space between two numbers",
            lambda text: _NON_DIGITS.sub(" ", text),
        ),
        Profile(
            "without_struck",
            "struck-out text removed, with its marks: " + " ".join("...".join(pair) for pair in struck_marks),
            lambda text: remove_matches(struck, text),
        ),
    )


@dataclass(frozen=True, slots=True)
class ProfileRates:
    """Error rates under one profile: characters, words, and words with punctuation separated."""

    cer: ErrorRate
    wer: ErrorRate
    wer_punctuation_apart: ErrorRate


def profile_rates(
    references: Sequence[str], predictions: Sequence[str], chosen: Sequence[Profile]
) -> dict[str, ProfileRates]:
    """Return the pooled rates of the pairs under each profile, by profile name."""
    pairs = [
        (comparable(reference), comparable(prediction))
        for reference, prediction in zip(references, predictions, strict=True)
    ]
    raw = [_count(*pair) for pair in pairs]
    rates = {}
    for profile in chosen:
        normalized = [(profile.apply(reference), profile.apply(prediction)) for reference, prediction in pairs]
        # Most profiles leave most pairs as they are.
        counts = [
            counts if changed == pair else _count(*changed)
            for pair, counts, changed in zip(pairs, raw, normalized, strict=True)
        ]
        rates[profile.name] = ProfileRates(*(pool(column[place] for column in counts) for place in range(3)))
    return rates


def _count(reference: str, prediction: str) -> tuple[ErrorRate, ...]:
    """Count errors in characters, in words, and in words with punctuation separated."""
    separated = word_errors(separate_punctuation(reference), separate_punctuation(prediction))
    return character_errors(reference, prediction), word_errors(reference, prediction), separated
