"""Words that mix Latin and Cyrillic letters which look alike: telling them, and writing them in one script."""

import re
import unicodedata
from collections.abc import Iterator

WORD = re.compile(r"[^\W\d_]+")

_TO_CYRILLIC = dict(zip("ABCEHIJKMOPSTXYaceijopsxy", "АВСЕНІЈКМОРЅТХУасеіјорѕху", strict=True))
_TO_LATIN = {cyrillic: latin for latin, cyrillic in _TO_CYRILLIC.items()}
_ONE_LETTER_WORDS = frozenset("aco")
"""Latin letters that stand for a Russian word of one letter; others may be meant as Latin (x, y, I, V)."""
_LATIN = re.compile("[A-Za-z\u00c0-\u024f]")
_CYRILLIC = re.compile("[\u0400-\u052f]")


def look_alikes(text: str) -> Iterator[str]:
    """The words with letters of another script that look like their own, as a sentence each.

    Only words whose minority letters are all look-alikes are told: `USB-кабель` and `Wi-Fi` are meant so.
    """
    words = WORD.findall(unicodedata.normalize("NFC", text))
    for word in dict.fromkeys(words):
        latin, cyrillic = _LATIN.findall(word), _CYRILLIC.findall(word)
        if latin and cyrillic:
            sides = [(latin, _TO_CYRILLIC, "Latin"), (cyrillic, _TO_LATIN, "Cyrillic")]
            for strangers, alike, script in sorted(sides, key=lambda side: len(side[0])):
                if alike.keys() >= set(strangers):
                    yield f"{word!r} has {script} {' '.join(dict.fromkeys(strangers))}"
                    break
    for word in _lonely(words):
        yield f"{word!r} between Cyrillic words is Latin"


def in_one_script(text: str) -> str:
    """The text with look-alikes replaced where it is certain what was meant.

    That is in a word whose other letters are more, of one script, and one of them at least looks like none of the
    other script; and in Latin words of one letter between Cyrillic ones.
    """
    lonely = set(_lonely(WORD.findall(text)))
    return WORD.sub(lambda found: _one_script(found.group(), lonely), text)


def _one_script(word: str, lonely: set[str]) -> str:
    if word in lonely:
        return _TO_CYRILLIC[word]
    latin, cyrillic = _LATIN.findall(word), _CYRILLIC.findall(word)
    sides = [(latin, cyrillic, _TO_CYRILLIC, _TO_LATIN), (cyrillic, latin, _TO_LATIN, _TO_CYRILLIC)]
    for strangers, own, there, back in sides:
        certain = len(strangers) < len(own) and not back.keys() >= set(own) and there.keys() >= set(strangers)
        if strangers and certain and len(strangers) + len(own) == len(word):
            return "".join(there.get(letter, letter) if letter in strangers else letter for letter in word)
    return word


def _lonely(words: list[str]) -> list[str]:
    """The Latin words of one letter in a text that is otherwise Cyrillic, each once."""
    if sum(map(len, (_CYRILLIC.findall(word) for word in words))) <= 2:
        return []
    latin_words = {word for word in words if _LATIN.match(word) and not _CYRILLIC.search(word)}
    return sorted(latin_words) if latin_words and latin_words <= _ONE_LETTER_WORDS else []
