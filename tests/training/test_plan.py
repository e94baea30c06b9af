"""What a plan says of a training, beside what is so."""

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from PIL import Image

from dsocr.cli import main
from dsocr.config import RunConfig
from dsocr.data.dataset import Dataset
from dsocr.document import Sample, Split
from dsocr.errors import DataError
from dsocr.images import open_image
from dsocr.models.deepseek_images import Resolution, Tiling
from dsocr.models.family import load_processor
from dsocr.training.plan import make_plan
from dsocr.training.preview import Spread, measure_lengths, spread

Call = Callable[..., tuple[int, str, str]]


def changed(config: RunConfig, changes: Mapping[str, object]) -> RunConfig:
    """The configuration with some settings changed, by their dotted names."""
    values = config.model_dump()
    for name, value in changes.items():
        section, _, key = name.partition(".")
        values[section] = {**values[section], key: value}
    return RunConfig.model_validate(values)


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    """Runs `dsocr train WORDS --dry-run --no-preflight` here; gives its exit code, stdout and stderr."""

    def run(*words: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["dsocr", "train", *map(str, words), "--dry-run", "--no-preflight"])
        with pytest.raises(SystemExit) as exit_:
            main()
        return int(exit_.value.code or 0), *capsys.readouterr()

    return run


def written(config: RunConfig, folder: Path) -> Path:
    """The configuration as a file."""
    path = folder / "config.yaml"
    path.write_text(config.to_yaml(), encoding="utf-8")
    return path


def test_lengths_are_those_of_the_encoder(small_dataset: Path) -> None:
    encoder = load_processor("nano", None, "free_ocr")
    samples = Dataset.open(small_dataset).samples(Split.TRAIN)
    for sample, length in zip(samples, measure_lengths(samples, encoder), strict=True):
        encoded = encoder.encode(open_image(sample.image), sample.text)
        assert length.text == len(encoded.answer_ids)
        assert length.vision == encoded.prompt_ids.count(encoder.image_token_id)
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
def test_tiles_are_counted_from_the_head_of_a_file(name: str, orientation: int | None, tmp_path: Path) -> None:
    tiled = Resolution("tiled", 256, "pad", 32, tiling=Tiling(64, 2, 9))
    encoder = replace(load_processor("nano", None, "free_ocr"), resolution=tiled)
    exif = Image.Exif()
    if orientation is not None:
        exif[0x0112] = orientation
    Image.new("L", (400, 100), 200).save(tmp_path / name, exif=exif)
    sample = Sample(name, tmp_path / name, "йод", Split.TRAIN)

    (length,) = measure_lengths([sample], encoder)
    encoded = encoder.encode(open_image(sample.image), sample.text)
    assert length.grid == encoded.views.grid == ((1, 4) if "turned" in name else (4, 1))
    assert length.sequence == len(encoded.prompt_ids) + len(encoded.answer_ids)


def test_a_file_without_a_size_is_named(tmp_path: Path) -> None:
    tiled = Resolution("tiled", 256, "pad", 32, tiling=Tiling(64, 2, 9))
    (tmp_path / "broken.png").write_bytes(b"no image")
    with pytest.raises(DataError, match=r"broken\.png: the image cannot be read"):
        measure_lengths(
            [Sample("broken.png", tmp_path / "broken.png", "a", Split.TRAIN)],
            replace(load_processor("nano", None, "free_ocr"), resolution=tiled),
        )


def test_a_spread_is_of_values_that_occur() -> None:
    assert spread([5]) == Spread(5, 5, 5, 5)
    assert spread(range(1, 101)) == Spread(1, 50, 95, 100)
    assert spread([1, 1, 1, 9]) == Spread(1, 1, 9, 9)


def test_a_plan_counts_as_training_does(small_config: RunConfig) -> None:
    config = changed(
        small_config,
        {
            "training.max_steps": None,
            "training.epochs": 2.5,
            "training.batch_size": 6,
            "training.micro_batch_size": 3,
            "validation.every_steps": 3,
        },
    )
    plan = make_plan(config, probe=False)
    # Sixteen samples are six batches of three, the last of one, and two batches are a step.
    schedule = plan.schedule
    assert (schedule.samples, schedule.steps, schedule.readings) == (16, 8, 3)
    assert schedule.forwards == 2 * 6 + 2 * 2
    assert schedule.epochs == pytest.approx(8 / 3)
    assert plan.fits
    assert plan.warnings == ()
    assert (plan.probe, plan.seconds) == (None, None)


def test_texts_that_training_refuses_are_told_before(small_config: RunConfig) -> None:
    texts = [len(sample.text) for sample in Dataset.open(small_config.dataset).samples(Split.TRAIN)]
    short = changed(small_config, {"training.max_text_tokens": 13})
    plan = make_plan(short, probe=False)
    assert plan.tokens.too_long == sum(length > 13 for length in texts) > 0
    assert plan.schedule.samples == len(texts) - plan.tokens.too_long
    assert "training will be refused" in plan.warnings[0]
    assert plan.warnings[0].endswith(f"training.max_text_tokens={max(texts)}")
    assert make_plan(changed(short, {"training.long_text": "exclude"}), probe=False).warnings == ()
    with pytest.raises(DataError, match="no training sample is left"):
        make_plan(changed(small_config, {"training.max_text_tokens": 1}), probe=False)


