"""Workers answer in order, tell of their death in a sentence, and are not left behind; limits are kept."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import psutil
import pytest

from dsocr.io import processes
from dsocr.io.processes import START_AFTER, LimitedProcess, OverLimit, Workers, free_threads
from tests.conftest import PATIENCE
from tests.io.called import die, fail, fill_memory, fill_memory_slowly, never_end, raise_a_bug, square
from tests.raising import raises_code


@pytest.mark.parametrize("count", [1, 2], ids=["here", "in two processes"])
def test_answers_and_errors_come_with_the_result(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "START_AFTER", 0.0)
    with closing(Workers(count)) as workers:
        answers = [workers.submit(square, number) for number in range(5)]
        refused = workers.submit(fail, 7)
        assert [answer.result() for answer in answers] == [0, 1, 4, 9, 16]
        with raises_code("refused") as error:
            refused.result()
    assert (error.value.where, error.value.hint) == ("here", "give another")


def test_little_work_is_done_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "START_AFTER", START_AFTER)
    with closing(Workers(8)) as workers:
        assert workers.submit(os.getpid).result() == os.getpid()


def test_a_worker_that_dies_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "START_AFTER", 0.0)
    with closing(Workers(2)) as workers, raises_code("worker-died"):
        workers.submit(die).result()


@pytest.fixture(scope="module")
def limited() -> LimitedProcess:
    return LimitedProcess(memory=600 * 2**20, seconds=60)


def test_calls_with_limits_share_a_process(limited: LimitedProcess) -> None:
    assert limited.call(square, 7) == 49
    with raises_code("refused"):
        limited.call(fail, 7)
    with pytest.raises(ValueError, match="a bug"):
        limited.call(raise_a_bug)
    first, second = limited.call(os.getpid), limited.call(os.getpid)
    assert first == second != os.getpid()


@pytest.mark.parametrize(
    "function",
    [
        pytest.param(fill_memory, id="memory at once"),
        pytest.param(fill_memory_slowly, id="memory slowly"),
        pytest.param(never_end, id="time"),
        pytest.param(die, id="its process"),
    ],
)
def test_a_call_over_its_limit_ends_and_the_next_one_is_answered(
    limited: LimitedProcess, function: Callable[[], object]
) -> None:
    limited.call(square, 1)  # what takes time to import
    limited.seconds = 0.5
    with pytest.raises(OverLimit):
        limited.call(function)
    limited.seconds = 60
    assert limited.call(square, 3) == 9


def test_memory_is_watched_where_the_system_has_no_limit() -> None:
    process = LimitedProcess(memory=1500 * 2**20, seconds=60)
    process.call(square, 1)
    process.memory = 200 * 2**20
    with pytest.raises(OverLimit, match="200 MB"):
        process.call(fill_memory_slowly)


def test_threads_get_their_own_answers(limited: LimitedProcess) -> None:
    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(lambda number: limited.call(square, number), range(50))) == [n * n for n in range(50)]


def test_an_interrupted_call_does_not_answer_the_next_one(
    limited: LimitedProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    limited.call(square, 1)

    def interrupt(*arguments: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(processes, "wait", interrupt)
        with pytest.raises(KeyboardInterrupt):
            limited.call(square, 5)
    assert limited.call(square, 6) == 36


def test_a_script_needs_no_main_guard(tmp_path: Path) -> None:
    code = """
import contextlib, os
from dsocr.io import processes
processes.START_AFTER = 0.0
with contextlib.closing(processes.Workers(2)) as workers:
    print(workers.submit(os.getpid).result() != os.getpid(), os.path.basename(__file__))
"""
    (tmp_path / "script.py").write_text(code, encoding="utf-8")
    ran = subprocess.run([sys.executable, tmp_path / "script.py"], capture_output=True, text=True)
    assert ran.stdout == "True script.py\n", ran.stderr


@pytest.mark.parametrize(
    "call",
    [
        pytest.param("workers.submit(os.getpid).result()", id="workers"),
        pytest.param("(limited := processes.LimitedProcess(2**30, 60)).call(os.getpid)", id="with limits"),
    ],
)
def test_processes_go_when_their_parent_is_killed(call: str) -> None:
    code = f"""
import contextlib, os, time
from dsocr.io import processes
processes.START_AFTER = 0.0
if __name__ == "__main__":
    with contextlib.closing(processes.Workers(2)) as workers:
        print({call}, flush=True)
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


@pytest.mark.parametrize(
    ("chosen", "load", "threads"),
    [
        pytest.param(None, 1.0, None, id="a machine that is not busy"),
        pytest.param(None, 16.0, 1, id="a busy machine"),
        pytest.param("3", 16.0, None, id="a user who has chosen"),
    ],
)
def test_threads_beside_other_work(
    chosen: str | None, load: float, threads: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if chosen:
        monkeypatch.setenv("OMP_NUM_THREADS", chosen)
    monkeypatch.setattr("psutil.getloadavg", lambda: (load, load, load))
    monkeypatch.setattr(processes, "available_cores", lambda: 2)
    assert free_threads() == threads
