"""What a workbench does in the background: reading lines and training on corrections."""

import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from PIL import Image

from dsocr.config import RunConfig, load_config
from dsocr.data.dataset import SourceReport
from dsocr.document import Line, Outline
from dsocr.inference.confidence import Prediction
from dsocr.runs import RunFolder
from dsocr.workbench.archive import Archive, import_pages, open_archive
from dsocr.workbench.background import (
    BackgroundReader,
    BackgroundTraining,
    Learner,
    PageFinder,
    TrainingStatus,
    find_training_config,
    learnt_run,
)
from dsocr.workbench.page_export import export_dataset
from dsocr.workbench.session import Session
from dsocr.workbench.store import CorrectionStore
from dsocr.workbench.stored_lines import State, StoredLine
from tests.conftest import PATIENCE
from tests.data.making import write_pages
from tests.raising import raises_code
from tests.training.running import pinned
from tests.workbench.fakes import FakeReader, make_pages, opened


def read_all(store: CorrectionStore, archive: Archive, reader: type[FakeReader] = FakeReader) -> BackgroundReader:
    """A background reader that has finished."""
    reading = BackgroundReader(store, archive, reader)
    reading.start()
    wait_for(lambda: not reading.is_running)
    return reading


def wait_for(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)


def test_a_model_reads_what_has_no_text(store: CorrectionStore, archive: Archive) -> None:
    stopped = BackgroundReader(store, archive, FakeReader)
    stopped.start()
    stopped.stop()
    assert stopped.total == 2
    assert read_all(store, archive).error is None
    assert store.counts()[State.UNREAD] == 0
    read = [line for line in store.lines() if line.machine == "не точно"]
    assert [line.confidence for line in read] == [0.7, 0.7]
    assert len(read[0].characters) == len(read[0].text)


def test_a_failing_reader_reports_its_error(store: CorrectionStore, archive: Archive) -> None:
    class Failing(FakeReader):
        def read(self, *_: object) -> Iterator[Prediction]:
            raise MemoryError("no room")

    assert read_all(store, archive, Failing).error == "MemoryError: no room"


def test_lines_without_an_image_are_skipped(store: CorrectionStore, archive: Archive) -> None:
    (archive.root / "scan-1.png").unlink()
    beyond = StoredLine(0, 0, 0, Outline((9000, 10, 9400, 90)))
    store.add_page(replace(store.pages()[1], name="again"), [beyond])
    reading = read_all(store, archive)
    assert reading.error is None
    assert [message.partition(":")[0] for message in reading.skipped] == ["scan-1", "again"]
    assert [line.text for line in store.lines() if line.machine] == ["не точно"]
    assert reading.done == reading.total == 3


def finder_of(store: CorrectionStore, archive: Archive, session: Session, **options: Any) -> PageFinder:
    def find(progress: Callable[[int, int], None]) -> None:
        import_pages(store, archive, SourceReport(strict=False), progress=progress, **options)

    session.finder = PageFinder(find, session.add_pages)
    session.finder.start()
    return session.finder


def test_the_first_page_is_read_while_the_others_are_searched(empty_store: CorrectionStore, tmp_path: Path) -> None:
    source = tmp_path / "scans"
    source.mkdir()
    for number in range(3):
        Image.new("RGB", (700, 1000), (240, 235, 220)).save(source / f"{number}.png")
    first_is_read = threading.Event()

    def find_lines(content: bytes, where: str) -> list[Line]:
        assert where == "0.png" or first_is_read.wait(PATIENCE)
        return [Line("", where, Outline((60, top, 600, top + 60))) for top in (80, 190)]

    with open_archive(empty_store, source, tmp_path / "u", detect=find_lines) as archive:
        session = Session("scans", empty_store, archive, tmp_path)
        session.reader = BackgroundReader(empty_store, archive, FakeReader)
        finder = finder_of(empty_store, archive, session)
        finder.wait(lambda: bool(session.pages))
        assert (len(session.pages), finder.is_running) == (1, True)
        wait_for(lambda: empty_store.counts()[State.READ] == 2)
        first_is_read.set()
        wait_for(lambda: empty_store.counts()[State.READ] == 6)
        finder.wait(lambda: False)
        assert (list(session.pages), finder.done, finder.total) == ([1, 2, 3], 3, 3)
        wait_for(lambda: session.reader is not None and not session.reader.is_running)
        assert session.reader.done == session.reader.total == 6
        session.close()


def test_a_search_that_fails_before_the_first_page_says_why(
    empty_store: CorrectionStore, source: Path, tmp_path: Path
) -> None:
    with open_archive(empty_store, source, tmp_path / "u") as archive:
        finder = finder_of(empty_store, archive, Session("box", empty_store, archive, tmp_path), writer="nobody")
        with raises_code("pattern-matches-nothing"):
            finder.wait(lambda: False)


