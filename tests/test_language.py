"""Texts in both languages, their plural forms and numbers, and the language that is chosen."""

import re
from typing import get_args

import pytest

from dsocr.language import Language, catalogue, localized, preferred_language, system_language


def test_every_text_fills_in_the_same_values_in_both_languages() -> None:
    for name, texts in catalogue().items():
        assert set(texts) == set(get_args(Language)), name
        english, russian = (set(re.findall(r"{(\w+)", texts[language])) for language in get_args(Language))
        assert english == russian, name
        for text, forms in ((texts["en"], 2), (texts["ru"], 3)):
            counts = re.findall(r"{\w+:([^}]*\|[^}]*)}", text)
            assert all(len(count.split("|")) == forms for count in counts), name


@pytest.mark.parametrize(
    ("language", "lines", "text"),
    [
        ("en", 1, "Replace in 1 line"),
        ("en", 21, "Replace in 21 lines"),
        ("ru", 1, "Заменить в 1 строке"),
        ("ru", 41, "Заменить в 41 строке"),
        ("ru", 11, "Заменить в 11 строках"),
        ("ru", 111, "Заменить в 111 строках"),
    ],
)
def test_a_count_has_the_form_that_belongs_to_it(language: Language, lines: int, text: str) -> None:
    assert localized(language, "replace_all", lines=lines) == text


@pytest.mark.parametrize(
    ("lines", "word"), [(1, "строка"), (4, "строки"), (5, "строк"), (12, "строк"), (22, "строки"), (1014, "строк")]
)
def test_russian_has_three_forms(lines: int, word: str) -> None:
    assert localized("ru", "first_lines", left=lines).startswith(
        f"Исправляйте прочитанное и нажимайте Enter: ещё {lines} {word},"
    )


def test_decimals_and_percentages_are_written_as_the_language_does() -> None:
    assert localized("en", "outlook", cer=0.2114) == "Estimated CER now: 21.1\N{NO-BREAK SPACE}%"
    assert localized("ru", "outlook", cer=0.2114) == "Оценка CER сейчас: 21,1\N{NO-BREAK SPACE}%"
    assert localized("ru", "written", out="a.b", pages=1, texts=2) == "Сохранено в a.b: 1 страница, 2 строки с текстом"
    assert localized("en", "outlook", cer=float("nan")) == "Estimated CER now: -"


@pytest.mark.parametrize(
    ("accepted", "language"),
    [
        ("ru-RU,ru;q=0.9,en-US;q=0.8,en;q=0.7", "ru"),
        ("en-GB, en;q=0.9, ru;q=0.8", "en"),
        ("de, ru;q=0.5, en;q=0.3", "ru"),
        ("rue;q=0.9", "en"),
        ("ru;q=none", "ru"),
        ("*", "en"),
        ("", "en"),
    ],
)
def test_a_browser_is_answered_in_the_language_it_likes_best(accepted: str, language: Language) -> None:
    assert preferred_language(accepted) == language


@pytest.mark.parametrize(("name", "language"), [("ru_RU.UTF-8", "ru"), ("Russian_Russia", "ru"), ("de_DE", "en")])
def test_the_language_of_the_system(monkeypatch: pytest.MonkeyPatch, name: str, language: Language) -> None:
    monkeypatch.delenv("LC_ALL", raising=False)
    monkeypatch.setenv("LANG", name)
    assert system_language() == language
