"""Interrupted and resumed runs, beside one that was not."""

import errno
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from dsocr.config import RunConfig, TrainingSection, load_run_config
from dsocr.console import reporting_to
from dsocr.errors import Interrupted
from dsocr.io.work import MANIFEST, find_damage, write_folder
from dsocr.models.base_folder import WEIGHTS
from dsocr.runs import RunFolder
from dsocr.training.checkpoint import best_path, checkpoint_path, latest_checkpoint, step_of
from dsocr.training.validation import ValidationResult, Validator
from tests.conftest import PATIENCE, eight_steps
from tests.raising import raises_code
from tests.training.running import Heard, train
from tests.training.test_train import PowerCutError, changed, cut_at

STEPS = 7  # of four in an epoch, so that training ends in the middle of one


def empty(path: Path) -> None:
    path.write_bytes(b"")


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def configured(base: str, dataset: Path, output: Path, every_steps: int = 3) -> RunConfig:
    """Augmentation and dropout draw random numbers; losses are logged over several steps."""
    return RunConfig.model_validate(
        {
            "base": base,
            "dataset": dataset,
            "output": output,
            "adapter": {"r": 2, "alpha": 4, "dropout": 0.2},
            "training": {
                "max_steps": STEPS,
                "batch_size": 4,
                "micro_batch_size": 2,
                "learning_rate": 2e-3,
                "augmentation": 1.0,
            },
            "validation": {"every_steps": 2, "max_samples": 2},
            "checkpoints": {"every_steps": every_steps, "keep": 3},
            "generation": {"max_new_tokens": 4},
        }
    )


@pytest.fixture(autouse=True, scope="module")
def _rare_logs() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dsocr.training.readers.log_interval", lambda steps: 5)
        yield


