"""Worker processes for work on images: started only where they pay, and never left behind.

Processes are spawned, as on Windows, so what they are handed must be picklable.
"""

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import ParamSpec, TypeVar

import psutil

from dsocr.errors import DataError

P = ParamSpec("P")
R = TypeVar("R")

PATIENCE = 1.0
"""Seconds of work that are done in this process before others are started: starting one takes about half as long."""


class Workers:
    """Calls functions here, and in other processes once that has taken some time; answers are futures."""

    def __init__(self, count: int | None) -> None:
        self.count = count or cores()
        self._spent = 0.0
        self._pool: ProcessPoolExecutor | None = None

    @property
    def backlog(self) -> int:
        """How many answers may be waited for at once, so that no worker is idle and memory stays small."""
        return 3 * self.count if self._pool else 1

    def submit(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> "Future[R]":
        """The function's answer, at once or from another process; what the function raises comes with `result()`."""
        if self.count == 1 or self._spent < PATIENCE:
            return self._call(function, *args, **kwargs)
        if self._pool is None:
            self._pool = ProcessPoolExecutor(
                self.count, mp_context=multiprocessing.get_context("spawn"), initializer=_serve
            )
        with _told_of_a_death():
            return self._pool.submit(function, *args, **kwargs)

    def result(self, future: "Future[R]") -> R:
        """What a future holds; a process that died is an error in a sentence."""
        with _told_of_a_death():
            return future.result()

    def close(self) -> None:
        """Ends the processes; what has not begun is not begun any more."""
        if self._pool:
            self._pool.shutdown(cancel_futures=True)

    def _call(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> "Future[R]":
        future: Future[R] = Future()
        start = time.perf_counter()
        try:
            future.set_result(function(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 - it is raised where the answer is taken, as from a process
            future.set_exception(error)
        self._spent += time.perf_counter() - start
        return future


@contextmanager
def worker_processes(count: int | None) -> Iterator[Workers]:
    """Workers, as many as there are cores where `count` is None, ended when the block is left."""
    workers = Workers(count)
    try:
        yield workers
    finally:
        workers.close()


@contextmanager
def _told_of_a_death() -> Iterator[None]:
    try:
        yield
    except BrokenProcessPool as error:
        hint = "it may have run out of memory; try again with fewer workers (--workers 1 tells which image it is)"
        raise DataError("a worker process died", hint=hint) from error


def cores() -> int:
    """The cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else psutil.cpu_count() or 1


def _serve() -> None:
    """In each worker: the parent alone answers Ctrl-C, and a worker goes when its parent is gone, killed or not."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_leave_with_parent, daemon=True).start()


def _leave_with_parent() -> None:
    """End this process as soon as its parent is gone."""
    parent = multiprocessing.parent_process()
    if parent:
        parent.join()
        os._exit(1)


def rank_and_count() -> tuple[int, int]:
    """Return this process's rank and the world size; (0, 1) without a launcher."""
    return int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
