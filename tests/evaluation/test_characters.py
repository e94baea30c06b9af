"""Character errors add up to the CER's, and are told by character, pair, block and like letters."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsocr.evaluation.breakdown import SHOWN, CharacterCount, Characters, Confusion, LikeLetters
from dsocr.evaluation.profiles import block_of
from dsocr.evaluation.scores import LineScore, score_lines
from dsocr.text import comparable
from tests.evaluation.test_scores import Read, line

TEXTS = st.text("абинпт ё.", max_size=15) | st.text(max_size=10)


def scored(*pairs: tuple[str, str]) -> list[LineScore]:
    references = [line(str(place), reference) for place, (reference, _) in enumerate(pairs)]
    return score_lines(references, {str(place): Read(prediction) for place, (_, prediction) in enumerate(pairs)})


def test_what_became_of_each_character() -> None:
    counted = Characters.of(scored(("пинта", "ппнта"), ("мышь", "мыш"), ("он", "он!"), ("пир", "нир")))
    assert (counted.count, counted.substitutions, counted.deletions, counted.insertions) == (14, 2, 1, 1)
    assert counted.by_character[:3] == (
        CharacterCount("и", 2, 1, 0),
        CharacterCount("п", 2, 1, 0),
        CharacterCount("ь", 1, 0, 1),
    )
    assert counted.by_character[-1] == CharacterCount(None, 9, 0, 0), "all others together"
    assert counted.confusions == (Confusion("и", "п", 1), Confusion("п", "н", 1))
    assert counted.deleted.shown == (("ь", 1),)
    assert counted.inserted.shown == (("!", 1),)


def test_like_letters_are_counted_as_one_another_and_in_all() -> None:
    counted = Characters.of(scored(("шипит", "щипит"), ("мама", "моша"), ("Нина", "Пина"), ("тоъ", "тоь"), ("и", "И")))
    assert counted.alike == (
        LikeLetters("инпт", 9, 2, 1),
        LikeLetters("шщм", 3, 2, 2),
        LikeLetters("ьъ", 1, 1, 1),
        LikeLetters("ао", 4, 1, 1),
    )


def test_blocks_tell_what_was_there_what_was_lost_and_what_was_added() -> None:
    blocks = {one.block: one for one in Characters.of(scored(("да 5", "дa"), ("да", "да—"))).blocks}
    assert (blocks["Cyrillic"].count, blocks["Cyrillic"].errors, blocks["Cyrillic"].inserted) == (4, 1, 0)
    assert (blocks["Basic Latin"].count, blocks["Basic Latin"].errors) == (2, 2)
    assert (blocks["General Punctuation"].count, blocks["General Punctuation"].inserted) == (0, 1)


@pytest.mark.parametrize(
    ("character", "block"),
    [
        pytest.param("a", "Basic Latin", id="the first block"),
        pytest.param("ѣ", "Cyrillic", id="Cyrillic"),
        pytest.param("ӿ", "Cyrillic", id="the last of a block"),
        pytest.param("ԁ", "Cyrillic Supplement", id="the first of the next"),
        pytest.param("\u0301", "Combining Diacritical Marks", id="an accent"),
        pytest.param("😀", "U+1F600-1F6FF", id="not in the table"),
        pytest.param("\u0880", "U+0800-08FF", id="between two blocks of the table"),
    ],
)
def test_block_of_a_character(character: str, block: str) -> None:
    assert block_of(character) == block


@given(st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=5))
def test_all_counts_together_are_the_errors_of_the_cer(pairs: list[tuple[str, str]]) -> None:
    lines = scored(*pairs)
    counted = Characters.of(lines)
    errors = sum(one.cer.errors for one in lines)
    assert counted.substitutions + counted.deletions + counted.insertions == errors
    assert sum(one.errors for one in counted.by_character) + counted.insertions == errors
    assert sum(one.errors + one.inserted for one in counted.blocks) == errors
    assert sum(one.count for one in counted.by_character) == counted.count == sum(one.cer.length for one in lines)
    assert Characters.from_dict(counted.as_dict()) == counted


def test_what_is_not_shown_is_counted() -> None:
    reference = "".join(map(chr, range(0x4E00, 0x4E00 + 2 * SHOWN)))
    counted = Characters.of(scored((reference, "я" * len(reference)), (reference, "")))
    assert len(counted.confusions) == SHOWN
    assert (counted.other_pairs, counted.other_pairs_count) == (SHOWN, SHOWN)
    assert (counted.deleted.others, counted.deleted.others_count) == (SHOWN, SHOWN)
    assert counted.others == SHOWN
    assert counted.by_character[-1] == CharacterCount(None, 2 * SHOWN, SHOWN, SHOWN)
    assert Counter(comparable(reference)).total() == 2 * SHOWN
