"""Character errors add up to the CER's, macro averages report what they skip, and every line is in one group."""

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsocr.evaluation.scorecard import (
    GROUP_KINDS,
    MAX_CHARACTERS,
    MAX_GROUPS,
    Averages,
    CharacterCount,
    CharacterErrors,
    Edit,
    LineGroups,
    MacroAverage,
)
from tests.evaluation.making_runs import scored

TEXTS = st.text("абинпт ё.", max_size=15) | st.text(max_size=10)

LINES = scored(
    ("да", "не"), ("молоко да", "молоко да"), ("йод", "йод йод"), ("я", ""), writers=["Анна", "Анна", "Борис", None]
)


def test_macro_averages_weigh_lines_and_writers_equally() -> None:
    averages = Averages.compute(LINES)
    assert averages.macro_over_lines == MacroAverage((1 + 0 + 4 / 3 + 1) / 4, 3 / 4, 4)
    writers = averages.macro_over_writers
    assert (writers.cer, writers.wer) == pytest.approx(((2 / 11 + 4 / 3) / 2, (1 / 3 + 1) / 2))
    assert (writers.count, averages.macro_over_pages) == (2, MacroAverage(None, None, 0))
    assert averages.median_line_cer == 1.0
    assert averages.p90_line_cer == pytest.approx(1 + 0.7 * (1 / 3))


def test_lines_without_reference_text_are_skipped_and_counted() -> None:
    averages = Averages.compute([*LINES, replace(scored(("", "да"))[0], id="empty")])
    assert averages.macro_over_lines.skipped == 1
    assert averages.macro_over_lines.cer == Averages.compute(LINES).macro_over_lines.cer
    assert Averages.compute(scored(("", "да"))).median_line_cer is None


def test_character_errors() -> None:
    errors = CharacterErrors.compute(scored(("пинта", "ппнта"), ("мышь", "мыш"), ("он", "он!"), ("пир", "нир")))
    assert (errors.count, errors.substitutions, errors.deletions, errors.insertions) == (14, 2, 1, 1)
    assert errors.by_character == (CharacterCount("и", 2, 1), CharacterCount("п", 2, 1), CharacterCount("ь", 1, 1))
    assert errors.substituted.top == (Edit("и", "п", 1), Edit("п", "н", 1))
    assert (errors.deleted.top, errors.inserted.top) == ((Edit("ь", "", 1),), (Edit("", "!", 1),))


@given(st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=5))
def test_all_counts_add_up_to_the_errors_of_the_cer(pairs: list[tuple[str, str]]) -> None:
    lines = scored(*pairs)
    found = CharacterErrors.compute(lines)
    errors = sum(line.cer.errors for line in lines)
    assert found.substitutions + found.deletions + found.insertions == errors
    assert sum(character.errors for character in found.by_character) + found.insertions == errors
    assert found.count == sum(line.cer.length for line in lines)


def test_unlisted_characters_are_counted() -> None:
    reference = "".join(map(chr, range(0x4E00, 0x4E00 + 2 * MAX_CHARACTERS)))
    errors = CharacterErrors.compute(scored((reference, "я" * len(reference)), (reference, "")))
    assert len(errors.by_character) == MAX_CHARACTERS
    for edits in (errors.substituted, errors.deleted):
        assert (len(edits.top), edits.others, edits.others_count) == (MAX_CHARACTERS,) * 3


def test_every_line_is_in_one_group_of_each_kind() -> None:
    chance = random.Random(0)
    texts = ["".join(chance.choices("абвг" if n % 7 else "abcd", k=chance.randint(1, 40))) for n in range(400)]
    lines = [
        replace(line, page=f"p{n // 3}")
        for n, line in enumerate(
            scored(*((text, text[1:]) for text in texts), writers=[f"w{n % 60}" for n in range(400)])
        )
    ]
    groups = {kind: LineGroups.compute(kind, {"adapter": lines}) for kind in GROUP_KINDS}
    for kind, found in groups.items():
        parts = [group.scores.adapter for group in found.top]
        parts += [found.others_scores.adapter] if found.others_scores else []
        assert sum(part.lines for part in parts if part) == 400, kind
        assert sum(part.cer.errors for part in parts if part) == sum(line.cer.errors for line in lines), kind
    assert (len(groups["writer"].top), groups["writer"].others) == (MAX_GROUPS, 60 - MAX_GROUPS)
    assert {group.name for group in groups["script"].top} == {"Cyrillic", "Latin"}
    starts = [int(str(group.name).split("-")[0]) for group in groups["length"].top]
    assert starts == sorted(starts)
    assert [group.name for group in LineGroups.compute("writer", {"base": LINES}).top] == ["Анна", "Борис", None]


@pytest.mark.parametrize(
    ("source", "name"),
    [
        pytest.param("lines.csv:392", "lines.csv", id="a row of a table"),
        pytest.param("letters/17.xml:12", "letters", id="a file in a folder"),
        pytest.param("a/b/17.parquet#3", "a/b", id="a folder in a folder"),
        pytest.param("17.txt", "17.txt", id="a file"),
        pytest.param("coco.json#images/17.jpg", "coco.json", id="an image in a file"),
        pytest.param(None, None, id="unknown"),
    ],
)
def test_lines_are_grouped_by_source_folder_or_file(source: str | None, name: str | None) -> None:
    groups = LineGroups.compute("source", {"adapter": [replace(LINES[0], source=source)]})
    assert [group.name for group in groups.top] == [name]
