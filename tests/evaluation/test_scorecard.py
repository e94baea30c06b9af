"""A scorecard matches its schema, says how uncertain it is, and repeats no known mistakes of other scoring programs."""

import json
import math
import random
import re
from dataclasses import replace
from pathlib import Path

import jsonschema_rs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsocr.evaluation.metrics import ErrorRate, profile_rates, profiles
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
    Scorecard,
    make_scorecard,
    schema,
)
from dsocr.evaluation.scores import LineScore, ReadText, score_lines
from dsocr.text import comparable
from tests.evaluation.making_runs import sample, scored
from tests.evaluation.test_scores import LINES, SCORED
from tests.raising import raises_code

BASE = SCORED
ADAPTER = score_lines(
    LINES, {"a": ReadText("ёлка"), "b": ReadText("пера"), "c": ReadText("йод")}, {"Анна": "known", "Борис": "new"}
)
BOTH = {"base": BASE, "adapter": ADAPTER}
CARD = make_scorecard("test", BOTH, {"base": 4, "adapter": 5.25}, dataset={"test": "1f"}, settings={"prompt": "Прочти"})


def many_lines(lines: int, writers: int) -> list[LineScore]:
    """Lines of many writers and pages, in two scripts, some misread, looping or empty."""
    chance = random.Random(0)
    samples, predictions = [], {}
    for number in range(lines):
        letters = "abcdefgh" if number % 7 == 0 else "абвгдежзинпт"
        text = "".join(chance.choices(letters + "  .5", k=chance.randint(1, 40)))
        read = "".join(chr(chance.randint(0x400, 0x1100)) if chance.random() < 0.2 else one for one in text)
        read = chance.choice([read, text, "", "ой " * 40])
        samples.append(sample(f"{number}", text, writer=f"w{number % writers}", page=f"p{number // 3}"))
        predictions[f"{number}"] = ReadText(read, truncated=len(read) > 100)
    return score_lines(samples, predictions)


def card_of(*pairs: tuple[str, str]) -> Scorecard:
    return make_scorecard("test", {"adapter": scored(*pairs)})


MANY = many_lines(400, 60)
VALIDATOR = jsonschema_rs.Draft202012Validator(schema())


@pytest.mark.parametrize(("writers", "has_interval"), [(1, False), (4, False), (5, True)])
def test_new_writers_have_an_interval_only_from_five_on(writers: int, has_interval: bool) -> None:
    names = [f"w{number % writers}" for number in range(30)]
    read = scored(*(("ёлка", "ёлк" + "а" * (number % 7 > 2)) for number in range(30)), writers=names)
    lines = [replace(line, page=f"p{place}") for place, line in enumerate(read)]
    card = make_scorecard("test", {"adapter": [replace(line, writer_status="new") for line in lines]})
    interval = card.by_writer_status["new"].final.intervals["cer"]
    assert (interval.unit, interval.clusters) == ("writer", writers)
    assert (interval.bounds is not None) == has_interval


@pytest.mark.parametrize(
    "card",
    [
        pytest.param(CARD, id="base and adapter"),
        pytest.param(make_scorecard("test", {"base": MANY, "adapter": MANY}), id="more groups than are listed"),
        pytest.param(make_scorecard("test", {"base": BASE}), id="the base alone"),
        pytest.param(card_of(("ёлка", "ёлка")), id="one perfect line"),
        pytest.param(card_of(("", "да")), id="no reference text"),
    ],
)
def test_a_card_matches_its_schema_and_survives_its_file(card: Scorecard, tmp_path: Path) -> None:
    card.save(tmp_path / "card.json")
    written = json.loads((tmp_path / "card.json").read_text(encoding="utf-8"))
    VALIDATOR.validate(written)
    assert written == card.to_dict()
    assert Scorecard.load(tmp_path / "card.json") == card


def test_every_key_of_the_schema_is_required() -> None:
    written = CARD.to_dict()
    for name in written:
        assert not VALIDATOR.is_valid({key: value for key, value in written.items() if key != name}), name


def test_the_guide_explains_every_key() -> None:
    guide = (Path(__file__).parents[2] / "docs" / "reference" / "scorecard.md").read_text(encoding="utf-8")
    names = {*schema()["properties"], *schema()["properties"]["profiles"]["required"]}
    for part in ("score", "rate", "averages", "characters", "line"):
        names |= set(schema()["$defs"][part]["properties"])
    assert {name for name in names if f"`{name}`" not in guide} == set()


