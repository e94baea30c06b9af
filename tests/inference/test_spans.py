"""The characters a token covers, and its score when the text is split or changed."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from dsocr.inference.confidence import words_of
from dsocr.models.generation import ScoredText, TokenScore
from dsocr.models.token_batches import TokenSpans
from dsocr.text import TextPolicy


def byte_tokenizer(*longer: str) -> PreTrainedTokenizerFast:
    """A byte-level tokenizer that knows every byte and some longer runs of bytes, in the signs that stand for them."""
    signs = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = {sign: number for number, sign in enumerate([*signs, *longer])}
    tokenizer = Tokenizer(models.BPE(vocab=words, merges=[(word[:-1], word[-1]) for word in longer]))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(r"\n"), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer)


def scored(tokenizer: PreTrainedTokenizerFast, text: str) -> ScoredText:
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    return TokenSpans(tokenizer).scored(
        ids, [-float(place) for place in range(len(ids))], [False] * len(ids), ended=False
    )


def spans(found: ScoredText) -> list[tuple[int, int]]:
    return [(score.start, score.end) for score in found.scores]


@pytest.mark.parametrize(
    ("longer", "text", "expected"),
    [
        pytest.param([], "aж€", [(0, 1), (1, 2), (1, 2), (2, 3), (2, 3), (2, 3)], id="each byte covers its letter"),
        # `aÐ` is the letter a with the first byte of a Cyrillic one.
        pytest.param(["aÐ"], "aжb", [(0, 2), (1, 2), (2, 3)], id="a token that ends within a letter covers it"),
    ],
)
def test_tokens_cover_whole_letters(longer: list[str], text: str, expected: list[tuple[int, int]]) -> None:
    assert spans(scored(byte_tokenizer(*longer), text)) == expected


@pytest.mark.parametrize(
    ("ids", "text"),
    [
        pytest.param([0xD0], 1, id="the first half of a letter at the end"),
        pytest.param([0xD0] * 9, 9, id="first halves alone"),
        pytest.param([0xD0, ord("a"), 0xB6], 3, id="a letter of another within"),
        pytest.param([0xF0, 0x9F, 0x98, ord("a")], 2, id="an emoji that was not ended"),
    ],
)
def test_broken_letters_are_in_the_text_and_every_token_is_within_it(ids: Sequence[int], text: int) -> None:
    tokenizer = byte_tokenizer()
    by_byte = {ord(sign): sign for sign in "a"} | {0xD0: "Ð", 0xB6: "¶", 0xF0: "ð", 0x9F: "Ł", 0x98: "ĺ"}
    numbers = [tokenizer.convert_tokens_to_ids(by_byte[byte]) for byte in ids]
    found = TokenSpans(tokenizer).scored(numbers, [0.0] * len(ids), [False] * len(ids), ended=False)
    assert found.text == tokenizer.decode(numbers)
    assert len(found.text) == text
    assert all(0 <= start <= end <= len(found.text) for start, end in spans(found))
    covered = {place for start, end in spans(found) for place in range(start, end)}
    assert covered == set(range(len(found.text)))


LETTERS = st.text(st.sampled_from("ab жё€😀\u0306\n "), max_size=30)


@given(LETTERS)
def test_all_characters_have_their_tokens_in_order(text: str) -> None:
    found = scored(byte_tokenizer("aÐ", "Ġa"), text)
    assert found.text == text
    assert {place for start, end in spans(found) for place in range(start, end)} == set(range(len(text)))
    assert [start for start, _ in spans(found)] == sorted(start for start, _ in spans(found))


@given(LETTERS)
def test_lines_have_the_tokens_of_their_characters(text: str) -> None:
    whole = scored(byte_tokenizer("aÐ", "Ġa"), text)
    parts = whole.lines()
    assert "\n".join(part.text for part in parts) == text
    begin = 0
    for part in parts:
        for place in range(len(part.text)):
            inside = [score[2] for score in part.scores if score.start <= place < score.end]
            assert inside == [score[2] for score in whole.scores if score.start <= begin + place < score.end]
        begin += len(part.text) + 1
    assert {score.log_probability for part in parts for score in part.scores} == {
        score.log_probability for score in whole.scores
    }, "none is lost"


@given(LETTERS)
def test_a_policy_makes_nothing_surer(text: str) -> None:
    before = scored(byte_tokenizer("aÐ"), text)
    after = before.rewrite(TextPolicy().apply(text))
    assert len(after.scores) == len(before.scores)
    assert all(0 <= start <= end <= len(after.text) for start, end in spans(after))
    covered = {place for start, end in spans(after) for place in range(start, end)}
    assert covered == set(range(len(after.text))), "every character that is left has a token"


def test_a_composed_letter_has_the_tokens_of_both_its_parts() -> None:
    text = "си\u0306м"
    scores = tuple(TokenScore(place, place + 1, -float(place)) for place in range(len(text)))
    after = ScoredText(text, (*scores, TokenScore(4, 4, -9.0))).rewrite("сйм")
    assert [score[:3] for score in after.scores] == [(0, 1, 0), (1, 2, -1), (1, 2, -2), (2, 3, -3), (3, 3, -9)]


def test_truncated_text_drops_its_tokens() -> None:
    scores = (TokenScore(0, 2, -1.0), TokenScore(2, 5, -2.0), TokenScore(5, 6, -3.0), TokenScore(6, 6, -4.0))
    assert ScoredText("abcdef", scores).cut(3) == ScoredText("abc", (TokenScore(0, 2, -1.0), TokenScore(2, 3, -2.0)))


POSITIONS = (0.1, 0.2, 0.3, 0.5, 0.6, 0.8)
"""Of the letters of `ab cde`."""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ab cde", [(0.05, 0.25), (0.425, 0.875)]),  # half the mean distance of its letters beyond each word
        ("abcde", [(0.0125, 0.8875)]),  # a policy joined the words
        ("ab cdef", [(0.05, 0.25), (0.45, 0.85)]),  # and wrote one more letter at the same place
    ],
)
def test_words_have_their_place_along_the_line(text: str, expected: list[tuple[float, float]]) -> None:
    scores = tuple(TokenScore(place, place + 1, -0.1) for place in range(6))
    words = words_of(ScoredText("ab cde", scores, POSITIONS).rewrite(text))
    assert [(word.left, word.right) for word in words] == [pytest.approx(pair) for pair in expected]
    assert all(word.left is None for word in words_of(ScoredText("ab cde", scores)))


def test_a_word_does_not_reach_beyond_the_gap_before_it() -> None:
    scores = tuple(TokenScore(place, place + 1, -0.1) for place in range(4))
    _, wide = words_of(ScoredText("a bc", scores, (0.3, 0.45, 0.5, 0.8)))
    assert (wide.left, wide.right) == pytest.approx((0.45, 0.95)), "half a letter is 0.15"
