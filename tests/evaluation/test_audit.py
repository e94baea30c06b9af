"""Judging lines by the probabilities of their texts, with a reader that is simulated: each wrong letter costs."""

import math
import random
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rapidfuzz.distance import Levenshtein

from dsocr.document import Sample, Split
from dsocr.evaluation.audit import (
    DRAWN,
    FIRST,
    ReadSample,
    WordDifference,
    WrongTexts,
    differences_of,
    judge,
    places_to_judge,
    plant_mistakes,
    rank_lines,
    texts_to_score,
    weigh,
)

WORDS = ["le", "chat", "noir", "dort", "sous", "la", "grande", "table", "du", "salon", "que", "une", "pluie", "froide"]


def simulate(count: int, seed: int) -> tuple[list[Sample], list[str]]:
    """Lines of twelve writers, some of them hard to read, and what is read of them."""
    draw = random.Random(seed)
    samples, readings = [], []
    for number in range(count):
        writer = number * 12 // count
        text = " ".join(draw.choice(WORDS) for _ in range(draw.randint(4, 9)))
        wrong = 0.01 + 0.08 * (writer % 4 == 3)
        read = "".join(draw.choice("aeinrst") if draw.random() < wrong else letter for letter in text)
        page = f"{writer}-{number // 20}"
        samples.append(Sample(f"test/{number}", Path("a.png"), text, Split.TEST, writer=str(writer), page=page))
        readings.append(read)
    return samples, readings


def read_all(samples: list[Sample], readings: list[str]) -> list[ReadSample]:
    """What a model that read these texts says of them, whatever is given."""
    lines = []
    for sample, read, planted in zip(samples, readings, plant_mistakes(samples), strict=True):
        texts = texts_to_score(read, read, [sample.text, *planted])
        likelihoods = {text: -1.0 - 6.0 * Levenshtein.distance(text, read) for text in texts}
        lines.append(ReadSample(sample, read, read, planted, likelihoods, {}))
    return lines


SAMPLES, READINGS = simulate(400, 3)


def given(place: int, text: str) -> Sample:
    return replace(SAMPLES[place], text=text)


def test_spoiled_lines_come_first() -> None:
    samples, draw = list(SAMPLES), random.Random(5)
    wrong = draw.sample(range(400), 16)
    for place in wrong[:8]:
        samples[place] = given(place, SAMPLES[(place + 200) % 400].text)
    for place in wrong[8:]:
        samples[place] = given(place, SAMPLES[place].text.split(" ", 2)[2])
    first = np.argsort(-judge(read_all(samples, READINGS)))[:32].tolist()
    assert len(set(first) & set(wrong)) >= 14


def test_suspects_that_nobody_accepted_come_before_the_others(tmp_path: Path) -> None:
    samples = [replace(sample, aligned=0.95 if place % 2 else None) for place, sample in enumerate(SAMPLES)]
    for place in (10, 11, 20, 21):
        samples[place] = replace(samples[place], text=SAMPLES[place + 200].text)
    lines = rank_lines(read_all(samples, READINGS), name="set", folder=tmp_path).lines
    assert {line.sample.id for line in lines[:2]} == {"test/11", "test/21"}
    unaccepted = [line.sample.aligned is not None for line in lines]
    suspects = [line.score > 0 for line in lines]
    first = sum(both for both in map(all, zip(unaccepted, suspects, strict=True)))
    assert all(unaccepted[:first])
    assert {"test/10", "test/20"} <= {line.sample.id for line in lines[first : first + 4]}
    rest = [line.score for line in lines[first:]]
    assert rest == sorted(rest, reverse=True), "aligned texts that fit are not suspected"
    assert any(unaccepted[first:])


