"""What the window says to somebody who begins with scans, from the first line to the first lesson."""

from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from dsocr.evaluation.metrics import ErrorRate
from dsocr.language import localized
from dsocr.workbench.archive import Archive
from dsocr.workbench.background import BackgroundReader, Learner, Lesson
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


def case(
    accepted: int,
    judged: int,
    expected: str,
    learner: Watching | None,
    unfamiliar: float | None = None,
    *,
    can_learn: bool = False,
    **values: object,
) -> tuple[object, ...]:
    return accepted, judged, unfamiliar, learner, (expected, values, can_learn)


WAITING, ON = Watching(), Watching(is_on=True)
OFF_WORSE, OFF_UNSURE = Watching(lesson=WORSE), Watching(lesson=UNSURE)
CASES = {
    "the first line": case(0, 0, "first_lines", WAITING, left=20),
    "lines that no model read": case(25, 19, "first_lines", WAITING, left=1),
    "enough to say": case(20, 20, "hand_read_waits", WAITING, wrong=8, lines=20, left=30),
    "49": case(49, 49, "hand_read_waits", WAITING, wrong=8, lines=49, left=1),
    "it offers to learn": case(50, 50, "hand_read", WAITING, can_learn=True, wrong=8, lines=50),
    "it is on": case(50, 50, "hand_read", ON, wrong=8, lines=50),
    "it learns": case(50, 50, "hand_read", Watching(is_learning=True), wrong=8, lines=50),
    "nothing to train with": case(50, 50, "hand_read", None, wrong=8, lines=50),
    "unlike anything known": case(0, 0, "unfamiliar", WAITING, 0.61, mean=0.61, left=60),
    "enough of it": case(70, 70, "unfamiliar", WAITING, 0.61, can_learn=True, mean=0.61, left=0),
    "what learning changed": case(
        60, 60, "learnt", Watching(is_on=True, lesson=BETTER), 0.61, before=0.1, after=0.06, learnt=50, lines=40
    ),
    "on pages that it learnt from": case(
        60, 60, "learnt_here", Watching(is_on=True, lesson=HERE), before=0.1, after=0.06, learnt=43, lines=7
    ),
    "what learning did not change": case(
        60, 60, "learnt_worse", OFF_WORSE, can_learn=True, before=0.06, after=0.1, learnt=50, lines=40
    ),
    "what may be chance": case(
        60, 60, "learnt_unsure", OFF_UNSURE, can_learn=True, before=0.1, after=0.095, learnt=50, lines=40
    ),
}


@pytest.mark.parametrize(
    ("accepted", "judged", "unfamiliar", "learner", "expected"), [pytest.param(*CASES[name], id=name) for name in CASES]
)
def test_the_sentence_of_the_first_hour(
    store: CorrectionStore,
    archive: Archive,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    accepted: int,
    judged: int,
    unfamiliar: float | None,
    learner: Watching | None,
    expected: tuple[str, dict[str, Any], bool],
) -> None:
    session = Session("scans", store, archive, tmp_path)
    session.reader, session.learner = reader_of(100), cast("Learner", learner)
    statistics = Statistics(ErrorRate(80, 1000), judged, Outlook(), unfamiliar)
    monkeypatch.setattr(session, "statistics", lambda: statistics)
    monkeypatch.setattr(store, "counts", lambda: {State.ACCEPTED: accepted})
    advice = session.advice()
    assert advice is not None
    assert (advice.name, advice.values, advice.can_learn) == expected
    for language in ("en", "ru"):
        assert localized(language, advice.name, **advice.values)


def test_without_a_model_that_reads_there_is_no_sentence(
    store: CorrectionStore, archive: Archive, tmp_path: Path
) -> None:
    session = Session("scans", store, archive, tmp_path)
    assert session.advice() is None
    session.reader = reader_of(0)
    assert session.advice() is None, "all had texts"


def reader_of(total: int) -> BackgroundReader:
    """A reader that found so many lines to read."""
    return cast("BackgroundReader", SimpleNamespace(total=total))
