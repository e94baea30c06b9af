"""Errors of pages do not depend on the order of lines, and equal the counts of published programs.

The flexible numbers come from figures 3 and 4 of Clausner, Pletschacher and Antonacopoulos (2020), and from
dinglehopper (pull request 47, commit 9e64c4f).
"""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsocr.evaluation.metrics import character_errors, word_errors
from dsocr.evaluation.page_metrics import bag_of_words_errors, flexible_character_errors, grapheme_errors

EINSTEIN = '"I have\nno special\ntalent.\nI am only\npassionately\ncurious."\nAlbert\nEinstein'
FROGS, WINGS = "Eight happy frogs scuba dived", "Jenny chick flaps white wings"
IN_PARTS = "Eight happy frogs\nscuba dived\nJenny chick flaps\nwhite wings"


@pytest.mark.parametrize(
    ("reference", "prediction", "errors"),
    [
        pytest.param("aaa\nbbb\nccc", "ccc\naaa\nbbb", 0, id="another order"),
        pytest.param("aaa\nbbb\nccc", "aaa\nbbb", 3, id="a line missing"),
        pytest.param("bbb", "aaa\nbbb\nccc", 6, id="two lines more"),
        pytest.param("accc", "a\nbb\nccc", 2, id="a line in parts"),
        pytest.param("abcd", "ab\ne", 3, id="little in common"),
        pytest.param("a", "", 1, id="nothing read"),
        pytest.param("", "ab", 2, id="nothing written"),
        # Figure 3, configurations 1 to 3; the second has a space more.
        (EINSTEIN, '1 hav\nnospecial\ntalents.\nI am one\npassionate\ncuriousity."\nAlberto\nEmstein', 15),
        (EINSTEIN, '1 hav\nnospecial\ntalents. Alberto\nI am one Emstein\npassionate\ncuriousity."', 16),
        (EINSTEIN, 'Alberto\nEmstein\n1 hav\nnospecial\ntalents.\nI am one\npassionate\ncuriousity."', 15),
        # Figure 4, B to E and G: another order, columns merged, lines in parts, a part missing, a part more.
        (f"{FROGS}\n{WINGS}", f"{WINGS}\n{FROGS}", 0),
        (IN_PARTS, "Eight happy frogs Jenny chick flaps\nscuba dived white wings", 2),
        (f"{FROGS}\n{WINGS}", "Eight happy frogs\nJenny chick flaps\nscuba dived\nwhite wings", 2),
        (f"{FROGS}\n{WINGS}", FROGS, 29),
        (FROGS, f"{FROGS}\nJenny chick", 11),
        # dinglehopper, 1 to 3
        ("французских\nчаю да\nбулок\nфранцузских съешь", "ранцузских\nч\nаюха\nфранцузских съешь", 8),
        (
            "съешь этих scuba happy\nчаю мягких frogs\nфранцузских мягких the\nбулок ещё\nEight happy frogs этих",
            "французсих мягких thуe\nEight hap fr\nсъешь этих scuba appy\nogs этих",
            30,
        ),
        (
            "scuba чаю\nhappy fox the\nscuba чаю scuba съешь\nthe съешь этих\nда dived чаю frogs этих",
            "scubуa чаю scuba съешь\nte усъешьу\nscuba чаю\nэтих\nда уdived чаю frogуs эти\nhappy fуoxхthe",
            9,
        ),
    ],
)
def test_flexible_errors_are_the_published_ones(reference: str, prediction: str, errors: int) -> None:
    found = flexible_character_errors(reference, prediction)
    assert (found.errors, found.length) == (errors, len(reference.replace("\n", "")))


LINES = st.lists(st.text("абв г", min_size=1, max_size=9), max_size=5)


@settings(max_examples=30)
@given(LINES, LINES, st.randoms(use_true_random=False))
def test_the_order_of_lines_changes_nothing_where_they_differ_in_length(
    written: list[str], read: list[str], random: object
) -> None:
    """Ties between lines of one length are broken by their order, as in the published programs."""
    one, other = "\n".join(written), "\n".join(read)
    bag = bag_of_words_errors(one, other)
    assert bag == bag_of_words_errors("\n".join(reversed(written)), "\n".join(sorted(read)))
    assert bag.errors <= word_errors(one, other).errors
    assert flexible_character_errors(one, one).errors == 0
    assert flexible_character_errors(one, other).errors <= len(one) + len(other)


@pytest.mark.parametrize(
    ("reference", "prediction", "errors"),
    [
        pytest.param("a b c", "c b a", 0, id="order"),
        pytest.param("a b c", "a x y", 2, id="two read as others"),
        pytest.param("a a b", "a b b b", 2, id="a word as often as it is there"),
    ],
)
def test_words_in_a_bag_are_counted_as_by_vidal_and_others(reference: str, prediction: str, errors: int) -> None:
    """The number of edits is half of |n - m| plus the differences of all counts (Vidal et al. 2023)."""
    assert bag_of_words_errors(reference, prediction).errors == errors


def test_a_letter_with_its_accent_is_one_grapheme() -> None:
    assert (grapheme_errors("а\u0300з\u0483ъ", "азъ").errors, grapheme_errors("а\u0300з\u0483ъ", "азъ").length) == (
        2,
        3,
    )
    assert grapheme_errors("а\u0300", "о").errors == 1
    assert character_errors("а\u0300", "о").errors == 2
