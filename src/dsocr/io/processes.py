"""Worker processes for CPU-bound work on images, and one process with limits; none is ever left behind.

Processes are spawned, as on Windows, so arguments and results must be picklable.
"""

import ctypes
import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from multiprocessing import connection
from multiprocessing.process import BaseProcess
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

_WATCH_SECONDS = 0.05
"""Time between two looks at what a process with limits takes."""
_PATIENCE = 10
"""Times its processor time that a call may wait: for a disk, or beside other work."""

_HIDING = threading.Lock()


class Workers:
    """Runs functions in this process and, once that took some time, in others; results are futures."""

    def __init__(self, count: int | None) -> None:
        self.count = count or available_cores()
        self._spent = 0.0
        self._pool: ProcessPoolExecutor | None = None

    def submit(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> "Future[R]":
        """Call the function here or in another process; its exceptions are raised by `result`."""
        if self.count == 1 or self._spent < START_AFTER:
            return self._call(function, *args, **kwargs)
        if self._pool is None:
            context = multiprocessing.get_context("spawn")
            self._pool = ProcessPoolExecutor(self.count, mp_context=context, initializer=_initialize_worker)
        with _explain_broken_pool(), _main_module_hidden():
            return self._pool.submit(function, *args, **kwargs)

    def result(self, future: "Future[R]") -> R:
        """Wait for a future. Raises DataError if its process died."""
        with _explain_broken_pool():
            return future.result()

    def in_order(self, started: Iterable[Callable[[], R]]) -> Iterator[R]:
        """Call functions that wait for results, a few behind those that `started` has yielded.

        So no worker is idle, and memory stays small.
        """
        pending: deque[Callable[[], R]] = deque()
        for wait in started:
            pending.append(wait)
            while len(pending) > (3 * self.count if self._pool else 1):
                yield pending.popleft()()
        while pending:
            yield pending.popleft()()

    def close(self) -> None:
        """End the processes; calls that have not started are cancelled."""
        if self._pool:
            self._pool.shutdown(cancel_futures=True)

    def _call(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> "Future[R]":
        future: Future[R] = Future()
        start = time.perf_counter()
        try:
            future.set_result(function(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 - raised by `result`, as from a process
            future.set_exception(error)
        self._spent += time.perf_counter() - start
        return future


@contextmanager
def worker_processes(count: int | None) -> Iterator[Workers]:
    """Workers that end with the block; `count` None means one per core."""
    workers = Workers(count)
    try:
        yield workers
    finally:
        workers.close()


@contextmanager
def _main_module_hidden() -> Iterator[None]:
    """Let processes that start in the block not run the caller's script, so that it needs no `__main__` guard."""
    names = vars(sys.modules["__main__"])
    with _HIDING:
        hidden: dict[str, object] = {name: names.pop(name) for name in ("__file__", "__spec__") if name in names}
        names["__spec__"] = None
        try:
            yield
        finally:
            names.update(hidden)


@contextmanager
def _explain_broken_pool() -> Iterator[None]:
    try:
        yield
    except BrokenProcessPool as error:
        hint = f"it may have run out of memory: use fewer workers ({option('workers', 1)} shows which image it is)"
        raise DataError("a worker process died", code="worker-died", hint=hint) from error


class OverLimit(Exception):  # noqa: N818 - no error of the program: whoever calls says what it means
    """A call took more memory or time than it may, or ended its process: what the subject of a message did."""


class LimitedProcess:
    """Calls functions in one other process, which is killed if a call takes more memory or processor time than it may.

    For libraries that allocate whatever a file from outside asks for. The process is started by the first call and
    kept for the next ones; calls of several threads wait for each other.

    Args:
        memory: The bytes that the process may hold, its libraries included.
        seconds: The processor time that a call may take.
    """

    def __init__(self, memory: int, seconds: float) -> None:
        self.memory, self.seconds = memory, seconds
        self._lock = threading.Lock()
        self._process: BaseProcess | None = None
        self._connection: connection.Connection | None = None
        self._owner = 0

    def call(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Call a function there and return its result. Raises OverLimit, or what the function raises."""
        with self._lock:
            process, pipe = self._start()
            try:
                pipe.send((function, args, kwargs))
                self._wait(process, pipe)
                is_result, answer = pipe.recv()
            except BaseException as error:
                self._end()  # an answer that nobody waits for would be taken for the next one's
                if isinstance(error, EOFError | ConnectionError):
                    raise OverLimit(f"ended its process, which may hold {_megabytes(self.memory)}") from error
                raise
        if is_result:
            result: R = answer
            return result
        raise answer

    def close(self) -> None:
        """End the process; the next call starts another one."""
        with self._lock:
            self._end()

    def _start(self) -> "tuple[BaseProcess, connection.Connection]":
        is_ours = self._owner == os.getpid()  # a process that was forked from the owner must not share its pipe
        if is_ours and self._process and self._connection and self._process.is_alive():
            return self._process, self._connection
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_answer_calls, args=(theirs, self.memory), daemon=True)
        self._owner = os.getpid()
        with _main_module_hidden():
            self._process.start()
        theirs.close()
        return self._process, self._connection

    def _wait(self, process: BaseProcess, pipe: "connection.Connection") -> None:
        """Wait for an answer or the end of the process. Raises OverLimit when it takes too much."""
        watched, started = psutil.Process(process.pid), time.monotonic()
        spent = sum(watched.cpu_times()[:2])
        while not connection.wait([pipe, process.sentinel], _WATCH_SECONDS):
            with suppress(psutil.Error):  # it has just ended
                if watched.memory_info().rss > self.memory:
                    raise OverLimit(f"takes more than {_megabytes(self.memory)}")
                if sum(watched.cpu_times()[:2]) - spent > self.seconds:
                    raise OverLimit(f"takes more than {self.seconds:g} s of the processor")
            if time.monotonic() - started > _PATIENCE * self.seconds:
                raise OverLimit(f"takes more than {_PATIENCE * self.seconds:g} s")

    def _end(self) -> None:
        if self._process and self._connection:
            self._process.kill()
            self._process.join()
            self._connection.close()
        self._process = self._connection = None


def _megabytes(memory: int) -> str:
    return f"{memory // 2**20:,} MB of memory"


def _answer_calls(pipe: "connection.Connection", memory: int) -> None:
    """Call what is asked for until the other end is closed."""
    _initialize_worker()
    _limit_memory(memory)
    while True:
        try:
            function, args, kwargs = pipe.recv()
        except EOFError:
            return
        answer: tuple[bool, Any]
        try:
            answer = True, function(*args, **kwargs)
        except MemoryError:
            answer = False, OverLimit(f"takes more than {_megabytes(memory)}")
        except Exception as error:  # noqa: BLE001 - raised by `call`
            if not isinstance(error, DsocrError):
                error.add_note(traceback.format_exc())  # its traceback does not come along
            answer = False, error
        pipe.send(answer)


def _limit_memory(memory: int) -> None:
    """Let allocations of this process fail above a limit, and no core be written, where the system can."""
    with suppress(ImportError, AttributeError, OSError, ValueError):  # not on Windows; macOS has no limit on data
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))


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


def _initialize_worker() -> None:
    """Compute in one thread, leave Ctrl-C to the parent, and exit when the parent is gone, even if it was killed."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # read when torch is loaded; there is a process for every core
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_exit_with_parent, daemon=True).start()


def _exit_with_parent() -> None:
    if parent := multiprocessing.parent_process():
        parent.join()
        os._exit(1)


def rank_and_count() -> tuple[int, int]:
    """Return this process's rank and the world size; (0, 1) without a launcher."""
    return int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))


def ignore_signals_in_worker(worker: int = 0) -> None:
    """Make a dataloader's worker ignore Ctrl-C, which terminals send to all processes: the training ends its workers.

    A launcher also sends SIGTERM to workers; they then die of the second one.
    """
    for number in SIGNALS:
        if number != signal.SIGTERM:
            signal.signal(number, signal.SIG_IGN)
        elif rank_and_count()[1] > 1:
            signal.signal(number, _default_next_time)


def _default_next_time(number: int, frame: FrameType | None) -> None:
    signal.signal(number, signal.SIG_DFL)
