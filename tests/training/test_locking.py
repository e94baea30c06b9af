import subprocess
import sys
import time
from pathlib import Path

import pytest

from dsocr.errors import RunError
from dsocr.runs import RunFolder
from dsocr.training.requirements import RunLock
from tests.conftest import PATIENCE

HOLD = """
import sys, time
from pathlib import Path
from dsocr.runs import RunFolder
from dsocr.training.requirements import RunLock
with RunLock(RunFolder(Path(sys.argv[1]))):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_second_training_is_refused_and_the_first_is_named_until_it_dies(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with pytest.raises(RunError, match=f"is being trained by process {other.pid} on"), RunLock(RunFolder(tmp_path)):
            pass
        other.kill()
        other.wait()
    deadline = time.monotonic() + PATIENCE
    while True:  # the system may take a moment to take the lock back
        try:
            with RunLock(RunFolder(tmp_path)):
                return
        except RunError:
            assert time.monotonic() < deadline


def test_a_training_that_does_not_begin_makes_no_folder(tmp_path: Path) -> None:
    with RunLock(RunFolder(tmp_path / "run")):
        pass
    assert not (tmp_path / "run").exists()


def test_a_folder_that_another_process_made_meanwhile_is_left_to_it(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "run")
    with RunLock(run) as late:
        with RunLock(run) as first:
            first.take()
            run.config.write_text("theirs", encoding="utf-8")
        with pytest.raises(RunError, match="was begun by another process meanwhile"):
            late.take()
    assert run.config.read_text(encoding="utf-8") == "theirs"


def test_the_lock_is_free_again_when_a_training_ends(tmp_path: Path) -> None:
    for _ in range(2):
        with RunLock(RunFolder(tmp_path)) as lock:
            lock.take()
    assert {path.name for path in tmp_path.iterdir()} <= RunLock.names(RunFolder(tmp_path))
