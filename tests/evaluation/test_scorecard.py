import json
import random
from dataclasses import replace
from pathlib import Path

import jsonschema_rs
import pytest

from dsocr.errors import DataError, RunError
from dsocr.evaluation.scorecard import Scorecard, make_scorecard, render_table, schema, worst_lines
from dsocr.evaluation.scores import LineScore, score_lines
from tests.evaluation.test_scores import LINES, READ, Read

BASE = score_lines(LINES, READ, {"Анна": "known", "Борис": "new"})
ADAPTER = score_lines(
    LINES, {"a": Read("ёлка"), "b": Read("пера"), "c": Read("йод")}, {"Анна": "known", "Борис": "new"}
)
CARD = make_scorecard(
    "test", BASE, ADAPTER, base_seconds=4, adapter_seconds=5.25, dataset={"test": "1f"}, settings={"prompt": "Прочти"}
)


def test_base_and_adapter_stand_side_by_side() -> None:
    values = CARD.as_dict()
    assert values["base"]["cer"] == 8 / 11
    assert values["adapter"]["cer"] == 1 / 11
    assert values["by_hands"]["new"]["base"]["cer"] == 1.0
    assert values["by_hands"]["known"]["adapter"]["exact_lines"] == 1
    assert (values["split"], values["dataset"], values["settings"]) == ("test", {"test": "1f"}, {"prompt": "Прочти"})


def test_a_card_survives_its_file(tmp_path: Path) -> None:
    path = tmp_path / "scorecard.json"
    CARD.save(path)
    assert Scorecard.load(path) == CARD
    assert json.loads(path.read_text(encoding="utf-8")) == CARD.as_dict()


def large(lines: int, writers: int, seed: int = 0) -> list[LineScore]:
    """Lines of many writers and pages, in two scripts, some misread, looping or empty."""
    chance = random.Random(seed)
    references, predictions = [], {}
    for number in range(lines):
        letters = "abcdefgh" if number % 7 == 0 else "абвгдежзинпт"
        text = "".join(chance.choices(letters + "  .5", k=chance.randint(1, 40)))
        read = "".join(chr(chance.randint(0x400, 0x1100)) if chance.random() < 0.2 else one for one in text)
        read = chance.choice([read, text, "", "ой " * 40])
        writer, page = f"w{number % writers}", f"p{number // 3}"
        references.append(replace(LINES[0], id=f"{number}", text=text, writer=writer, page=page))
        predictions[f"{number}"] = Read(read, truncated=len(read) > 100)
    return score_lines(references, predictions)


LARGE = large(400, 60)


@pytest.mark.parametrize(
    "card",
    [
        pytest.param(CARD, id="a small one"),
        pytest.param(make_scorecard("test", LARGE, large(400, 60)), id="one with more groups than are shown"),
        pytest.param(make_scorecard("test", BASE, None), id="the base alone"),
        pytest.param(make_scorecard("test", None, score_lines(LINES[:1], {"a": Read("ёлка")})), id="one perfect line"),
        pytest.param(
            make_scorecard("test", None, score_lines([replace(LINES[0], text="")], {"a": Read("да")})), id="no text"
        ),
    ],
)
def test_a_card_is_as_the_shipped_schema_says_and_survives_its_file(card: Scorecard, tmp_path: Path) -> None:
    card.save(tmp_path / "card.json")
    written = json.loads((tmp_path / "card.json").read_text(encoding="utf-8"))
    jsonschema_rs.Draft202012Validator(schema()).validate(written)
    assert written == card.as_dict()
    assert Scorecard.load(tmp_path / "card.json") == card


def test_the_guide_explains_every_key_of_the_card() -> None:
    guide = (Path(__file__).parents[2] / "docs" / "guide" / "scorecard.md").read_text(encoding="utf-8")
    parts = schema()["$defs"]
    names = {*schema()["properties"], *parts["score"]["properties"], *parts["averages"]["properties"]}
    names |= {
        *parts["characters"]["properties"],
        *parts["line"]["properties"],
        *schema()["properties"]["profiles"]["required"],
    }
    assert {name for name in names if f"`{name}`" not in guide and not name.endswith("_rate")} == set()


@pytest.mark.parametrize("name", list(CARD.as_dict()))
def test_the_schema_misses_what_is_missing(name: str) -> None:
    values = CARD.as_dict()
    del values[name]
    assert not jsonschema_rs.Draft202012Validator(schema()).is_valid(values)


def test_a_headline_has_its_interval_and_a_sentence_says_what_it_covers() -> None:
    card = make_scorecard("test", None, LARGE)
    assert card.adapter is not None
    interval = card.adapter.intervals["cer"]
    assert interval.low is not None
    assert interval.high is not None
    assert (interval.unit, interval.clusters) == ("writer", 60)
    assert interval.low < card.adapter.cer.rate < interval.high
    assert set(card.adapter.intervals) == {"cer", "wer", "exact"}
    assert "on other writers like these (95% interval over 60 writers)" in card.certainty[0]


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        pytest.param(BASE, "cannot be said: 3 lines are too few to tell", id="three lines"),
        pytest.param(large(8, 8), "8 writers are too few to tell the CER within a quarter", id="eight writers"),
        pytest.param([replace(line, writer=None) for line in LARGE], "says nothing about hands", id="pages"),
        pytest.param(
            [replace(line, writer=None, page=None) for line in LARGE], "every line counts by itself", id="lines"
        ),
    ],
)
def test_a_test_that_is_too_small_says_so(lines: list[LineScore], sentence: str) -> None:
    assert sentence in " ".join(make_scorecard("test", None, lines).certainty)


