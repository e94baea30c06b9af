"""Trainings in processes that start each other, beside the same in one."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from dsocr.config import RunConfig
from dsocr.errors import DataError, RunError
from dsocr.model.adapters import WEIGHTS
from dsocr.runs import RunFolder
from dsocr.training.callbacks import TrainingProgress
from dsocr.training.checkpoints import checkpoint_path, step_of
from dsocr.training.launching import MEETING, is_watched
from dsocr.training.local_ranks import local_ranks
from dsocr.training.process_count import process_count
from dsocr.training.ranks import Ranks, launched
from dsocr.training.train import train
from tests.conftest import PATIENCE
from tests.training.test_ranks import assert_alike, written
from tests.training.test_train import changed

needs_signals = pytest.mark.skipif(sys.platform == "win32", reason="Windows ends other processes without asking them")


def nobody_is_left() -> bool:
    """Waits until this process has no other; those that were killed take a moment."""
    until = time.monotonic() + PATIENCE
    while others := [other for other in psutil.Process().children() if "spawn_main" in " ".join(other.cmdline())]:
        if time.monotonic() > until:
            return False
        psutil.wait_procs(others, timeout=0.1)
    return True


@pytest.mark.parametrize(
    ("settings", "cores", "count"),
    [
        pytest.param({"processes": 3}, 8, 3, id="as asked"),
        pytest.param({"samples_per_step": 4}, 2, 2, id="one for each core"),
        pytest.param({"samples_per_step": 4}, 1, 1, id="there is one core"),
        pytest.param({"samples_per_step": 6}, 4, 3, id="each has as many samples of a step"),
        pytest.param({"samples_per_step": 64}, 64, 4, id="no more than memory has room for"),
    ],
)
def test_a_small_base_is_trained_in_as_many_processes_as_there_are_cores(
    small_config: RunConfig, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], cores: int, count: int
) -> None:
    monkeypatch.setattr("dsocr.training.process_count.cores", lambda: cores)
    monkeypatch.setattr("dsocr.training.process_count.choose_device", lambda: torch.device("cpu"))
    monkeypatch.setattr("sys.platform", "linux")
    training = {"processes": "auto", "samples_per_forward": 1, **settings}
    assert process_count(changed(small_config, training=training)) == count


@pytest.mark.parametrize("reason", ["launched", "accelerator", "windows", "hub", "large"])
def test_others_are_started_in_one_process(
    small_config: RunConfig, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, reason: str
) -> None:
    monkeypatch.setattr("dsocr.training.process_count.cores", lambda: 2)
    device = torch.device("cuda" if reason == "accelerator" else "cpu")
    monkeypatch.setattr("dsocr.training.process_count.choose_device", lambda: device)
    monkeypatch.setattr("sys.platform", "win32" if reason == "windows" else "linux")
    if reason == "launched":
        monkeypatch.setenv("WORLD_SIZE", "2")
    if reason == "large":
        monkeypatch.setattr("dsocr.training.process_count._SMALL", 1000)
    base = "deepseek-ai/DeepSeek-OCR" if reason == "hub" else "nano"
    assert process_count(changed(small_config, base=base, training={"processes": "auto"})) == 1


def test_two_processes_learn_what_one_learns(small_config: RunConfig, tmp_path: Path) -> None:
    alone = changed(small_config, run=tmp_path / "alone")
    train(alone)
    together = changed(small_config, training={"processes": 2})
    threads = torch.get_num_threads()
    with local_ranks(together) as count:
        assert (count, launched(), is_watched()) == (2, Ranks(0, 2), False)
        train(together)
    assert_alike(together.run, alone.run)
    assert nobody_is_left()
    assert (launched(), torch.get_num_threads()) == (Ranks(), threads)


def test_an_error_in_the_first_ends_the_others(small_config: RunConfig) -> None:
    together = changed(small_config, training={"processes": 2, "max_text_tokens": 1})
    with pytest.raises(DataError, match="the dataset has errors"), local_ranks(together):
        train(together)
    assert nobody_is_left()
    assert not torch.distributed.is_initialized()
    train(small_config)  # as if nothing had been


def out_of_memory() -> None:
    """What a process may come to when it starts."""
    raise SystemExit(1)


def test_a_process_that_cannot_start_is_told(small_config: RunConfig) -> None:
    together = changed(small_config, training={"processes": 2})
    with (
        pytest.raises(RunError, match="ended at its start") as error,
        local_ranks(together, at_start=out_of_memory),
    ):
        train(together)
    assert "--set training.processes=1" in str(error.value.hint)
    assert nobody_is_left()
    assert MEETING not in os.environ


@needs_signals
def test_killed_or_asked_to_end_they_leave_what_they_go_on_with_bit_by_bit(
    small_config: RunConfig, tmp_path: Path
) -> None:
    config = changed(
        small_config,
        training={"steps": 300, "samples_per_step": 2, "samples_per_forward": 1, "processes": 2, "augmentation": 1.0},
        validation={"every_steps": 6, "samples": 2},
        checkpoints={"every_steps": 2},
    )
    run = RunFolder(config.run)
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    environment = {**os.environ, "TMPDIR": str(temporary)}
    last = 0

    def begun() -> "tuple[subprocess.Popen[str], psutil.Process]":
        """A training that has made two steps, and the other process of it."""
        command = [sys.executable, "-m", "dsocr", "train", written(config), "--no-preflight"]
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, encoding="utf-8", env=environment
        )
        until = time.monotonic() + PATIENCE
        while max((step_of(place) for place in run.checkpoints.glob("step-*")), default=0) < last + 2:
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < until
            time.sleep(0.01)
        (other,) = (one for one in psutil.Process(process.pid).children() if "spawn_main" in " ".join(one.cmdline()))
        return process, other

    def steps() -> int:
        return max(step_of(place) for place in run.checkpoints.glob("step-*"))

    first, other = begun()
    first.kill()
    first.communicate()
    psutil.wait_procs([other], timeout=PATIENCE)
    assert not other.is_running() or other.status() == psutil.STATUS_ZOMBIE
    assert not list(temporary.glob("dsocr-*"))

    last = steps()
    first, other = begun()
    for process in (psutil.Process(first.pid), other):  # as a terminal does
        process.send_signal(signal.SIGINT)
    _, errors = first.communicate(timeout=PATIENCE)
    assert first.returncode == 130, errors
    assert "finishing the running step" in errors
    assert f"resume:  {run.resume_command}" in errors
    assert not other.is_running()

    step = steps()

    class EnoughError(Exception):
        pass

    def stop(progress: TrainingProgress) -> None:
        if progress.step == step + 2:
            raise EnoughError

    whole = changed(config, run=tmp_path / "whole")
    for one in (config, whole):
        with pytest.raises(EnoughError), local_ranks(one):
            train(one, report=stop)
    assert nobody_is_left()
    places = [checkpoint_path(RunFolder(one.run).checkpoints, step + step % 2) for one in (config, whole)]
    ours, theirs = ((place / WEIGHTS).read_bytes() for place in places)
    assert ours == theirs
