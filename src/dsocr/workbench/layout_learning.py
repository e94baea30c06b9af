"""The finding of lines learns from pages that were corrected in the workbench, as the reader does from their texts."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from dsocr.config import RunConfig, load_run_config
from dsocr.data.dataset import Dataset
from dsocr.document import Split
from dsocr.errors import DataError, DsocrError, RunError
from dsocr.evaluation.layout_scores import LineCounts, score_layouts
from dsocr.inference.inputs import DETECTOR, FindLines, choose_segmenter
from dsocr.runs import DETECTOR as BASE
from dsocr.runs import RunFolder
from dsocr.workbench.archive import Archive
from dsocr.workbench.background import BackgroundTraining, StepThread, is_clearly_less, noise_of_difference
from dsocr.workbench.page_export import LAYOUT_PAGES, complete_pages, export_layouts
from dsocr.workbench.store import CorrectionStore
from dsocr.workbench.stored_lines import State

_SETTING = "segmenter"
"""Under which the corrections file keeps the run that finds the lines of new pages."""
_MINUTES_A_PAGE = 0.5
"""Ten pages took 2 to 7 minutes in one thread of a busy machine (docs/guide/layouts.md)."""


class PageSegmenter:
    """Finds the lines of the pages of a workbench: as it was told when it was opened, or as it has learnt since.

    `name` and `tables` are as `choose_segmenter` takes them; the run that was learnt is kept in the corrections file,
    and used as long as it is there and no other than the shipped detector is asked for. `lost` says why that run,
    `learnt`, is not used.
    """

    def __init__(self, store: CorrectionStore, name: str, *, tables: bool = False) -> None:
        self._store = store
        self._tables = tables
        self.first = name
        self._find: FindLines = choose_segmenter(name, tables=tables)
        self.name = name
        self.lost: DsocrError | None = None
        self.learnt = store.setting(_SETTING)
        if name == DETECTOR and self.learnt:
            try:
                self.use(Path(self.learnt))
            except (DataError, RunError) as error:  # was deleted or damaged meanwhile, and can be learnt again
                self.lost = error

    def __call__(self, content: bytes, where: str) -> Any:
        """Return the lines of a page."""
        return self._find(content, where)

    @property
    def can_learn(self) -> bool:
        """Whether it is a detector that can be trained; kraken is not."""
        return self.first == DETECTOR or Path(self.first).is_dir()

    @property
    def base(self) -> str:
        """The base of trainings: what the workbench was opened with, which never saw its pages."""
        return BASE if self.first == DETECTOR else self.first

    def weights(self) -> Path:
        """Return the folder with the weights that find lines now."""
        return RunFolder.to_find_lines_with(Path(BASE if self.name == DETECTOR else self.name))

    def use(self, run: Path) -> None:
        """Find the lines of pages from now on with what a run has learnt."""
        self._find, self.name = choose_segmenter(str(run), tables=self._tables), str(run)
        self._store.set_setting(_SETTING, str(run))


@dataclass(frozen=True, slots=True)
class LayoutLesson:
    """What a run brought that `learnt` from pages: the lines that either detector finds on `pages` for validation.

    `noise` is the standard error of the difference between the two in wrong lines, pages being drawn by chance.
    """

    learnt: int
    pages: int
    before: LineCounts
    after: LineCounts
    noise: float = 0.0

    @property
    def is_better(self) -> bool:
        """Whether the new detector shall find the lines of new pages: fewer are wrong, by more than chance might."""
        return is_clearly_less(self.after.wrong, self.before.wrong, self.noise)


@dataclass(frozen=True, slots=True)
class TrainingPlan:
    """What "Train on corrections" would train on: accepted lines, and pages all of whose lines are reviewed.

    `minutes` is about how long the finding of lines takes; None if it needs `missing` more pages.
    """

    lines: int
    pages: int
    missing: int
    minutes: int | None

    @classmethod
    def of(cls, store: CorrectionStore) -> "TrainingPlan":
        """Return what there is to train on now."""
        pages = len(complete_pages(store))
        missing = max(LAYOUT_PAGES - pages, 0)
        minutes = None if missing else max(round(_MINUTES_A_PAGE * pages), 1)
        return cls(store.counts()[State.ACCEPTED], pages, missing, minutes)


class LayoutLearner:
    """Trains the finding of lines when it is asked to and nothing else trains, and uses it where it became better.

    `lesson` is the latest result, `error` why there is none. `is_busy` says whether the reader is being trained.
    """

    def __init__(
        self,
        store: CorrectionStore,
        archive: Archive,
        work: Path,
        segmenter: PageSegmenter,
        is_busy: Callable[[], bool] = lambda: False,
        training: BackgroundTraining | None = None,
    ) -> None:
        config = RunConfig.model_validate({"base": segmenter.base, "dataset": Path(), "output": Path()})
        export = partial(export_layouts, store, archive)
        self.training = training or BackgroundTraining(store, archive, work, config, export=export, prefix="layout-")
        self._store = store
        self._segmenter = segmenter
        self._is_busy = is_busy
        self._is_asked = False
        self._pending: Path | None = None
        self._thread = StepThread(self.step, self._fail, "dsocr-layout")
        self.lesson: LayoutLesson | None = None
        self.error: str | None = None

    @property
    def is_learning(self) -> bool:
        """Whether it waits for the reader's training, is being trained or judged."""
        return self._is_asked or self._pending is not None

    def ask(self) -> None:
        """Train as soon as nothing else does."""
        self._is_asked = True

    def start(self) -> None:
        """Start to watch the trainings."""
        self._thread.start()

    def stop(self) -> None:
        """Stop watching, and a run that is being trained; it writes a checkpoint first."""
        self._thread.stop()
        self.training.stop()

    def step(self) -> None:
        """Start a run that was asked for, or judge one that has finished. Raises DataError if pages are too few."""
        status = self.training.status()
        if status is not None and status.is_running:
            return
        if self._pending is not None:
            run, self._pending = self._pending, None
            if status is not None and status.error is None:
                self.lesson, self.error = self._judge(run), None
                if self.lesson.is_better:
                    self._segmenter.use(run)
        elif self._is_asked and not self._is_busy():
            self._is_asked = False
            self._pending = self.training.start()

    def _fail(self, message: str) -> None:
        self.error, self._pending, self._is_asked = message, None, False

    def _judge(self, run: Path) -> LayoutLesson:
        from dsocr.models.text_detector import load_detector

        dataset = Dataset.open(load_run_config(RunFolder(run).config).dataset)
        samples, learnt = dataset.samples(Split.VALIDATION), dataset.samples(Split.TRAIN)
        folders = RunFolder.to_find_lines_with(run), self._segmenter.weights()
        pages = score_layouts(samples, *map(load_detector, folders))
        before, after = [page.base or LineCounts() for page in pages], [page.counts for page in pages]
        noise = noise_of_difference((counts.wrong for counts in before), (counts.wrong for counts in after))
        return LayoutLesson(len(learnt), len(pages), sum(before, LineCounts()), sum(after, LineCounts()), noise)
