"""Trainings in processes that start each other, beside the same in one."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from datetime import timedelta
from multiprocessing import synchronize
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from dsocr.config import RunConfig
from dsocr.errors import ConfigError, DataError, RunError
from dsocr.model.adapters import WEIGHTS
from dsocr.runs import RunFolder
from dsocr.training import local_ranks as local_ranks_module
from dsocr.training import train as train_module
from dsocr.training.callbacks import TrainingProgress
from dsocr.training.checkpoints import checkpoint_path, step_of
from dsocr.training.launching import MEETING, is_watched
from dsocr.training.local_ranks import local_ranks
from dsocr.training.process_count import process_count
from dsocr.training.ranks import OthersEndedError, Ranks, launched
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


def make_no_semaphores() -> None:
    """In the other process: a semaphore with a name outlives it where it is killed, and is complained of."""

    def refuse(*arguments: Any, **options: Any) -> None:
        raise AssertionError("made a semaphore")

    setattr(synchronize.SemLock, "__init__", refuse)  # noqa: B010 - mypy lets nobody assign to it


def test_two_processes_learn_what_one_learns(small_config: RunConfig, tmp_path: Path) -> None:
    alone = changed(small_config, run=tmp_path / "alone")
    train(alone)
    together = changed(small_config, training={"processes": 2})
    threads = torch.get_num_threads()
    with local_ranks(together, at_start=make_no_semaphores) as count:
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


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder for temporary files, of this process and of those that it starts."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    for name in ("TMPDIR", "TEMP", "TMP"):
        monkeypatch.setenv(name, str(folder))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return folder


def out_of_memory() -> None:
    """What a process may come to when it starts; it tells what lies in the folder for temporary files then."""
    folder = Path(tempfile.gettempdir())
    (folder / "seen.txt").write_text(" ".join(path.name for path in folder.glob("dsocr-*")), encoding="utf-8")
    raise SystemExit(1)


def test_a_process_that_cannot_start_is_told(small_config: RunConfig, temporary: Path) -> None:
    together = changed(small_config, training={"processes": 2})
    with (
        pytest.raises(RunError, match="ended at its start") as error,
        local_ranks(together, at_start=out_of_memory),
    ):
        train(together)
    assert "--set training.processes=1" in str(error.value.hint)
    assert nobody_is_left()
    assert MEETING not in os.environ
    # Nothing lies there that nobody would remove if the first were killed while others start.
    assert (temporary / "seen.txt").read_text(encoding="utf-8") == ""
    assert not list(temporary.glob("dsocr-*"))


def end_unconnected() -> None:
    """Lets the other process start, and end before it is connected."""
    local_ranks_module.train = lambda *arguments, **options: os._exit(1)  # type: ignore[attr-defined]


def test_a_process_that_ends_before_it_is_connected_is_told(
    small_config: RunConfig, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dsocr.training.ranks._AT_START", timedelta(seconds=1))
    together = changed(small_config, training={"processes": 2})
    with (
        pytest.raises(RunError, match="could not be connected") as error,
        local_ranks(together, at_start=end_unconnected),
    ):
        train(together)
    assert "one may have ended" in str(error.value.hint)
    assert nobody_is_left()
    assert not list(temporary.glob("dsocr-*"))


@pytest.mark.skipif(sys.platform == "win32", reason="no network interface has a name there")
def test_processes_that_cannot_be_connected_are_told_once(
    small_config: RunConfig, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "nowhere")
    together = changed(small_config, training={"processes": 2})
    with (
        pytest.raises(RunError, match=r"could not be connected: .*address for: nowhere$") as error,
        local_ranks(together),
    ):
        train(together)
    assert "--set training.processes=1" in str(error.value.hint)
    assert nobody_is_left()
    assert "Traceback" not in capfd.readouterr().err
    assert not torch.distributed.is_initialized()

    monkeypatch.delenv("GLOO_SOCKET_IFNAME")
    with suppress(KeyboardInterrupt), local_ranks(together) as count:  # as if nothing had been
        assert torch.distributed.get_world_size() == count == 2
        raise KeyboardInterrupt
    assert nobody_is_left()


def find_no_letters() -> None:
    """Gives the other process a fault of its own, in the midst of its work."""

    def refuse(*arguments: Any) -> None:
        raise DataError("нет букв", where="a.png", hint="write some")

    train_module.set_up = refuse  # type: ignore[assignment, attr-defined]


def test_another_s_own_fault_is_told_in_a_sentence(small_config: RunConfig, capfd: pytest.CaptureFixture[str]) -> None:
    together = changed(small_config, training={"processes": 2})
    with pytest.raises(OthersEndedError, match="see what it said"), local_ranks(together, at_start=find_no_letters):
        train(together)
    assert nobody_is_left()
    said = capfd.readouterr().err
    assert said.endswith("error: a.png: нет букв\n  hint: write some\n")
    assert "Traceback" not in said


def test_more_processes_than_graphics_cards_are_refused_before_any_is_started(
    small_config: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    together = changed(small_config, training={"processes": 2})
    with pytest.raises(ConfigError, match=r"than graphics cards \(1\)") as error, local_ranks(together):
        pytest.fail("went on")
    assert error.value.hint == "--set training.processes=1"


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
