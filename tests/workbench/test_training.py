"""A training on corrections, begun from the workbench and watched from there."""

import os
import subprocess
import time
from pathlib import Path

import pytest

from dsocr.config import RunConfig
from dsocr.data.source_report import SourceReport
from dsocr.errors import DataError, RunError
from dsocr.runs import RunFolder
from dsocr.workbench.archive import fill, opened_shelf
from dsocr.workbench.background import Training
from dsocr.workbench.store import State, Store
from tests.workbench.making import make_pages


def _process(training: Training) -> "subprocess.Popen[bytes]":
    process = training._process
    assert process is not None
    return process


def test_a_training_runs_beside_the_workbench_and_leaves_a_run(small_config: RunConfig, tmp_path: Path) -> None:
    # A process with torch in it takes its seconds to start; nothing shorter shows that the button works.
    source, work = make_pages(tmp_path / "box"), tmp_path / "work"
    schedule = small_config.training.model_copy(update={"max_steps": 2, "batch_size": 2, "micro_batch_size": 1})
    recipe = small_config.model_copy(update={"training": schedule})
    store = Store.open(work / "corrections.sqlite")
    with opened_shelf(store, source, work / "unpacked") as shelf:
        fill(store, shelf, SourceReport(strict=True))
        training = Training(store, shelf, work, recipe)
        assert training.standing() is None
        with pytest.raises(DataError, match="no line is accepted"):
            training.start()
        for line in store.lines():  # with what is drawn there: a training on other texts is refused
            store.settle(line, f"line {line.place + 1:.0f} of page {line.page}", State.ACCEPTED, who="anna")
        (work / "run-3.yaml").touch()  # of a run that somebody removed: its number is not given again
        run = training.start()
        assert run == work / "run-4"
        assert os.name == "nt" or os.getpgid(_process(training).pid) != os.getpgid(0)  # Ctrl-C ends it once, by `end`
        with pytest.raises(RunError, match="training already"):
            training.start()
        while (standing := training.standing()) and standing.is_at_work:
            time.sleep(0.2)
        assert standing is not None
        assert (standing.fault, standing.steps, standing.share) == (None, 2, 1.0)
        assert RunFolder.open(run).adapter.is_dir()
        training.end()
    store.close()
