"""What a dry run refuses and estimates, that it writes nothing, and how running out of memory is explained."""

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

import dsocr
from dsocr.config import RunConfig
from dsocr.data.dataset import Dataset
from dsocr.document import Sample, Split
from dsocr.errors import RunError, for_command_line
from dsocr.images import open_image
from dsocr.job import resolve
from dsocr.models.canvas import Resolution, Tiling
from dsocr.models.deepseek_ocr import DeepseekProcessor
from dsocr.models.loading import load_processor
from dsocr.training.dry_run import Plan, check_and_plan, check_widths
from dsocr.training.lifecycle import describe_lighter_settings, explain_out_of_memory
from dsocr.training.samples import measure_lengths
from tests.making_models import write_first
from tests.raising import raises_code
from tests.training.running import train
from tests.training.test_train import changed

LIGHTER = ["training.micro_batch_size=1", "training.gradient_checkpointing=true", "adapter.target_modules=decoder"]
Rewrite = Callable[[list[dict[str, Any]]], None]


def with_rows(config: RunConfig, folder: Path, rewrite: Rewrite) -> RunConfig:
    """The configuration on a copy of its dataset whose rows of the train split are rewritten."""
    dataset = Path(shutil.copytree(config.dataset, folder / "other"))
    table = dataset / "train" / "metadata.jsonl"
    rows = [json.loads(line) for line in table.read_text(encoding="utf-8").splitlines()]
    rewrite(rows)
    table.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return changed(config, dataset=dataset)


def plan_of(config: RunConfig) -> Plan:
    found = dsocr.dry_run(config, preflight=False)
    assert found.plan is not None
    assert len(str(found).splitlines()) >= len(found.checks)
    return found.plan


@pytest.fixture(autouse=True)
def _one_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dsocr.training.dry_run._MAX_STEPS", 1)


@pytest.fixture
def tiled() -> Any:
    resolution = Resolution("tiled", 256, "pad", 32, tiling=Tiling(64, 2, 9))
    nano: Any = load_processor("nano", None, "free_ocr")
    return replace(nano, resolution=resolution)


def test_lengths_are_those_of_the_processor(small_dataset: Path) -> None:
    processor: Any = load_processor("nano", None, "free_ocr")
    samples = Dataset.open(small_dataset).samples(Split.TRAIN)
    for sample, length in zip(samples, measure_lengths(samples, processor), strict=True):
        encoded = processor.encode(open_image(sample.image), sample.text)
        assert length.text == len(encoded.answer_ids)
        assert length.vision == encoded.prompt_ids.count(processor.image_token_id)
        assert length.sequence == len(encoded.prompt_ids) + len(encoded.answer_ids)


@pytest.mark.parametrize(
    ("name", "orientation"),
    [
        pytest.param("wide.png", None, id="a PNG"),
        pytest.param("turned.jpg", 6, id="a photograph held on its side"),
    ],
)
def test_tiles_are_counted_from_the_head_of_a_file(
    name: str, orientation: int | None, tiled: DeepseekProcessor, tmp_path: Path
) -> None:
    exif = Image.Exif()
    if orientation is not None:
        exif[0x0112] = orientation
    Image.new("L", (400, 100), 200).save(tmp_path / name, exif=exif)
    sample = Sample(name, tmp_path / name, "йод", Split.TRAIN)
    (length,) = measure_lengths([sample], tiled)
    encoded = tiled.encode(open_image(sample.image), sample.text)
    assert encoded.grid == ((1, 4) if "turned" in name else (4, 1))
    assert length.vision == encoded.prompt_ids.count(tiled.image_token_id)
    assert length.sequence == len(encoded.prompt_ids) + len(encoded.answer_ids)


