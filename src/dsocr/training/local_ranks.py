"""Several processes of this machine for one training, without a launcher: this one, and others that it starts.

Small networks gain by it on a CPU where anything else runs beside: threads part every product of matrices and wait for
each other at its end, processes part the samples of a step and wait once.
"""

import multiprocessing
import os
import secrets
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path

import psutil
import torch
from torch import distributed
from transformers.utils.logging import disable_progress_bar

from dsocr.config import RunConfig
from dsocr.data.processes import leave_with_parent
from dsocr.errors import DsocrError, Interrupted, RunError
from dsocr.training.launching import MEETING
from dsocr.training.process_count import process_count, thread_count, threads_of_each
from dsocr.training.ranks import OthersEndedError, joined, refuse_together
from dsocr.training.train import train

_LAST_WORDS = 30.0
"""Seconds in which a process ends by itself when the training has come to its end."""
_A_MOMENT = 1.0
"""Seconds in which it is noticed that a process is gone, when it has fallen silent."""


@contextmanager
def local_ranks(
    config: RunConfig, *, overwrite: bool = False, preflight: bool = False, at_start: Callable[[], None] | None = None
) -> Iterator[int]:
    """Others train inside beside this process, which must call `train` with the same arguments; how many they are all.

    The others are started by spawning, so the program must be one that can be imported; each calls `at_start` first.
    Whatever happens inside, none of them is left. Raises ConfigError where so many cannot train together, RunError
    where one cannot be started or connected with, OthersEndedError where one ended later.
    """
    if (count := process_count(config)) == 1:
        yield 1
        return
    refuse_together(count)
    spawning = multiprocessing.get_context("spawn")
    meeting = Path(tempfile.gettempdir(), f"dsocr-{secrets.token_hex(8)}", "meeting")
    with ExitStack() as held:
        held.callback(_forget, meeting)
        threads = threads_of_each(count)
        others: list[BaseProcess] = []
        held.callback(_end, others)
        started: list[Connection] = []
        for rank in range(1, count):
            ours, theirs = spawning.Pipe()
            place = _place(rank, count, meeting, threads)
            other: BaseProcess = spawning.Process(
                target=_take_part, args=(theirs, place, threads, config, overwrite, preflight, at_start)
            )
            with _told_of_an_early_end():
                other.start()
            theirs.close()
            others.append(other)
            started.append(ours)
        _let_them_meet(started, meeting)
        held.enter_context(_changed_environment(_place(0, count, meeting, threads)))
        held.enter_context(thread_count(threads))
        with joined():
            yield count
        for other in others:
            other.join(_LAST_WORDS)


def _let_them_meet(started: Sequence[Connection], meeting: Path) -> None:
    """Wait until all others have started, then tell them that they may connect.

    The folder in which they meet is made between: then each of them removes it, should this process be killed.
    """
    with _told_of_an_early_end():
        for one in started:
            one.recv()
    meeting.parent.mkdir(mode=0o700)
    with _told_of_an_early_end():
        for one in started:
            one.send(None)
            one.close()


@contextmanager
def _told_of_an_early_end() -> Iterator[None]:
    try:
        yield
    except (EOFError, OSError):
        hint = "it may be short of memory; --set training.processes=1 trains in this process alone"
        raise RunError("a process that should have trained beside this one ended at its start", hint=hint) from None


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
    leaving = leave_with_parent(partial(_forget, Path(place[MEETING])))
    os.environ.update(place)
    torch.set_num_threads(threads)
    disable_progress_bar()  # the first draws them; and behind them is a semaphore, which outlives a killed process
    try:
        if at_start is not None:
            at_start()
        _wait_for_all(started)
        train(config, overwrite=overwrite, preflight=preflight)
    except Interrupted as interrupted:
        sys.exit(interrupted.exit_code)
    except OthersEndedError:
        leaving.join(_A_MOMENT)  # where the first was killed, this process ends here
        sys.exit(1)
    except DsocrError as error:
        sys.stderr.write(f"{error.told}\n")
        sys.exit(2)


def _wait_for_all(started: Connection) -> None:
    """Tell the first that this process has started; go on when all have."""
    try:
        started.send(None)
        started.recv()
    except (EOFError, OSError):
        raise OthersEndedError("the first process ended") from None
    finally:
        started.close()


def _forget(meeting: Path) -> None:
    """Remove the folder in which the processes met."""
    shutil.rmtree(meeting.parent, ignore_errors=True)


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
