"""Random lines for rendering, in the languages that the embedded base `small` should read.

Words are drawn by their frequency (the tables of the package wordfreq) or evenly from a word list, so that inflected
and rare forms occur; between them stand names, dates, sums and abbreviations as in letters, registers and diaries.
"""

import gzip
import re
import textwrap
import unicodedata
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

DIGITS = "0123456789"
LATIN = "abcdefghijklmnopqrstuvwxyz"
LATIN_MARKED = "àáâãäåæçèéêëìíîïðñòóôõöøùúûüýþÿāăąćċčďđēėęěğģħīįıĵķĺļľłńņňőœŕřśşšţťũūŭůűųŵŷźżžſßșțẽḿ"
CYRILLIC = "абвгдежзийклмнопрстуфхцчшщъыьэюяёєіїґўђѓѕјљњћќџѝѐѣѳѵѫѧ"
PUNCTUATION = ".,:;!?-–—…«»‹›\"'’‘“”„()[]{}<>/\\|&%§№+±=×÷*#@_°^~`€$£¬¶†•⁊½¼¾"
SUPERSCRIPTS = "ᵃᵇᵈᵉˡᵐⁿᵒʳˢᵗ²³"

_LETTERS = LATIN + LATIN_MARKED + CYRILLIC
_CAPITALS = "".join(dict.fromkeys(letter.upper() for letter in _LETTERS if len(letter.upper()) == 1))

CHARACTERS = list(dict.fromkeys(" " + DIGITS + PUNCTUATION + _CAPITALS + _LETTERS + SUPERSCRIPTS))
"""Every character, in the order of the head's classes; the blank is before the first."""

WEIGHTS = {"ru": 0.42, "old_ru": 0.14, "uk": 0.12, "bg": 0.07, "sr": 0.07, "be": 0.03, "fr": 0.05, "de": 0.04}
WEIGHTS |= {"en": 0.03, "pl": 0.01, "es": 0.01, "it": 0.01}

LATIN_WEIGHTS = {"fr": 0.4, "en": 0.2, "de": 0.2, "es": 0.07, "it": 0.06, "pl": 0.07}


def _listed(words: str) -> list[str]:
    return words.split()


_MONTHS = _listed("января февраля марта апреля мая июня июля августа сентября октября ноября декабря")
_NAMES = _listed(
    "Иван Пётр Анна Мария Николай Александр Екатерина Сергей Ольга Фёдор Василий Дмитрий Елена Татьяна Михаил Павел "
    "Алексей Софья Наталья Григорий Андрей Яков Семён Прасковья Евдокия Матрёна Степан Игнатий Ефим Тимофей Никита "
    "Иванович Петрович Николаевна Александровна Васильевич Сергеевна Фёдорович Дмитриевна Михайлов Павлова Алексеев "
    "Григорьева Андреев Яковлева Семёнов Степанова Игнатьев Ефимова Тимофеев Никитина Кузнецов Попова Соколов "
    "Лебедева Козлов Новикова Морозов Волкова Щербаков Жукова Чернышев Цветкова Юдин Эрдман Шульц Объедков Подъячева"
)
_ABBREVIATIONS = _listed(
    "г. гг. ул. руб. коп. № т. е. т. д. и пр. и т. п. см. стр. с. д. кв. обл. губ. уезд. вол. дер. св. о. ст. ст. н. "
    "ст. им. тов. гр. проф. д-р г-н г-жа С.-Петербург СССР РСФСР ЦК н. э. в. вв. тыс. млн. кг. пуд. арш. дес. саж. "
    "вер."
)
_YAT_ROOTS = _listed(
    "бел бед бег вер век ветр вест дел дет дед лес лет лев мер мест мес нем нет пес песн рек реч сел сен свет свеж "
    "след смел тел тен хлеб цел цен цвет чел мед звер сер нег гре сме"
)
_ROMAN = _listed("I II III IV V VI VII VIII IX X XI XII")
_HARD = "бвгджзклмнпрстфхцчшщ"


def is_held_out(word: str) -> bool:
    """True for one word in twenty, not used in pretraining, so that tests can tell reading from memorization."""
    return zlib.crc32(word.lower().encode()) % 20 == 0


@dataclass
class Words:
    """The words of a language: the frequent ones with their cumulated shares, and a list of all."""

    frequent: list[str]
    cumulated: NDArray[np.float64]
    every: list[str]

    def draw(self, rng: np.random.Generator) -> str:
        """Draw a word, two times in three by its frequency."""
        if self.frequent and (not self.every or rng.random() < 0.67):
            return self.frequent[int(np.searchsorted(self.cumulated, rng.random() * self.cumulated[-1]))]
        return self.every[int(rng.integers(len(self.every)))]


def load_words(frequencies: Path | None, listed: Path | None, *, unseen: bool = False) -> Words:
    """Load a language; `unseen` keeps only the words that pretraining never shows, for tests."""
    known = set(CHARACTERS) - set(" 0123456789")

    def usable(word: str) -> bool:
        return 0 < len(word) <= 20 and known.issuperset(word) and is_held_out(word) is unseen

    frequent: list[str] = []
    shares: list[float] = []
    if frequencies:
        import msgpack  # only rendering needs it

        with gzip.open(frequencies) as file:
            bins: list[Any] = msgpack.load(file, raw=False)
        for centibels, words in enumerate(bins[1:]):
            for word in words:
                if usable(word):
                    frequent.append(word)
                    shares.append(10 ** (-centibels / 100))
    every: list[str] = []
    if listed:
        lines = listed.read_text(encoding="utf-8", errors="ignore").split("\n")
        every = sorted({word for line in lines if usable(word := line.split("/")[0].strip())})
    return Words(frequent, np.cumsum(shares), every)