def test_headline_numbers() -> None:
    values = CARD.to_dict()
    assert (values["base"]["cer"]["rate"], values["adapter"]["cer"]["rate"]) == (8 / 11, 1 / 11)
    assert values["by_writer_status"]["new"]["base"]["cer"]["rate"] == 1.0
    assert (CARD.cer, CARD.wer, CARD.interval) == (1 / 11, 1 / 3, None)
    card = make_scorecard("test", {"base": MANY})
    assert card.base is not None
    assert card.interval is not None
    assert card.interval[0] < card.cer == card.base.cer.rate < card.interval[1]
    assert {interval.clusters for interval in card.base.intervals.values()} == {60}
    assert "95 % interval over 60 writers" in card.uncertainty[0]


@pytest.mark.parametrize(
    ("lines", "sentences"),
    [
        pytest.param(BASE, 1, id="three lines have no interval"),
        pytest.param(many_lines(8, 8), 2, id="eight writers have a wide one"),
        pytest.param([replace(line, writer=None) for line in MANY], 2, id="pages say nothing about other writers"),
        pytest.param([replace(line, writer=None, page=None) for line in MANY], 2, id="lines are not independent"),
        pytest.param(many_lines(800, 400), 1, id="many writers need no caution"),
    ],
)
def test_the_card_says_how_uncertain_it_is(lines: list[LineScore], sentences: int) -> None:
    assert len(make_scorecard("test", {"adapter": lines}).uncertainty) == sentences


def test_lines_whose_text_was_trained_on_are_scored_apart() -> None:
    lines = [replace(line, seen_text=line.exact) for line in MANY]
    card = make_scorecard("test", {"adapter": lines})
    assert {part: scores.final.lines for part, scores in card.by_text.items()} == {
        "seen": sum(line.exact for line in MANY),
        "new": sum(not line.exact for line in MANY),
    }
    assert card.by_text["seen"].final.cer.rate == 0 < card.cer < card.by_text["new"].final.cer.rate
    assert "texts that training has seen" in str(card)
    assert not make_scorecard("test", {"adapter": MANY}).by_text


def test_the_size_of_a_card_is_bounded() -> None:
    small, big = (make_scorecard("test", {"adapter": many_lines(lines, lines)}) for lines in (300, 600))
    sizes = [len(json.dumps(card.to_dict(), ensure_ascii=False)) for card in (small, big)]
    assert sizes[1] < 1.1 * sizes[0]


def test_both_sides_must_match() -> None:
    with raises_code("lines-differ"):
        make_scorecard("test", BOTH | {"adapter": ADAPTER[:2]})
    assert make_scorecard("test", BOTH | {"base": BASE[::-1]}).groups == CARD.groups, "their order does not matter"


def damaged(name: str, value: object, *within: str) -> str:
    """The file of a card with another value."""
    card = part = CARD.to_dict()
    for key in within:
        part = part[key]
    part[name] = value
    return json.dumps(card)


@pytest.mark.parametrize(
    "content",
    [
        *("{", "[]", "{}", '{"unknown": 1}', damaged("format_version", 1)),
        *(damaged(name, [3], "base", rate) for rate in ("cer", "wer") for name in ("errors", "length")),
        damaged("errors", "x", "base", "cer"),
        damaged("test", 3, "dataset"),
        damaged("python", None, "versions"),
        *(damaged(name, {"a": 3}, "settings") for name in ("dataset", "family", "adapter_sha256", "fold")),
        damaged("limit", "x", "settings"),
    ],
)
def test_a_damaged_or_another_file_is_not_a_card(tmp_path: Path, content: str) -> None:
    path = tmp_path / "scorecard.json"
    path.write_text(content, encoding="utf-8")
    with raises_code("scorecard-invalid", "scorecard.json"):
        Scorecard.load(path)


def test_the_worst_lines_cost_most() -> None:
    worst = make_scorecard("test", {"base": BASE}).worst
    assert [line.id for line in worst] == ["c", "b"], "equal errors: the shorter reference first"
    assert [line.id for line in CARD.worst] == ["b"], "the adapter's, without correct lines"


def test_a_prediction_can_neither_flood_nor_control_the_terminal() -> None:
    looping = replace(ADAPTER[0], prediction="\x1b[2J" + "ой\n" * 500, cer=ErrorRate(4, 4))
    table = str(replace(CARD, worst=(looping,)))
    assert "\x1b" not in table
    assert max(map(len, table.splitlines())) < 240


FILTERED_ELSEWHERE = re.compile(r"[^A-Za-z0-9一-龥]")


@pytest.mark.parametrize(
    ("one", "other"), [("привет", "совсем не то"), ("नमस्ते", "विदा"), ("γειά", "όχι"), ("שלום", "לא")]
)
def test_no_profile_filters_a_script_away(one: str, other: str) -> None:
    """A filter that keeps Latin letters, digits and Chinese makes any two such texts equal: a perfect score."""
    assert FILTERED_ELSEWHERE.sub("", one) == ""
    for name, rates in profile_rates([one], [other], profiles()).items():
        if name != "digits_only":
            assert rates.cer.length >= len(comparable(one)) - 1, name
            assert rates.cer.rate > 0.5, name


