"""Before training: the lock, the folder, and leftovers of a kill."""

import errno
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from dsocr.errors import RunError
from dsocr.io.work import explain_disk_errors
from dsocr.job import require_trainable
from dsocr.runs import RunFolder
from dsocr.training.lifecycle import RunLock, clear_run
from tests.conftest import PATIENCE
from tests.raising import raises_code

LOCK = {".lock", ".lock.json"}

HOLD = """
import sys, time
from pathlib import Path
from dsocr.runs import RunFolder
from dsocr.training.lifecycle import RunLock
assert not {"torch", "transformers"} & set(sys.modules), "files tell all that is needed"
with RunLock(RunFolder(Path(sys.argv[1]))):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_second_training_is_refused_and_the_first_is_named_until_it_dies(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with raises_code("run-locked") as error, RunLock(RunFolder(tmp_path)):
            pass
        assert f"process {other.pid} on" in error.value.message
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
            first.acquire()
            run.config.write_text("theirs", encoding="utf-8")
        with raises_code("run-begun"):
            late.acquire()
    assert run.config.read_text(encoding="utf-8") == "theirs"


def test_the_lock_is_free_again_when_a_training_ends(tmp_path: Path) -> None:
    for _ in range(2):
        with RunLock(RunFolder(tmp_path)) as lock:
            lock.acquire()
    assert {path.name for path in tmp_path.iterdir()} <= LOCK


def test_what_a_kill_left_half_written_is_removed_and_hinders_nobody(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    left = [tmp_path / name for name in ("..lock.json.0a1b2c3d.tmp", ".config.yaml.0a1b2c3d.tmp")]
    folders = [run.features, *(tmp_path / f".{name}.0a1b2c3d.tmp" for name in ("adapter", "model", "checkpoints"))]
    others = tmp_path / ".scorecard.json.0a1b2c3d.tmp"
    for path in left:
        path.touch()
    for path in folders:
        path.mkdir()
        (path / "config.json").touch()
    require_trainable(run, overwrite=False)
    others.touch()
    with RunLock(run):
        assert not any(path.exists() for path in [*left, *folders])
        assert others.exists(), "an evaluation may be writing it"


def test_a_run_with_a_file_that_another_program_has_open_is_cleared_once_it_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What Windows says of a file that is open, or mapped into memory by whoever reads with it."""
    run = RunFolder(tmp_path / "run")
    for name in ("checkpoints/step-0000002", "model", "tensorboard"):
        (run.path / name).mkdir(parents=True)
        (run.path / name / "weights.safetensors").touch()
    for path in (run.config, run.metrics, run.scorecard):
        path.touch()
    inner = os.unlink

    def in_use(path: str, **options: Any) -> None:
        if str(path).endswith("weights.safetensors"):
            error = PermissionError(errno.EACCES, "used by another process", str(run.path / "model" / path))
            error.winerror = 32  # type: ignore[attr-defined, unused-ignore]
            raise error
        inner(path, **options)

    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", in_use)
        with raises_code("write-failed", "weights.safetensors") as raised, explain_disk_errors(run.path):
            clear_run(run)
    assert "close the program" in str(raised.value.hint)
    assert run.config.exists(), "without it nobody would know the folder as a run"
    require_trainable(run, overwrite=True)
    with RunLock(run):
        clear_run(run)
    assert {path.name for path in run.path.iterdir()} <= LOCK
