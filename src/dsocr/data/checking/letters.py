"""Checks of the characters in transcriptions: look-alikes, invisible ones, broken encodings, spelling habits.

What a model learns from such texts is wrong without anybody seeing it: the letters look right on the screen.
"""

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from dsocr.data.checking.findings import Checked, Findings
from dsocr.data.checking.scripts import WORD, look_alikes
from dsocr.data.checking.texts import shown

_OLD_LETTERS = frozenset("ѢѣѲѳѴѵ")
_OLD_END = re.compile(r"(?:ъ|Ъ)\b")
_BREAKS = frozenset("\n")
NO_BREAK = frozenset("\u00a0\u202f\u2007")
_SCRIPT_SIGNS = frozenset("\u200c\u200d\u200e\u200f")


def check_letters(checked: Sequence[Checked], findings: Findings) -> None:
    """Every check of this module."""
    for item in checked:
        text = item.sample.text
        if strangers := list(look_alikes(text)):
            message = "a word mixes Latin and Cyrillic letters that look alike"
            findings.add("look-alikes", "warning", message, item, ", ".join(strangers))
        if unseen := invisible(text):
            message = "the transcription holds characters that nobody can see"
            told = ", ".join(f"U+{ord(character):04X} {_name(character)}" for character in unseen)
            findings.add("invisible-characters", "warning", message, item, told)
        if text != (composed := unicodedata.normalize("NFC", text)):
            message = "characters are written as two, a letter and its mark"
            told = ", ".join(dict.fromkeys(set(composed) - set(text)))
            findings.add("decomposed-characters", "warning", message, item, told)
        if broken := list(mojibake(text)):
            message = "the transcription was once read in a wrong encoding"
            findings.add("mojibake", "warning", message, item, ", ".join(broken))
        if old := [word for word in WORD.findall(text) if _is_old(word)]:
            message = "the transcription is in the spelling of before 1918"
            findings.add("old-spelling", "note", message, item, ", ".join(dict.fromkeys(old)))
    _check_seen_once(checked, findings)
    _check_yo(checked, findings)


def invisible(text: str) -> list[str]:
    """The characters of a text that show nothing: controls, zero-width ones, soft hyphens and no-break spaces.

    Line breaks are no fault, nor are joiners and marks of direction in texts whose script is written with them.
    """
    return [character for character in dict.fromkeys(text) if _is_invisible(character, text)]


def _is_invisible(character: str, text: str) -> bool:
    if character in _BREAKS:
        return False
    if character in _SCRIPT_SIGNS:
        return not any("\u0590" <= other <= "\u0dff" for other in text)
    return character in NO_BREAK or unicodedata.category(character) in {"Cc", "Cf", "Co", "Zl", "Zp"}


def _name(character: str) -> str:
    return unicodedata.name(character, "a control character").lower()


_HIGH = re.compile("[\u0080-\U0010ffff]{2,}")
_LATIN1_RUN = re.compile("[\u00c0-\u00ff\u00b8\u00a8]{4,}")
_QUOTES = frozenset("«»“”‘’")


def mojibake(text: str) -> Iterator[str]:
    """The parts of a text that make sense once the encoding they were misread in is undone, with that sense.

    UTF-8 read as cp1252, Latin-1 or cp1251, and cp1251 read as Latin-1; and the sign for what no encoding could read.
    """
    if "\ufffd" in text:
        yield "U+FFFD where a character was lost"
    for run in dict.fromkeys(_HIGH.findall(text)):
        for encoding in ("cp1252", "cp1251"):
            meant = _undone(run, encoding)
            if meant is not None:
                yield f"{run!r} may mean {meant!r}"
                break
        else:
            for part in _LATIN1_RUN.findall(run):
                yield f"{part!r} may mean {part.encode('latin-1').decode('cp1251')!r}"


def _undone(run: str, encoding: str) -> str | None:
    """What UTF-8 would have made of a run that `encoding` was read as; None where that is no text either.

    One letter alone proves little: `СССР»` ends in the two bytes of an `л`.
    """
    try:
        meant = b"".join(_byte(letter, encoding) for letter in run).decode("utf-8")
    except UnicodeError:
        return None
    if len(meant) == 1 and (run[0] not in "ÃÂ" or (run[0] == "Ã" and run[-1] in _QUOTES)):
        return None
    known = all("\u00a0" <= letter <= "\u045f" or "\u2010" <= letter <= "\u2122" for letter in meant)
    return meant if known else None


def _byte(letter: str, encoding: str) -> bytes:
    """The byte that was read as a letter; bytes that have none in cp1252 come through as controls."""
    return letter.encode("latin-1" if encoding == "cp1252" and "" <= letter <= "" else encoding)


def _is_old(word: str) -> bool:
    """Whether a word has a letter that went in 1918; і and ї live on in other languages, ъ inside words too."""
    return bool(_OLD_LETTERS & set(word)) or (len(word) > 1 and _OLD_END.search(word) is not None)


def _check_seen_once(checked: Sequence[Checked], findings: Findings) -> None:
    """Characters that no model can learn from what there is, or that are slips."""
    first: dict[str, Checked] = {}
    counts: Counter[str] = Counter()
    for item in checked:
        counts.update(item.sample.text)
        for character in item.sample.text:
            first.setdefault(character, item)
    for character, count in counts.items():
        if count == 1 and not character.isspace() and not invisible(character):
            message = "a character stands once in the whole dataset"
            name = unicodedata.name(character, "a control character").lower()
            findings.add("seen-once", "note", message, first[character], f"{shown(character)}, {name}")


def _check_yo(checked: Sequence[Checked], findings: Findings) -> None:
    """Words written with ё here and with е there: a model that reads either is counted as wrong by the other."""
    counts: Counter[str] = Counter()
    places: dict[str, Checked] = {}
    folded: dict[str, set[str]] = defaultdict(set)
    for item in checked:
        for word in WORD.findall(unicodedata.normalize("NFC", item.sample.text).lower()):
            counts[word] += 1
            places.setdefault(word, item)
            folded[word.replace("ё", "е")].add(word)
    for plain, spellings in folded.items():
        if len(spellings) > 1 and plain not in _BOTH:
            told = " and ".join(
                f"{word!r} {counts[word]}x" for word in sorted(spellings, key=lambda word: -counts[word])
            )
            rarest = min(spellings, key=lambda word: counts[word])
            findings.add("mixed-yo", "note", "a word is written with ё and with е", places[rarest], told)


_BOTH = frozenset(
    {"все", "всем", "чем", "нем", "небо", "осел", "мел", "лет", "берет", "узнает", "падеж", "совершенный"}
)
"""Frequent words that are two words, one with ё and one with е; the rest of them is rare enough for a note."""
