"""Known mistakes of other scoring programs; each test fails if this one makes them too."""

import json
import math
import re
import unicodedata
from typing import Literal

import pytest

from dsocr.evaluation.metrics import ErrorRate, profile_rates, profiles
from dsocr.evaluation.scorecard import Scorecard, make_scorecard
from dsocr.text import comparable
from tests.evaluation.making_runs import scored


def card_of(*pairs: tuple[str, str]) -> Scorecard:
    return make_scorecard("test", None, scored(*pairs))


FILTERED_ELSEWHERE = re.compile(r"[^A-Za-z0-9一-龥]")


@pytest.mark.parametrize(
    ("one", "other"), [("привет", "совсем не то"), ("नमस्ते", "विदा"), ("γειά", "όχι"), ("שלום", "לא")]
)
def test_no_profile_filters_a_script_away(one: str, other: str) -> None:
    """A filter that keeps Latin letters, digits and Chinese makes any two such texts equal: a perfect score."""
    assert FILTERED_ELSEWHERE.sub("", one) == ""
    for name, rates in profile_rates([one], [other], profiles()).items():
        if name != "digits_only":
            assert rates.cer.length >= len(comparable(one)) - 1, name
            assert rates.cer.rate > 0.5, name


def test_nothing_is_clipped_at_one_nor_dropped_for_its_length() -> None:
    """Elsewhere a line costs at most its length, and one ten times too long is left out as an outlier."""
    card = card_of(("ты", "ты" * 100), ("я", "я"))
    assert card.adapter is not None
    assert card.adapter.cer == ErrorRate(198, 3)
    assert card.adapter.to_dict()["cer"] == 66.0
    assert card.averages["adapter"].macro_over_lines.cer == 49.5
    assert card.averages["adapter"].p90_line_cer == pytest.approx(0.9 * 99)
    assert card.profiles["without_case"]["adapter"].cer == ErrorRate(198, 3)
    assert (card.adapter.lines, card.adapter.failures["over_long"], card.adapter.failures["looping"]) == (2, 1, 1)
    assert "6600.00 %" in str(card)


def test_an_empty_prediction_costs_its_whole_reference_and_stays_in_every_count() -> None:
    card = card_of(("чернила", ""), ("перо", "перо"))
    assert card.adapter is not None
    assert card.adapter.cer == ErrorRate(7, 11)
    assert (card.adapter.lines, card.adapter.failures["empty"]) == (2, 1)
    assert card.averages["adapter"].macro_over_lines.count == 2
    assert card.characters["adapter"].deletions == 7


def test_an_interval_above_one_is_a_number() -> None:
    """Elsewhere it is 1.96 sqrt(CER (1 - CER) / lines), which has no value where the CER is above 1."""
    names = [f"w{n}" for n in range(28)]
    card = make_scorecard("test", None, scored(*[("ты", "ты" * n) for n in range(2, 30)], writers=names))
    assert card.interval is not None
    assert 1 < card.interval[0] < card.cer < card.interval[1] < math.inf
    json.dumps(card.to_dict(), allow_nan=False)


@pytest.mark.parametrize("form", ["NFC", "NFD", "NFKC"])
def test_a_prediction_in_another_normal_form_is_the_same_text(form: Literal["NFC", "NFD", "NFKC"]) -> None:
    text = "Йод, ёлка и её é"
    turned = unicodedata.normalize(form, text)
    card = card_of((text, turned), (turned, text))
    assert card.adapter is not None
    assert (card.adapter.cer.errors, card.adapter.exact) == (0, 2)
    assert card.characters["adapter"].substitutions == 0
    assert all(both["adapter"].cer.errors == 0 for both in card.profiles.values())
