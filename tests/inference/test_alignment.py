"""Tests of aligning lines with a text: which part stands in which line, and what is in none."""

import random
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsocr.inference.alignment import AlignedLine, Anchors, align_lines
from dsocr.inference.line_fits import LineFit, ReadingFit, StepFit, Text

LETTERS = " -abcdefghijklmnopqrstuvwxyz"
CLASSES = {letter: number for number, letter in enumerate(LETTERS, 1)}
LINES = (
    "the first line of a letter that was written",
    "in the spring of that year by a merchant who",
    "had been away from home for longer than a",
    "month and hoped to be back before the hay",
    "was brought in and his brother had married",
)
NOTE = "editor: see the other copy kept with papers of the family and its index of names"


def fit(text: str, *, noise: float = 0.2, seed: int = 1) -> StepFit:
    """Return the fit of a line that a reader without much doubt reads: two steps a letter and a blank between."""
    rng = np.random.default_rng(seed)
    steps = np.full((3 * len(text), len(LETTERS) + 1), 0.001, np.float32)
    for place, letter in enumerate(text):
        steps[3 * place, CLASSES[letter]] = steps[3 * place + 1, CLASSES[letter]] = 1.0
        steps[3 * place + 2, 0] = 1.0
    steps += noise * rng.random(steps.shape, np.float32) ** 8
    steps /= steps.sum(1, keepdims=True)
    return StepFit(text, steps)


def fits(*lines: str, by_steps: bool = True) -> list[LineFit]:
    return [fit(line, seed=seed) if by_steps else ReadingFit(line) for seed, line in enumerate(lines)]


def texts(aligned: list[AlignedLine]) -> list[str]:
    return [line.text for line in aligned]


OTHER = "quite another hand wrote this upside down"
DIVIDED = ("he went to the mar-", "ket and bought a horse for his bro", "ther who had none")
BY_BOTH = [
    pytest.param(LINES, " ".join(LINES), LINES, id="the lines"),
    pytest.param(LINES, " ".join([NOTE, *LINES[:2], NOTE, *LINES[2:], NOTE]), LINES, id="text that no line has"),
    pytest.param(
        [*LINES[:2], OTHER, *LINES[2:]], " ".join(LINES), [*LINES[:2], "", *LINES[2:]], id="a line without text"
    ),
]
BY_STEPS = [
    pytest.param(
        DIVIDED,
        "he went to the market and bought a horse for his brother who had none",
        [line.rstrip("-") for line in DIVIDED],
        id="divided words",
    ),
    pytest.param(
        LINES[:4],
        f"{LINES[0]}. {LINES[1]} ({LINES[2]}), {LINES[3]}",
        [f"{LINES[0]}.", LINES[1], f"({LINES[2]}),", LINES[3]],
        id="punctuation stays with its word",
    ),
    pytest.param(
        LINES[:2], f'{LINES[0]} ..."{LINES[1]}', [LINES[0], f'..."{LINES[1]}'], id="punctuation before a word"
    ),
    pytest.param(LINES[:2], f"{LINES[0]}—{LINES[1]}", [f"{LINES[0]}—", LINES[1]], id="punctuation between words"),
    pytest.param([*LINES[3:], *LINES[:3]], " ".join(LINES), [*LINES[3:], *LINES[:3]], id="another order"),
    pytest.param(LINES[:1], LINES[0].replace("first", "fi®st"), [LINES[0].replace("first", "fi®st")], id="no class"),
    pytest.param(LINES[:2], "  \n ", ["", ""], id="white space"),
    pytest.param(LINES[:2], "", ["", ""], id="nothing"),
]


@pytest.mark.parametrize(("lines", "text", "expected"), BY_STEPS + BY_BOTH)
def test_each_line_gets_its_part_of_the_text(lines: Sequence[str], text: str, expected: Sequence[str]) -> None:
    assert texts(align_lines(fits(*lines), text, CLASSES)) == list(expected)


@pytest.mark.parametrize(("lines", "text", "expected"), BY_BOTH)
def test_readings_are_enough_for_whole_lines(lines: Sequence[str], text: str, expected: Sequence[str]) -> None:
    assert texts(align_lines(fits(*lines, by_steps=False), text, CLASSES)) == list(expected)


@pytest.mark.parametrize("by_steps", [True, False])
def test_clear_lines_are_certain(by_steps: bool) -> None:
    aligned = align_lines(fits(*LINES[:3], by_steps=by_steps), " ".join(LINES[:3]), CLASSES)
    assert all(line.posterior > 0.95 for line in aligned)


@pytest.mark.parametrize("by_steps", [True, False])
def test_a_page_break_of_the_edition_inside_a_line_is_omitted(by_steps: bool) -> None:
    first, _, second = LINES[2].partition(" home ")
    second = f"home {second}"
    text = " ".join([*LINES[:2], first, NOTE, second, *LINES[3:]])
    aligned = align_lines(fits(*LINES, by_steps=by_steps), text, CLASSES)
    assert texts(aligned) == list(LINES)
    gap = aligned[2].gap
    assert gap is not None
    assert text[slice(*gap)].strip() == NOTE


