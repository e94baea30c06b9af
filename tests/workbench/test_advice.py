"""What the window says to somebody who begins with scans, from the first line to the first lesson."""

from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from dsocr.evaluation.metrics import ErrorRate
from dsocr.workbench.archive import Archive
from dsocr.workbench.background import BackgroundReader, Learner, Lesson
from dsocr.workbench.dialogs import interface_text
from dsocr.workbench.session import Outlook, Session, Statistics
from dsocr.workbench.store import CorrectionStore
from dsocr.workbench.stored_lines import State

BETTER = Lesson(50, 40, ErrorRate(100, 1000), ErrorRate(60, 1000), same_pages=False)
HERE = Lesson(43, 7, ErrorRate(100, 1000), ErrorRate(60, 1000), same_pages=True)
WORSE = Lesson(50, 40, ErrorRate(60, 1000), ErrorRate(100, 1000), same_pages=True, is_better=False)
UNSURE = Lesson(50, 40, ErrorRate(100, 1000), ErrorRate(95, 1000), same_pages=False, is_better=False)


@dataclass
class Watching:
    """A learner that waits for 50 accepted lines."""

    is_on: bool = False
    is_learning: bool = False
    lesson: Lesson | None = None

    def wanted(self) -> int:
        return 50


@pytest.mark.parametrize(
    ("accepted", "judged", "unfamiliar", "learner", "expected"),
    [
        pytest.param(0, 0, None, Watching(), ("first_lines", {"left": 20}, False), id="the first line"),
        pytest.param(25, 19, None, Watching(), ("first_lines", {"left": 1}, False), id="lines that no model read"),
        pytest.param(
            20,
            20,
            None,
            Watching(),
            ("hand_read_waits", {"wrong": 8, "lines": 20, "left": 30}, False),
            id="enough to say",
        ),
        pytest.param(
            49, 49, None, Watching(), ("hand_read_waits", {"wrong": 8, "lines": 49, "left": 1}, False), id="49"
        ),
        pytest.param(50, 50, None, Watching(), ("hand_read", {"wrong": 8, "lines": 50}, True), id="it offers to learn"),
        pytest.param(
            50, 50, None, Watching(is_on=True), ("hand_read", {"wrong": 8, "lines": 50}, False), id="it is on"
        ),
        pytest.param(
            50, 50, None, Watching(is_learning=True), ("hand_read", {"wrong": 8, "lines": 50}, False), id="it learns"
        ),
        pytest.param(50, 50, None, None, ("hand_read", {"wrong": 8, "lines": 50}, False), id="nothing to train with"),
        pytest.param(
            0, 0, 0.61, Watching(), ("unfamiliar", {"mean": "61 %", "left": 60}, False), id="unlike anything known"
        ),
        pytest.param(70, 70, 0.61, Watching(), ("unfamiliar", {"mean": "61 %", "left": 0}, True), id="enough of it"),
        pytest.param(
            60,
            60,
            0.61,
            Watching(is_on=True, lesson=BETTER),
            ("learnt", {"before": "10.0 %", "after": "6.0 %", "learnt": 50, "lines": 40}, False),
            id="what learning changed",
        ),
        pytest.param(
            60,
            60,
            0.61,
            Watching(is_on=True, lesson=HERE),
            ("learnt_here", {"before": "10.0 %", "after": "6.0 %", "learnt": 43, "lines": 7}, False),
            id="what learning changed on pages that it learnt from",
        ),
        pytest.param(
            60,
            60,
            None,
            Watching(lesson=WORSE),
            ("learnt_worse", {"before": "6.0 %", "after": "10.0 %", "learnt": 50, "lines": 40}, True),
            id="what learning did not change",
        ),
        pytest.param(
            60,
            60,
            None,
            Watching(lesson=UNSURE),
            ("learnt_unsure", {"before": "10.0 %", "after": "9.5 %", "learnt": 50, "lines": 40}, True),
            id="what may be chance",
        ),
    ],
)
def test_the_sentence_of_the_first_hour(
    empty_store: CorrectionStore,
    archive: Archive,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    accepted: int,
    judged: int,
    unfamiliar: float | None,
    learner: Watching | None,
    expected: tuple[str, dict[str, Any], bool],
) -> None:
    session = Session("scans", empty_store, archive, tmp_path)
    session.reader, session.learner = reader_of(100), cast("Learner", learner)
    statistics = Statistics(ErrorRate(80, 1000), judged, Outlook(), unfamiliar)
    monkeypatch.setattr(session, "statistics", lambda: statistics)
    monkeypatch.setattr(empty_store, "counts", lambda: {State.ACCEPTED: accepted})
    advice = session.advice()
    assert advice is not None
    assert (advice.name, advice.values, advice.can_learn) == expected
    for language in ("en", "ru"):
        assert interface_text(language, advice.name, **advice.values)


def test_without_a_model_that_reads_there_is_no_sentence(
    empty_store: CorrectionStore, archive: Archive, tmp_path: Path
) -> None:
    session = Session("scans", empty_store, archive, tmp_path)
    assert session.advice() is None
    session.reader = reader_of(0)
    assert session.advice() is None, "all had texts"


def reader_of(total: int) -> BackgroundReader:
    """A reader that found so many lines to read."""
    return cast("BackgroundReader", SimpleNamespace(total=total))