def count_words(texts: Iterable[str]) -> Words:
    """The words of Russian texts with their frequencies."""
    counted = Counter(word for text in texts for word in re.findall("[а-яё]+(?:-[а-яё]+)*", text.lower()))
    return Words(list(counted), np.cumsum(list(counted.values()), dtype=np.float64), [])


def literature_lines(folder: Path, characters: int, seed: int = 1) -> Iterator[str]:
    """Yield lines of 15 to 60 characters from the text files of a folder, about `characters` in all, from every file.

    One in four is spelled as before 1918.
    """
    rng = np.random.default_rng(seed)
    files = sorted(folder.rglob("*.txt"), key=lambda file: file.as_posix())
    share = characters / sum(file.stat().st_size / 2 for file in files)  # two bytes a Cyrillic letter
    for file in files:
        for paragraph in file.read_text(encoding="utf-8", errors="ignore").splitlines():
            if len(paragraph) < 30 or rng.random() > share:
                continue
            for line in textwrap.wrap(unicodedata.normalize("NFC", paragraph), int(rng.integers(15, 61))):
                old = rng.random() < 0.25
                yield " ".join(spell_before_reform(word, rng) for word in line.split()) if old else line


@dataclass
class LineMaker:
    """Draws lines; `weights` are the languages' shares."""

    words: dict[str, Words]
    weights: dict[str, float]

    def line(self, rng: np.random.Generator, length: int) -> tuple[str, str]:
        """Return a language and a line of about `length` characters."""
        names = [name for name in self.weights if _source(name) in self.words]
        shares = np.array([self.weights[name] for name in names])
        language = str(rng.choice(names, p=shares / shares.sum()))
        tokens: list[str] = []
        while sum(map(len, tokens)) + len(tokens) < length:
            tokens.append(self._token(rng, language))
        text = " ".join(tokens)
        return language, (text[0].upper() + text[1:] if rng.random() < 0.4 else text)

    def _token(self, rng: np.random.Generator, language: str) -> str:
        kind = rng.random()
        russian = language in ("ru", "old_ru")
        if kind < 0.05:
            return _number(rng, russian)
        if kind < 0.08:
            return str(
                rng.choice(["—", "–", "-", "№", "&", "+", "=", "§", "/", "*"], p=[0.4, 0.1, 0.1, 0.2] + 6 * [1 / 30])
            )
        if russian and kind < 0.15:
            token = str(rng.choice(_NAMES if kind < 0.12 else _ABBREVIATIONS))
        elif kind < 0.18:
            token = self._nonsense(rng, language)
        else:
            token = self.words[_source(language)].draw(rng)
            case = rng.random()
            token = token.upper() if case < 0.04 else token[0].upper() + token[1:] if case < 0.18 else token
        if language == "old_ru":
            token = spell_before_reform(token, rng)
        return _punctuated(token, rng)

    def _nonsense(self, rng: np.random.Generator, language: str) -> str:
        """Letters as frequent as in words, but in no word: what is read must be seen."""
        letters = "".join(self.words[_source(language)].draw(rng) for _ in range(4))
        return "".join(rng.choice(list(letters), int(rng.integers(1, 8))))


def _source(language: str) -> str:
    return "ru" if language == "old_ru" else language


def _number(rng: np.random.Generator, russian: bool) -> str:
    number = int(rng.integers(10 ** int(rng.integers(1, 6))))
    forms = [
        str(number),
        str(rng.integers(1700, 2030)),
        f"{rng.integers(1, 32)}.{rng.integers(1, 13):02d}.{rng.integers(1700, 2030)}",
        f"{rng.integers(1, 32)}/{rng.choice(_ROMAN)}",
        f"{number},{rng.integers(100):02d}",
        f"{rng.integers(24)}:{rng.integers(60):02d}",
        f"{number}{rng.choice(['%', '°', '-', ')', '.', '-й', '-го'] if russian else ['%', '°', '-', ')', '.'])}",
    ]
    if russian:
        forms += [f"{rng.integers(1, 32)} {rng.choice(_MONTHS)} {rng.integers(1700, 2030)} г."] * 2
        forms += [f"{number} руб. {rng.integers(100)} коп."]
    return str(rng.choice(forms))


def _punctuated(word: str, rng: np.random.Generator) -> str:
    chance = rng.random()
    if chance < 0.2:
        return word + str(rng.choice([",", ".", ",", ".", ",", ":", ";", "!", "?", "…", "-"]))
    if chance < 0.235:
        quotes = ["«»", "()", '""', "„“", "“”", "[]", "''", "<>"][int(rng.integers(8))]
        return quotes[0] + word + quotes[1]
    return word


def spell_before_reform(word: str, rng: np.random.Generator) -> str:
    """Spell a Russian word as before 1918, roughly: ъ at the end, і before vowels, ѣ in common roots and endings."""
    if len(word) > 1 and word[-1].lower() in _HARD:
        word += "ъ" if word[-1].islower() else "Ъ"
    letters = list(word)
    for place, letter in enumerate(letters[:-1]):
        if letter in "иИ" and letters[place + 1].lower() in "аеёиоуыэюяй":
            letters[place] = "і" if letter == "и" else "І"
    word = "".join(letters)
    for root in _YAT_ROOTS:
        if root in word.lower():
            place = word.lower().index(root)
            offset = root.index("е")
            word = (
                word[: place + offset] + ("ѣ" if word[place + offset].islower() else "Ѣ") + word[place + offset + 1 :]
            )
            break
    if len(word) > 3 and word.endswith("е") and rng.random() < 0.5:
        word = word[:-1] + "ѣ"
    if word[0] == "Ф" and rng.random() < 0.5:
        word = "Ѳ" + word[1:]
    return word.replace("мир", "мір") if rng.random() < 0.3 else word
