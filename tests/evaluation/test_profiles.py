"""What each profile forgives, on both sides alike, and nothing else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsocr.document import Sample
from dsocr.evaluation.metrics import apart_word_errors, character_errors, word_errors
from dsocr.evaluation.profiles import Rates, profiles, rates_by_profile
from dsocr.evaluation.scores import LineScore, score_lines
from dsocr.text import TextPolicy, comparable
from tests.evaluation.test_scores import Read, line

PROFILES = {profile.name: profile for profile in profiles()}
TEXTS = st.text("абё Ѣъі5٣.,—> <\u0306\n", max_size=20) | st.text(max_size=12)


def scored(*pairs: tuple[str, str]) -> list[LineScore]:
    references: list[Sample] = [line(str(place), reference) for place, (reference, _) in enumerate(pairs)]
    return score_lines(references, {str(place): Read(prediction) for place, (_, prediction) in enumerate(pairs)})


@pytest.mark.parametrize(
    ("name", "text", "folded"),
    [
        pytest.param("raw", "Ёлка, №5", "Ёлка, №5", id="nothing"),
        pytest.param("without_case", "ЁЛКА Straße", "ёлка strasse", id="case, in every script"),
        pytest.param("without_punctuation", "«Да», — сказал он; как-то №5!", "Да сказал он както №5", id="signs"),
        pytest.param("without_punctuation", "привет", "привет", id="Cyrillic is no punctuation"),
        pytest.param("without_punctuation", "नमस्ते। 你好。", "नमस्ते 你好", id="other scripts' stops, not their marks"),
        pytest.param("yo_as_e", "Ёлка ещё", "Елка еще", id="ё"),
        pytest.param("pre_reform", "Въ мірѣ Ѳеодоръ, сѵнодъ", "В мире Феодор, синод", id="the old spelling"),
        pytest.param("pre_reform", "объѣздъ из-подъ ъ", "объезд из-под ъ", id="ъ inside a word stays"),
        pytest.param("digits_only", "5-го мая 1914 г.", "5 1914", id="numbers"),
        pytest.param("digits_only", "٣ и ½", "٣", id="digits of every script, no fractions"),
        pytest.param("without_struck", "это >того< было ~~не~~ там", "это было там", id="struck out"),
    ],
)
def test_what_a_profile_makes_of_a_text(name: str, text: str, folded: str) -> None:
    assert PROFILES[name].folded(["a1", comparable(text), "", "b2"])[1:3] == [folded, ""]


def test_struck_out_text_is_marked_as_the_run_marks_it() -> None:
    marks = TextPolicy(struck_marks=(("{", "}"),)).struck_marks
    assert {profile.name: profile for profile in profiles(marks)}["without_struck"].folded(["a {b} >c<"]) == ["a >c<"]


@given(st.lists(st.tuples(TEXTS, TEXTS), max_size=5))
def test_the_rates_are_the_metrics_of_the_folded_texts(pairs: list[tuple[str, str]]) -> None:
    lines = scored(*pairs) if pairs else []
    for name, by_model in rates_by_profile({"adapter": lines}).items():
        folded = [tuple(PROFILES[name].folded([comparable(text)])[0] for text in pair) for pair in pairs]
        for measure, rate in (
            (character_errors, by_model["adapter"].cer),
            (word_errors, by_model["adapter"].wer),
            (apart_word_errors, by_model["adapter"].apart),
        ):
            counted = [measure(*pair) for pair in folded]
            assert rate.errors == sum(one.errors for one in counted)
            assert rate.length == sum(one.length for one in counted)


@given(st.lists(TEXTS, min_size=1, max_size=6))
def test_texts_folded_together_are_folded_as_each_alone(texts: list[str]) -> None:
    texts = [comparable(text) for text in texts]
    for profile in PROFILES.values():
        assert profile.folded(texts) == [profile.folded([text])[0] for text in texts]


def test_raw_is_what_the_score_counts_and_survives_json() -> None:
    lines = scored(("Да, я", "да я"), ("ёлка", "елка"))
    rates = rates_by_profile({"base": lines})
    assert rates["raw"]["base"].cer.errors == sum(one.cer.errors for one in lines) == 3
    assert rates["without_case"]["base"].cer.errors == 2
    assert rates["yo_as_e"]["base"].cer.errors == 2
    assert rates["digits_only"]["base"].as_dict()["cer"] == 0.0
    assert all(Rates.from_dict(one["base"].as_dict()) == one["base"] for one in rates.values())
