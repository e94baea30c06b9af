"""Processes of our own that call functions for this one: workers for images, and one with limits.

Each is a Python that gets pickled calls on its standard input and ends with it, so none is left behind, and the
caller's script is never run again: it needs no `__main__` guard. Functions, arguments and results must be picklable.
"""

import ctypes
import os
import pickle  # only to and from processes that this one started
import signal
import subprocess
import sys
import threading
import time
import traceback
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from functools import partial
from queue import SimpleQueue
from types import FrameType
from typing import Any, ParamSpec, TypeVar

import psutil

from dsocr.errors import DataError, DsocrError, option

P = ParamSpec("P")
R = TypeVar("R")

ProgressCallback = Callable[[int, int], None]
"""Called after each item with the number done and the total."""

START_AFTER = 1.0
"""Seconds of work done in this process before others are started; starting one takes about half a second."""

SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK") if hasattr(signal, name)]
"""Ctrl-C, `kill` and the end of the terminal; on Windows Ctrl-Break, as which closing the window arrives."""
HANGUP = getattr(signal, "SIGHUP", None)

_WATCH_SECONDS = 0.05
_PATIENCE = 10
"""A call may wait for this many times its processor time: for a disk, or beside other work."""
_START = (
    "import pickle, sys; sys.path = pickle.load(sys.stdin.buffer); "
    "from dsocr.io.processes import answer_calls; answer_calls({memory})"
)


class _Died(Exception):  # noqa: N818 - no error of the program
    """The other process has ended."""


