"""Memory that ends becomes a sentence, and the run goes on with less."""

import re
from pathlib import Path

import pytest
import torch

from dsocr.config import RunConfig
from dsocr.errors import RunError
from dsocr.model.out_of_memory import is_out_of_memory
from dsocr.training.callbacks import TrainingProgress
from dsocr.training.out_of_memory import lighter_settings, out_of_memory_spoken
from dsocr.training.train import train
from tests.training.test_train import changed


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
def test_it_names_three_settings_and_the_run_goes_on_with_them(error: BaseException, small_config: RunConfig) -> None:
    with pytest.raises(RunError, match=r"the memory of the C.* ended in training: it takes about") as raised:
        train(small_config, report=ends_at(6, error))  # type: ignore[arg-type]
    hint = raised.value.hint or ""
    assert re.findall(r"--set (\S+)", hint) == [
        "training.samples_per_forward=1",
        "training.gradient_checkpointing=true",
        "adapter.scope=decoder",
    ]
    assert "from step-0000004 on" in hint
    lighter = {"samples_per_forward": 1, "gradient_checkpointing": True}
    assert train(changed(small_config, training=lighter)).resumed_from == 4


def test_the_settings_take_less_by_the_estimate(small_config: RunConfig) -> None:
    with pytest.raises(RunError) as raised, out_of_memory_spoken(small_config):
        raise MemoryError
    before, after = (float(size) for size in re.findall(r"([\d.]+) MiB", raised.value.message))
    assert after < before


def test_other_errors_pass() -> None:
    assert not is_out_of_memory(RuntimeError("shapes do not match"))
    with pytest.raises(RuntimeError, match="shapes"), out_of_memory_spoken(None):  # type: ignore[arg-type]
        raise RuntimeError("shapes do not match")


def test_three_settings_are_left_even_where_little_is(small_config: RunConfig, tmp_path: Path) -> None:
    small = changed(
        small_config,
        adapter={"scope": "decoder", "rank": 1},
        training={"samples_per_forward": 1, "gradient_checkpointing": True},
    )
    assert lighter_settings(small) == {"training.max_text_tokens": 256}
    assert len(lighter_settings(small_config)) == 3
