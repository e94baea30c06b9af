"""Known mistakes of other scoring programs; each test fails if this one makes them too."""

import json
import math
import random
import re
import statistics
import unicodedata
from dataclasses import replace
from itertools import pairwise
from typing import Literal

import jiwer
import pytest

from dsocr.evaluation.metrics import ErrorRate, character_errors, profile_rates, profiles, word_errors
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


def test_a_missing_space_costs_in_every_profile_that_keeps_words() -> None:
    for name, rates in profile_rates(["раз два"], ["раздва"], profiles()).items():
        if name != "digits_only":
            assert rates.cer == ErrorRate(1, 7), name
            assert rates.wer == ErrorRate(2, 2), name


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


def test_the_mean_of_lines_never_goes_by_the_name_of_cer() -> None:
    pairs = [("я", "ты"), ("привет, как у тебя дела сегодня?", "привет, как у тебя дела сегодня?")]
    card = card_of(*pairs)
    macro = statistics.mean(jiwer.cer(*pair) for pair in pairs)
    values = card.to_dict()
    assert values["adapter"]["cer"] == jiwer.cer(*map(list, zip(*pairs, strict=True))) == 2 / 33
    assert values["averages"]["adapter"]["macro_over_lines"]["cer"] == macro == 1.0

    def keys(value: object, path: str = "") -> list[str]:
        if isinstance(value, dict):
            return [found for key, inner in value.items() for found in keys(inner, f"{path}.{key}")]
        return [path] if value == macro and path.endswith("cer") and not path.endswith("line_cer") else []

    found = keys({name: values[name] for name in ("adapter", "averages", "profiles")})
    assert found == [".averages.adapter.macro_over_lines.cer"]
    rows = [row.split() for row in str(card).splitlines()]
    assert ["CER", "-", "6.06", "%"] in rows
    assert ["macro", "average", "over", "lines", "-", "100.00", "%"] in rows


def test_an_interval_above_one_is_a_number() -> None:
    """Elsewhere it is 1.96 sqrt(CER (1 - CER) / lines), which has no value where the CER is above 1."""
    names = [f"w{n}" for n in range(28)]
    card = make_scorecard("test", None, scored(*[("ты", "ты" * n) for n in range(2, 30)], writers=names))
    assert card.interval is not None
    assert 1 < card.interval[0] < card.cer < card.interval[1] < math.inf
    json.dumps(card.to_dict(), allow_nan=False)


def test_lines_of_one_writer_do_not_make_an_interval_narrow() -> None:
    """Elsewhere every line counts for itself, though errors of one writer are correlated."""
    texts = [("абвгдежзик", "абвгдежзик" if writer % 2 else "ABCDEFзик") for writer in range(20) for _ in range(50)]
    lines = scored(*texts)
    by_writer = [replace(line, writer=f"w{place // 50}") for place, line in enumerate(lines)]
    narrow, wide = (make_scorecard("test", None, some).interval for some in (lines, by_writer))
    assert narrow is not None
    assert wide is not None
    assert wide[1] - wide[0] > 5 * (narrow[1] - narrow[0])


def distance(one: str | list[str], other: str | list[str]) -> int:
    """The plain dynamic program, a row at a time."""
    row = list(range(len(other) + 1))
    for place, left in enumerate(one, start=1):
        above, row = row, [place]
        for (diagonal, up), right in zip(pairwise(above), other, strict=True):
            row.append(min(diagonal + (left != right), up + 1, row[-1] + 1))
    return row[-1]


RANGES = (
    (0x20, 0x7E),
    (0x410, 0x451),
    (0x410, 0x451),
    (0x300, 0x30F),
    (0x20, 0x2F),
    (0x4E00, 0x4E10),
    (0x1F600, 0x1F60F),
    (0, 0xD7FF),
)


def unicode_text(chance: random.Random) -> str:
    """Up to 24 characters of one or more scripts, in one of a hundred up to 400; one in twelve is empty."""
    if chance.random() < 0.08:
        return ""
    length = chance.randint(1, 400 if chance.random() < 0.01 else 24)
    ranges = chance.sample(RANGES, k=chance.randint(1, 3))
    text = "".join(chr(chance.randint(*chance.choice(ranges))) for _ in range(length))
    return text if chance.random() < 0.5 else re.sub(r"[aeiouаеио\W]", " ", text)


def test_ten_thousand_pairs_have_the_errors_that_jiwer_and_a_plain_program_count() -> None:
    chance = random.Random(20)
    pairs = []
    for _ in range(10_000):
        reference = unicode_text(chance)
        changed = "".join(chance.choice(("", one, one, one * 2, "и")) for one in reference)
        pairs.append((comparable(reference), comparable(chance.choice((changed, unicode_text(chance))))))
    characters = [character_errors(*pair) for pair in pairs]
    words = [word_errors(*pair) for pair in pairs]
    assert sum(not reference for reference, _ in pairs) > 300
    assert max(len(reference) for reference, _ in pairs) > 300

    # The plain program is most of what this test takes, so the longest pairs are left to jiwer.
    short = [place for place, pair in enumerate(pairs) if len(pair[0]) * len(pair[1]) < 700]
    assert len(short) > 9_500
    assert [characters[place].errors for place in short] == [distance(*pairs[place]) for place in short]
    split = [(reference.split(), prediction.split()) for reference, prediction in pairs]
    assert [rate.errors for rate in words] == [distance(*pair) for pair in split]
    for ours, process, length in (
        (characters, jiwer.process_characters, len),
        (words, jiwer.process_words, lambda text: len(text.split())),
    ):
        theirs = process(*map(list, zip(*pairs, strict=True)))
        pooled = sum(ours, ErrorRate())
        assert pooled.errors == theirs.substitutions + theirs.deletions + theirs.insertions
        assert pooled.length == theirs.hits + theirs.substitutions + theirs.deletions
        assert [rate.length for rate in ours] == [length(reference) for reference, _ in pairs]


@pytest.mark.parametrize(("reference", "prediction"), [("", "да"), ("аб" * 10_000, "ба" * 9_000), ("а", "б" * 20_000)])
def test_empty_and_very_long_pairs_are_counted_as_jiwer_does(reference: str, prediction: str) -> None:
    theirs = jiwer.process_characters(reference, prediction)
    assert character_errors(reference, prediction).errors == theirs.substitutions + theirs.deletions + theirs.insertions


@pytest.mark.parametrize("form", ["NFC", "NFD", "NFKC"])
def test_a_prediction_in_another_normal_form_is_the_same_text(form: Literal["NFC", "NFD", "NFKC"]) -> None:
    text = "Йод, ёлка и её é"
    turned = unicodedata.normalize(form, text)
    card = card_of((text, turned), (turned, text))
    assert card.adapter is not None
    assert (card.adapter.cer.errors, card.adapter.exact) == (0, 2)
    assert card.characters["adapter"].substitutions == 0
    assert all(both["adapter"].cer.errors == 0 for both in card.profiles.values())
