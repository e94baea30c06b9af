"""Training in two processes, beside the same in one."""

import json
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import psutil
import pytest
import torch
from safetensors.torch import load_file

from dsocr.config import RunConfig
from dsocr.job import fit_to_world_size
from dsocr.models.base_folder import WEIGHTS
from dsocr.runs import RunFolder
from dsocr.training.checkpoint import checkpoint_path, step_of
from dsocr.training.distributed import Distributed, connect
from tests.conftest import PATIENCE
from tests.raising import raises_code
from tests.training.running import train
from tests.training.test_train import PowerCutError, changed, metrics

# Windows ends other processes without asking them, and torchrun was not tried there.
needs_torchrun = pytest.mark.skipif(sys.platform == "win32", reason="torchrun was not tried on Windows")

TRAIN_ALL = """
import sys
from pathlib import Path
from dsocr.training.distributed import connect
from dsocr.training.train import train

if __name__ == "__main__":
    with connect():
        for file in sys.argv[1:]:
            train(Path(file), preflight=False)
    # A thread that gloo runs while the interpreter ends can abort it.
    threads = [name.read_text() for name in Path("/proc/self/task").glob("*/comm")]
    assert not any("gloo" in name for name in threads), threads
"""


def started(*command: str) -> "subprocess.Popen[str]":
    """torchrun with two processes, one thread each."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *command]
    return subprocess.Popen(launcher, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, encoding="utf-8")


def written(config: RunConfig) -> str:
    """The configuration's file, beside the run folder."""
    file = config.output.with_suffix(".yaml")
    file.write_text(config.to_yaml(), encoding="utf-8")
    return str(file)


def assert_alike(run: Path, other: Path) -> None:
    """Adapters and losses are the same but for rounding, and the files that are left have the same names."""
    ours, theirs = (load_file(folder / "adapter" / WEIGHTS) for folder in (run, other))
    assert ours.keys() == theirs.keys()
    assert max(float((ours[name] - theirs[name]).abs().max()) for name in ours) < 1e-5
    assert any(bool(tensor.any()) for name, tensor in ours.items() if "lora_B" in name)
    for kind in ("train", "validation"):
        rows = [metrics(folder, kind) for folder in (run, other)]
        assert [row["step"] for row in rows[0]] == [row["step"] for row in rows[1]]
        assert [row["loss"] for row in rows[0]] == pytest.approx([row["loss"] for row in rows[1]], rel=1e-4)
        assert [row.get("cer") for row in rows[0]] == [row.get("cer") for row in rows[1]]
    names = [{path.relative_to(folder).as_posix() for path in folder.rglob("*")} for folder in (run, other)]
    assert {name for name in names[0] ^ names[1] if "events.out" not in name} == set()
    assert sum("events.out" in name for name in names[0]) == 1


@pytest.mark.slow
@needs_torchrun
def test_two_processes_learn_what_one_learns(small_config: RunConfig, tmp_path: Path) -> None:
    """Several kinds of training in one launch, for the start of a process takes longest."""
    frozen = changed(small_config, training={"max_steps": 3})
    configs = {
        # Of eight samples the second step of six has two left: one process has nothing but fillers.
        "uneven": changed(
            small_config,
            adapter={"target_modules": "decoder+vision"},
            training={
                "max_steps": 4,
                "max_samples": 8,
                "batch_size": 6,
                "micro_batch_size": 3,
                "augmentation": 1.0,
                "gradient_checkpointing": True,
            },
            validation={"every_steps": 2, "max_samples": 3},
        ),
        "kept": changed(frozen, training={"feature_cache": True}),
    }
    together = {name: changed(config, output=tmp_path / "two" / name) for name, config in configs.items()}
    (tmp_path / "two").mkdir()
    script = tmp_path / "train_all.py"
    script.write_text(TRAIN_ALL, encoding="utf-8")
    with started(str(script), *map(written, together.values())) as launcher:
        printed, _ = launcher.communicate(timeout=PATIENCE)
    assert launcher.returncode == 0, printed
    for name, config in configs.items():
        alone = changed(config, output=tmp_path / "one" / name)
        train(alone)
        assert_alike(together[name].output, alone.output)
    provenance = json.loads(RunFolder(together["kept"].output).provenance.read_text(encoding="utf-8"))
    assert provenance["processes"] == 2


