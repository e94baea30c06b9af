"""Workers answer in order, tell of their death in a sentence, and are not left behind."""

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from dsocr.errors import DataError
from dsocr.io import processes
from dsocr.io.processes import worker_processes
from tests.conftest import PATIENCE
from tests.raising import raises_code


def square(number: int) -> int:
    return number * number


def fail(number: int) -> int:
    raise DataError(f"{number} cannot be used", code="refused", where="here", hint="give another")


def die() -> None:
    os._exit(3)


@pytest.mark.parametrize("count", [1, 2], ids=["here", "in two processes"])
def test_answers_and_errors_come_with_the_result(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "START_AFTER", 0.0)
    with worker_processes(count) as workers:
        answers = [workers.submit(square, number) for number in range(5)]
        refused = workers.submit(fail, 7)
        assert [workers.result(answer) for answer in answers] == [0, 1, 4, 9, 16]
        with raises_code("refused") as error:
            workers.result(refused)
    assert (error.value.where, error.value.hint) == ("here", "give another")


def test_little_work_is_done_here() -> None:
    with worker_processes(8) as workers:
        assert workers.result(workers.submit(os.getpid)) == os.getpid()


def test_a_worker_that_dies_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "START_AFTER", 0.0)
    with worker_processes(2) as workers, raises_code("worker-died"):
        workers.result(workers.submit(die))


def test_a_script_needs_no_main_guard(tmp_path: Path) -> None:
    code = """
import os, sys
from dsocr.io import processes
processes.START_AFTER = 0.0
with processes.worker_processes(2) as workers:
    print(workers.result(workers.submit(os.getpid)) != os.getpid(), os.path.basename(__file__))
"""
    (tmp_path / "script.py").write_text(code, encoding="utf-8")
    ran = subprocess.run([sys.executable, tmp_path / "script.py"], capture_output=True, text=True)
    assert ran.stdout == "True script.py\n", ran.stderr


def test_workers_go_when_their_parent_is_killed() -> None:
    code = """
import os, time
from dsocr.io import processes
processes.START_AFTER = 0.0
if __name__ == "__main__":
    with processes.worker_processes(2) as workers:
        print(workers.result(workers.submit(os.getpid)), flush=True)
        time.sleep(60)
"""
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    with parent, parent.stdout as output:
        worker = int(output.readline())
        assert psutil.pid_exists(worker)
        parent.kill()
    deadline = time.monotonic() + PATIENCE
    while _lives(worker) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not _lives(worker)


def _lives(worker: int) -> bool:
    try:
        return bool(psutil.Process(worker).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
