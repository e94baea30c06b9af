"""The recipes for a GPU load, plan, train ten steps and resume, on small random networks of their classes."""

import json
import re
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from safetensors.torch import load_file, save_file

import dsocr
from dsocr.config import RunConfig, load_config
from dsocr.job import resolve
from dsocr.training.dry_run import check_and_plan
from tests.making_models import write_first, write_second
from tests.models.chat_models import draw_text, write_chat_model
from tests.models.encoder_decoder_models import write_trocr
from tests.training.running import train

CONFIGS = Path(__file__).parents[2] / "configs"


def write_modest(folder: Path, write: Callable[[Path], Path]) -> Path:
    """Write a base whose logits are near zero, so that its first loss is near a uniform guess's."""
    for file in write(folder).glob("*.safetensors"):
        tensors = load_file(file)
        if "lm_head.weight" in tensors:
            tensors["lm_head.weight"] *= 0.1
            save_file(tensors, file, metadata={"format": "pt"})
    return folder


# The base in place of the published one, and what such a small network cannot take as it is in the recipe.
RECIPES: dict[str, tuple[Callable[[Path], Any], dict[str, Any]]] = {
    "deepseek_ocr": (partial(write_modest, write=write_first), {"input.resolution": "tiny"}),
    "deepseek_ocr_2": (partial(write_modest, write=write_second), {"input.resolution": "small"}),
    "qwen3_vl_2b": (partial(write_chat_model, model_type="qwen3_vl"), {"input.resolution": "pixels1024-16384"}),
    "lighton_ocr_3": (
        partial(write_chat_model, model_type="qwen3_5", head_std=0.015),
        {"input.resolution": "pixels1024-16384", "input.prompt": ""},
    ),
    "trocr": (write_trocr, {}),
}
# A test has no GPU and no time for ten epochs; batches are smaller, as the dataset is.
SMALLER = {
    "training.epochs": None,
    "training.max_steps": 10,
    "training.precision": "fp32",
    "training.num_workers": 0,
    "training.batch_size": 4,
    "validation.every_steps": 10,
    "checkpoints.every_steps": 5,
    "generation.max_new_tokens": 8,
}


def large(name: str) -> list[str]:
    """What a recipe says to add for 24 GB."""
    text = (CONFIGS / f"{name}.yaml").read_text(encoding="utf-8")
    (line,) = (line for line in text.splitlines() if re.match(r"#   --set ", line))
    return re.findall(r"--set (\S+)", line)


def configured(name: str, folder: Path, dataset: Path, overrides: list[str]) -> RunConfig:
    write, changes = RECIPES[name]
    base = folder / "base"
    if not base.exists():
        write(base)
    recipe = load_config(CONFIGS / f"{name}.yaml", overrides)
    settings = {**changes, **SMALLER, "base": str(base)}
    settings |= {"dataset": dataset, "output": folder / "run"}
    settings |= {"training.micro_batch_size": min(4, recipe.training.micro_batch_size)}
    return load_config(CONFIGS / f"{name}.yaml", overrides, changes=settings)


@pytest.fixture(scope="module")
def letters(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Lines in the few letters that all of these networks can write."""
    source = tmp_path_factory.mktemp("letters")
    rows = []
    for number in range(12):
        split = "train" if number < 8 else "validation" if number < 10 else "test"
        text = "абвгдежзиклм"[number] + "нопрст"[number % 6 :]
        draw_text(f"line {number}").save(source / f"{number}.png")
        rows.append({"file_name": f"{number}.png", "text": text, "split": split})
    table = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    (source / "lines.jsonl").write_text(table, encoding="utf-8")
    return dsocr.prepare(source, source / "dataset").folder


@pytest.mark.parametrize("name", RECIPES)
def test_every_line_has_a_reason_and_every_source_is_named(name: str) -> None:
    text = (CONFIGS / f"{name}.yaml").read_text(encoding="utf-8")
    head, _, settings = text.partition("\nbase: ")
    values = [line for line in f"base: {settings}".splitlines() if line and not line.endswith(":")]
    assert [line for line in values if not re.search(r" # \S", line)] == []
    assert set(re.findall(r"\[\d\]", settings)) <= set(re.findall(r"\[\d\]", head))
    assert head.count("Not measured") == 1
    load_config(CONFIGS / f"{name}.yaml", large(name))
    assert (
        yaml.safe_load(text)["training"]["batch_size"]
        % load_config(CONFIGS / f"{name}.yaml", large(name)).training.micro_batch_size
        == 0
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_plans_trains_and_resumes(name: str, letters: Path, tmp_path: Path) -> None:
    for number, overrides in enumerate(([], large(name))):
        config = configured(name, tmp_path, letters, overrides)
        if number == 0:
            result = check_and_plan(resolve(config, overwrite=True), preflight=False)
            # Random weights may guess worse than uniformly, which a trained base must not.
            assert {check.name for check in result.errors} <= {"first loss"}, str(result)
        run = train(config, preflight=False).run
        weights = {path.name: path.read_bytes() for path in run.adapter.iterdir()}
        shutil.rmtree(run.adapter)
        shutil.rmtree(run.checkpoints / "step-0000010")
        assert train(config, preflight=False).resumed_from == 5
        assert {path.name: path.read_bytes() for path in run.adapter.iterdir()} == weights
        shutil.rmtree(run.path)
