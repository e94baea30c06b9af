"""Trainings that are cut off, resumed and cut off again, beside one that nobody disturbed."""

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from dsocr.config import RunConfig, TrainingSection
from dsocr.errors import Interrupted, RunError
from dsocr.io.atomic import MANIFEST, find_damage, write_folder
from dsocr.models.adapters import WEIGHTS
from dsocr.runs import RunFolder
from dsocr.training.callbacks import TrainingProgress
from dsocr.training.checkpoint import checkpoint_path, latest_checkpoint, step_of
from dsocr.training.train import train
from tests.conftest import PATIENCE

STEPS = 7  # of four in an epoch, so that training ends in the middle of one
FILES = [
    "adapter_config.json",
    "adapter_model.safetensors",
    "optimizer.safetensors",
    "random.safetensors",
    "state.json",
    "trainer_state.json",
    MANIFEST,
]


class PowerCutError(Exception):
    """Stands for the power going off."""


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def configured(dataset: Path, run: Path, every_steps: int = 3) -> RunConfig:
    """Everything that is drawn is drawn: augmentation and dropout; losses are logged over several steps."""
    return RunConfig.model_validate(
        {
            "dataset": dataset,
            "output": run,
            "adapter": {"r": 2, "alpha": 4, "dropout": 0.2},
            "training": {
                "max_steps": STEPS,
                "batch_size": 4,
                "micro_batch_size": 2,
                "learning_rate": 2e-3,
                "augmentation": 1.0,
            },
            "validation": {"every_steps": 2, "max_samples": 2},
            "guard": {"lines": 2},
            "checkpoints": {"every_steps": every_steps, "keep": 3},
            "generation": {"max_new_tokens": 4},
        }
    )


@pytest.fixture(autouse=True, scope="module")
def _rare_logs() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dsocr.training.setup._log_every", lambda steps: 5)
        yield


