import json
from dataclasses import replace
from pathlib import Path

import pytest

from dsocr.errors import DataError, RunError
from dsocr.evaluation.scorecard import Scorecard, make_scorecard, worst_lines
from dsocr.evaluation.scores import score_lines
from dsocr.evaluation.table import render_table
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


def test_one_side_alone_makes_a_card(tmp_path: Path) -> None:
    card = make_scorecard("test", None, ADAPTER)
    assert card.as_dict()["base"] is None
    assert Scorecard.from_dict(card.as_dict()) == card
    assert "9.09%" in render_table(card)


def test_sides_with_different_lines_are_refused() -> None:
    with pytest.raises(DataError, match="did not read the same lines"):
        make_scorecard("test", BASE, ADAPTER[:2])


@pytest.mark.parametrize("content", ["{", "[]", "{}", '{"base": 1, "adapter": null}', '{"unknown": 1}'])
def test_another_file_is_not_a_card(tmp_path: Path, content: str) -> None:
    path = tmp_path / "scorecard.json"
    with pytest.raises(RunError, match="no such file"):
        Scorecard.load(path)
    path.write_text(content, encoding="utf-8")
    with pytest.raises(RunError, match="is not a scorecard"):
        Scorecard.load(path)


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
    assert ["prediction", "пера"] in rows


def test_a_prediction_can_neither_flood_nor_drive_the_terminal() -> None:
    looping = replace(ADAPTER[0], prediction="\x1b[2J" + "ой\n" * 500, cer=BASE[1].cer)
    shown = render_table(replace(CARD, worst=(looping,)))
    assert "\x1b" not in shown
    assert "... (1503 characters)" in shown
    assert max(map(len, shown.splitlines())) < 240
