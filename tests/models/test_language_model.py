"""The character n-gram and the beam search with it."""

import itertools
import math
from pathlib import Path

import numpy as np
import pytest

from dsocr.models.language_model import FILE, ORDER, LanguageModel, align, read_texts, search
from tests.raising import raises_code

LETTERS = "abc"


def drawn(steps: int, seed: int, sharpness: float = 1.0) -> np.ndarray:
    logits = np.random.default_rng(seed).normal(size=(steps, len(LETTERS) + 1)) * sharpness
    odds = np.exp(logits)
    shares: np.ndarray = (odds / odds.sum(1, keepdims=True)).astype(np.float32)
    return shares


def collapse(path: tuple[int, ...]) -> str:
    runs = [index for index, _ in itertools.groupby(path)]
    return "".join(LETTERS[index - 1] for index in runs if index)


@pytest.mark.parametrize("seed", range(8))
def test_search_finds_the_text_with_the_most_probable_paths(seed: int) -> None:
    probabilities = drawn(6, seed)
    totals: dict[str, float] = {}
    for path in itertools.product(range(4), repeat=6):
        likelihood = float(np.prod([row[index] for row, index in zip(probabilities, path, strict=True)]))
        totals[collapse(path)] = totals.get(collapse(path), 0.0) + likelihood
    assert search(probabilities, LETTERS, 5000) == max(totals, key=lambda text: totals[text])


@pytest.mark.parametrize("seed", range(4))
def test_align_finds_the_best_path_of_a_text(seed: int) -> None:
    probabilities = drawn(7, seed, sharpness=2)
    for text in ("ab", "aab", "abcc"):
        paths = [path for path in itertools.product(range(4), repeat=7) if collapse(path) == text]
        best = max(paths, key=lambda path: np.prod([row[i] for row, i in zip(probabilities, path, strict=True)]))
        found = align(probabilities, [LETTERS.index(letter) + 1 for letter in text])
        runs = [list(run) for index, run in itertools.groupby(enumerate(best), lambda pair: pair[1]) if index]
        for run, probability, position in zip(runs, *found, strict=True):
            highest = max(run, key=lambda pair: probabilities[pair])
            assert probability == pytest.approx(float(probabilities[highest]))
            assert position == pytest.approx((highest[0] + 0.5) / 7)


def test_what_may_follow_has_the_probability_one() -> None:
    model = LanguageModel.fit(["abcab", "abba", "c"])
    unseen = 1 / (len("abc\n") + 1)  # of a character that the texts do not have
    for before in ("", "ab", "abc", "zz", "abcabc"):
        shares = [np.exp(model.log_probability(c, before)) * np.exp(_unigram(model, c)) for c in "abc\n"]
        assert 1 - unseen < sum(shares) < 1


def test_probabilities_are_interpolated_as_by_witten_and_bell() -> None:
    """A context with two kinds of followers gives what is shorter a weight of two."""
    model = LanguageModel.fit(["ab", "ac"])
    anywhere = expected = (1 + 4 / 5) / (6 + 4)  # b is one of six characters, of four kinds
    for _ in range(ORDER - 1):  # "a", and "a" behind more and more of the line's start
        expected = (1 + 2 * expected) / (2 + 2)
    assert model.log_probability("b", "a") == pytest.approx(math.log(expected / anywhere))


def _unigram(model: LanguageModel, character: str) -> float:
    counts = model.followers[""]
    uniform = 1 / (len(counts) + 1)
    return float(np.log((counts[character] + len(counts) * uniform) / (sum(counts.values()) + len(counts))))


@pytest.mark.parametrize("spelling", ["estoit", "estait"])
def test_the_spelling_of_the_archive_wins(spelling: str) -> None:
    """The network cannot tell `o` from `a`, and the model knows the texts of the archive only."""
    letters = "estoia"
    probabilities = np.full((12, len(letters) + 1), 0.001, dtype=np.float32)
    for place, letter in enumerate(spelling):
        probabilities[2 * place, letters.index(letter) + 1] = 0.99
        probabilities[2 * place + 1, 0] = 0.99
    probabilities[6, [letters.index("o") + 1, letters.index("a") + 1]] = 0.5
    model = LanguageModel.fit([spelling] * 3)
    assert search(probabilities, letters, 8, model, weight=0.5) == spelling


def test_a_stored_model_is_the_same(tmp_path: Path) -> None:
    model = LanguageModel.fit(["il estoit", "une fois"])
    model.weight, model.gain = 0.3, (0.2, 0.1)
    (tmp_path / FILE).write_text(model.to_json(), encoding="utf-8")
    loaded = LanguageModel.load(tmp_path)
    assert loaded is not None
    assert (loaded.weight, loaded.gain) == (0.3, (0.2, 0.1))
    assert loaded.log_probability("t", "il esto") == model.log_probability("t", "il esto")
    assert max(map(len, loaded.followers)) == ORDER - 1


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"followers": {"a": 1}, "weight": 1, "gain": [0, 0]}'])
def test_damaged_models_are_errors(content: str, tmp_path: Path) -> None:
    assert LanguageModel.load(tmp_path) is None
    (tmp_path / FILE).write_text(content, encoding="utf-8")
    with raises_code("language-model-invalid"):
        LanguageModel.load(tmp_path)


def test_texts_are_read_as_lines(tmp_path: Path) -> None:
    file = tmp_path / "letters.txt"
    file.write_text("Une  lettre\u00a0\n\ne\u0301crite\n", encoding="utf-8")
    assert read_texts(file) == ["Une lettre", "\u00e9crite"]
    file.write_bytes(b"\xff\xfe")
    for path in (file, tmp_path / "none.txt"):
        with raises_code("language-model-text"):
            read_texts(path)
