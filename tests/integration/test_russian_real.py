"""The recipe for a base that has seen real Russian hands, on a few lines."""

from pathlib import Path

import pytest

import dsocr
from tests.integration.calling import Call

RECIPE = Path(__file__).parents[2] / "configs" / "russian_real.yaml"


@pytest.mark.slow
def test_the_recipe_makes_a_base_that_others_can_start_from(small_dataset: Path, tmp_path: Path, call: Call) -> None:
    short = {
        "dataset": small_dataset,
        "output": tmp_path / "run",
        "training.epochs": "null",
        "training.max_steps": 1,
        "training.batch_size": 4,
        "training.micro_batch_size": 4,
    }
    settings = [word for key, value in short.items() for word in ("--set", f"{key}={value}")]
    call("train", RECIPE, "--no-preflight", *settings)
    call("export", tmp_path / "run", "-o", tmp_path / "base")
    line = small_dataset.parent / "source" / "test-0.png"
    readings = [dsocr.load(tmp_path / name).read(line).text for name in ("run", "base")]
    assert readings[0] == readings[1]
    settings += ["--set", f"base={tmp_path / 'base'}", "--set", f"output={tmp_path / 'next'}"]
    call("train", small_dataset, "--no-preflight", *settings)