def test_every_line_is_in_one_group_of_each_kind_whatever_is_shown() -> None:
    card = make_scorecard("test", None, LARGE)
    assert card.adapter is not None
    assert len(card.groups["writer"].shown) == 40
    assert card.groups["writer"].others == 20
    for kind, groups in card.groups.items():
        scores = [group.scores.adapter for group in groups.shown]
        scores += [groups.others_scores.adapter] if groups.others_scores else []
        assert sum(score.lines for score in scores if score) == 400, kind
        assert sum(score.cer.errors for score in scores if score) == card.adapter.cer.errors, kind
    assert {group.name for group in card.groups["script"].shown} >= {"Cyrillic", "Latin"}
    bands = [group.name for group in card.groups["length"].shown]
    assert bands == sorted(bands, key=lambda band: int(str(band).split("-")[0]))


def test_lines_of_no_known_writer_are_a_group_without_a_name() -> None:
    assert [group.name for group in CARD.groups["writer"].shown] == ["Анна", "Борис", None]


@pytest.mark.parametrize(
    ("source", "name"),
    [
        pytest.param("lines.csv:392", "lines.csv", id="a row of a table"),
        pytest.param("letters/17.xml:12", "letters", id="a file in a folder"),
        pytest.param("a/b/17.parquet#3", "a/b", id="a folder in a folder"),
        pytest.param("17.txt", "17.txt", id="a file"),
        pytest.param("coco.json#images/17.jpg", "coco.json", id="an image in a file"),
        pytest.param(None, None, id="not known"),
    ],
)
def test_lines_are_grouped_by_the_folder_or_file_they_come_from(source: str | None, name: str | None) -> None:
    card = make_scorecard("test", None, [replace(BASE[0], source=source)])
    assert [group.name for group in card.groups["source"].shown] == [name]


def test_a_card_stays_small_however_much_is_scored() -> None:
    small, big = (make_scorecard("test", None, large(lines, lines)) for lines in (400, 3000))
    sizes = [len(json.dumps(card.as_dict(), ensure_ascii=False)) for card in (small, big)]
    assert sizes[1] < 1.1 * sizes[0]


def test_sides_with_other_references_are_refused() -> None:
    with pytest.raises(DataError, match="scored against other references, 1 in all: a"):
        make_scorecard("test", [replace(BASE[0], reference="елка"), *BASE[1:]], ADAPTER)


def test_the_order_in_which_the_sides_come_does_not_matter() -> None:
    turned = make_scorecard("test", BASE[::-1], ADAPTER)
    assert turned.groups == make_scorecard("test", BASE, ADAPTER).groups


def test_one_side_alone_makes_a_card(tmp_path: Path) -> None:
    card = make_scorecard("test", None, ADAPTER)
    assert card.as_dict()["base"] is None
    assert Scorecard.from_dict(card.as_dict()) == card
    assert "9.09%" in render_table(card)


def test_sides_with_different_lines_are_refused() -> None:
    with pytest.raises(DataError, match="did not read the same lines"):
        make_scorecard("test", BASE, ADAPTER[:2])


OLD: dict[str, object] = {
    "split": "test",
    "base": None,
    "adapter": None,
    "by_hands": {},
    "worst": [],
    "dsocr_version": "0.1",
}


@pytest.mark.parametrize(
    "content",
    ["{", "[]", "{}", json.dumps(OLD), json.dumps(CARD.as_dict() | {"format_version": 1}), '{"unknown": 1}'],
)
def test_another_file_is_not_a_card(tmp_path: Path, content: str) -> None:
    path = tmp_path / "scorecard.json"
    with pytest.raises(RunError, match="no such file"):
        Scorecard.load(path)
    path.write_text(content, encoding="utf-8")
    with pytest.raises(RunError, match="is not a scorecard") as caught:
        Scorecard.load(path)
    assert caught.value.hint == "run `dsocr evaluate` again"


def test_the_worst_lines_are_those_that_cost_most() -> None:
    assert [line.id for line in worst_lines(BASE)] == ["c", "b"], "equal errors: the shorter line first"
    assert [line.id for line in worst_lines(BASE, count=1)] == ["c"]
    assert [line.id for line in CARD.worst] == ["b"], "the adapter's, and no line without an error"


def test_the_table_says_what_the_card_says() -> None:
    rows = [line.split() for line in render_table(CARD).splitlines()]
    assert ["CER", "72.73%", "9.09%"] in rows
    assert ["exact", "1", "2"] in rows
    assert ["empty", "1", "0"] in rows
    assert ["runaway", "1", "0"] in rows
    assert ["seconds", "4.0", "5.2"] in rows
    assert ["new", "hands"] in rows
    assert ["macro:", "mean", "over", "lines", "77.78%", "8.33%"] in rows
    assert ["prediction", "пера"] in rows


def test_a_prediction_can_neither_flood_nor_drive_the_terminal() -> None:
    looping = replace(ADAPTER[0], prediction="\x1b[2J" + "ой\n" * 500, cer=BASE[1].cer)
    shown = render_table(replace(CARD, worst=(looping,)))
    assert "\x1b" not in shown
    assert "... (1503 characters)" in shown
    assert max(map(len, shown.splitlines())) < 240