def test_a_line_that_was_found_unsurely_is_looked_for_farther_away() -> None:
    """What is read leads to a part that fits half, as an edition's table of contents may; the line is 160 away."""
    changed = random.Random(3).sample([place for place, letter in enumerate(LINES[1]) if letter != " "], 12)
    decoy = "".join("q" if place in changed else letter for place, letter in enumerate(LINES[1]))
    lines = fits(*LINES[:3])
    lines[1] = replace(fit(LINES[1], seed=1), reading=decoy)
    text = " ".join([LINES[0], decoy, NOTE, NOTE, LINES[1], NOTE, LINES[2]])
    assert texts(align_lines(lines, text, CLASSES)) == list(LINES[:3])


def test_a_text_of_something_else_is_given_to_no_line() -> None:
    other = "gravel quartz and lime were dug below clifftops whose ebb drew muddy foxes quickly towards jetties"
    aligned = align_lines(fits(*LINES), other, CLASSES)
    assert max(line.score for line in aligned) < 0.5


def test_a_word_that_is_missing_in_the_text_makes_its_line_doubtful() -> None:
    text = " ".join(LINES).replace("longer ", "")
    scores = [line.score for line in align_lines(fits(*LINES), text, CLASSES)]
    assert scores[2] == min(scores)
    assert scores[2] < 0.5 < min(scores[:2] + scores[3:])


def test_a_line_that_nothing_is_read_on_gets_no_text() -> None:
    lines = fits(*LINES[:2])
    blank = np.zeros((20, len(LETTERS) + 1), np.float32)
    blank[:, 0] = 1.0
    assert texts(align_lines([lines[0], StepFit("", blank), lines[1]], " ".join(LINES[:2]), CLASSES))[1] == ""


@given(st.text(LETTERS, min_size=1, max_size=6), st.integers(0, 5))
@settings(max_examples=20, deadline=None)
def test_scores_of_parts_are_those_of_all_paths(part: str, seed: int) -> None:
    steps = np.random.default_rng(seed).random((8, len(LETTERS) + 1), np.float32)
    steps /= steps.sum(1, keepdims=True)
    scores, _ = StepFit(part, steps).score_parts(Text("zz" + part, CLASSES), np.array([2]), len(part))
    paths = np.zeros(2 * len(part) + 1)
    states = [0, *(state for letter in part for state in (CLASSES[letter], 0))]
    raised = steps.astype(np.float64) + 1e-5
    paths[:2] = raised[0, states[:2]]
    for step in raised[1:]:
        before = paths.copy()
        for place, state in enumerate(states):
            paths[place] = before[max(place - 1, 0) : place + 1].sum()
            if place > 1 and state and state != states[place - 2]:
                paths[place] += before[place - 2]
            paths[place] *= step[state]
    with np.errstate(divide="ignore"):
        expected = np.log(paths[-1] + paths[-2]) - np.log(raised.max(1)).sum()
    if np.isfinite(expected):
        assert scores[0, -1] == pytest.approx(expected)
    else:
        assert scores[0, -1] < -1e20


@given(st.text("ab", max_size=6), st.text("abc", min_size=1, max_size=8))
def test_a_reading_costs_its_edits(reading: str, part: str) -> None:
    from rapidfuzz.distance import Levenshtein

    scores, _ = ReadingFit(reading).score_parts(Text(part, {}), np.array([0]), len(part))
    assert [-score / 2 for score in scores[0]] == [
        Levenshtein.distance(reading, part[:end]) for end in range(len(part) + 1)
    ]


def test_a_page_is_found_in_a_long_text() -> None:
    rng = random.Random(5)
    words = ["".join(rng.choices(LETTERS[2:], k=rng.randint(2, 9))) for _ in range(600)]
    pages = [" ".join(rng.choices(words, k=120)) for _ in range(40)]
    whole = "\n".join(pages)
    start = whole.index(pages[17])
    reading = "".join(letter if rng.random() > 0.3 else rng.choice(LETTERS) for letter in pages[17])
    found = Anchors(whole).find(reading)
    assert found is not None
    begin, end, clear = found
    assert begin <= start < start + len(pages[17]) <= end < begin + 3 * len(pages[17])
    assert clear > 2


def test_rare_groups_of_letters_decide_where_a_page_is() -> None:
    """An index repeats the formula of the page thirty times; the page itself has it once."""
    rng = random.Random(6)
    formula = "before the undersigned notary came in person "
    page = formula + "".join(rng.choices(LETTERS[2:], k=80))
    rest = ["".join(rng.choices(LETTERS[2:], k=4000)) for _ in range(3)]
    whole = rest[0] + page + rest[1] + formula * 30 + rest[2]
    found = Anchors(whole).find(page)
    assert found is not None
    assert found[0] <= len(rest[0]) < len(rest[0]) + len(page) <= found[1] < len(rest[0]) + 1000


def test_a_page_that_is_not_in_the_text_is_not_found_clearly() -> None:
    assert Anchors("aaaa bbbb").find("xyzw") is None