class _Process:
    """Another Python that calls functions, one at a time; `memory` limits its bytes where the system can."""

    def __init__(self, memory: int | None = None) -> None:
        code = _START.format(memory=memory)
        # One thread, for there is a process for every core.
        environment = {"OMP_NUM_THREADS": "1", **os.environ}
        started = subprocess.Popen(  # noqa: S603 - this Python
            [sys.executable, "-P", "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
        )
        assert started.stdin
        assert started.stdout
        self._calls, self._answers = started.stdin, started.stdout
        self.end = weakref.finalize(self, _end, started, os.getpid())
        self._calls.write(pickle.dumps(sys.path))
        self.pid: int = self.call(os.getpid)  # in a virtual environment on Windows not that of `started`

    def call(self, function: Callable[[], R]) -> R:
        """Return the result, or raise the function's error. Raises _Died if the process ends meanwhile."""
        pickled = pickle.dumps(function)
        try:
            self._calls.write(pickled)
            self._calls.flush()
            is_result, answer = pickle.load(self._answers)  # noqa: S301
        except BaseException as error:
            self.end()  # a late answer would be taken for that of the next call
            if isinstance(error, EOFError | OSError | pickle.UnpicklingError):
                raise _Died from error
            raise
        if is_result:
            result: R = answer
            return result
        raise answer


def _end(started: "subprocess.Popen[bytes]", owner: int) -> None:
    if os.getpid() != owner:  # a fork of the owner does not end its process
        return
    started.kill()
    for pipe in (started.stdin, started.stdout):
        with suppress(OSError):
            if pipe:
                pipe.close()
    started.wait()


def answer_calls(memory: int | None) -> None:
    """Answer the calls on standard input in this process, which ends with its parent or when that closes the pipe."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # output of libraries must not get between the answers
    if memory is not None:
        # Allocations fail above the limit, and no core is written; not on Windows, and macOS has no limit on data.
        with suppress(ImportError, AttributeError, OSError, ValueError):
            import resource

            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
    calls = SimpleQueue[Any]()
    threading.Thread(target=_read_calls, args=(calls,), daemon=True).start()
    while True:
        try:
            answer = pickle.dumps((True, calls.get()()))
        except Exception as error:  # noqa: BLE001 - raised by `call`
            if not isinstance(error, DsocrError):
                error.add_note(traceback.format_exc())  # its traceback is not pickled
            answer = pickle.dumps((False, error))
        answers.write(answer)
        answers.flush()


def _read_calls(calls: "SimpleQueue[Any]") -> None:
    """Read calls in a thread of its own, so that the process ends with its parent even in the middle of a call."""
    try:
        while True:
            calls.put(pickle.load(sys.stdin.buffer))  # noqa: S301
    except EOFError:
        os._exit(0)
    except Exception:  # noqa: BLE001 - a call that cannot be unpickled
        traceback.print_exc()
        os._exit(1)


class Workers:
    """Runs functions in this process and, once that took some time, in `count` others; results are futures.

    Without a count, there is one process a core. `close` ends them.
    """

    def __init__(self, count: int | None) -> None:
        self.count = count or available_cores()
        self._spent = 0.0
        self._threads: ThreadPoolExecutor | None = None
        self._idle: deque[_Process] = deque()

    def submit(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> "Future[R]":
        """Call the function here or in another process. The future raises DataError if its process dies."""
        call = partial(function, *args, **kwargs)
        if self._threads is None and self.count > 1 and self._spent >= START_AFTER:
            self._threads = ThreadPoolExecutor(self.count)
        if self._threads:
            return self._threads.submit(self._call_elsewhere, call)
        future: Future[R] = Future()
        start = time.perf_counter()
        try:
            future.set_result(call())
        except Exception as error:  # noqa: BLE001 - raised by the future, as from a process
            future.set_exception(error)
        self._spent += time.perf_counter() - start
        return future

    def in_order(self, started: Iterable[Callable[[], R]]) -> Iterator[R]:
        """Call functions that wait for results, few behind the last of `started`, so no worker is idle."""
        pending: deque[Callable[[], R]] = deque()
        for result in started:
            pending.append(result)
            while len(pending) > (3 * self.count if self._threads else 1):
                yield pending.popleft()()
        while pending:
            yield pending.popleft()()

    def close(self) -> None:
        """End the processes; calls that have not started are cancelled."""
        if self._threads:
            self._threads.shutdown(cancel_futures=True)
        for process in self._idle:
            process.end()

    def _call_elsewhere(self, call: Callable[[], R]) -> R:
        try:
            with self._idle_process() as process:
                return process.call(call)
        except _Died as error:
            hint = f"it may have run out of memory: use fewer workers ({option('workers', 1)} shows which image it is)"
            raise DataError("a worker process died", code="worker-died", hint=hint) from error

    @contextmanager
    def _idle_process(self) -> Iterator[_Process]:
        try:
            process = self._idle.pop()
        except IndexError:
            process = _Process()
        try:
            yield process
        finally:
            if process.end.alive:
                self._idle.append(process)


class OverLimit(Exception):  # noqa: N818 - no error of the program: the caller names its meaning
    """A call took more memory or time than it may, or ended its process; the message is the end of a sentence."""


class LimitedProcess:
    """Calls functions in one other process, which is killed if a call takes more memory or processor time than it may.

    For libraries that allocate whatever a file from outside asks for. The process is started by the first call and
    kept for the next ones; calls of several threads wait for each other. `memory` is the bytes that the process may
    hold, its libraries included, `seconds` the processor time that a call may take.
    """

    def __init__(self, memory: int, seconds: float) -> None:
        self.memory, self.seconds = memory, seconds
        self._lock = threading.Lock()
        self._process: _Process | None = None
        self._owner = 0

    def call(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Call a function there and return its result. Raises OverLimit, or the function's error."""
        with self._lock, ThreadPoolExecutor(1) as thread:
            try:
                process = self._start()
                answer = thread.submit(process.call, partial(function, *args, **kwargs))
                try:
                    self._watch(process, answer)
                finally:
                    if not answer.done():
                        process.end()
                return answer.result()
            except _Died as error:
                raise OverLimit(f"ended its process, which may hold {_megabytes(self.memory)}") from error
            except MemoryError as error:
                raise OverLimit(f"takes more than {_megabytes(self.memory)}") from error

    def _start(self) -> _Process:
        # A process that was forked from the owner must not share its pipes.
        if not (self._process and self._process.end.alive and self._owner == os.getpid()):
            self._process, self._owner = _Process(self.memory), os.getpid()
        return self._process

    def _watch(self, process: _Process, answer: "Future[R]") -> None:
        """Wait for an answer. Raises OverLimit if it takes too much."""
        started = time.monotonic()
        with suppress(psutil.Error):  # it has just ended
            watched = psutil.Process(process.pid)
            spent = sum(watched.cpu_times()[:2])
            while not wait([answer], _WATCH_SECONDS).done:
                if watched.memory_info().rss > self.memory:
                    raise OverLimit(f"takes more than {_megabytes(self.memory)}")
                if sum(watched.cpu_times()[:2]) - spent > self.seconds:
                    raise OverLimit(f"takes more than {self.seconds:g} s of the processor")
                if time.monotonic() - started > _PATIENCE * self.seconds:
                    raise OverLimit(f"takes more than {_PATIENCE * self.seconds:g} s")


def _megabytes(memory: int) -> str:
    return f"{memory // 2**20:,} MB of memory"


def return_free_memory() -> None:
    """Give freed memory back to the system where the C library keeps it: hundreds of megabytes after reading lines."""
    if sys.platform == "linux" and (trim := getattr(ctypes.CDLL(None), "malloc_trim", None)):  # of glibc only
        trim(0)


def available_cores() -> int:
    """The number of cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else psutil.cpu_count() or 1


def free_threads() -> int | None:
    """The threads to compute with beside other work; None if the machine is not busy, or the user has chosen.

    More threads than cores are free wait for each other: a step took 0.84 s of the processor in one thread, and 4.7 in
    two beside other work.
    """
    cores, load = available_cores(), psutil.getloadavg()[0]
    if "OMP_NUM_THREADS" in os.environ or load <= cores:
        return None
    return max(1, int(cores * cores / (cores + load)))


def rank_and_count() -> tuple[int, int]:
    """Return this process's rank and the world size; (0, 1) without a launcher."""
    return int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))


@contextmanager
def handling(signals: Iterable[int], handler: Callable[[int, FrameType | None], None]) -> Iterator[list[int]]:
    """Handle signals inside the block; nohup ignores the end of the terminal, and it stays ignored."""
    handled = [number for number in signals if number != HANGUP or signal.getsignal(number) != signal.SIG_IGN]
    former = {number: signal.signal(number, handler) for number in handled}
    try:
        yield handled
    finally:
        for number, old in former.items():
            signal.signal(number, old)


def ignore_signals_in_worker(worker: int = 0) -> None:
    """Make a dataloader's worker ignore Ctrl-C, which terminals send to all processes: the training ends its workers.

    A launcher also sends SIGTERM to workers; they then die of the second one.
    """
    for number in SIGNALS:
        if number != signal.SIGTERM:
            signal.signal(number, signal.SIG_IGN)
        elif rank_and_count()[1] > 1:
            signal.signal(number, lambda number, _: signal.signal(number, signal.SIG_DFL))
