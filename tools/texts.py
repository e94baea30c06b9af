"""Random text lines for pretraining: words of three languages, numbers, dates, punctuation, and nonsense.

They are hard to guess, so that a network must look at the image. Word lists are plain text, one word a line
(Hunspell `.dic` files work); none is shipped.
"""

import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

RUSSIAN = "абвгдеёжзийклмнопрстуфхцчшщъыьэюя"
LATIN = "abcdefghijklmnopqrstuvwxyz"
FRENCH = "àâäæçéèêëîïôöœùûüÿ"
SPANISH_AND_GERMAN = "áíóúñß"
DIGITS = "0123456789"
PUNCTUATION = ".,:;!?-–—«»\"'’“”„…()[]{}/\\&%§№+=*<>@#_°€$£|~^"
OLD_RUSSIAN = "ѣіѳѵ"

ALPHABET = (
    "\n "
    + DIGITS
    + PUNCTUATION
    + LATIN
    + LATIN.upper()
    + RUSSIAN
    + RUSSIAN.upper()
    + FRENCH
    + "ÀÂÄÆÇÉÈÊËÎÏÔÖŒÙÛÜŸ"
    + SPANISH_AND_GERMAN
    + "ÁÍÓÚÑ"
    + OLD_RUSSIAN
    + OLD_RUSSIAN.upper()
)
"""Every character the nano base can write, in the order of its token ids."""


def is_held_out(word: str) -> bool:
    """True for one word in twenty, not used in pretraining, so that tests can tell reading from memorization."""
    return zlib.crc32(word.lower().encode()) % 20 == 0


def load_words(path: Path) -> list[str]:
    """The usable words of a list: letters of the alphabet only, at most 16 of them."""
    known = set(ALPHABET) - set(DIGITS) - set("\n ")
    entries = (line.split("/")[0].strip() for line in path.read_text(encoding="utf-8").splitlines())
    return sorted({word for word in entries if 0 < len(word) <= 16 and set(word) <= known and not word.isdigit()})


@dataclass
class TextMaker:
    """Draws random lines; `unseen` draws only held-out words."""

    words_by_language: dict[str, list[str]]
    weights: dict[str, float]
    unseen: bool = False

    def __post_init__(self) -> None:
        self._words = {
            language: [word for word in words if is_held_out(word) is self.unseen]
            for language, words in self.words_by_language.items()
        }

    def line(self, rng: np.random.Generator, length: int, language: str | None = None) -> str:
        """About `length` characters, never more than that plus one word."""
        names = list(self.weights)
        chosen = language or str(rng.choice(names, p=np.array([self.weights[name] for name in names])))
        parts: list[str] = []
        while sum(map(len, parts)) + len(parts) < length:
            parts.append(self._token(rng, chosen))
        return " ".join(parts)[: length + 16].strip()

    def _token(self, rng: np.random.Generator, language: str) -> str:
        kind = rng.random()
        if kind < 0.09:
            return _number(rng)
        if kind < 0.14:
            return _nonsense(rng, language)
        if kind < 0.165:
            return str(rng.choice(["—", "–", "-", "&", "№", "+", "=", "*", "%", "§", "/"]))
        words = self._words[language]
        return _punctuated(_cased(words[int(rng.integers(len(words)))], rng), rng)


def _cased(word: str, rng: np.random.Generator) -> str:
    chance = rng.random()
    if chance < 0.06:
        return word.upper()
    return word[0].upper() + word[1:] if chance < 0.3 else word


def _punctuated(word: str, rng: np.random.Generator) -> str:
    chance = rng.random()
    if chance < 0.16:
        return word + str(rng.choice([",", ".", ",", ".", ":", ";", "!", "?", "…", "-"]))
    if chance < 0.21:
        quotes = ["«»", "()", '""', "“”", "„“", "[]", "''", "<>", "><", "{}"][int(rng.integers(10))]
        return quotes[0] + word + quotes[1]
    if chance < 0.23:
        return word + str(rng.choice(["'", "’", "-"])) + word[:3]
    return word


def _number(rng: np.random.Generator) -> str:
    kind = int(rng.integers(6))
    number = int(rng.integers(10 ** int(rng.integers(1, 6))))
    return [
        str(number),
        f"{rng.integers(1, 32)}.{rng.integers(1, 13):02d}.{rng.integers(1700, 2030)}",
        f"{rng.integers(1500, 2030)}",
        f"{number / 100:.2f}".replace(".", str(rng.choice([",", "."]))),
        f"{rng.integers(0, 24)}:{rng.integers(0, 60):02d}",
        f"{number}{rng.choice(['%', '-', '°', '€', '$', '£', '@', '#', '_', '|', '~'])}",
    ][kind]


def _nonsense(rng: np.random.Generator, language: str) -> str:
    letters = RUSSIAN if language == "ru" else LATIN + (FRENCH if language == "fr" else SPANISH_AND_GERMAN)
    letters = letters + letters.upper() if rng.random() < 0.3 else letters
    return "".join(rng.choice(list(letters), int(rng.integers(1, 9))))
