"""What must hold before a training begins: the lock, the folder, and what was left by a kill."""

import subprocess
import sys
import time
from pathlib import Path

from dsocr.errors import RunError
from dsocr.runs import RunFolder
from dsocr.training.lifecycle import RunLock, require_trainable
from tests.conftest import PATIENCE
from tests.raising import raises_code

HOLD = """
import sys, time
from pathlib import Path
from dsocr.runs import RunFolder
from dsocr.training.lifecycle import RunLock
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
    assert {path.name for path in tmp_path.iterdir()} <= RunLock.file_names(RunFolder(tmp_path))


def test_what_a_kill_left_half_written_is_removed_and_hinders_nobody(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    left = [tmp_path / name for name in ("..lock.json.0a1b2c3d.tmp", ".config.yaml.0a1b2c3d.tmp")]
    others = tmp_path / ".scorecard.json.0a1b2c3d.tmp"
    for path in left:
        path.touch()
    require_trainable(run, overwrite=False)
    others.touch()
    with RunLock(run):
        assert not any(path.exists() for path in left)
        assert others.exists(), "an evaluation may be writing it"


def test_files_tell_all_that_is_needed_without_torch() -> None:
    modules = ", ".join(f"dsocr.training.{name}" for name in ("lifecycle", "callbacks"))
    script = f"import sys, {modules}; assert not {{'torch', 'transformers'}} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", script], check=True)
