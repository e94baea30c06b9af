"""Several processes of this machine for one training, without a launcher: this one, and others that it starts.

Small networks gain by it on a CPU where anything else runs beside: threads part every product of matrices and wait for
each other at its end, processes part the samples of a step and wait once.
"""

import multiprocessing
import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil
import torch
from torch import distributed

from dsocr.config import RunConfig
from dsocr.data.processes import leave_with_parent
from dsocr.errors import Interrupted, RunError
from dsocr.training.launching import MEETING
from dsocr.training.process_count import process_count, thread_count, threads_of_each
from dsocr.training.ranks import OthersEndedError
from dsocr.training.train import train

_LAST_WORDS = 30.0
"""Seconds in which a process ends by itself when the training has come to its end."""


@contextmanager
def local_ranks(
    config: RunConfig, *, overwrite: bool = False, preflight: bool = False, at_start: Callable[[], None] | None = None
) -> Iterator[int]:
    """Others train inside beside this process, which must call `train` with the same arguments; how many they are all.

    The others are started by spawning, so the program must be one that can be imported; each calls `at_start` first.
    Whatever happens inside, none of them is left. Raises RunError where one cannot be started.
    """
    if (count := process_count(config)) == 1:
        yield 1
        return
    spawning = multiprocessing.get_context("spawn")
    with ExitStack() as held:
        meeting = Path(held.enter_context(TemporaryDirectory(prefix="dsocr-", ignore_cleanup_errors=True))) / "meeting"
        threads = threads_of_each(count)
        others: list[BaseProcess] = []
        held.callback(_end, others)
        started: list[Connection] = []
        for rank in range(1, count):
            ours, theirs = spawning.Pipe(duplex=False)
            place = _place(rank, count, meeting, threads)
            other: BaseProcess = spawning.Process(
                target=_take_part, args=(theirs, place, threads, config, overwrite, preflight, at_start)
            )
            other.start()
            theirs.close()
            others.append(other)
            started.append(ours)
        for one in started:
            _hear_of_its_start(one)
        held.enter_context(_changed_environment(_place(0, count, meeting, threads)))
        held.enter_context(thread_count(threads))
        yield count
        for other in others:
            other.join(_LAST_WORDS)


def _hear_of_its_start(one: Connection) -> None:
    try:
        one.recv()
    except EOFError:
        hint = "it may be short of memory; --set training.processes=1 trains in this process alone"
        raise RunError("a process that should have trained beside this one ended at its start", hint=hint) from None
    finally:
        one.close()


def _place(rank: int, count: int, meeting: Path, threads: int) -> dict[str, str]:
    """What a launcher would have written into the environment of a process."""
    place = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(count), MEETING: str(meeting)}
    # accelerate wants an address, though they are connected before, and would else choose the threads itself.
    place |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0", "OMP_NUM_THREADS": str(threads)}
    if loopback := _loopback():  # else gloo asks what the machine's name stands for, which may be nothing
        place["GLOO_SOCKET_IFNAME"] = os.environ.get("GLOO_SOCKET_IFNAME", loopback)
    return place


def _loopback() -> str | None:
    if sys.platform == "win32":  # gloo knows no names there
        return None
    named = psutil.net_if_addrs().items()
    return next((name for name, addresses in named if any(one.address == "127.0.0.1" for one in addresses)), None)


def _take_part(
    started: Connection,
    place: Mapping[str, str],
    threads: int,
    config: RunConfig,
    overwrite: bool,
    preflight: bool,
    at_start: Callable[[], None] | None,
) -> None:
    """One of the others, from its first line to its last; it speaks only of faults that are its own."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to all, and the first ends them
    forget_meeting = partial(shutil.rmtree, Path(place[MEETING]).parent, ignore_errors=True)
    leave_with_parent(forget_meeting)
    os.environ.update(place)
    torch.set_num_threads(threads)
    if at_start is not None:
        at_start()
    started.send(None)
    started.close()
    try:
        train(config, overwrite=overwrite, preflight=preflight)
    except Interrupted as interrupted:
        sys.exit(interrupted.exit_code)
    except OthersEndedError:
        forget_meeting()  # the first may have been killed
        sys.exit(1)


def _end(others: list[BaseProcess]) -> None:
    """Leave nothing of them."""
    for other in others:
        if other.is_alive():
            other.kill()
        other.join()
    if distributed.is_initialized():  # an error left it so, and there is nobody left to be told
        distributed.destroy_process_group()


@contextmanager
def _changed_environment(changes: Mapping[str, str]) -> Iterator[None]:
    former = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, value in former.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
