"""Memory that ends becomes a sentence, and the run goes on with less."""

import re
from pathlib import Path

import pytest
import torch

from dsocr.config import RunConfig
from dsocr.errors import RunError
from dsocr.models.loading import is_out_of_memory
from dsocr.training.callbacks import TrainingProgress
from dsocr.training.train import train
from dsocr.training.trainer import lighter_settings, out_of_memory_spoken
from tests.training.test_train import changed

THREE = ["training.micro_batch_size=1", "training.gradient_checkpointing=true", "adapter.target_modules=decoder"]


@pytest.fixture
def towers_too(small_config: RunConfig) -> RunConfig:
    return changed(small_config, adapter={"target_modules": "decoder+vision"})


def settings_in(error: RunError) -> list[str]:
    return re.findall(r"--set (\S+)", error.hint or "")


def ends_at(step: int, error: BaseException) -> object:
    def report(progress: TrainingProgress) -> None:
        if progress.step == step:
            raise error

    return report


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"), id="a graphics card"),
        pytest.param(MemoryError(), id="python"),
        pytest.param(RuntimeError("DefaultCPUAllocator: can't allocate memory"), id="torch on a CPU"),
    ],
)
def test_it_is_told_with_three_settings(error: BaseException, towers_too: RunConfig) -> None:
    with (
        pytest.raises(RunError, match="out of memory") as raised,
        out_of_memory_spoken(towers_too),
    ):
        raise error
    assert settings_in(raised.value) == THREE


def test_a_run_goes_on_with_them(towers_too: RunConfig) -> None:
    small_config = changed(towers_too, training={"max_steps": 4}, checkpoints={"every_steps": 2})
    with pytest.raises(RunError, match="out of memory") as raised:
        train(small_config, report=ends_at(3, MemoryError()))  # type: ignore[arg-type]
    assert settings_in(raised.value) == THREE
    assert "from step-0000002 on" in (raised.value.hint or "")
    lighter = {"micro_batch_size": 1, "gradient_checkpointing": True}
    assert train(changed(small_config, training=lighter)).resumed_from == 2


def test_other_errors_pass() -> None:
    assert not is_out_of_memory(RuntimeError("shapes do not match"))
    with pytest.raises(RuntimeError, match="shapes"), out_of_memory_spoken(None):  # type: ignore[arg-type]
        raise RuntimeError("shapes do not match")


def test_three_settings_are_left_even_where_little_is(towers_too: RunConfig, tmp_path: Path) -> None:
    small = changed(
        towers_too,
        adapter={"target_modules": "decoder", "r": 1},
        training={"micro_batch_size": 1, "gradient_checkpointing": True},
    )
    assert lighter_settings(small) == {"training.max_text_tokens": 256}
    assert len(lighter_settings(towers_too)) == 3