@pytest.fixture(scope="module")
def undisturbed(small_dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    return train(configured(small_dataset, tmp_path_factory.mktemp("undisturbed") / "run")).run


@pytest.fixture
def config(small_dataset: Path, tmp_path: Path) -> RunConfig:
    return configured(small_dataset, tmp_path / "run")


@pytest.fixture
def cut_off(undisturbed: RunFolder, config: RunConfig) -> RunConfig:
    """A run that was cut off after its last checkpoint, that of step 6; before that is the one of step 3."""
    shutil.copytree(undisturbed.path, config.output)
    shutil.rmtree(config.output / "adapter")
    shutil.rmtree(config.output / "checkpoints" / "step-0000007")
    return config


def after(step: int) -> Callable[[TrainingProgress], None]:
    """The power goes off after this step."""

    def cut(progress: TrainingProgress) -> None:
        if progress.step == step:
            raise PowerCutError

    return cut


def rows(run: RunFolder) -> list[dict[str, object]]:
    """metrics.jsonl without its times."""
    times = {"seconds", "elapsed_seconds", "samples_per_second", "tokens_per_second", "memory_bytes"}
    lines = [json.loads(line) for line in run.metrics.read_text(encoding="utf-8").splitlines()]
    return [{key: row[key] for key in row if key not in times} for row in lines]


def assert_same(run: RunFolder, other: RunFolder) -> None:
    """The adapters are the same bit by bit, and so are the metrics, each row once."""
    assert {path.name: path.read_bytes() for path in run.adapter.iterdir()} == {
        path.name: path.read_bytes() for path in other.adapter.iterdir()
    }
    assert rows(run) == rows(other)


@pytest.mark.parametrize(
    ("every_steps", "cuts", "resumed_from"),
    [
        pytest.param(3, [5], [3], id="in the middle of an epoch"),
        pytest.param(4, [5], [4], id="at the end of an epoch"),
        pytest.param(3, [4, 5, 7], [3, 3, 6], id="three times, twice from one checkpoint"),
    ],
)
def test_a_training_that_is_cut_off_goes_on_bit_by_bit(
    every_steps: int,
    cuts: list[int],
    resumed_from: list[int],
    small_dataset: Path,
    undisturbed: RunFolder,
    tmp_path: Path,
) -> None:
    config = configured(small_dataset, tmp_path / "run", every_steps)
    for step in cuts:
        with pytest.raises(PowerCutError):
            train(config, report=after(step))
    assert train(config).resumed_from == resumed_from[-1]
    assert_same(RunFolder(config.output), undisturbed)


def test_a_training_that_is_cut_off_at_its_end_makes_no_further_step(
    small_dataset: Path, undisturbed: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = configured(small_dataset, tmp_path / "run", STEPS)

    def cut(*args: object, **kwargs: object) -> None:
        raise PowerCutError

    with monkeypatch.context() as patch:
        patch.setattr("dsocr.training.train.write_sealed", cut)
        with pytest.raises(PowerCutError):
            train(config)
    result = train(config)
    assert (result.resumed_from, result.steps) == (STEPS, STEPS)
    assert_same(result.run, undisturbed)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("spoil", [truncate, empty, flip, Path.unlink])
def test_a_damaged_checkpoint_is_said_and_the_one_before_is_taken(
    cut_off: RunConfig, name: str, spoil: Callable[[Path], None]
) -> None:
    folder = RunFolder(cut_off.output).checkpoints
    spoil(folder / "step-0000006" / name)
    said: list[str] = []
    assert latest_checkpoint(folder, said.append) == folder / "step-0000003"
    assert len(said) == 1
    assert "step-0000006 is damaged (" in said[0]
    assert name in said[0] or (name == MANIFEST and spoil is flip)
    assert (folder / "damaged-step-0000006").is_dir()
    assert not (folder / "step-0000006").exists()


def test_a_training_goes_on_from_the_checkpoint_before_a_damaged_one(
    cut_off: RunConfig, undisturbed: RunFolder
) -> None:
    flip(RunFolder(cut_off.output).checkpoints / "step-0000006" / "optimizer.safetensors")
    said: list[str] = []
    assert train(cut_off, say=said.append).resumed_from == 3
    assert "optimizer.safetensors has changed since it was written" in said[0]
    assert_same(RunFolder(cut_off.output), undisturbed)


def test_with_no_checkpoint_whole_training_says_so_and_does_not_begin_anew(cut_off: RunConfig) -> None:
    folder = RunFolder(cut_off.output).checkpoints
    for place in folder.glob("step-*"):
        empty(place / "state.json")
    for _ in range(2):  # asked again it says the same
        with pytest.raises(RunError, match=r"no checkpoint is whole\n +step-0000006: state\.json has 0 bytes") as error:
            train(cut_off)
    assert "--overwrite" in str(error.value.hint)


def test_a_damaged_best_adapter_is_said_and_read_anew(cut_off: RunConfig) -> None:
    folder = RunFolder(cut_off.output).checkpoints
    for best in folder.glob("best-*"):
        empty(best / "adapter_model.safetensors")
    said: list[str] = []
    result = train(cut_off, say=said.append)
    assert "is damaged (adapter_model.safetensors has 0 bytes" in said[0]
    assert result.best_step == STEPS
    assert find_damage(result.run.adapter) is None


def test_a_full_disk_leaves_the_checkpoint_before(
    config: RunConfig, undisturbed: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_room(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    def full(place: Path, files: Iterator[tuple[str, bytes]]) -> None:
        with monkeypatch.context() as patch:
            if place.name == "step-0000006":
                patch.setattr("os.fsync", no_room)
            write_folder(place, files)

    with monkeypatch.context() as patch:
        patch.setattr("dsocr.training.checkpoint.write_sealed", full)
        with pytest.raises(RunError, match=r"step-0000006: the disk is full: [\d.]+ MB are needed"):
            train(config)
    folder = RunFolder(config.output).checkpoints
    assert {path.name for path in folder.iterdir() if path.name[0] in ".s"} == {"step-0000003"}
    assert train(config).resumed_from == 3
    assert_same(RunFolder(config.output), undisturbed)


@pytest.mark.skipif(sys.platform != "linux" or not hasattr(os, "geteuid") or os.geteuid() != 0, reason="mounts a disk")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_disk_that_is_really_full_is_a_sentence_and_loses_nothing(
    small_dataset: Path, undisturbed: RunFolder, tmp_path: Path
) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(disk)], capture_output=True).returncode:
        pytest.skip("may not mount")
    try:
        config, filler = configured(small_dataset, disk / "run"), disk / "filler"

        def fill(progress: TrainingProgress) -> None:
            if progress.step == 5:
                filler.write_bytes(bytes(shutil.disk_usage(disk).free - 40_000))

        with pytest.raises(RunError, match=r"the disk is full: [\d.]+ MB are needed, 0\.0 MB are free"):
            train(config, report=fill)
        folder = RunFolder(config.output).checkpoints
        assert find_damage(folder / "step-0000003") is None
        assert not list(folder.glob(".*"))
        filler.unlink()
        assert train(config).resumed_from == 3
        assert_same(RunFolder(config.output), undisturbed)
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)


@pytest.mark.skipif(sys.platform != "linux" or not hasattr(os, "geteuid") or os.geteuid() != 0, reason="mounts a disk")
def test_a_disk_that_may_only_be_read_is_a_sentence(small_dataset: Path, tmp_path: Path) -> None:
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", str(tmp_path)], capture_output=True).returncode:
        pytest.skip("may not mount")
    try:
        with pytest.raises(RunError, match="cannot be written: Read-only file system") as error:
            train(configured(small_dataset, tmp_path / "run"))
        assert "writable" in str(error.value.hint)
    finally:
        subprocess.run(["umount", "--lazy", str(tmp_path)], check=True)


def test_a_signal_ends_a_training_after_its_step_and_workers_leave_that_to_it(
    config: RunConfig, undisturbed: RunFolder
) -> None:
    in_a_worker = config.model_copy(update={"training": config.training.model_copy(update={"num_workers": 1})})
    former = signal.getsignal(signal.SIGINT)
    ours = psutil.Process()
    not_of_the_training = set(ours.children(recursive=True))  # a browser of other tests

    def press_ctrl_c(progress: TrainingProgress) -> None:
        if progress.step == 4:
            for process in [*set(ours.children(recursive=True)) - not_of_the_training, ours]:
                process.send_signal(signal.SIGINT)

    said: list[str] = []
    with pytest.raises(Interrupted) as interrupted:
        train(in_a_worker, report=press_ctrl_c, say=said.append)
    assert (interrupted.value.exit_code, interrupted.value.step) == (130, 4)
    assert interrupted.value.resume == RunFolder(config.output).resume_command
    assert "finishing the running step" in said[0]
    assert signal.getsignal(signal.SIGINT) is former
    assert train(in_a_worker).resumed_from == 4
    assert_same(RunFolder(config.output), undisturbed)


def command(config: RunConfig) -> list[str]:
    """`dsocr train`, to be killed."""
    file = config.output.with_suffix(".yaml")
    file.write_text(config.to_yaml(), encoding="utf-8")
    return [sys.executable, "-m", "dsocr", "train", str(file), "--no-preflight"]


def until_step(process: "subprocess.Popen[str]", run: RunFolder, step: int) -> None:
    """Wait for a checkpoint of a running command."""
    deadline = time.monotonic() + PATIENCE
    while not checkpoint_path(run.checkpoints, step).is_dir():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows ends other processes without asking them")
def test_commands_that_are_killed_and_asked_to_end_go_on_bit_by_bit(small_dataset: Path, tmp_path: Path) -> None:
    training = {"max_steps": 300, "batch_size": 2, "micro_batch_size": 2, "augmentation": 1.0}
    config = configured(small_dataset, tmp_path / "run", 2).model_copy(
        update={"training": TrainingSection.model_validate(training)}
    )
    run = RunFolder(config.output)

    def begin() -> "subprocess.Popen[str]":
        return subprocess.Popen(command(config), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    with begin() as first:
        until_step(first, run, 2)
        first.kill()
    whole = max(place.name for place in run.checkpoints.glob("step-*"))
    with begin() as second:
        until_step(second, run, step_of(run.checkpoints / whole) + 2)
        second.terminate()
        _, errors = second.communicate(timeout=PATIENCE)
    assert second.returncode == 143
    assert f"resume:  {run.resume_command}" in errors
    steps = max(step_of(place) for place in run.checkpoints.glob("step-*"))
    assert f"a checkpoint of step {steps} is written" in errors
    assert [row["step"] for row in rows(run) if row["kind"] == "train"] == list(range(6, steps + 1, 6))
    assert latest_checkpoint(run.checkpoints, print) == checkpoint_path(run.checkpoints, steps)
    undisturbed = config.model_copy(update={"run": tmp_path / "undisturbed"})
    with pytest.raises(PowerCutError):
        train(undisturbed, report=after(steps + 1))
    other = checkpoint_path(RunFolder(undisturbed.output).checkpoints, steps - steps % 2)
    ours = checkpoint_path(run.checkpoints, steps - steps % 2)
    assert (ours / WEIGHTS).read_bytes() == (other / WEIGHTS).read_bytes()