def test_the_number_of_wrong_texts_is_said_when_a_sample_was_judged() -> None:
    first, drawn = places_to_judge(1000)
    assert (len(first), len({*first, *drawn})) == (FIRST, FIRST + DRAWN)
    judged = {place: place < 5 or place in drawn[-3:] for place in (*first, *drawn)}
    assert WrongTexts.of(1000, dict(list(judged.items())[: FIRST - 1])) is None, "one of the first is missing"
    begun = WrongTexts.of(1000, dict(list(judged.items())[:FIRST]) | {drawn[1]: True})
    assert begun is not None
    assert (begun.drawn, begun.interval) == (0, (5, 985)), "what was drawn counts in the order it was drawn in"
    assert drawn != sorted(drawn), "so that its first part is a sample, too"
    count = WrongTexts.of(1000, judged)
    assert count is not None
    assert (count.first_wrong, count.drawn_wrong) == (5, 3)
    # Clopper and Pearson's interval of 3 of 30, as tables have it: 2.11 to 26.53 %.
    assert count.interval == (5 + 20, 5 + 260)
    assert WrongTexts.of(40, dict.fromkeys(range(40), True)).interval == (40, 40), "all were judged"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("texts", "why"),
    [
        pytest.param(
            ["b c d e f", "le chat noir dort"], "the text of a line nearby, page 1, line 1 of a.xml", id="swapped"
        ),
        pytest.param(["tout autre chose encore", "b c d e f"], "the text of another line", id="other image"),
        pytest.param(["le ch\u0430t noir dort", "b c d e f"], "a letter of another script", id="Cyrillic a"),
        pytest.param(["le chat noyr dort", "b c d e f"], "read in another way", id="spelling"),
        pytest.param(["le chat noir dort", "b c d e f"], "read as it is given", id="none"),
    ],
)
def test_why_a_text_may_be_wrong(texts: list[str], why: str, tmp_path: Path) -> None:
    samples = [
        Sample(f"test/{n}", Path("a.png"), text, Split.TEST, page="1", source=f"a.xml:{n}")
        for n, text in enumerate(texts)
    ]
    lines = rank_lines(read_all(samples, ["le chat noir dort", "b c d e f"]), name="set", folder=tmp_path).lines
    assert {line.sample.id: line.why for line in lines}["test/0"] == why


def test_differences_are_whole_words_with_what_they_gain() -> None:
    sample = Sample("test/0", Path("a.png"), "le chat nair dort la", Split.TEST)
    (line,) = read_all([sample], ["le chat noir dort sous la"])
    assert differences_of(line, sample.text) == [WordDifference("", "sous", 30.0), WordDifference("nair", "noir", 6.0)]
    assert ReadSample.from_dict(line.to_dict(), sample).likelihoods == line.likelihoods


def test_evidence_is_eased_by_the_writer_and_the_language_model_counts_half() -> None:
    sample = Sample("test/0", Path("a.png"), "le chat dort", Split.TEST)
    (line,) = read_all([sample], ["le chat noir dort"])  # 30 likelier than the text, all of it by the missing word
    line = replace(line, language={line.read: -10.0, sample.text: -14.0})
    easy, hard = (weigh(line, sample.text, hardness) for hardness in (0.0, 0.9))
    assert easy.missing == hard.missing == pytest.approx(math.log1p(30))
    assert (easy.missing_eased, hard.missing_eased) == pytest.approx((math.log1p(30), math.log1p(3)))
    assert easy.both == pytest.approx(math.log1p(30 + 4 / 2) / 0.3)
    assert (easy.language, easy.against) == pytest.approx((math.log1p(4), 0.0))


PLANTED = [
    (mistake, sample.text) for sample, own in zip(SAMPLES, plant_mistakes(SAMPLES), strict=True) for mistake in own
]


def test_planted_mistakes_are_wrong_and_always_the_same() -> None:
    assert [mistake for own in plant_mistakes(SAMPLES) for mistake in own] == [mistake for mistake, _ in PLANTED]
    assert all(mistake != text for mistake, text in PLANTED)
    assert len(PLANTED) > 1.9 * len(SAMPLES)


def words_more(text: str, given: str) -> int:
    return len(text.split()) - len(given.split())


@pytest.mark.parametrize(
    ("matches", "share"),
    [
        pytest.param(lambda text, given: text in {sample.text for sample in SAMPLES}, 0.3, id="of another line"),
        pytest.param(lambda text, given: {*given.split()} > {*text.split()}, 0.05, id="a word missing"),
        pytest.param(
            lambda text, given: words_more(text, given) == 1 and {*given.split()} <= {*text.split()},
            0.1,
            id="a word added",
        ),
        pytest.param(lambda text, given: re.search("[а-я]", text), 0.1, id="another script"),
        pytest.param(lambda text, given: text.casefold() == given.casefold(), 0.005, id="a capital"),
        pytest.param(lambda text, given: text.rstrip(".,") == given and text != given, 0.005, id="a sign"),
        pytest.param(
            lambda text, given: Levenshtein.distance(text, given) == 1 and text.isascii(), 0.05, id="a letter"
        ),
        pytest.param(
            lambda text, given: 1 < Levenshtein.distance(text, given) <= 4 and not words_more(text, given),
            0.005,
            id="an ending",
        ),
    ],
)
def test_mistakes_of_all_kinds_are_planted(matches: Callable[[str, str], bool], share: float) -> None:
    assert sum(bool(matches(*pair)) for pair in PLANTED) > share * len(PLANTED)
