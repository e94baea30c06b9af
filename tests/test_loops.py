"""Endless repetitions are found where they begin; ordinary text is not mistaken for one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsocr.text import is_looping, loop_start

PROSE = "Въ началѣ іюня мы пріѣхали въ деревню, и дождь шелъ три дня подъ-рядъ. "
WORDS = st.text("абвгдежзик ", min_size=1, max_size=24).filter(lambda unit: any(map(str.isalpha, unit)))


@pytest.mark.parametrize(
    ("text", "start"),
    [
        pytest.param("Милая Соня! " + "ой " * 40, 12, id="a word"),
        pytest.param("Милая Соня! " + "а" * 60, 12, id="a letter"),
        pytest.param("я и ты " + "и он тоже был тамъ " * 5 + "и он то", 7, id="a phrase that is cut off"),
        pytest.param("ой " * 40 + "и конец.", 0, id="a few words after it"),
        pytest.param("да: " + "ой " * 14 + "ай " + "ой " * 14, 4, id="interrupted by a guard"),
        pytest.param(PROSE + "." * 400, len(PROSE), id="signs, far more than a row of them"),
        pytest.param("<table>" + "<td>нет</td>" * 60, 7, id="cells without end"),
        pytest.param("abc " * 50, 0, id="Latin letters"),
        pytest.param("語" * 99, 0, id="other letters"),
    ],
)
def test_loop_is_found_where_it_begins(text: str, start: int) -> None:
    found = loop_start(text)
    assert found is not None
    assert abs(found - start) <= 1, "a space before the loop may belong to it"


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="nothing"),
        pytest.param(PROSE, id="prose"),
        pytest.param(PROSE * 4, id="a paragraph copied three times"),
        pytest.param("ха-ха-ха, сказал онъ, ха-ха-ха!", id="laughter"),
        pytest.param("ха-ха-ха-ха-ха-ха-ха-ха-ха", id="much laughter"),
        pytest.param("Аллилуйя, аллилуйя, аллилуйя, слава Тебѣ, Боже", id="a prayer"),
        pytest.param("Господи, помилуй. " * 3, id="a prayer said thrice"),
        pytest.param("Глава первая" + "." * 120 + "17", id="dots to a page number"),
        pytest.param("-" * 150, id="a rule of dashes"),
        pytest.param("_ " * 80, id="a blank to fill in"),
        pytest.param("| --- " * 20 + "|", id="the rule of a table"),
        pytest.param("| нет " * 20 + "|", id="a row that says no"),
        pytest.param("0\t" * 40, id="a column of zeros"),
        pytest.param("0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0", id="zeros"),
        pytest.param("да\n" * 20, id="a column of answers"),
        pytest.param("Ой, морозъ, морозъ,\nне морозь меня,\n" * 5, id="a refrain"),
        pytest.param("ой " * 40 + PROSE, id="found its way out"),
        pytest.param("1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25", id="numbers that count"),
    ],
)
def test_no_loop(text: str) -> None:
    assert not is_looping(text)


@given(WORDS, st.integers(5, 30), st.integers(0, 23))
def test_anything_repeated_often_enough_is_a_loop(unit: str, times: int, cut: int) -> None:
    looping = PROSE + (unit * (times + 40 // len(unit)) + unit[: cut % len(unit)]).rstrip()
    start = loop_start(looping)
    assert start is not None
    assert start <= len(PROSE) + 2 * len(unit)


@given(st.text(max_size=60), st.integers(0, 5))
def test_start_is_inside_the_text_and_short_texts_have_none(text: str, times: int) -> None:
    start = loop_start(text * times)
    assert start is None or 0 <= start < len(text * times)
    assert len(text * times) > 30 or start is None


@given(WORDS, st.integers(1, 4))
def test_four_times_is_no_loop(unit: str, times: int) -> None:
    words = " ".join(f"{number}{unit}" for number in range(10, 13))
    assert not is_looping(f"{words} " * times)
