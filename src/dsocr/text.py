"""Texts: the policy that transcriptions are stored under, the form they are compared in, and endless repetitions."""

import html
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from itertools import chain, groupby
from operator import eq
from typing import Any, ClassVar, Literal

from rapidfuzz.distance import Levenshtein

_JOINED_SCRIPTS = "[\u0600-\u109f\u1780-\u18af\ua840-\uaaff\ufb50-\ufdff\ufe70-\ufefc]"
"""Scripts that are spelled with joiners: Arabic, Indic, Myanmar, Khmer, Mongolian, ..."""
_JOINER = re.compile(f"(?<={_JOINED_SCRIPTS})[\u200c\u200d](?=[\u200c\u200d]*({_JOINED_SCRIPTS})?)")
_VIRAMA = 9
"""Combining class of the sign after which a joiner decides the form of a letter, even at the end of a word."""
_VISIBLE_FORMATS = frozenset("\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u070f\u0890\u0891\u08e2\U000110bd\U000110cd")
"""Format characters that are visible: Arabic signs around numbers."""

HYPHENS = "-\u2010¬⸗"
_SOFT_AT_LINE_END = re.compile("(?<=\\w)\u00ad+[^\\S\n]*(?=\n|$)")
_CLOSING = frozenset(".,;:!?…»)]")

_NON_ASCII = re.compile("[\u0080-\U0010ffff]+")
_MISREAD_AS = ("cp1251", "cp1252", "latin-1")
_EUROPEAN = re.compile("[\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u024f\u0400-\u0481\u048a-\u052f]+")
_COMMON_SIGNS = frozenset("«»—–…№„“”‘’°§©·\u00a0")

_ESCAPED = re.compile("&(?:amp|lt|gt|quot|apos|nbsp|#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6});")
"""References of XML and HTML, which a transcription has where its program escaped a sign twice."""


def _remove_invisible(text: str) -> str:
    """Remove control and format characters, but not white space, nor joiners in scripts spelled with them.

    A soft hyphen at the end of a line is visible on the page, and becomes a hyphen.
    """
    if text.isprintable():
        return text
    text = _SOFT_AT_LINE_END.sub("-", text)
    joiners = {
        joiner.start()
        for joiner in _JOINER.finditer(text)
        if joiner[1] or unicodedata.combining(text[joiner.start() - 1]) == _VIRAMA
    }
    return "".join(letter for place, letter in enumerate(text) if place in joiners or not _is_invisible(letter))


def _is_invisible(character: str) -> bool:
    if character.isspace() or character in _VISIBLE_FORMATS:
        return False
    return unicodedata.category(character) in {"Cc", "Cf"}


def repair_mojibake(text: str) -> str:
    """Decode UTF-8 that was read as cp1251, cp1252 or Latin-1.

    Only if misreading the result again gives exactly this text, and the result is Cyrillic or Latin. The whole text is
    tried first, then each run of non-ASCII characters; a run that becomes a single letter proves nothing unless it is
    such as `Ã©`. References such as `&amp;` become the signs that they stand for.
    """
    text = _ESCAPED.sub(lambda reference: html.unescape(reference[0]), text)
    if text.isascii():
        return text
    return _decode_again(text) or _NON_ASCII.sub(lambda run: _decode_again(run[0]) or run[0], text)


def _decode_again(text: str) -> str | None:
    for encoding in _MISREAD_AS:
        try:
            decoded = b"".join(_to_byte(character, encoding) for character in text).decode("utf-8")
        except UnicodeError:
            continue
        high = [character for character in decoded if ord(character) > 127]
        letters = "".join(character for character in high if character not in _COMMON_SIGNS)
        is_proof = len(high) >= 2 or (text[0] == "Ã" and text[1] not in "«»“”‘’")
        if is_proof and _EUROPEAN.fullmatch(letters):
            return decoded
    return None


def _to_byte(character: str, encoding: str) -> bytes:
    """The byte that was read as a character; Windows reads undefined bytes as control characters."""
    try:
        return character.encode(encoding)
    except UnicodeEncodeError:
        if "\u0080" <= character <= "\u009f":
            return character.encode("latin-1")
        raise