@pytest.fixture(scope="module")
def uninterrupted(toy: str, small_dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    return train(configured(toy, small_dataset, tmp_path_factory.mktemp("uninterrupted") / "run")).run


MEASURE = Validator._measure


def improve(validator: Validator, model: Any, step: int) -> ValidationResult:
    """Validate; later weights are always better."""
    return replace(MEASURE(validator, model, step), rank=(1 / (1 + step), 0))


@pytest.fixture(scope="module")
def improving(toy: str, small_dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A run whose checkpoint of step 6 knows of the best weights of step 4, and the one of step 8 of its own."""
    config = eight_steps(small_dataset, tmp_path_factory.mktemp("improving") / "run", toy)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Validator, "_measure", improve)
        return train(changed(config, checkpoints={"every_steps": 2, "keep": 2})).run


@pytest.fixture
def config(toy: str, small_dataset: Path, tmp_path: Path) -> RunConfig:
    return configured(toy, small_dataset, tmp_path / "run")


@pytest.fixture
def killed(uninterrupted: RunFolder, config: RunConfig) -> RunConfig:
    """A run that was killed after its checkpoint of step 6; the one before is of step 3."""
    shutil.copytree(uninterrupted.path, config.output)
    shutil.rmtree(config.output / "model")
    shutil.rmtree(config.output / "checkpoints" / "step-0000007")
    return config


def rows(run: RunFolder) -> list[dict[str, object]]:
    """metrics.jsonl without its times."""
    times = {"seconds", "elapsed_seconds", "samples_per_second", "tokens_per_second", "memory_bytes"}
    lines = [json.loads(line) for line in run.metrics.read_text(encoding="utf-8").splitlines()]
    return [{key: row[key] for key in row if key not in times} for row in lines]


def assert_same(run: RunFolder, other: RunFolder) -> None:
    """The weights are bit-identical, and so are the metrics, each row once."""
    assert {path.name: path.read_bytes() for path in run.adapter.iterdir()} == {
        path.name: path.read_bytes() for path in other.adapter.iterdir()
    }
    assert rows(run) == rows(other)


@pytest.mark.parametrize(
    ("every_steps", "cuts", "resumed_from"),
    [
        pytest.param(1, [5], 4, id="at the end of an epoch"),
        pytest.param(3, [4, 5, 7], 6, id="in an epoch, twice from one checkpoint, at the end"),
    ],
)
def test_a_training_resumes_bit_by_bit(
    every_steps: int,
    cuts: list[int],
    resumed_from: int,
    toy: str,
    small_dataset: Path,
    uninterrupted: RunFolder,
    tmp_path: Path,
) -> None:
    config = configured(toy, small_dataset, tmp_path / "run", every_steps)
    for step in cuts:
        with pytest.raises(PowerCutError):
            train(config, on_step=cut_at(step))
    mapped: set[str] = set()
    assert train(config, on_step=lambda _: mapped.update(mapped_files(config.output))).resumed_from == resumed_from
    assert mapped == set(), "Windows could not delete them"
    assert_same(RunFolder(config.output), uninterrupted)


def mapped_files(folder: Path) -> set[str]:
    """The files below a folder that are mapped into the memory of this process, where the system tells."""
    maps = Path("/proc/self/maps")
    rows = maps.read_text(encoding="utf-8").splitlines() if maps.exists() else []
    return {row for row in rows if str(folder) in row}


def test_a_training_killed_at_its_end_makes_no_further_step(uninterrupted: RunFolder, config: RunConfig) -> None:
    shutil.copytree(uninterrupted.path, config.output, ignore=shutil.ignore_patterns("model"))
    result = train(config)
    assert (result.resumed_from, result.steps) == (STEPS, STEPS)
    assert_same(result.run, uninterrupted)


@pytest.mark.parametrize(
    ("name", "spoil"), [("state.safetensors", flip), ("state.json", empty), ("model.safetensors", Path.unlink)]
)
def test_a_damaged_checkpoint_is_reported_and_the_one_before_is_taken(
    killed: RunConfig, name: str, spoil: Callable[[Path], None]
) -> None:
    folder = RunFolder(killed.output).checkpoints
    spoil(folder / "step-0000006" / name)
    messages: list[str] = []
    with reporting_to(Heard(messages.append)):
        assert latest_checkpoint(folder) == folder / "step-0000003"
    (message,) = messages
    assert "step-0000006" in message
    assert name in message
    assert (folder / "damaged-step-0000006").is_dir()
    assert not (folder / "step-0000006").exists()


def test_checkpoints_of_the_first_format_are_refused(killed: RunConfig) -> None:
    place = RunFolder(killed.output).checkpoints / "step-0000006"
    files = {path.name: path.read_bytes() for path in place.iterdir() if path.name != MANIFEST}
    state = json.loads(files["state.json"])
    del state["format"]
    write_folder(place, {**files, "state.json": json.dumps(state).encode()}.items())
    with raises_code("checkpoint-format", "step-0000006"):
        train(killed)


def tear(run: RunFolder) -> None:
    with run.metrics.open("ab") as file:
        file.write(b'{"kind": "train", "step": 7, "lo')


@pytest.mark.parametrize(
    ("spoil", "name", "resumed_from"),
    [
        pytest.param(
            lambda run: flip(run.checkpoints / "step-0000006" / "state.safetensors"), "state.safetensors", 3, id="state"
        ),
        pytest.param(tear, "metrics.jsonl", 6, id="an incomplete row of metrics"),
    ],
)
def test_damage_is_reported_and_the_result_is_the_same(
    spoil: Callable[[RunFolder], None], name: str, resumed_from: int, killed: RunConfig, uninterrupted: RunFolder
) -> None:
    spoil(RunFolder(killed.output))
    messages: list[str] = []
    assert train(killed, on_message=messages.append).resumed_from == resumed_from
    assert name in "".join(messages)
    assert_same(RunFolder(killed.output), uninterrupted)


def test_without_an_intact_checkpoint_training_does_not_begin_anew(killed: RunConfig) -> None:
    folder = RunFolder(killed.output).checkpoints
    for place in folder.glob("step-*"):
        empty(place / "state.json")
    for _ in range(2):  # the second time it is the same
        with raises_code("no-intact-checkpoint", "checkpoints") as error:
            train(killed)
        assert "state.json" in error.value.message


def test_checkpoints_are_rotated_and_hold_no_pickle(improving: RunFolder) -> None:
    names = ["best-0000004", "best-0000008", "step-0000006", "step-0000008"]
    assert sorted(path.name for path in improving.checkpoints.iterdir()) == names
    files = [path for path in improving.checkpoints.rglob("*") if path.is_file()]
    assert {path.suffix for path in files} == {".json", ".safetensors"}


def test_with_damaged_best_weights_the_checkpoint_before_them_gives_the_same_result(
    improving: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Validator, "_measure", improve)
    run = RunFolder(tmp_path / "run")
    shutil.copytree(improving.path, run.path, ignore=shutil.ignore_patterns("model"))
    flip(best_path(run.checkpoints, 8) / "model.safetensors")
    messages: list[str] = []
    config = load_run_config(improving.config).model_copy(update={"output": run.path})
    assert train(config, on_message=messages.append).resumed_from == 6
    assert "best-0000008" in messages[0]
    assert_same(run, improving)


def test_damaged_best_weights_are_reported_and_replaced(killed: RunConfig) -> None:
    folder = RunFolder(killed.output).checkpoints
    for best in folder.glob("best-*"):
        empty(best / "model.safetensors")
    messages: list[str] = []
    result = train(killed, on_message=messages.append)
    assert "model.safetensors" in "".join(messages)
    assert result.best_step == STEPS
    assert find_damage(result.run.adapter) is None


def test_the_validation_after_lost_best_weights_continues_the_clock(
    uninterrupted: RunFolder, config: RunConfig
) -> None:
    shutil.copytree(uninterrupted.path, config.output)
    run = RunFolder(config.output)
    shutil.rmtree(run.adapter)
    for best in run.checkpoints.glob("best-*"):
        empty(best / "model.safetensors")
    train(config)
    *before, last = [json.loads(line) for line in run.metrics.read_text(encoding="utf-8").splitlines()]
    assert (last["kind"], last["step"]) == ("validation", STEPS)
    trained = max(row["elapsed_seconds"] for row in before if row["kind"] == "train")
    assert trained <= last["elapsed_seconds"] < trained + PATIENCE


def test_a_full_disk_leaves_the_checkpoint_before(
    killed: RunConfig, uninterrupted: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_room(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    def full(place: Path, files: Iterator[tuple[str, bytes]]) -> None:
        with monkeypatch.context() as patch:
            if place.name == "step-0000007":
                patch.setattr("os.fsync", no_room)
            write_folder(place, files)

    with monkeypatch.context() as patch:
        patch.setattr("dsocr.training.checkpoint.write_folder", full)
        with raises_code("disk-full", "step-0000007"):
            train(killed)
    folder = RunFolder(killed.output).checkpoints
    assert {path.name for path in folder.iterdir() if path.name[0] in ".s"} == {"step-0000003", "step-0000006"}
    assert train(killed).resumed_from == 6
    assert_same(RunFolder(killed.output), uninterrupted)


@pytest.mark.slow
def test_a_signal_ends_a_training_after_its_step_and_workers_ignore_it(
    config: RunConfig, uninterrupted: RunFolder
) -> None:
    with_worker = config.model_copy(update={"training": config.training.model_copy(update={"num_workers": 1})})
    former = signal.getsignal(signal.SIGINT)
    ours = psutil.Process()
    others = set(ours.children(recursive=True))  # a browser of other tests

    def press_ctrl_c(step: int) -> None:
        if step == 4:
            for process in [*set(ours.children(recursive=True)) - others, ours]:
                process.send_signal(signal.SIGINT)

    messages: list[str] = []
    with pytest.raises(Interrupted) as interrupted:
        train(with_worker, on_step=press_ctrl_c, on_message=messages.append)
    assert (interrupted.value.exit_code, interrupted.value.step) == (130, 4)
    assert interrupted.value.resume == RunFolder(config.output).resume_command
    assert sum("finishing the current step" in message for message in messages) == 1
    assert signal.getsignal(signal.SIGINT) is former
    assert train(with_worker).resumed_from == 4
    assert_same(RunFolder(config.output), uninterrupted)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="Windows ends other processes without asking them")
def test_commands_that_are_killed_and_terminated_resume_bit_by_bit(small_dataset: Path, tmp_path: Path) -> None:
    training = {"max_steps": 300, "batch_size": 2, "micro_batch_size": 2, "augmentation": 1.0}
    config = configured("nano", small_dataset, tmp_path / "run", 2).model_copy(
        update={"training": TrainingSection.model_validate(training)}
    )
    run, file = RunFolder(config.output), tmp_path / "config.yaml"
    file.write_text(config.to_yaml(), encoding="utf-8")
    command = [sys.executable, "-m", "dsocr", "train", str(file), "--no-preflight"]

    def begin() -> "subprocess.Popen[str]":
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def until_step(process: "subprocess.Popen[str]", step: int) -> None:
        deadline = time.monotonic() + PATIENCE
        while not checkpoint_path(run.checkpoints, step).is_dir():
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.01)

    with begin() as first:
        until_step(first, 2)
        first.kill()
    newest = max(step_of(place) for place in run.checkpoints.glob("step-*"))
    with begin() as second:
        until_step(second, newest + 2)
        second.terminate()
        _, errors = second.communicate(timeout=PATIENCE)
    assert second.returncode == 143
    assert run.resume_command in errors
    steps = max(step_of(place) for place in run.checkpoints.glob("step-*"))
    assert [row["step"] for row in rows(run) if row["kind"] == "train"] == list(range(6, steps + 1, 6))
    assert latest_checkpoint(run.checkpoints) == checkpoint_path(run.checkpoints, steps)
    uninterrupted = config.model_copy(update={"output": tmp_path / "uninterrupted"})
    with pytest.raises(PowerCutError):
        train(uninterrupted, on_step=cut_at(steps + 1))
    even = steps - steps % 2
    weights = [
        (checkpoint_path(RunFolder(one.output).checkpoints, even) / WEIGHTS).read_bytes()
        for one in (config, uninterrupted)
    ]
    assert weights[0] == weights[1]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no pseudo-terminals")
def test_a_run_whose_terminal_is_closed_ends_with_a_checkpoint(small_dataset: Path, tmp_path: Path) -> None:
    config = configured("nano", small_dataset, tmp_path / "run", 500).model_copy(
        update={"training": TrainingSection.model_validate({"max_steps": 1000, "batch_size": 2, "micro_batch_size": 2})}
    )
    run, file = RunFolder(config.output), tmp_path / "config.yaml"
    file.write_text(config.to_yaml(), encoding="utf-8")
    terminal, inside = os.openpty()
    command = [sys.executable, "-m", "dsocr", "train", str(file), "--no-preflight"]
    process = subprocess.Popen(
        ["setsid", "--ctty", "--wait", *command],
        stdin=inside,
        stdout=inside,
        stderr=inside,
        # Whoever started the tests may ignore it, and a process inherits that.
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),
    )
    os.close(inside)
    deadline, shown = time.monotonic() + PATIENCE, b""
    while not run.metrics.is_file():
        assert time.monotonic() < deadline, shown
        while select.select([terminal], [], [], 0.01)[0]:
            shown += os.read(terminal, 4096)
    os.close(terminal)
    assert process.wait(PATIENCE) == 128 + signal.SIGHUP
    assert latest_checkpoint(run.checkpoints) is not None
