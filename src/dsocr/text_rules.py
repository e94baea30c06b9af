"""What can be done to a transcription, a function a rule: each takes a text and gives a text.

Which of them a dataset asks for is in its `text.TextPolicy`.
"""

import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache

_JOINERS = frozenset("\u200c\u200d")
_JOINED_SCRIPTS = ((0x0600, 0x109F), (0x1780, 0x18AF), (0xA840, 0xAAFF), (0xFB50, 0xFDFF), (0xFE70, 0xFEFC))
"""From Arabic over India's scripts to Myanmar, Khmer and Mongolian: joiners are spelling there."""
_VIRAMA = 9
"""Unicode's combining class of the sign after which a joiner decides the letter's form, at a word's end too."""
_WRITTEN_FORMATS = frozenset("\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u070f\u0890\u0891\u08e2\U000110bd\U000110cd")
"""Format characters that can be seen: Arabic signs written around numbers."""

_HYPHENS = "-\u2010¬⸗"
_AFTER_REMOVED = frozenset(".,;:!?…»)]")

_HIGH = re.compile("[\u0080-\U0010ffff]+")
_MISREAD_AS = ("cp1251", "cp1252", "latin-1")
_MEANT_SIGNS = frozenset("«»—–…№„“”‘’°§©·\u00a0")


def without_invisible(text: str) -> str:
    """The text without control, zero-width and other format characters, soft hyphens and byte order marks.

    White space is let be, and so are the joiners of scripts that are spelt with them.
    """
    if text.isprintable():
        return text
    kept: list[str] = []
    for place, character in enumerate(text):
        if not _is_invisible(character) or (character in _JOINERS and _joins(kept, text, place)):
            kept.append(character)
    return "".join(kept)


def _is_invisible(character: str) -> bool:
    if character.isspace() or character in _WRITTEN_FORMATS:
        return False
    return unicodedata.category(character) in {"Cc", "Cf"}


def _joins(kept: Sequence[str], text: str, place: int) -> bool:
    if not kept or not _is_of_joined_script(kept[-1]):
        return False
    after = next((other for other in text[place + 1 :] if not _is_invisible(other)), "")
    return unicodedata.combining(kept[-1]) == _VIRAMA or (after != "" and _is_of_joined_script(after))


def _is_of_joined_script(character: str) -> bool:
    known = any(first <= ord(character) <= last for first, last in _JOINED_SCRIPTS)
    return known and unicodedata.category(character)[0] in "LM"


def without_mojibake(text: str) -> str:
    """The text with what was written in UTF-8 and read as cp1251, cp1252 or Latin-1 read aright.

    Only where misreading the result again gives the very same text, and the result is Cyrillic or Latin. The whole text
    is tried first, then each run of letters; a run that means one letter only proves nothing.
    """
    if text.isascii():
        return text
    return _meant(text, fewest=2) or _HIGH.sub(lambda run: _meant(run[0], fewest=2) or run[0], text)


def _meant(text: str, *, fewest: int) -> str | None:
    for encoding in _MISREAD_AS:
        try:
            meant = b"".join(_byte(character, encoding) for character in text).decode("utf-8")
        except UnicodeError:
            continue
        high = [character for character in meant if ord(character) > 127]
        letters = [character for character in high if _is_european(character)]
        if len(high) >= fewest and letters and all(one in _MEANT_SIGNS or _is_european(one) for one in high):
            return meant
    return None


def _byte(character: str, encoding: str) -> bytes:
    """The byte that was read as a character; Windows reads bytes that stand for nothing as control characters."""
    try:
        return character.encode(encoding)
    except UnicodeEncodeError:
        if "\u0080" <= character <= "\u009f":
            return character.encode("latin-1")
        raise


def _is_european(character: str) -> bool:
    return character.isalpha() and ("\u00c0" <= character <= "\u024f" or "\u0400" <= character <= "\u052f")


def with_plain_hyphens(text: str) -> str:
    """The text with `-` for the signs by which archives mark a broken word, `¬` and `⸗`."""
    return text.replace("¬", "-").replace("⸗", "-")


def with_words_joined(text: str) -> str:
    """The text with words whole that a hyphen breaks at the end of a line; the line's break goes with the hyphen.

    Only between a letter and a small letter: `Нью-` before `Йорк` stays, and so does `1914-` before `1918`.
    """
    lines = text.split("\n")
    joined = lines[:1]
    for line in lines[1:]:
        above, below = joined[-1].rstrip(), line.lstrip()
        if len(above) > 1 and above[-1] in _HYPHENS and above[-2].isalpha() and below[:1].islower():
            joined[-1] = above[:-1] + below
        else:
            joined.append(line)
    return "\n".join(joined)


Marks = tuple[tuple[str, str], ...]


@lru_cache(maxsize=16)
def struck_pattern(marks: Marks) -> re.Pattern[str]:
    """Finds what stands between an opening and its closing mark on one line, the marks included; the innermost.

    Two marks with nothing between are no struck-out text: `><` is a sign of its own for what nobody could read.
    """
    inner = (
        f"{re.escape(begin)}(?:(?!{re.escape(begin)}|{re.escape(end)})[^\\n])+{re.escape(end)}" for begin, end in marks
    )
    return re.compile("|".join(inner) or "(?!)")


@lru_cache(maxsize=16)
def unclear_pattern(marks: tuple[str, ...]) -> re.Pattern[str]:
    """Finds the marks; one of letters, such as `xxx`, only as a whole word."""
    bounded = (
        rf"(?<!\w){re.escape(mark)}(?!\w)" if mark.isalnum() else re.escape(mark)
        for mark in sorted(marks, key=len, reverse=True)
    )
    return re.compile("|".join(bounded) or "(?!)")


def without(pattern: re.Pattern[str], text: str) -> str:
    """The text without what a pattern finds, nor the space before it where a space or a stop follows."""
    parts, done = [], 0
    for found in pattern.finditer(text):
        part, after = text[done : found.start()], text[found.end() : found.end() + 1]
        closed = not after or after.isspace() or after in _AFTER_REMOVED
        parts.append(part.rstrip(" \t\u00a0") if closed else part)
        done = found.end()
    return "".join([*parts, text[done:]])