def _join_words(text: str) -> str:
    """Join words that are hyphenated at the end of a line, and the two lines with them.

    Only between a letter and a lowercase letter: `Нью-` before `Йорк` stays, and so does `1914-` before `1918`.
    """
    lines = text.split("\n")
    joined = lines[:1]
    for line in lines[1:]:
        above, below = joined[-1].rstrip(), line.lstrip()
        if len(above) > 1 and above[-1] in HYPHENS and above[-2].isalpha() and below[:1].islower():
            joined[-1] = above[:-1] + below
        else:
            joined.append(line)
    return "\n".join(joined)


Marks = tuple[tuple[str, str], ...]


@lru_cache(maxsize=16)
def struck_pattern(marks: Marks) -> re.Pattern[str]:
    """A pattern for marks on one line with text between them; not for `><`, a mark for illegible text."""
    inner = (
        f"{re.escape(begin)}(?:(?!{re.escape(begin)}|{re.escape(end)})[^\\n])+{re.escape(end)}" for begin, end in marks
    )
    return re.compile("|".join(inner) or "(?!)")


@lru_cache(maxsize=16)
def unclear_pattern(marks: tuple[str, ...]) -> re.Pattern[str]:
    """A pattern for the marks; those of letters, such as `xxx`, match whole words only."""
    bounded = (
        rf"(?<!\w){re.escape(mark)}(?!\w)" if mark.isalnum() else re.escape(mark)
        for mark in sorted(marks, key=len, reverse=True)
    )
    return re.compile("|".join(bounded) or "(?!)")


def remove_matches(pattern: re.Pattern[str], text: str) -> str:
    """Remove matches of a pattern, and the space before it if a space or punctuation follows."""
    return remove_spans((match.span() for match in pattern.finditer(text)), text)


def remove_spans(spans: Iterable[tuple[int, int]], text: str) -> str:
    """Remove spans (start, end) as `remove_matches` does."""
    parts, end = [], 0
    for start, stop in sorted(spans):
        part, following = text[end:start], text[stop : stop + 1]
        needs_no_space = not following or following.isspace() or following in _CLOSING
        parts.append(part.rstrip(" \t\u00a0") if needs_no_space else part)
        end = max(end, stop)
    return "".join([*parts, text[end:]])


_SPACES = re.compile(r"[^\S\n]+")

MarkAction = Literal["keep", "strip", "drop-line"]


@dataclass(frozen=True, slots=True)
class TextChange:
    """A text before and after one rule."""

    rule: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Revision:
    """A text as it is stored, the changes by each rule, and the rule that drops it, if any."""

    text: str
    changes: tuple[TextChange, ...] = ()
    dropped: str | None = None


