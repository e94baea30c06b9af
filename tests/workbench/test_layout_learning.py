"""The finding of lines learns from pages all of whose lines are reviewed, and is used where it became better."""

import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from dsocr.config import RunConfig
from dsocr.data.layouts import read_layout
from dsocr.data.source_report import SourceReport
from dsocr.document import Split
from dsocr.evaluation.layout_scores import LineCounts, PageLines
from dsocr.io.work import write_manifest
from dsocr.runs import SHIPPED_DETECTOR, RunFolder
from dsocr.workbench import layout_learning
from dsocr.workbench.archive import Archive, import_pages, open_archive
from dsocr.workbench.background import BackgroundTraining, TrainingStatus
from dsocr.workbench.layout_learning import LayoutLearner, PageSegmenter, TrainingPlan
from dsocr.workbench.page_export import LAYOUT_PAGES, export_layouts
from dsocr.workbench.session import Session
from dsocr.workbench.store import CorrectionStore, open_store
from dsocr.workbench.stored_lines import State
from tests.data.zigzag_pages import LINES, strips
from tests.raising import raises_code

PAGES = LAYOUT_PAGES + 1


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[tuple[CorrectionStore, Archive, Path]]:
    """Pages of three lines each, none of them reviewed, and the work folder."""
    work = tmp_path / "work"
    source = strips(tmp_path / "scans", pages=PAGES)
    with open_store(work / "corrections.sqlite") as store, open_archive(store, source, work / "unpacked") as archive:
        import_pages(store, archive, SourceReport(strict=True))
        yield store, archive, work


def review(store: CorrectionStore, pages: int) -> None:
    """Review all lines of the first pages, and of the others all but one."""
    for number, page in enumerate(store.pages()):
        first, second, last = store.lines(page.number)
        store.review(first, "a line", State.ACCEPTED, who="anna")
        store.review(second, "", State.UNREADABLE, who="anna")
        if number < pages:
            store.review(last, "a line", State.ACCEPTED, who="anna")


class FakeTraining:
    """A training whose run is the shipped detector, and finishes when a test says so."""

    def __init__(self, store: CorrectionStore, archive: Archive, work: Path) -> None:
        self.parts = store, archive
        self.work = work
        self.run: Path | None = None
        self.running = False

    def start(self) -> Path:
        dataset, self.run = self.work / "layout-dataset-1", self.work / "layout-run-1"
        export_layouts(*self.parts, dataset)
        config = RunConfig.model_validate({"base": "detector", "dataset": dataset, "output": self.run})
        shutil.copytree(SHIPPED_DETECTOR, self.run / "model")
        write_manifest(self.run / "model")
        (self.run / "config.yaml").write_text(config.to_yaml(), encoding="utf-8")
        self.running = True
        return self.run

    def status(self) -> TrainingStatus | None:
        return None if self.run is None else TrainingStatus(self.running)

    def is_running(self) -> bool:
        return self.running

    def stop(self) -> None:
        self.running = False


def learner_of(
    store: CorrectionStore, archive: Archive, work: Path, is_busy: bool = False
) -> tuple[LayoutLearner, FakeTraining, PageSegmenter]:
    training, segmenter = FakeTraining(store, archive, work), PageSegmenter(store, "ppocr")
    given = cast("BackgroundTraining", training)
    return LayoutLearner(store, archive, work, segmenter, lambda: is_busy, given), training, segmenter


def test_pages_with_all_lines_reviewed_are_learnt(opened: tuple[CorrectionStore, Archive, Path]) -> None:
    store, archive, work = opened
    review(store, LAYOUT_PAGES - 1)
    assert TrainingPlan.of(store) == TrainingPlan(PAGES + LAYOUT_PAGES - 1, LAYOUT_PAGES - 1, 1, None)
    with raises_code("layout-pages-few"):
        export_layouts(store, archive, work / "layout-dataset-1")
    left = store.lines(store.pages()[LAYOUT_PAGES - 1].number)[-1]
    store.review(left, "a line", State.ACCEPTED, who="anna")
    assert TrainingPlan.of(store) == TrainingPlan(PAGES + LAYOUT_PAGES, LAYOUT_PAGES, 0, 3)
    dataset = export_layouts(store, archive, work / "layout-dataset-1")
    training, validation = dataset.samples(Split.TRAIN), dataset.samples(Split.VALIDATION)
    assert (len(training), len(validation)) == (LAYOUT_PAGES - 2, 2)
    for sample in (*training, *validation):
        outlines = [line.outline for line in read_layout(sample).lines]
        assert sorted(outline.box[:2] for outline in outlines if outline) == sorted(box[:2] for box in LINES)


