"""The character n-gram and the beam search with it."""

import itertools
import math
from pathlib import Path

import numpy as np
import pytest

from dsocr.models.language_model import FILE, ORDER, LanguageModel, read_other_texts, score_letters, search
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


def texts_by_paths(probabilities: np.ndarray) -> dict[str, float]:
    totals: dict[str, float] = {}
    for path in itertools.product(range(len(LETTERS) + 1), repeat=len(probabilities)):
        likelihood = float(np.prod([row[index] for row, index in zip(probabilities, path, strict=True)]))
        totals[collapse(path)] = totals.get(collapse(path), 0.0) + likelihood
    return totals


@pytest.mark.parametrize("seed", range(6))
def test_search_finds_the_text_with_the_most_probable_paths(seed: int) -> None:
    probabilities = drawn(5, seed)
    totals = texts_by_paths(probabilities)
    assert search(probabilities, LETTERS, 5000) == max(totals, key=lambda text: totals[text])


@pytest.mark.parametrize("weight", [0.0, 0.7])
def test_a_letter_is_as_likely_as_its_text_among_those_that_differ_there(weight: float) -> None:
    """Summed over every path by hand; the windows in which letters compete are the whole line here."""
    model = LanguageModel.fit(["abcab", "abba", "cac"])
    for seed, text in itertools.product(range(3), ("", "b", "aa", "abc", "bab")):
        probabilities = drawn(5, seed, sharpness=0.2)
        likely = {
            other: total * math.exp(weight * model.score(other))
            for other, total in texts_by_paths(probabilities).items()
        }
        classes = [LETTERS.index(letter) + 1 for letter in text]
        found = score_letters(probabilities, classes, LETTERS, model, weight)
        for place, got in enumerate(found.log_probabilities):
            changed = {text[:place] + letter + text[place:] for letter in LETTERS}
            if place < len(text):
                changed |= {text[:place] + letter + text[place + 1 :] for letter in ("", *LETTERS)} - {text}
            least = likely[text] / (likely[text] + sum(likely[other] for other in changed))
            assert least - 1e-6 <= math.exp(got) <= 1, "windows can only leave competitors out"
            if len(text) == 1 and not place:
                without = sum(likely[other] for other in changed if len(other) < 2)
                assert math.exp(got) <= likely[text] / (likely[text] + without) + 1e-6
    assert score_letters(drawn(3, 0), [], LETTERS).positions == []


def test_letters_that_the_language_model_chose_are_not_impossible() -> None:
    """The network prefers `e` by odds of up to a million; the model knows that it is `a`."""
    model = LanguageModel.fit(["bad cat", "a cat sat"] * 9)
    letters = "abcdest "
    for odds in (0, 2, 5, 14):
        probabilities = np.full((14, len(letters) + 1), 1e-9)
        for place, letter in enumerate("bad cat"):
            probabilities[2 * place, letters.index(letter) + 1] = 1.0
            probabilities[2 * place + 1, 0] = 1.0
        probabilities[2, [letters.index("a") + 1, letters.index("e") + 1]] = 1 / (1 + math.exp(odds)), 1.0
        probabilities /= probabilities.sum(1, keepdims=True)
        classes = [letters.index(letter) + 1 for letter in "bad cat"]
        alone, with_model = (
            score_letters(probabilities.astype(np.float32), classes, letters, model, weight).log_probabilities[1]
            for weight in (0.0, 1.0)
        )
        assert alone == pytest.approx(-math.log1p(math.exp(odds)), abs=0.7), "as the network has it"
        assert with_model > alone + 0.3


def test_letters_are_where_the_network_sees_them() -> None:
    probabilities = np.full((9, 4), 0.01, dtype=np.float32)
    for step, number in enumerate([0, 1, 1, 0, 1, 2, 0, 0, 3]):
        probabilities[step, number] = 0.8 if step != 1 else 0.6
    found = score_letters(probabilities, [1, 1, 2, 3], LETTERS)
    assert found.positions == pytest.approx([2.5 / 9, 4.5 / 9, 5.5 / 9, 8.5 / 9])
    assert min(found.log_probabilities) > math.log(0.8)