@dataclass(frozen=True, slots=True)
class TextPolicy:
    """How `prepare` normalizes transcriptions; recorded in the dataset card and in the run.

    `unicode` is a Unicode normal form: with NFC й is one character, not two. `spaces` "collapse" turns every run of
    white space, no-break spaces included, into one space and strips both ends; newlines between the lines of a page
    stay. `invisible` "strip" removes control and zero-width characters, soft hyphens and byte order marks, but not the
    joiners of scripts that are spelled with them; a soft hyphen at the end of a line becomes a hyphen. `mojibake`
    "repair" decodes UTF-8 that was read in another encoding, if that is exact, and signs that were escaped twice
    (`&amp;`). `hyphen_signs` "hyphen" writes `¬` and `⸗` as `-`; `line_end_hyphens` "join" joins words broken at the
    end of a line. `struck` applies to text between the pairs of `struck_marks` and to spans that the source records as
    struck out, `unclear` to `unclear_marks` and to what the source records as unclear, missing or supplied: "strip"
    removes it (of unclear words only the mark), "drop-line" drops the whole transcription.
    """

    __pydantic_config__: ClassVar[Mapping[str, str]] = {"extra": "forbid"}

    unicode: Literal["NFC", "keep"] = "NFC"
    spaces: Literal["collapse", "keep"] = "collapse"
    invisible: Literal["strip", "keep"] = "strip"
    mojibake: Literal["keep", "repair"] = "keep"
    hyphen_signs: Literal["keep", "hyphen"] = "keep"
    line_end_hyphens: Literal["keep", "join"] = "keep"
    struck: MarkAction = "keep"
    struck_marks: Marks = ((">", "<"), ("~~", "~~"), ("<del>", "</del>"), ("[[", "]]"))
    unclear: MarkAction = "keep"
    unclear_marks: tuple[str, ...] = ("[?]", "[unclear]", "[нрзб]", "[нрзб.]", "[неразб.]", "><", "xxx")

    def __post_init__(self) -> None:
        if not all(mark.strip() for pair in (*self.struck_marks, self.unclear_marks) for mark in pair):
            raise ValueError("a mark must not be empty or white space")

    def apply(self, text: str) -> str:
        """The text as it is stored, learned and written out; applying the policy again changes nothing."""
        return self.revise(text).text

    def revise(
        self, text: str, struck: Sequence[tuple[int, int]] = (), unclear: Sequence[tuple[int, int]] = ()
    ) -> Revision:
        """Apply the policy and record the changes, and whether it drops the text.

        `struck` and `unclear` are spans (start, end) of a text without such marks, see `Line`. Newlines at the end of a
        text do not count as a change.
        """
        changes: list[TextChange] = []
        spans = {"struck": struck, "unclear": [(start, end) for start, end in unclear if start < end]}
        stripped = {rule: spans[rule] for rule in spans if getattr(self, rule) == "strip" and spans[rule]}
        if stripped:
            before, text = text, remove_spans(chain(*stripped.values()), text)
            changes += [TextChange(rule, before, text) for rule in stripped]
        previous = None
        while previous != text:
            previous = text
            for rule, normalize in self._rules():
                before, text = text, normalize(text)
                if text not in (before, before.rstrip("\r\n")):
                    changes.append(TextChange(rule, before, text))
        dropped = None
        if self.struck == "drop-line" and (struck or struck_pattern(self.struck_marks).search(text)):
            dropped = "struck"
        if self.unclear == "drop-line" and (unclear or unclear_pattern(self.unclear_marks).search(text)):
            dropped = "unclear"
        return Revision(text, tuple(changes), dropped)

    def _rules(self) -> Iterator[tuple[str, Callable[[str], str]]]:
        """The rules that are switched on; later ones rely on earlier ones."""
        if self.mojibake == "repair":
            yield "mojibake", repair_mojibake
        if self.invisible == "strip":
            yield "invisible", _remove_invisible
        if self.unicode == "NFC":
            yield "unicode", lambda text: unicodedata.normalize("NFC", text)
        if self.hyphen_signs == "hyphen":
            yield "hyphen_signs", lambda text: text.replace("¬", "-").replace("⸗", "-")
        if self.unclear == "strip":
            yield "unclear", lambda text: remove_matches(unclear_pattern(self.unclear_marks), text)
        if self.struck == "strip":
            yield "struck", lambda text: remove_matches(struck_pattern(self.struck_marks), text)
        if self.line_end_hyphens == "join":
            yield "line_end_hyphens", _join_words
        if self.spaces == "collapse":
            yield (
                "spaces",
                lambda text: "\n".join(filter(None, (_SPACES.sub(" ", line).strip() for line in text.splitlines()))),
            )

    def as_dict(self) -> dict[str, Any]:
        """The policy as JSON types."""
        marks = {"struck_marks": [list(pair) for pair in self.struck_marks], "unclear_marks": list(self.unclear_marks)}
        return asdict(self) | marks


def align_spans(before: Sequence[str], after: Sequence[str]) -> Iterator[tuple[slice, slice]]:
    """Yield which span of one text, or list of words, became which of the other; equal and other spans alternate."""
    for _, group in groupby(Levenshtein.opcodes(before, after), key=lambda step: step.tag == "equal"):
        steps = list(group)
        yield slice(steps[0].src_start, steps[-1].src_end), slice(steps[0].dest_start, steps[-1].dest_end)


