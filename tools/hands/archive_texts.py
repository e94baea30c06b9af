"""Random Russian lines as archives hold them: entries of registers and censuses, letters, columns of short words.

Half of the writers spell as before 1918. Ordinary words are drawn by frequency, so that most of a line is language and
not lists; nobody needs obscenities to learn letters, so those are left out.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from small_texts import Words, spell_before_reform


def _listed(words: str) -> list[str]:
    return words.split()


MEN = _listed(
    "Александръ Алексѣй Андрей Антонъ Василій Владиміръ Гаврила Георгій Герасимъ Григорій Даніилъ Дмитрій Евдокимъ "
    "Егоръ Емельянъ Ефимъ Захаръ Иванъ Игнатій Илья Исидоръ Іаковъ Іоаннъ Кириллъ Козьма Константинъ Корнилій "
    "Лаврентій Леонтій Лука Макаръ Максимъ Матвѣй Михаилъ Никита Никифоръ Николай Осипъ Павелъ Петръ Пименъ "
    "Прокофій Родіонъ Савелій Семенъ Сергѣй Спиридонъ Степанъ Тарасъ Терентій Тимоѳей Тихонъ Трофимъ Филиппъ Ѳедоръ "
    "Ѳома Ѳаддей Харитонъ Яковъ"
)
WOMEN = _listed(
    "Агаѳья Агриппина Акулина Александра Анастасія Анисья Анна Варвара Василиса Вѣра Дарья Домна Евдокія Екатерина "
    "Елена Елизавета Ефросинья Зинаида Ирина Іулитта Ксенія Лукерья Любовь Марина Марія Марѳа Марья Матрона Матрена "
    "Надежда Наталья Ольга Параскева Пелагія Прасковья Раиса Софья Степанида Татьяна Ульяна Устинья Ѳедосья Ѳекла "
    "Юлія"
)
_STEMS = _listed(
    "Иван Петр Василь Николаев Алексѣев Андре Антонов Григорь Дмитрі Егоров Ефимов Захаров Игнать Кузьмин Максимов "
    "Михайлов Никитин Павлов Семенов Сергѣев Степанов Тимоѳеев Ѳедоров Яковлев Лукин Осипов Савель Терентьев "
    "Прохоров"
)
SURNAMES = _listed(
    "Смирнов Кузнецов Попов Соколов Лебедев Козлов Новиков Морозов Волков Соловьев Зайцев Голубев Виноградов "
    "Воробьев Богданов Орлов Макаров Щербаков Жуков Чернышев Цвѣтков Юдин Эрдман Шубин Яхонтов Хомяков Фроловъ "
    "Бѣляев Гусев Дьячков Ежов Калинин Мельников Овчинников Рыбаков Суханов Ткачев Уваров Холодов Шестаков Щукин "
    "Южаков Ямщиков"
)
VILLAGES = _listed(
    "Ивановка Петровское Березовка Никольское Покровское Троицкое Каменка Сосновка Дубровка Липовка Ольховка "
    "Михайловка Васильевка Алексѣевка Николаевка Преображенское Спасское Ильинское Богородское Воскресенское "
    "Знаменское Заречье Слободка Погостъ Выселки Починокъ Займище Городище Кузнецово Морозово Лебедево Гусево "
    "Щукино Журавлево Юрьево Ѳедоровка Хомутово Цвѣтково Яблоново Шубино Жуково Чернышево Горки Озерки Мосты Ключи "
    "Пески Боръ Лугъ Холмъ Верховье Устье"
)
_PLACES = _listed(
    "село деревня дер. с. хуторъ слобода станица выселокъ сельцо погостъ приходъ волость уѣздъ губернія городъ гор."
)
_ESTATES = _listed(
    "крестьянинъ крестьянка крестьянскій кр-нъ кр-ка кр. мѣщанинъ мѣщанка мѣщ. купецъ купчиха вдова вдовецъ солдатъ "
    "солдатка дворянинъ священникъ дьяконъ псаломщикъ діаконъ пономарь жена сынъ дочь мужъ сноха внукъ внучка зять "
    "отецъ мать братъ сестра дѣвица младенецъ незаконнорожденный рядовой унтеръ-офицеръ отставной чиновникъ "
    "совѣтникъ учитель фельдшеръ"
)
_RITES = _listed(
    "родился родилась крещенъ крещена умеръ умерла погребенъ погребена вѣнчаны бракомъ первымъ вторымъ воспріемники "
    "воспріемница поручители таинство совершалъ православнаго вѣроисповѣданія законная жена его оба на приходскомъ "
    "кладбищѣ отъ чахотки горячки старости кашля поноса родимца оспы скарлатины простуды по женихѣ по невѣстѣ "
    "метрическая книга"
)
_OFFICE = _listed(
    "дѣло рапортъ прошеніе указъ отношеніе приказъ вѣдомость списокъ опись книга листъ приговоръ протоколъ "
    "показаніе свидѣтельство билетъ паспортъ имущество домъ дворъ земля десятинъ надѣлъ оброкъ подушный сборъ "
    "недоимка долгъ взыскано получено отпущено выдано остатокъ итого всего приходъ расходъ рублей копѣекъ пудовъ "
    "четвертей лошадь корова хлѣбъ рожь овесъ сѣно дрова господинъ господину благородіе превосходительство "
    "покорнѣйше честь имѣю донести симъ вышеписанный оный означенный нижеподписавшійся таковой присемъ препровождая "
    "отлучкѣ на жительство по сему быть въ томъ что"
)
_ABBREVIATIONS = _listed(
    "г. гг. г-нъ г-жа ул. руб. коп. р. к. № т._е. т._д. и_пр. и_т._п. см. стр. л. об. кв. обл. губ. у. вол. св. о. "
    "ум. род. т._ж. тоже он_же в._д. д._с._с. н._с. с._с. кол._сов. ск. ст. пуд. арш. дес. саж. вер. ф. зол. на_об."
)
MONTHS = _listed("января февраля марта апрѣля мая іюня іюля августа сентября октября ноября декабря")
_SHORT_MONTHS = _listed("янв. фев. мар. апр. іюн. іюл. авг. сен. окт. ноя. дек.")
_ROMAN = _listed("I II III IV V VI VII VIII IX X XI XII")
_NUMBERS = _listed(
    "одинъ два три четыре пять шесть семь восемь девять десять двѣнадцать двадцать тридцать сорокъ пятьдесятъ сто "
    "двѣсти триста пятьсотъ тысяча тысяча восемьсотъ пятьдесятъ шестаго седьмаго втораго перваго года"
)
_AGES = ["лѣтъ", "л.", "г.", "года", "мѣс.", "мѣсяцевъ", "недѣль", "нед.", "дней", "дня"]

_OBSCENE = re.compile(
    "ху[йеёяю]|пизд|[её]б[аеиклнтуыё]|бля[дт]|муд[аиои]|сука|суки|суч|шлю[хш]|говн|жоп|секс|порн|пидо|гандон|дроч"
)
"""Parts of words that are left out; wordfreq counts whatever is written on the web."""


def modern(text: str) -> str:
    """Spell a text of before 1918 as today."""
    text = re.sub(r"[ъЪ](?=\W|$)", "", text)
    return text.translate(str.maketrans("ѣѢіІѳѲѵѴ", "еЕиИфФиИ"))


def is_decent(word: str) -> bool:
    """Whether a word has none of the parts that are left out."""
    return _OBSCENE.search(word) is None


class Choices:
    """Random choices of a clerk."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng

    def choice(self, items: Sequence[str]) -> str:
        """Return one of the items."""
        return items[int(self.rng.integers(len(items)))]

    def number(self, least: int, most: int) -> int:
        """Return a number, the limits included."""
        return int(self.rng.integers(least, most + 1))

    def surname(self) -> str:
        """Return a man's surname."""
        return self.choice(SURNAMES).removesuffix("ъ") + "ъ"