def test_a_search_is_stopped_after_its_page(empty_store: CorrectionStore, source: Path, tmp_path: Path) -> None:
    with open_archive(empty_store, source, tmp_path / "u") as archive:
        session = Session("box", empty_store, archive, tmp_path)

        def find(progress: Callable[[int, int], None]) -> None:
            for done in count():
                progress(done, 0)

        session.finder = PageFinder(find, session.add_pages)
        session.finder.start()
        session.close()
        assert not session.finder.is_running
        assert session.finder.error is None


def test_lines_that_are_added_when_the_thread_is_about_to_end_are_read(
    store: CorrectionStore, archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines_of = store.lines

    def add_after_the_last() -> list[StoredLine]:
        lines = lines_of()
        if len(store.pages()) == 2 and not any(line.state is State.UNREAD for line in lines):
            line = StoredLine(0, 0, 0, Outline((20, 10, 650, 90)))
            store.add_page(replace(store.pages()[1], name="new"), [line])
            reading.start()
        return lines

    reading = BackgroundReader(store, archive, FakeReader)
    monkeypatch.setattr(store, "lines", add_after_the_last)
    reading.start()
    wait_for(lambda: not reading.is_running)
    assert len(store.pages()) == 3
    assert store.counts()[State.UNREAD] == 0


def _process(training: BackgroundTraining) -> "subprocess.Popen[bytes]":
    process = training._process
    assert process is not None
    return process


@pytest.mark.slow
def test_a_training_runs_in_another_process_and_leaves_a_run(small_config: RunConfig, tmp_path: Path) -> None:
    # Importing torch takes seconds, but nothing shorter shows that the button works.
    source, work = make_pages(tmp_path / "box"), tmp_path / "work"
    schedule = small_config.training.model_copy(update={"max_steps": 2, "batch_size": 2, "micro_batch_size": 1})
    recipe = small_config.model_copy(update={"training": schedule})
    store = CorrectionStore.open(work / "corrections.sqlite")
    with open_archive(store, source, work / "unpacked") as archive:
        import_pages(store, archive, SourceReport(strict=True))
        training = BackgroundTraining(store, archive, work, recipe)
        assert training.status() is None
        with raises_code("nothing-accepted"):
            training.start()
        for line in store.lines():  # the drawn texts: preflight rejects others
            store.review(line, f"line {line.place + 1:.0f} of page {line.page}", State.ACCEPTED, who="anna")
        (work / "run-3.yaml").touch()  # of a deleted run: its number is not used again
        run = training.start()
        assert run == work / "run-4"
        assert os.name == "nt" or os.getpgid(_process(training).pid) != os.getpgid(
            0
        )  # Ctrl-C reaches it once, through `stop`
        with raises_code("training-running"):
            training.start()
        while (status := training.status()) and status.is_running:
            time.sleep(0.2)
        assert status is not None
        assert (status.error, status.steps, status.share) == (None, 2, 1.0)
        assert RunFolder.open(run).adapter.is_dir()
        training.stop()
    store.close()


def test_it_trains_with_the_defaults_of_the_base(
    store: CorrectionStore, archive: Archive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = find_training_config(Path("small"), None)
    assert config is not None
    for line in store.lines():
        store.review(line, f"line {line.number}", State.ACCEPTED, who="anna")
    monkeypatch.setattr(subprocess, "Popen", lambda *arguments, **options: SimpleNamespace(pid=0))
    monkeypatch.setattr(os, "setpriority", lambda *arguments: None, raising=False)
    run = BackgroundTraining(store, archive, tmp_path, config).start()
    written = load_config(run.with_suffix(".yaml"))
    usual = load_config({"dataset": written.dataset, "output": run, "base": "small"})
    assert pinned(written) == pinned(usual)
    assert pinned(written).training.batch_size == 16


def test_lines_that_nobody_touched_are_read_again(store: CorrectionStore, archive: Archive) -> None:
    read_all(store, archive)
    source_text, _, accepted, _, edited, _ = store.lines()
    store.review(accepted, "принято", State.ACCEPTED, who="anna")
    store.replace_texts([(edited, "набрано")], who="anna")
    again = BackgroundReader(store, archive, Typing, again=True)
    assert again.total == 0, "all that a model had read was accepted or edited"
    store.undo("anna")
    again = BackgroundReader(store, archive, Typing, again=True)
    again.start()
    while again.is_running:
        time.sleep(0.01)
    assert store.lines()[4].text == "точно!!!!!"
    assert store.lines()[0] == source_text
    assert store.lines()[2].text == "принято"


class FakeTraining:
    """A training run on all accepted lines that finishes when a test lets it."""

    def __init__(self, store: CorrectionStore, archive: Archive, work: Path) -> None:
        self.parts = store, archive, work
        self.run: Path | None = None
        self.is_running = False
        self.started = 0

    def start(self) -> Path:
        store, archive, work = self.parts
        self.started += 1
        self.run = work / f"run-{self.started}"
        dataset = work / "dataset"
        if not dataset.exists():
            export_dataset(store, archive, dataset)
        self.run.mkdir()
        config = RunConfig.model_validate({"dataset": dataset, "output": self.run})
        (self.run / "config.yaml").write_text(config.to_yaml(), encoding="utf-8")
        self.is_running = True
        return self.run

    def status(self) -> TrainingStatus | None:
        return None if self.run is None else TrainingStatus(self.is_running)


class Typing(FakeReader):
    """Reads everything as the same text."""

    def __init__(self, text: str = "точно!!!!!") -> None:
        self.text = text

    def read(self, images: Iterable[tuple[str, Image.Image]]) -> Iterator[Prediction]:
        for name, _ in images:
            yield Prediction(name, self.text, 4, truncated=False)


def test_a_run_starts_once_enough_lines_are_accepted_and_too_few_validation_lines_adopt_no_reader(
    store: CorrectionStore, archive: Archive, tmp_path: Path
) -> None:
    used: list[Path] = []
    training = FakeTraining(store, archive, tmp_path / "work")
    learner = Learner(
        store,
        cast("BackgroundTraining", training),
        lambda load: used.append(Path(cast("Typing", load()).text)),
        load=lambda run: Typing("line 1"),
        first=lambda: Typing("line"),
        least=6,
    )
    for line in store.lines():
        store.review(line, f"line {line.number}", State.ACCEPTED, who="anna")
    learner.step()
    assert training.started == 0, "it is off"
    learner.is_on = True
    learner.step()
    learner.step()
    assert (training.started, learner.lesson, used) == (1, None, [])
    training.is_running = False
    learner.step()
    assert learner.lesson is not None
    assert 0 < learner.lesson.lines < 6
    assert learner.lesson.learnt + learner.lesson.lines == len(store.lines()), "each accepted line is in one"
    assert learner.lesson.same_pages, "there are too few pages to keep whole ones"
    assert learner.lesson.before is not None
    assert learner.lesson.after.errors < learner.lesson.before.errors
    assert (learner.lesson.is_better, used) == (False, [])
    learner.step()
    assert training.started == 1, "nothing new was accepted"
    assert learner.wanted() == 16


@pytest.fixture
def seven_kept(tmp_path: Path) -> Iterator[tuple[CorrectionStore, Archive]]:
    """Three pages of 20, 20 and 7 lines, all accepted as they are: the last page is kept for validation."""
    for name, lines in (("a", 20), ("b", 20), ("c", 7)):
        write_pages(tmp_path / "scans", [name], lines=lines)
    with opened(tmp_path / "scans", tmp_path / "work") as (store, archive):
        for line in store.lines():
            store.review(line, line.text, State.ACCEPTED, who="anna")
        yield store, archive


class Erring(FakeReader):
    """Reads the lines of page c with so many wrong letters each, in turns."""

    def __init__(self, *errors: int) -> None:
        self.errors = errors

    def read(self, images: Iterable[tuple[str, Image.Image]]) -> Iterator[Prediction]:
        for name, _ in images:
            errors = self.errors[int(name) % len(self.errors)]
            yield Prediction(name, f"c строка {name}" + "!" * errors, 4, truncated=False)


def test_what_reads_a_page_that_was_not_learnt_best_reads_the_rest(
    seven_kept: tuple[CorrectionStore, Archive], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader that proves worse on later lines is taken back; where chance decides, what reads goes on."""
    store, archive = seven_kept
    training, used = FakeTraining(store, archive, tmp_path / "work"), []
    runs = {"run-1": Erring(1), "run-2": Erring(3, 0), "run-3": Erring(3), "run-4": Erring(2), "run-5": Erring(2)}
    first = Erring(2)
    learner = Learner(
        store,
        cast("BackgroundTraining", training),
        lambda load: used.append(load()),
        load=lambda run: runs[run.name],
        first=lambda: first,
        least=1,
    )
    learner.is_on = True
    seen, learnt = [], []
    for number in range(len(runs)):
        monkeypatch.setattr(store, "counts", lambda: {State.ACCEPTED: 100 * 2**number})  # noqa: B023 - used at once
        learner.step()
        training.is_running = False
        learner.step()
        assert learner.lesson is not None
        assert (learner.lesson.lines, learner.lesson.same_pages) == (7, False)
        seen.append((learner.lesson.is_better, learner.lesson.is_worse))
        learnt.append(learnt_run(store))
    assert learnt == [tmp_path / "work" / "run-1"] * 2 + [None] * 3, "the next start of the workbench reads with it"
    assert seen == [(True, False), (False, False), (False, True), (False, True), (False, True)]
    assert used == [runs["run-1"], first], "what is in use already is not loaded again"
