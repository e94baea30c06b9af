"""The first words of a report need no statistics, and promise nothing about writers that nobody has seen."""

from dataclasses import replace

import pytest

from dsocr.evaluation.report.contents import unbroken
from dsocr.evaluation.report.plain_words import describe_in_words, one_in
from dsocr.evaluation.scorecard import Scorecard, make_scorecard
from tests.evaluation.making_runs import scored

TEXT = "съешь ещё этих мягких булок"


def card(writers: int, *, new: bool = True, wrong: int = 3) -> Scorecard:
    """A card of sixty lines; in every second one some letters are wrong."""
    pairs = ((TEXT, "x" * wrong * (n % 2) + TEXT[wrong * (n % 2) :]) for n in range(60))
    lines = scored(*pairs, writers=[f"w{n % writers}" for n in range(60)])
    return make_scorecard("test", None, [replace(line, writer_status="new" if new else "known") for line in lines])


@pytest.mark.parametrize(
    ("rate", "words"),
    [
        pytest.param(1 / 16, "1 letter in 16", id="some"),
        pytest.param(0.62, "62 of 100 letters", id="most"),
        pytest.param(1 / 4321, "1 letter in 4,300", id="few"),
    ],
)
def test_a_rate_is_one_in_so_many(rate: float, words: str) -> None:
    assert one_in(rate, "letter") == words


def test_the_result_names_its_writers_and_lines() -> None:
    curve = [{"share": n / 60, "rest": 0.05 - n / 2000, "found": n / 90} for n in range(61)]
    words = describe_in_words(card(7), {"budget": curve})
    text = " ".join(words)
    for part in ("1 letter in 18", "30 of 60 lines", "7 new writers, 60 lines", "least certain 10 %"):
        assert part in text
    assert "between" in text


@pytest.mark.parametrize(("writers", "new"), [(1, True), (4, True), (7, False)])
def test_nothing_is_promised_for_new_writers_without_five_of_them(writers: int, new: bool) -> None:
    assert not any("between" in sentence for sentence in describe_in_words(card(writers, new=new), None))


def test_no_errors_are_no_promise_of_none() -> None:
    """Of eight writers without an error, 5 % of such sets come from a population in which 31 % have some."""
    perfect = card(8, wrong=0)
    assert perfect.interval is None
    (sentence,) = perfect.uncertainty
    assert "31 % of all writers" in sentence
    assert describe_in_words(perfect, None)[0].startswith("All 60 lines")


def test_numbers_stay_with_their_units() -> None:
    assert unbroken("8.3 points, 95 % CI 5 to 6, p = 0.1, 6% of 3 lines").split(" ") == [
        *("8.3\u00a0points,", "95\u00a0%\u00a0CI", "5", "to", "6,", "p\u00a0=\u00a00.1,"),
        *("6\u00a0%", "of", "3", "lines"),
    ]