@pytest.mark.parametrize(
    ("before", "after", "is_used"),
    [
        ((2, 2), (2, 3), True),
        ((3, 2), (3, 2), False),
        ((3, 2), (2, 2), False),
        ((1, 3), (3, 2), False),  # more lines, but so uneven on two pages that it may be chance
    ],
)
def test_a_detector_that_became_better_finds_the_lines_of_new_pages(
    opened: tuple[CorrectionStore, Archive, Path],
    monkeypatch: pytest.MonkeyPatch,
    before: tuple[int, int],
    after: tuple[int, int],
    is_used: bool,
) -> None:
    store, archive, work = opened
    review(store, PAGES)
    counts = [
        PageLines(name, name, LineCounts(3, 3, new), LineCounts(3, 3, old))
        for name, new, old in zip("ab", after, before, strict=True)
    ]
    monkeypatch.setattr(layout_learning, "score_layouts", lambda samples, *detectors: counts)
    learner, training, segmenter = learner_of(store, archive, work)
    learner.step()
    assert training.run is None, "nobody asked"
    learner.ask()
    learner.step()
    learner.step()
    assert learner.is_learning
    assert learner.lesson is None
    training.running = False
    learner.step()
    assert learner.lesson is not None
    assert (learner.lesson.learnt, learner.lesson.pages, learner.is_learning) == (PAGES - 2, 2, False)
    assert (learner.lesson.before.matched, learner.lesson.after.matched) == (sum(before), sum(after))
    assert learner.lesson.is_better is is_used
    assert segmenter.name == (str(training.run) if is_used else "ppocr")
    again = PageSegmenter(store, "ppocr")
    assert (again.name, again.lost) == (segmenter.name, None), "it is used when the workbench is opened again"
    shutil.rmtree(work / "layout-run-1")
    again = PageSegmenter(store, "ppocr")
    assert (again.name, again.lost and again.lost.code) == ("ppocr", "segmenter-unknown" if is_used else None)


def test_equal_detectors_find_the_same(opened: tuple[CorrectionStore, Archive, Path]) -> None:
    store, archive, work = opened
    review(store, PAGES)
    learner, training, segmenter = learner_of(store, archive, work)
    learner.ask()
    learner.step()
    training.running = False
    learner.step()
    assert learner.lesson is not None
    assert learner.lesson.before == learner.lesson.after
    assert learner.lesson.before.drawn == 2 * len(LINES)
    assert segmenter.name == "ppocr"


def test_it_waits_for_the_training_of_the_reader(opened: tuple[CorrectionStore, Archive, Path]) -> None:
    store, archive, work = opened
    review(store, PAGES)
    learner, training, _ = learner_of(store, archive, work, is_busy=True)
    learner.ask()
    learner.step()
    assert training.run is None
    assert learner.is_learning


@pytest.mark.parametrize("pages", [LAYOUT_PAGES - 1, LAYOUT_PAGES])
def test_the_button_trains_the_reader_and_asks_for_the_layout_if_there_are_enough_pages(
    opened: tuple[CorrectionStore, Archive, Path], pages: int
) -> None:
    store, archive, work = opened
    review(store, pages)
    learner, training, _ = learner_of(store, archive, work)
    reader = FakeTraining(store, archive, work)
    started: list[bool] = []
    reader.start = lambda: started.append(True) or work  # type: ignore[method-assign,func-returns-value]
    given = cast("BackgroundTraining", reader)
    session = Session("scans", store, archive, work, training=given, layout=learner)
    session.train()
    assert started == [True]
    assert learner.is_learning is (pages == LAYOUT_PAGES)
    training.running = True
    with raises_code("training-running"):
        session.train()


def test_only_detectors_can_learn(
    opened: tuple[CorrectionStore, Archive, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, archive, work = opened
    review(store, PAGES)
    _, training, segmenter = learner_of(store, archive, work)
    run = training.start()
    assert segmenter.can_learn
    assert (segmenter.base, segmenter.weights()) == ("detector", SHIPPED_DETECTOR)
    other = PageSegmenter(store, str(run))
    assert other.can_learn
    assert (other.base, other.weights()) == (str(run), run / "model")
    monkeypatch.setattr(layout_learning, "choose_segmenter", lambda name, **_: lambda content, where: ())
    assert not PageSegmenter(store, "kraken").can_learn


@pytest.mark.slow
def test_a_layout_is_trained_in_another_process(opened: tuple[CorrectionStore, Archive, Path]) -> None:
    store, archive, work = opened
    review(store, PAGES)
    settings = {"max_steps": 2, "report_to": [], "threads": 1}
    config = RunConfig.model_validate({"base": "detector", "dataset": Path(), "output": Path(), "training": settings})
    training = BackgroundTraining(
        store, archive, work, config, export=lambda out: export_layouts(store, archive, out), prefix="layout-"
    )
    learner = LayoutLearner(store, archive, work, PageSegmenter(store, "ppocr"), training=training)
    learner.ask()
    while learner.is_learning:
        learner.step()
        time.sleep(0.2)
    status = training.status()
    assert status is not None
    assert (status.error, status.steps) == (None, 2)
    assert learner.lesson is not None
    assert learner.lesson.pages == 2
    assert RunFolder.to_find_lines_with(work / "layout-run-1").is_dir()


def test_narrow_columns_are_looked_at_again_where_tables_are_asked_for(
    opened: tuple[CorrectionStore, Archive, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, bool]] = []
    monkeypatch.setattr(
        "dsocr.workbench.layout_learning.choose_segmenter", lambda name, *, tables: asked.append((name, tables))
    )
    segmenter = PageSegmenter(opened[0], "ppocr", tables=True)
    segmenter.use(Path("run"))
    assert asked == [("ppocr", True), ("run", True)]