def test_probabilities_are_interpolated_as_by_witten_and_bell() -> None:
    """A context with two kinds of followers gives what is shorter a weight of two."""
    model = LanguageModel.fit(["ab", "ac"])
    anywhere = expected = (1 + 4 / 5) / (6 + 4)  # b is one of six characters, of four kinds
    for _ in range(ORDER - 1):  # "a", and "a" behind more and more of the line's start
        expected = (1 + 2 * expected) / (2 + 2)
    assert model.log_probability("b", "a") == pytest.approx(math.log(expected / anywhere))


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


def test_a_model_is_read_again_only_if_its_file_has_changed(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text(LanguageModel.fit(["il estoit"]).to_json(), encoding="utf-8")
    first = LanguageModel.load(tmp_path)
    assert first is not None
    first.weight = 0.9
    second = LanguageModel.load(tmp_path)
    assert second is not None
    assert second.followers is first.followers
    assert second.weight == 0
    (tmp_path / FILE).write_text(LanguageModel.fit(["une fois"]).to_json(), encoding="utf-8")
    third = LanguageModel.load(tmp_path)
    assert third is not None
    assert "e" not in third.followers["u"]
    assert "n" in third.followers["u"]


@pytest.mark.parametrize(
    "content",
    [
        *("", "[]", "{}", '{"followers": {"a": 1}, "weight": 1, "gain": [0, 0]}'),
        pytest.param('{"weight":0,"gain":[0,0],"followers":{\n"b":{"a":1},\n"a":{"b":1}\n}}', id="not sorted"),
        pytest.param('{"weight":0,"gain":[0,0],"followers":{\n"a":{"b":1}', id="cut"),
    ],
)
def test_damaged_models_are_errors(content: str, tmp_path: Path) -> None:
    assert LanguageModel.load(tmp_path) is None
    (tmp_path / FILE).write_text(content, encoding="utf-8")
    with raises_code("language-model-invalid"):
        LanguageModel.load(tmp_path)


def test_texts_are_read_as_lines(tmp_path: Path) -> None:
    file = tmp_path / "letters.txt"
    file.write_text("Une  lettre\u00a0\n\ne\u0301crite\n", encoding="utf-8")
    assert read_other_texts(str(file)) == ["Une lettre", "\u00e9crite"]
    file.write_bytes(b"\xff\xfe")
    for path in (file, tmp_path / "none.txt"):
        with raises_code("language-model-text"):
            read_other_texts(str(path))


def test_models_of_former_releases_are_read(tmp_path: Path) -> None:
    """They had everything in one line."""
    model = LanguageModel.fit(["il estoit"])
    (tmp_path / FILE).write_text(model.to_json().replace("\n", ""), encoding="utf-8")
    loaded = LanguageModel.load(tmp_path)
    assert loaded is not None
    assert loaded.followers == model.followers


def test_contexts_are_found_one_by_one(tmp_path: Path) -> None:
    """Each has a line, found by its characters: quotes, backslashes and line starts among them."""
    texts = ['"a" : {"b"}', "a\\\\b\u2028", "сѣно, 𐍆", "\u0001"]
    model = LanguageModel.fit(texts)
    (tmp_path / FILE).write_text(model.to_json(), encoding="utf-8")
    loaded = LanguageModel.load(tmp_path)
    assert loaded is not None
    for context, counts in model.followers.items():
        assert loaded.followers.get(context) == counts
        assert loaded.followers.get(context + "?") is None
    assert loaded.followers == model.followers
    assert len(loaded.followers) == len(model.followers)
    with pytest.raises(KeyError):
        loaded.followers["?"]


def test_damaged_counts_are_errors_where_they_are_read(tmp_path: Path) -> None:
    content = LanguageModel.fit(["ab"]).to_json()
    (tmp_path / FILE).write_text(content.replace('"a":{"b":1}', '"a":{"b":"1"}'), encoding="utf-8")
    loaded = LanguageModel.load(tmp_path)
    assert loaded is not None
    with raises_code("language-model-invalid"):
        loaded.log_probability("b", "a")
