"""When two transcriptions are the same text: the policy texts are stored under, the profile they are compared under.

Knows nothing about files, models or metrics.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from operator import eq
from typing import Any, Literal

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


_TIMES = 5
_ADDED = 30
_ADDED_LAID_OUT = 200
_OTHER = 30
_LAYOUT = frozenset("|<\t\n")

_GRAM = 8
"""So many characters are seldom the same twice in a line of prose."""
_PERIODS = 8
"""So many periods are looked at, those first that most of the text repeats at; it bounds the time."""

_ALIKE = re.compile(rb"\x01{%d,}" % _ADDED)


def is_looping(text: str) -> bool:
    """True where the text ends in a loop."""
    return loop_start(text) is not None


def loop_start(text: str) -> int | None:
    """Where the repeated tail begins, as an index into the text; None where there is none.

    The unit stands there for the first time, so `text[:start]` is what was written before the loop.
    """
    edge = len(text.rstrip())
    start = None
    for begin, end in sorted(_repetitions(text), key=lambda stretch: -stretch[1]):
        if end + _OTHER < edge:
            break
        start = edge = min(edge, begin)
    return start


def _repetitions(text: str) -> Iterator[tuple[int, int]]:
    """Each repetition's begin and end, the unit's first time included."""
    for period in _periods(text):
        # A one where a character is the same as the one a period before it.
        for alike in _ALIKE.finditer(bytes(map(eq, text, text[period:]))):
            begin, added = alike.start(), alike.end() - alike.start()
            unit = text[begin : begin + period]
            if added >= max(_added(unit), (_TIMES - 1) * period):
                yield begin, begin + period + added


def _periods(text: str) -> list[int]:
    """The distances at which most of the text repeats, from the last time that the same few characters stood there."""
    grams = [text[place : place + _GRAM] for place in range(len(text) - _GRAM + 1)]
    if len(grams) - len(set(grams)) <= _ADDED - _GRAM:
        return []
    last: dict[str, int] = {}
    distances: Counter[int] = Counter()
    for place, gram in enumerate(grams):
        if gram in last:
            distances[place - last[gram]] += 1
        last[gram] = place
    return [period for period, _ in distances.most_common(_PERIODS)]


def _added(unit: str) -> int:
    """How many characters repetitions of such a unit have to add."""
    spoken = any(character.isalpha() for character in unit)
    return _ADDED if spoken and _LAYOUT.isdisjoint(unit) else _ADDED_LAID_OUT