def foreign(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        row["text"] = "漢字"


@pytest.mark.parametrize(
    ("rewrite", "settings", "name"),
    [
        pytest.param(lambda rows: rows[0].update(text=""), {}, "dataset", id="an empty text"),
        pytest.param(lambda rows: None, {"training": {"max_text_tokens": 5}}, "dataset", id="texts over budget"),
        pytest.param(foreign, {}, "dataset", id="another script"),
    ],
)
def test_a_dry_run_names_the_check_that_fails(
    rewrite: Rewrite, settings: dict[str, Any], name: str, small_config: RunConfig, tmp_path: Path
) -> None:
    found = check_and_plan(resolve(changed(with_rows(small_config, tmp_path, rewrite), **settings)))
    assert [check.name for check in found.errors] == [name] == found.to_dict()["errors"]
    assert found.errors[0].fix
    assert found.plan is None


def test_texts_longer_than_their_lines_have_steps_are_counted(small_config: RunConfig, tmp_path: Path) -> None:
    def lengthen(rows: list[dict[str, Any]]) -> None:
        for row in rows[2:4]:
            row["text"] = "aa" * 300

    settings = {"base": "small", "training": {"max_text_tokens": 2000}}
    config = with_rows(small_config, tmp_path, lengthen)
    checks = {check.name: check for check in dsocr.dry_run(changed(config, **settings), preflight=False).checks}
    assert checks["line width"].message.startswith("2 of 16 ")
    assert Dataset.open(config.dataset).samples("train")[2].place in checks["line width"].message
    samples = Dataset.open(small_config.dataset).samples("train")
    assert check_widths(samples, load_processor("small", None, "")) == []
    assert check_widths(samples, load_processor("nano", None, "free_ocr")) == []


def test_a_run_folder_of_another_base_is_refused(small_config: RunConfig, tmp_path: Path) -> None:
    small_config.output.mkdir()
    (small_config.output / "config.yaml").write_text(small_config.to_yaml(), encoding="utf-8")
    other = write_first(tmp_path / "first")
    assert "run" in [check.name for check in check_and_plan(resolve(changed(small_config, base=str(other)))).errors]


def test_a_dry_run_of_a_sound_training_measures_it_and_leaves_nothing(small_config: RunConfig) -> None:
    before = {path: path.stat().st_mtime_ns for path in small_config.dataset.rglob("*")}
    found = check_and_plan(resolve(small_config, overwrite=True), preflight=False)
    names = [check.name for check in found.checks]
    assert found.errors == []
    assert names[:3] == ["base", "dataset", "gradients"]
    assert names[3] == "weights"
    assert names[-2:] == ["first loss", "memory"]

    written = json.loads(json.dumps(found.to_dict()))["plan"]
    measured = written["measurement"]
    assert (written["steps"], written["samples"], written["precision"]) == (8, 16, "float32")
    assert (measured["device"], measured["micro_batch_size"]) == ("CPU", 2)
    assert measured["peak_bytes"] > 0
    assert written["seconds"] == pytest.approx(written["micro_batches"] * measured["seconds_per_micro_batch"])
    assert not small_config.output.exists()
    assert before == {path: path.stat().st_mtime_ns for path in small_config.dataset.rglob("*")}


def test_a_plan_counts_as_training_does(small_config: RunConfig) -> None:
    training = {"max_steps": None, "epochs": 2.5, "batch_size": 6, "micro_batch_size": 3}
    plan = plan_of(changed(small_config, training=training, validation={"every_steps": 3}))
    # Sixteen samples are six batches of three, the last of one, and two batches are a step.
    assert (plan.samples, plan.steps, plan.validations) == (16, 8, 3)
    assert plan.micro_batches == 2 * 6 + 2 * 2
    assert plan.epochs == pytest.approx(8 / 3)
    assert plan.tokens["vision"] == {"min": 73, "median": 73, "percentile_95": 73, "max": 73}


def test_texts_over_the_budget_are_counted(small_config: RunConfig) -> None:
    texts = [len(sample.text) for sample in Dataset.open(small_config.dataset).samples(Split.TRAIN)]
    found = dsocr.dry_run(
        changed(small_config, training={"max_text_tokens": 13, "long_text": "exclude"}), preflight=False
    )
    assert found.plan is not None
    excluded = len(texts) - found.plan.samples
    assert excluded == sum(length > 13 for length in texts) > 0
    assert {check.name: check.message for check in found.checks}["text budget"].startswith(f"{excluded} of ")
    nothing = changed(small_config, training={"max_text_tokens": 1, "long_text": "exclude"})
    assert [check.name for check in check_and_plan(resolve(nothing, overwrite=True)).errors] == ["dataset"]


@pytest.mark.parametrize("function", ["measure_training", "check_setup"])
def test_running_out_of_memory_fails_a_dry_run(
    function: str, small_config: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def end(*arguments: object, **options: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(f"dsocr.training.dry_run.{function}", end)
    found = check_and_plan(resolve(small_config, overwrite=True), preflight=False)
    (error,) = found.errors
    assert error.name == "memory"
    assert "--set training.micro_batch_size=1 --set training.gradient_checkpointing=true" in for_command_line(error.fix)
    assert found.plan is None


def settings_in(error: RunError) -> list[str]:
    return re.findall(r"--set (\S+)", error.render())


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"), id="a graphics card"),
        pytest.param(MemoryError(), id="python"),
        pytest.param(RuntimeError("DefaultCPUAllocator: can't allocate memory"), id="torch on a CPU"),
    ],
)
def test_running_out_of_memory_is_explained_with_three_settings(error: Exception, small_config: RunConfig) -> None:
    config = changed(small_config, adapter={"target_modules": "decoder+vision"})
    with raises_code("out-of-memory") as raised, explain_out_of_memory(config):
        raise error
    assert isinstance(raised.value, RunError)
    assert settings_in(raised.value) == LIGHTER


def test_lighter_settings_end(small_config: RunConfig) -> None:
    smallest = changed(small_config, adapter={"r": 1}, training={"micro_batch_size": 1, "gradient_checkpointing": True})
    assert re.findall(r"--set (\S+)", for_command_line(describe_lighter_settings(smallest))) == [
        "training.max_text_tokens=256"
    ]


def test_a_run_resumes_with_lighter_settings(small_config: RunConfig) -> None:
    config = changed(
        small_config,
        adapter={"target_modules": "decoder+vision"},
        training={"max_steps": 2, "batch_size": 2},
        validation={"max_samples": 1},
        checkpoints={"every_steps": 1},
    )

    def end(step: int) -> None:
        if step == 2:
            raise MemoryError

    with raises_code("out-of-memory") as raised:
        train(config, on_step=end)
    assert isinstance(raised.value, RunError)
    assert settings_in(raised.value) == LIGHTER
    assert "step-0000001" in (raised.value.hint or "")
    lighter = {"micro_batch_size": 1, "gradient_checkpointing": True}
    assert train(changed(config, training=lighter)).resumed_from == 1
