"""Which encoding a text is in that is not UTF-8: what Russian Windows, DOS and Unix wrote, told by the letters.

A guess is only ever told; nothing is read by it unasked.
"""

import codecs
import re
from itertools import pairwise

EIGHT_BIT = ("cp1251", "koi8-r", "cp866", "cp1252")

_FREQUENT = {letter: place for place, letter in enumerate("оеаинтсрвлкмдпуяыьгзбчйхжшюцщэфъё")}
"""Russian letters from the most frequent to the rarest, by the usual counts of prose."""

_SIGNS = frozenset("«»—–…№„“”‘’°§©\u00a0")
_LATIN_SMALL = frozenset("àâäæçèéêëíîïñóôöøùûüÿœßå")
_WORD = re.compile(r"[^\W\d_]+")
_LOOKED_AT = 20_000
"""Bytes that are enough to tell."""


def likely_encoding(data: bytes) -> str | None:
    """The Python name of the encoding that a text seems to be in; None where nothing makes sense."""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    part = data[:_LOOKED_AT]
    if len(part) >= 4 and part.count(0) > len(part) / 8:
        # Spaces and digits have a zero byte: the second of two where the low byte comes first.
        return "utf-16-le" if part[1::2].count(0) > part[::2].count(0) else "utf-16-be"
    if (wide := _without_nulls(part)) is not None:
        return wide
    scores = {encoding: _plausibility(part, encoding) for encoding in EIGHT_BIT}
    best = max(scores, key=lambda encoding: scores[encoding])
    return best if scores[best] > 0 else None


def is_wide(data: bytes) -> bool:
    """Whether a text has two bytes a letter; some of these would pass for UTF-8 with control characters."""
    return (b"\0" in data or b"\4" in data) and (likely_encoding(data) or "").startswith("utf-16")


def _without_nulls(part: bytes) -> str | None:
    """UTF-16 of Cyrillic letters alone: every other byte is 4."""
    for name, high in (("utf-16-le", part[1::2]), ("utf-16-be", part[::2])):
        if len(high) >= 3 and high.count(4) > 0.7 * len(high):
            return name
    return None


def _plausibility(part: bytes, encoding: str) -> float:
    """How much a text looks like one, by letter: up to 1, and below 0 where it looks like none."""
    text = part.decode(encoding, errors="replace")
    high = [character for character in text if ord(character) > 127]
    if not high:
        return 0.0
    signs = sum(0.0 if character in _SIGNS else -2.0 for character in high if not character.isalpha())
    return (signs + sum(_word_score(word) for word in _WORD.findall(text))) / len(high)


def _word_score(word: str) -> float:
    """Frequent letters are good; two scripts in a word, and capitals after small letters, are not."""
    high = [letter for letter in word if ord(letter) > 127]
    if not high:
        return 0.0
    mixed = len(high) < len(word)
    if all(letter.lower() in _LATIN_SMALL for letter in high):
        # An accent is at home between Latin letters; without any the letters are something else.
        score = 0.8 if mixed or len(word) == 1 else -1.0
        return score * len(high) - _odd_case(word)
    if mixed or not all(letter.lower() in _FREQUENT for letter in high):
        return -1.0 * len(high)
    return sum(1 - _FREQUENT[letter.lower()] / 20 for letter in high) - _odd_case(word)


def _odd_case(word: str) -> float:
    """One for each capital that follows a small letter, and for a word of capitals a little."""
    odd = sum(first.islower() and second.isupper() for first, second in pairwise(word))
    odd += sum(first.isupper() and second.islower() for first, second in pairwise(word[1:]))
    return float(odd) + (0.3 * len(word) if len(word) > 1 and word.isupper() else 0.0)
