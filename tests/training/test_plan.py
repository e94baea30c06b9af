"""What a plan says of a training, beside what is so; and memory that runs out."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from PIL import Image

from dsocr.config import RunConfig
from dsocr.data.dataset import Dataset
from dsocr.document import Sample, Split
from dsocr.errors import RunError
from dsocr.images import open_image
from dsocr.models.deepseek_images import Resolution, Tiling
from dsocr.models.deepseek_ocr import Processor
from dsocr.models.family import load_processor
from dsocr.training.callbacks import TrainingProgress
from dsocr.training.plan import explain_out_of_memory, lighter_settings, make_plan
from dsocr.training.preview import Spread, measure_lengths, spread
from dsocr.training.train import train
from tests.raising import raises_code
from tests.training.test_train import changed

LIGHTER = ["training.micro_batch_size=1", "training.gradient_checkpointing=true", "adapter.target_modules=decoder"]
OUT_OF_MEMORY = [
    pytest.param(torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"), id="a graphics card"),
    pytest.param(MemoryError(), id="python"),
    pytest.param(RuntimeError("DefaultCPUAllocator: can't allocate memory"), id="torch on a CPU"),
]


@pytest.fixture
def tiled() -> Processor:
    resolution = Resolution("tiled", 256, "pad", 32, tiling=Tiling(64, 2, 9))
    return replace(load_processor("nano", None, "free_ocr"), resolution=resolution)


def test_lengths_are_those_of_the_processor(small_dataset: Path) -> None:
    processor = load_processor("nano", None, "free_ocr")
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
        pytest.param("wide.jpg", 1, id="a photograph held upright"),
        pytest.param("turned.jpg", 6, id="a photograph held on its side"),
        pytest.param("turned.png", 8, id="a PNG that says how it was held"),
    ],
)
def test_tiles_are_counted_from_the_head_of_a_file(
    name: str, orientation: int | None, tiled: Processor, tmp_path: Path
) -> None:
    exif = Image.Exif()
    if orientation is not None:
        exif[0x0112] = orientation
    Image.new("L", (400, 100), 200).save(tmp_path / name, exif=exif)
    sample = Sample(name, tmp_path / name, "йод", Split.TRAIN)
    (length,) = measure_lengths([sample], tiled)
    encoded = tiled.encode(open_image(sample.image), sample.text)
    assert length.grid == encoded.views.grid == ((1, 4) if "turned" in name else (4, 1))
    assert length.sequence == len(encoded.prompt_ids) + len(encoded.answer_ids)


def test_a_file_without_a_size_is_named(tiled: Processor, tmp_path: Path) -> None:
    (tmp_path / "broken.png").write_bytes(b"no image")
    with raises_code("image-unreadable", "broken.png"):
        measure_lengths([Sample("broken.png", tmp_path / "broken.png", "a", Split.TRAIN)], tiled)


def test_a_spread_is_of_values_that_occur() -> None:
    assert spread([5]) == Spread(5, 5, 5, 5)
    assert spread(range(1, 101)) == Spread(1, 50, 95, 100)
    assert spread([1, 1, 1, 9]) == Spread(1, 1, 9, 9)


def test_a_plan_counts_as_training_does(small_config: RunConfig) -> None:
    training = {"max_steps": None, "epochs": 2.5, "batch_size": 6, "micro_batch_size": 3}
    plan = make_plan(changed(small_config, training=training, validation={"every_steps": 3}), measure=False)
    # Sixteen samples are six batches of three, the last of one, and two batches are a step.
    schedule = plan.schedule
    assert (schedule.samples, schedule.steps, schedule.validations) == (16, 8, 3)
    assert schedule.micro_batches == 2 * 6 + 2 * 2
    assert schedule.epochs == pytest.approx(8 / 3)
    assert (plan.fits, plan.warnings, plan.measurement, plan.seconds) == (True, (), None, None)
    assert plan.to_dict()["tokens"]["vision"] == dict.fromkeys(("min", "median", "percentile_95", "max"), 73)


def test_texts_that_training_refuses_are_warned_of(small_config: RunConfig) -> None:
    texts = [len(sample.text) for sample in Dataset.open(small_config.dataset).samples(Split.TRAIN)]
    short = changed(small_config, training={"max_text_tokens": 13})
    plan = make_plan(short, measure=False)
    assert plan.tokens.too_long == sum(length > 13 for length in texts) > 0
    assert plan.schedule.samples == len(texts) - plan.tokens.too_long
    assert f"training.max_text_tokens={max(texts)}" in plan.warnings[0]
    assert make_plan(changed(short, training={"long_text": "exclude"}), measure=False).warnings == ()
    with raises_code("text-too-long"):
        make_plan(changed(small_config, training={"max_text_tokens": 1}), measure=False)


def test_a_measurement_leaves_nothing(small_config: RunConfig) -> None:
    before = {path: path.stat().st_mtime_ns for path in small_config.dataset.rglob("*")}
    state = torch.get_rng_state()
    plan = make_plan(small_config)
    measured = plan.measurement
    assert measured is not None
    assert (measured.device, measured.micro_batch_size) == ("CPU", 2)
    assert measured.samples_per_second > 0
    assert measured.peak_bytes
    assert measured.free_bytes > 0
    written = json.loads(json.dumps(plan.to_dict()))
    assert written["measurement"]["samples_per_second"] == measured.samples_per_second
    assert plan.seconds == pytest.approx(plan.schedule.micro_batches * measured.seconds_per_micro_batch)
    assert not small_config.output.exists()
    assert before == {path: path.stat().st_mtime_ns for path in small_config.dataset.rglob("*")}
    assert torch.equal(state, torch.get_rng_state())


def test_image_features_are_counted_once_if_training_caches_them(
    small_config: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DSOCR_CACHE", str(tmp_path / "cache"))
    cached = changed(small_config, training={"feature_cache": True})
    augmented = changed(cached, training={"augmentation": 1.0, "feature_cache_views": 3})
    for config, images in ((cached, 16), (augmented, 48)):
        plan = make_plan(config)
        assert plan.measurement is not None
        assert plan.measurement.images == images
        assert plan.seconds_before == images * plan.measurement.seconds_per_image > 0
        assert plan.seconds is not None
        assert plan.seconds > plan.seconds_before == plan.to_dict()["seconds_before"]
    assert not (tmp_path / "cache").exists()
    too_large = make_plan(changed(cached, training={"feature_cache_gb": 1e-6})).measurement
    assert too_large is not None
    assert too_large.images == 0


@pytest.mark.parametrize("error", OUT_OF_MEMORY)
def test_a_training_that_runs_out_of_memory_does_not_fit(
    error: Exception, small_config: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*arguments: object) -> None:
        raise error

    monkeypatch.setattr("dsocr.training.plan.measure_training", full)
    plan = make_plan(small_config)
    assert (plan.fits, plan.measurement) == (False, None)
    assert "--set training.micro_batch_size=1 --set training.gradient_checkpointing=true" in plan.warnings[-1]


def settings_in(error: RunError) -> list[str]:
    return re.findall(r"--set (\S+)", error.hint or "")


@pytest.mark.parametrize("error", OUT_OF_MEMORY)
def test_running_out_of_memory_is_explained_with_three_settings(error: Exception, small_config: RunConfig) -> None:
    config = changed(small_config, adapter={"target_modules": "decoder+vision"})
    with raises_code("out-of-memory") as raised, explain_out_of_memory(config):
        raise error
    assert isinstance(raised.value, RunError)
    assert settings_in(raised.value) == LIGHTER


def test_other_errors_pass(small_config: RunConfig) -> None:
    with pytest.raises(RuntimeError, match="shapes"), explain_out_of_memory(small_config):
        raise RuntimeError("shapes do not match")


def test_a_run_resumes_with_lighter_settings(small_config: RunConfig) -> None:
    config = changed(
        small_config,
        adapter={"target_modules": "decoder+vision"},
        training={"max_steps": 4},
        checkpoints={"every_steps": 2},
    )

    def end(progress: TrainingProgress) -> None:
        if progress.step == 3:
            raise MemoryError

    with raises_code("out-of-memory") as raised:
        train(config, on_progress=end)
    assert isinstance(raised.value, RunError)
    assert settings_in(raised.value) == LIGHTER
    assert "step-0000002" in (raised.value.hint or "")
    lighter = {"micro_batch_size": 1, "gradient_checkpointing": True}
    assert train(changed(config, training=lighter)).resumed_from == 2


def test_lighter_settings_end(small_config: RunConfig) -> None:
    smallest = changed(small_config, adapter={"r": 1}, training={"micro_batch_size": 1, "gradient_checkpointing": True})
    assert lighter_settings(smallest) == {"training.max_text_tokens": 256}