@dataclass(frozen=True)
class ArchiveTexts:
    """Draws lines; `words` are the ordinary ones with their frequencies."""

    words: Words

    def line(self, rng: np.random.Generator) -> str:
        """Return a line of 1 to 60 characters, in one of both spellings."""
        old = rng.random() < 0.5
        kind = rng.random()
        if kind < 0.07:
            text = self._figure(rng)
        elif kind < 0.28:
            text = self._phrase(rng, 1)
        elif kind < 0.50:
            text = self._entry(rng)
        else:
            text = self._phrase(rng, int(rng.integers(2, 9)))
        text = " ".join(text.split())[: int(rng.integers(34, 61))].strip()
        # Lists are written as before 1918, ordinary words as today.
        return self._spell_old(text, rng) if old else modern(text)

    @staticmethod
    def _spell_old(text: str, rng: np.random.Generator) -> str:
        words = text.split()
        return " ".join(spell_before_reform(word, rng) if re.fullmatch("[а-яёА-ЯЁ]+", word) else word for word in words)

    def _word(self, rng: np.random.Generator) -> str:
        for _ in range(20):
            word = self.words.draw(rng)
            if re.fullmatch("[а-яё-]+", word) and is_decent(word):
                return word
        return "и"

    def _phrase(self, rng: np.random.Generator, count: int) -> str:
        tokens = [self._token(rng) for _ in range(count)]
        if rng.random() < 0.35:
            tokens[0] = tokens[0][0].upper() + tokens[0][1:]
        return " ".join(tokens)

    def _token(self, rng: np.random.Generator) -> str:
        kind = rng.random()
        if kind < 0.06:
            token = self._name(rng)
        elif kind < 0.09:
            token = _choose(VILLAGES, rng)
        elif kind < 0.13:
            token = _choose(_ESTATES, rng)
        elif kind < 0.19:
            token = _choose(_OFFICE, rng)
        elif kind < 0.22:
            token = _choose(_RITES, rng)
        elif kind < 0.25:
            token = _choose(_ABBREVIATIONS, rng).replace("_", " ")
        elif kind < 0.30:
            token = self._figure(rng)
        else:
            token = self._word(rng)
            case = rng.random()
            token = token.upper() if case < 0.01 else token[0].upper() + token[1:] if case < 0.09 else token
        mark = rng.random()
        if mark < 0.13:
            return token + str(
                rng.choice([",", ".", ":", ";", "!", "?", "-", " —"], p=[0.5, 0.25, 0.07, 0.05, 0.03, 0.03, 0.05, 0.02])
            )
        if mark < 0.15:
            return f"«{token}»" if rng.random() < 0.5 else f"({token})"
        return token

    def _name(self, rng: np.random.Generator) -> str:
        woman = rng.random() < 0.4
        first = _choose(WOMEN if woman else MEN, rng)
        kind = rng.random()
        if kind < 0.3:
            return first
        stem = _choose(_STEMS, rng)
        stem = stem if stem.endswith(("ов", "ев", "ин")) else stem + ("ов" if stem in ("Иван", "Петр") else "ев")
        if kind < 0.6:  # Иванъ Петровъ, Анна Петрова
            second = stem + ("а" if woman else "ъ")
        elif stem.endswith("ин"):
            second = stem[:-2] + ("инична" if woman else "ичъ")
        else:
            second = stem + ("на" if woman else "ичъ")
        surname = _choose(SURNAMES, rng).removesuffix("ъ") + ("а" if woman else "ъ")
        if kind < 0.8:
            return f"{first} {second}"
        return f"{first} {second} {surname}" if kind < 0.92 else f"{surname} {first[0]}."

    def _entry(self, rng: np.random.Generator) -> str:
        """A row of a register: whose, of where, how old, when, how much."""
        parts: list[str] = []
        order = rng.permutation(6)[: int(rng.integers(1, 4))]
        for place in sorted(order.tolist()):
            if place == 0:
                parts.append(f"{_choose(_PLACES, rng)} {_choose(VILLAGES, rng)}")
            elif place == 1:
                parts.append(_choose(_ESTATES, rng))
            elif place == 2:
                parts.append(self._name(rng))
            elif place == 3:
                parts.append(f"{rng.integers(1, 95)} {_choose(_AGES, rng)}")
            elif place == 4:
                parts.append(self._date(rng))
            else:
                parts.append(self._sum(rng))
        joined = "" if rng.random() < 0.6 else ","
        return f"{joined} ".join(parts)

    def _date(self, rng: np.random.Generator) -> str:
        day, year = rng.integers(1, 32), rng.integers(1700, 1960)
        month = _choose(MONTHS, rng)
        return _choose(
            [
                f"{day} {month}",
                f"{day}-го {month}",
                f"{day} {month} {year} г.",
                f"{day} {month} {year} года",
                f"{year} г.",
                f"{year} года",
                f"{day} {_choose(_SHORT_MONTHS, rng)} {year}",
                f"{day}.{rng.integers(1, 13):02d}.{year}",
                f"{day}/{_choose(_ROMAN, rng)} {year}",
                f"{month} {day} дня",
                f"{day} числа сего мѣсяца",
                f"въ {year} году",
            ],
            rng,
        )

    def _sum(self, rng: np.random.Generator) -> str:
        roubles, kopecks = rng.integers(1, 10 ** int(rng.integers(1, 5))), rng.integers(100)
        return _choose(
            [
                f"{roubles} руб.",
                f"{roubles} р. {kopecks} к.",
                f"{roubles} руб. {kopecks} коп.",
                f"{roubles} рублей",
                f"{_choose(_NUMBERS, rng)} {_choose(_NUMBERS, rng)}",
                f"{roubles} дес.",
                f"{roubles} пуд. {kopecks} ф.",
            ],
            rng,
        )

    def _figure(self, rng: np.random.Generator) -> str:
        number = int(rng.integers(10 ** int(rng.integers(1, 6))))
        return _choose(
            [
                str(number),
                str(number),
                f"{number}.",
                f"№ {number}",
                f"{number % 100}-й",
                f"{number % 100}-го",
                f"{number})",
                str(rng.integers(1700, 1960)),
                f"{rng.integers(1700, 1960)} г.",
                f"л. {number % 400}",
                f"{number % 400} об.",
                f"{number},{rng.integers(100):02d}",
                self._date(rng),
                self._sum(rng),
                _choose(_ROMAN, rng),
            ],
            rng,
        )


def archive_lines(words: Words, characters: int, seed: int = 1) -> Iterator[str]:
    """Yield about so many characters of lines."""
    maker, written, number = ArchiveTexts(words), 0, 0
    while written < characters:
        line = maker.line(np.random.default_rng((seed, number)))
        written, number = written + len(line), number + 1
        yield line


def _choose(items: list[str], rng: np.random.Generator) -> str:
    return items[int(rng.integers(len(items)))]
