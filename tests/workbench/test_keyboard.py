"""Sets of letters and shorthands, and a file of one's own."""

from pathlib import Path

import pytest

from dsocr.text import TextPolicy
from dsocr.workbench.line_field import GAPS, MARKS, load_keyboard
from tests.raising import raises_code


def test_sets_come_with_the_program(tmp_path: Path) -> None:
    english, russian = load_keyboard(tmp_path, "en"), load_keyboard(tmp_path, "ru")
    assert "ѣ" in english.sets["Pre-reform Russian"]
    assert [*english.sets.values()] == [*russian.sets.values()]
    assert english.shorthands["\\e"] == "ѣ"
    assert all(key and not key.isspace() for keys in english.sets.values() for key in keys)


def test_a_file_adds_to_them(tmp_path: Path) -> None:
    own = "sets:\n  - {name: Mine, keys: a b}\nshorthands: {'\\e': э, dsq: dominus}\n"
    (tmp_path / "keyboards.yaml").write_text(own, encoding="utf-8")
    keyboard = load_keyboard(tmp_path, "en")
    assert keyboard.sets["Mine"] == ("a", "b")
    assert (keyboard.shorthands["\\e"], keyboard.shorthands["dsq"], keyboard.shorthands["\\i"]) == ("э", "dominus", "і")


@pytest.mark.parametrize("text", ["sets: 3", "sets: [{name: a}]", "other: 1", "a: [", "shorthands: {'': x}", "\xff"])
def test_an_invalid_file_is_an_error(tmp_path: Path, text: str) -> None:
    (tmp_path / "keyboards.yaml").write_bytes(text.encode("latin-1"))
    with raises_code("keyboard-invalid"):
        load_keyboard(tmp_path, "en")


def test_the_text_policy_knows_the_marks() -> None:
    strict = TextPolicy(struck="strip", unclear="drop-line")
    before, after = MARKS["mark_struck"]
    assert strict.apply(f"один {before}два{after} три") == "один три"
    for mark in (MARKS["mark_doubtful"][1], *GAPS.values()):
        assert strict.revise(f"один {mark} три").dropped == "unclear"