def test_nothing_is_clipped_at_one_nor_dropped_for_its_length() -> None:
    """Elsewhere a line costs at most its length, and one ten times too long is left out as an outlier."""
    card = card_of(("ты", "ты" * 100), ("я", "я"))
    assert card.adapter is not None
    assert card.adapter.cer == ErrorRate(198, 3)
    assert card.to_dict()["adapter"]["cer"]["rate"] == 66.0
    assert card.averages["adapter"].macro_over_lines.cer == 49.5
    assert card.averages["adapter"].p90_line_cer == pytest.approx(0.9 * 99)
    assert card.profiles["without_case"]["adapter"].cer == ErrorRate(198, 3)
    assert (card.adapter.lines, card.adapter.failures["over_long"], card.adapter.failures["looping"]) == (2, 1, 1)
    assert "6600.00 %" in str(card)


def test_an_interval_above_one_is_a_number() -> None:
    """Elsewhere it is 1.96 sqrt(CER (1 - CER) / lines), which has no value where the CER is above 1."""
    names = [f"w{n}" for n in range(28)]
    card = make_scorecard("test", {"adapter": scored(*(("ты", "ты" * n) for n in range(2, 30)), writers=names)})
    assert card.interval is not None
    assert 1 < card.interval[0] < card.cer < card.interval[1] < math.inf
    json.dumps(card.to_dict(), allow_nan=False)


TEXTS = st.text("абинпт ё.", max_size=15) | st.text(max_size=10)

FOUR = scored(
    ("да", "не"), ("молоко да", "молоко да"), ("йод", "йод йод"), ("я", ""), writers=["Анна", "Анна", "Борис", None]
)


def test_macro_averages_weigh_lines_and_writers_equally() -> None:
    averages = Averages.compute(FOUR)
    assert averages.macro_over_lines == MacroAverage((1 + 0 + 4 / 3 + 1) / 4, 3 / 4, 4)
    writers = averages.macro_over_writers
    assert (writers.cer, writers.wer) == pytest.approx(((2 / 11 + 4 / 3) / 2, (1 / 3 + 1) / 2))
    assert (writers.count, averages.macro_over_pages) == (2, MacroAverage(None, None, 0))
    assert averages.median_line_cer == 1.0
    assert averages.p90_line_cer == pytest.approx(1 + 0.7 * (1 / 3))


def test_lines_without_reference_text_are_skipped_and_counted() -> None:
    averages = Averages.compute([*FOUR, replace(scored(("", "да"))[0], id="empty")])
    assert averages.macro_over_lines.skipped == 1
    assert averages.macro_over_lines.cer == Averages.compute(FOUR).macro_over_lines.cer
    assert Averages.compute(scored(("", "да"))).median_line_cer is None


def test_character_errors() -> None:
    errors = CharacterErrors.compute(scored(("пинта", "ппнта"), ("мышь", "мыш"), ("он", "он!"), ("пир", "нир")))
    assert (errors.count, errors.substitutions, errors.deletions, errors.insertions) == (14, 2, 1, 1)
    assert errors.by_character == (CharacterCount("и", 2, 1), CharacterCount("п", 2, 1), CharacterCount("ь", 1, 1))
    assert errors.substituted.top == (Edit("и", "п", 1), Edit("п", "н", 1))
    assert (errors.deleted.top, errors.inserted.top) == ((Edit("ь", "", 1),), (Edit("", "!", 1),))


@given(st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=5))
@settings(max_examples=40)
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
    groups = {kind: LineGroups.compute(kind, {"adapter": MANY}) for kind in GROUP_KINDS}
    for kind, found in groups.items():
        parts = [group.scores.adapter for group in found.top]
        parts += [found.others_scores.adapter] if found.others_scores else []
        assert sum(part.lines for part in parts if part) == len(MANY), kind
        assert sum(part.cer.errors for part in parts if part) == sum(line.cer.errors for line in MANY), kind
    assert (len(groups["writer"].top), groups["writer"].others) == (MAX_GROUPS, 60 - MAX_GROUPS)
    assert {"Cyrillic", "Latin"} <= {group.name for group in groups["script"].top}
    starts = [int(str(group.name).split("-")[0]) for group in groups["length"].top]
    assert starts == sorted(starts)
    assert [group.name for group in LineGroups.compute("writer", {"base": FOUR}).top] == ["Анна", "Борис", None]


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
    groups = LineGroups.compute("source", {"adapter": [replace(FOUR[0], source=source)]})
    assert [group.name for group in groups.top] == [name]