def comparable(text: str) -> str:
    """The text as metrics compare it in profile `raw`: NFC, runs of white space as one space, nothing else folded."""
    return " ".join(unicodedata.normalize("NFC", text).split())


def letters_of(text: str) -> str:
    """Letters and digits, with case and ё folded, which two transcriptions of one line share."""
    text = unicodedata.normalize("NFC", text)
    return "".join(character for character in text.casefold() if character.isalnum()).replace("ё", "е")


@lru_cache(maxsize=8192)
def letter_script(character: str) -> str | None:
    """The script of a letter, such as "Latin" or "Cyrillic", as its Unicode name begins; None for other characters."""
    return unicodedata.name(character, "unknown").split()[0].capitalize() if character.isalpha() else None


def is_right_to_left(text: str) -> bool:
    """Whether most letters are of scripts that are written from right to left, such as Hebrew and Arabic."""
    directions = [unicodedata.bidirectional(character) for character in text]
    return sum(direction in {"R", "AL"} for direction in directions) > directions.count("L")


def is_blank(text: str) -> bool:
    """Whether a transcription has nothing to read: it is empty, white space, or invisible characters only."""
    return all(character.isspace() or _is_invisible(character) for character in text)


_MIN_TIMES = 5
_MIN_ADDED = 30
"""Characters that repetitions must add to the unit's first occurrence."""
_MIN_ADDED_LAYOUT = 200
"""The same for units without letters or with layout (rows of dots, cells of tables)."""
_MAX_TRAILING = 30
"""Characters that may follow a loop."""
_LAYOUT = frozenset("|<\t\n")
_NGRAM = 8
"""Prose seldom repeats this many characters within a line."""
_MAX_PERIODS = 8
"""Only the most frequent periods are tested, to bound the time."""
_ALIKE = re.compile(rb"\x01{%d,}" % _MIN_ADDED)


def is_looping(text: str) -> bool:
    """Whether the text ends in an endless repetition."""
    return loop_start(text) is not None


def loop_start(text: str) -> int | None:
    """The index of the first occurrence of the unit that the end of the text repeats; None without a loop."""
    edge = len(text.rstrip())
    start = None
    for begin, end in sorted(_repetitions(text), key=lambda span: -span[1]):
        if end + _MAX_TRAILING < edge:
            break
        start = edge = min(edge, begin)
    return start


def _repetitions(text: str) -> Iterator[tuple[int, int]]:
    """Yield the span of each repetition, the unit's first occurrence included."""
    for period in _periods(text):
        # A byte is 1 where a character equals the one a period later.
        for match in _ALIKE.finditer(bytes(map(eq, text, text[period:]))):
            begin, added = match.start(), match.end() - match.start()
            unit = text[begin : begin + period]
            is_prose = any(map(str.isalpha, unit)) and _LAYOUT.isdisjoint(unit)
            if added >= max(_MIN_ADDED if is_prose else _MIN_ADDED_LAYOUT, (_MIN_TIMES - 1) * period):
                yield begin, begin + period + added


def _periods(text: str) -> list[int]:
    """The most frequent distances between successive occurrences of the same n-gram."""
    ngrams = [text[place : place + _NGRAM] for place in range(len(text) - _NGRAM + 1)]
    if len(ngrams) - len(set(ngrams)) <= _MIN_ADDED - _NGRAM:
        return []
    last: dict[str, int] = {}
    distances: Counter[int] = Counter()
    for place, ngram in enumerate(ngrams):
        if ngram in last:
            distances[place - last[ngram]] += 1
        last[ngram] = place
    return [period for period, _ in distances.most_common(_MAX_PERIODS)]


def percentage(rate: float, digits: int = 2) -> str:
    """Format a rate in percent; infinity, where there is nothing to divide by, is "no text"."""
    return f"{100 * rate:.{digits}f} %" if math.isfinite(rate) else "no text"
