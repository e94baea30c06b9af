"""Image files of a dataset have names that every system takes."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsocr.io.files import UniqueStems, safe_stem


@pytest.mark.parametrize(
    ("name", "stem"),
    [
        pytest.param("wikitexte_0001_2", "wikitexte_0001_2", id="as it is"),
        pytest.param("Письмо 3, л. 2 об", "Письмо_3__л__2_об", id="Cyrillic stays, spaces and stops go"),
        pytest.param("и\u0306", "й", id="composed"),
        pytest.param("box/a:b*c?", "box_a_b_c_", id="slash, colon, wildcards"),
        pytest.param("CON", "CON_", id="reserved on Windows"),
        pytest.param("", "_", id="empty"),
    ],
)
def test_safe_stem(name: str, stem: str) -> None:
    assert safe_stem(name) == stem


def taken(names: list[str]) -> list[str]:
    stems = UniqueStems()
    return [stems.take(name) for name in names]


def test_long_names_are_short_and_stay_apart() -> None:
    first, second = (safe_stem("ш" * 200 + end) for end in "ab")
    assert first != second
    assert len(first.encode()) < 80


def test_names_that_differ_in_case_stay_apart() -> None:
    assert taken(["a", "A", "a", "a-2"]) == ["a", "A-2", "a-3", "a-2-2"]


@given(st.lists(st.text(max_size=80), max_size=20))
def test_any_names_become_safe_and_unique(names: list[str]) -> None:
    stems = taken(names)
    assert len({stem.casefold() for stem in stems}) == len(names)
    assert all(re.fullmatch(r"[\w-]{1,80}", stem) for stem in stems)