def until_step(launcher: "subprocess.Popen[str]", run: RunFolder, step: int) -> Sequence[psutil.Process]:
    """The two processes, when the first has written a checkpoint of this step or a later one."""
    deadline = time.monotonic() + PATIENCE
    while max((step_of(place) for place in run.checkpoints.glob("step-*")), default=0) < step:
        assert launcher.poll() is None, launcher.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)
    processes = psutil.Process(launcher.pid).children()
    return sorted(processes, key=lambda process: int(process.environ()["RANK"]))


@pytest.mark.slow
@needs_torchrun
def test_processes_that_are_killed_or_asked_to_end_leave_what_one_goes_on_with(
    small_config: RunConfig, tmp_path: Path
) -> None:
    config = changed(
        small_config,
        training={"max_steps": 100, "batch_size": 2, "micro_batch_size": 1},
        validation={"every_steps": 1000},
        checkpoints={"every_steps": 2},
    )
    run, file = RunFolder(config.output), written(config)
    command = ("-m", "dsocr", "train", file, "--no-preflight")
    with started(*command) as launcher:
        until_step(launcher, run, 2)[1].kill()
        printed, _ = launcher.communicate(timeout=PATIENCE)
    assert launcher.returncode == 1
    # On a busy machine the launcher may end the other process before that has noticed.
    assert printed.count("error: another process of this training failed") <= 1
    last = max(step_of(place) for place in run.checkpoints.glob("step-*"))

    with started(*command) as launcher:
        first, second = until_step(launcher, run, last + 2)
        second.terminate()  # the other hears nothing of it, and ends after the same step
        printed, _ = launcher.communicate(timeout=PATIENCE)
    assert set(re.findall(r"exitcode *: (\d+)", printed)) == {"143"}
    step = int(re.findall(r"a checkpoint of step (\d+) is written", printed)[0])
    assert f"resume:  torchrun --nproc-per-node 2 -m {run.resume_command}" in printed
    assert not first.is_running()

    alone = changed(config, output=tmp_path / "alone", training={"max_steps": 100})

    def stop(done: int) -> None:
        if done == step + 2:
            raise PowerCutError

    for one in (config, alone):
        with pytest.raises(PowerCutError):
            train(one, on_step=stop)
    steps = [row["step"] for row in metrics(config.output, "train")]
    assert steps == sorted(set(steps))
    ours, theirs = (
        load_file(checkpoint_path(RunFolder(one.output).checkpoints, step + step % 2) / WEIGHTS)
        for one in (config, alone)
    )
    assert max(float((ours[name] - theirs[name]).abs().max()) for name in ours) < 1e-4


@pytest.mark.parametrize(
    ("environment", "cards", "code"),
    [
        pytest.param({"ACCELERATE_USE_FSDP": "true"}, 0, "launch-unsupported", id="FSDP"),
        pytest.param({"ACCELERATE_USE_DEEPSPEED": "true"}, 0, "launch-unsupported", id="DeepSpeed"),
        pytest.param({"LOCAL_RANK": "1"}, 1, "too-many-processes", id="more processes than graphics cards"),
    ],
)
def test_other_launches_are_refused(
    environment: dict[str, str], cards: int, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"RANK": "1", "WORLD_SIZE": "2", **environment}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: bool(cards))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: cards)
    with raises_code(code), connect():
        pass


def test_a_process_that_no_launcher_started_is_alone() -> None:
    with connect() as dist:
        assert dist == Distributed(0, 1)
        assert dist.all_gather({"a": 1}) == [{"a": 1}]
        assert dist.broadcast(lambda: 3) == dist.main_first(lambda: 3) == 3
        assert dist.shard(range(4)) == range(4)


@pytest.mark.parametrize(
    ("batch_size", "micro", "processes", "shared"),
    [
        pytest.param(32, 8, 1, 8, id="one process: as configured"),
        pytest.param(32, 8, 2, 8, id="two micro-batches for each of two"),
        pytest.param(32, 16, 4, 8, id="a process's share is less than it could hold"),
        pytest.param(24, 8, 4, 6, id="a micro-batch divides a process's share"),
    ],
)
def test_a_step_is_shared_evenly(
    batch_size: int, micro: int, processes: int, shared: int, small_config: RunConfig
) -> None:
    config = changed(small_config, training={"batch_size": batch_size, "micro_batch_size": micro})
    found = fit_to_world_size(config, processes).training
    assert (found.batch_size, found.micro_batch_size) == (batch_size, shared)


def test_a_step_that_cannot_be_shared_is_refused(small_config: RunConfig) -> None:
    with raises_code("batch-size-indivisible"):
        fit_to_world_size(small_config, 3)