def test_a_probe_measures_and_leaves_nothing(small_config: RunConfig) -> None:
    before = {path: path.stat().st_mtime_ns for path in small_config.dataset.rglob("*")}
    state = torch.get_rng_state()
    plan = make_plan(small_config)
    assert plan.probe is not None
    assert plan.probe.passes >= 3
    assert plan.probe.micro_batch_size == 2
    assert plan.probe.samples_per_second > 0
    assert plan.probe.peak_bytes
    assert plan.probe.device == "CPU"
    assert plan.probe.free_bytes > 0
    assert json.loads(json.dumps(plan.as_dict()))["probe"]["samples_per_second"] == plan.probe.samples_per_second
    assert plan.seconds == pytest.approx(
        plan.schedule.forwards * plan.probe.seconds_per_forward + plan.schedule.steps * plan.probe.seconds_per_update
    )
    assert not small_config.output.exists()
    assert before == {path: path.stat().st_mtime_ns for path in small_config.dataset.rglob("*")}
    assert torch.equal(state, torch.get_rng_state())


def test_a_probe_looks_at_images_once_where_training_keeps_what_is_seen(
    small_config: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DSOCR_CACHE", str(tmp_path / "cache"))
    kept = changed(small_config, {"adapter.target_modules": "decoder", "training.feature_cache": True})
    varied = changed(kept, {"training.augmentation": 1.0, "training.feature_cache_views": 3})
    for config, images in ((kept, 16), (varied, 48)):
        plan = make_plan(config)
        assert plan.probe is not None
        assert plan.probe.images == images
        assert plan.seconds_before == images * plan.probe.seconds_per_image > 0
        assert plan.seconds is not None
        assert plan.seconds > plan.seconds_before
        assert plan.as_dict()["seconds_before"] == plan.seconds_before
    assert not (tmp_path / "cache").exists()
    too_large = make_plan(changed(kept, {"training.feature_cache_gb": 1e-6})).probe
    assert too_large is not None
    assert too_large.images == 0


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(torch.OutOfMemoryError("CUDA out of memory"), id="a GPU"),
        pytest.param(RuntimeError("DefaultCPUAllocator: can't allocate memory"), id="torch on a CPU"),
    ],
)
def test_a_training_that_runs_out_of_memory_does_not_fit(
    error: Exception, call: Call, small_config: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*arguments: object) -> None:
        raise error

    monkeypatch.setattr("dsocr.training.plan.run_probe", full)
    plan = make_plan(small_config)
    assert (plan.fits, plan.probe) == (False, None)
    assert "--set training.micro_batch_size=1 --set training.gradient_checkpointing=true" in plan.warnings[0]
    code, out, _ = call(written(small_config, tmp_path))
    assert code == 1
    assert plan.warnings[0] in out
    assert "next:" not in out


def test_the_command_prints_tables_and_json(call: Call, small_config: RunConfig, tmp_path: Path) -> None:
    path = written(small_config, tmp_path)
    code, out, err = call(path, "--set", "training.micro_batch_size=1")
    assert (code, err) == (0, "")
    assert "vision" in out
    assert "over max_text_tokens (512): 0" in out
    assert "memory of the longest batch on CPU, measured:" in out
    assert "8 steps, 32 forward passes over 16 samples, 2.0 epochs" in out
    assert out.splitlines()[-1] == f"next: dsocr train {path.as_posix()} --set training.micro_batch_size=1"

    code, out, err = call(path, "--json")
    assert (code, err) == (0, "")
    told = json.loads(out)["plan"]
    assert told["tokens"]["vision"] == dict.fromkeys(("min", "median", "percentile_95", "max"), 73)
    assert told["probe"]["peak_bytes"] > 0
    assert told["seconds"] > 0
    assert not small_config.output.exists()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        pytest.param(["nowhere.yaml"], "error: nowhere.yaml: no such file", id="missing config"),
        pytest.param(["config.yaml", "--set", "dataset=nowhere"], "not a dataset folder", id="missing dataset"),
        pytest.param(["config.yaml", "--set", "base=nowhere"], "no base model 'nowhere'", id="missing base"),
        pytest.param(
            ["config.yaml", "--set", "adapter.target_modules=^no$"], "matches no layer", id="scope without layers"
        ),
    ],
)
def test_a_mistake_is_a_sentence_and_exit_code_2(
    words: list[str],
    sentence: str,
    call: Call,
    small_config: RunConfig,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written(small_config, tmp_path)
    monkeypatch.chdir(tmp_path)
    code, _, err = call(*words)
    assert code == 2
    assert sentence in err
    assert "Traceback" not in err
