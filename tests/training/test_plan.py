"""What a plan says of a training, beside what is so."""

import itertools
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from dsocr.cli import main
from dsocr.config import RunConfig
from dsocr.data.dataset import Dataset
from dsocr.data.images import open_image
from dsocr.errors import DataError
from dsocr.model.collating import normalized
from dsocr.model.finding import find_base
from dsocr.model.loading import BaseModel, load_base, load_outline
from dsocr.model.resolution import Resolution, Tiling
from dsocr.model.tokenizing import load_encoder
from dsocr.samples import Sample, Split
from dsocr.training.activations import Batch, Computing, estimate_activations
from dsocr.training.collator import Collator, EncodedSamples
from dsocr.training.fitting import changed, find_smaller
from dsocr.training.lengths import Spread, measure_lengths, spread
from dsocr.training.memory import Room, estimate_memory, weight_bytes
from dsocr.training.plan import make_plan
from dsocr.training.setup import fresh_adapter

Call = Callable[..., tuple[int, str, str]]

ENCODER = load_encoder("nano", None, "free_ocr")


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    """Runs `dsocr plan WORDS` in this process; gives its exit code, stdout and stderr."""

    def run(*words: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["dsocr", "plan", *map(str, words)])
        with pytest.raises(SystemExit) as exit_:
            main()
        return int(exit_.value.code or 0), *capsys.readouterr()

    return run


@pytest.fixture
def small_card(monkeypatch: pytest.MonkeyPatch) -> Room:
    """A device on which two samples at once are too many."""
    card = Room("a small card", total=2**25, free=26 * 2**20)
    monkeypatch.setattr("dsocr.training.plan.find_room", lambda device: card)
    return card


def written(config: RunConfig, folder: Path) -> Path:
    """The configuration as a file."""
    path = folder / "config.yaml"
    path.write_text(config.to_yaml(), encoding="utf-8")
    return path


def test_weights_are_counted_without_being_loaded(nano: BaseModel) -> None:
    numbers = sum(parameter.numel() for parameter in nano.network.parameters())
    assert weight_bytes(nano.folder, torch.float32) == numbers * 4
    assert weight_bytes(nano.folder, torch.bfloat16) == numbers * 2


@pytest.mark.parametrize(
    "adapter",
    [
        {"scope": "decoder"},
        {"scope": "decoder+experts", "variant": "rslora"},
        {"scope": "decoder+vision", "variant": "dora", "rank": 3},
        {"scope": r"^model\.language_model\.layers\.2\.self_attn\.q_proj$"},
    ],
    ids=lambda adapter: adapter["scope"],
)
def test_the_adapter_is_counted_without_being_made(adapter: dict[str, Any], small_config: RunConfig) -> None:
    config = changed(small_config, {f"adapter.{key}": value for key, value in adapter.items()})
    with torch.device("meta"):
        outline = fresh_adapter(load_outline("nano"), config, ENCODER, revision=None)
    made = fresh_adapter(load_base("nano").network, config, ENCODER, revision=None)
    size = sum(tensor.numel() * tensor.itemsize for tensor in made.parameters() if tensor.requires_grad)

    memory = estimate_memory(outline, 0, Batch(1, 100, (256,)), Computing())
    assert (memory.adapter, memory.gradients, memory.moments) == (size, size, 2 * size)


@pytest.mark.parametrize(
    ("scope", "variant", "dtype"),
    [
        ("decoder", "lora", torch.float32),
        ("decoder", "alora", torch.float32),
        ("decoder", "alora", torch.bfloat16),
        ("decoder+vision", "lora", torch.bfloat16),
    ],
    ids=lambda value: str(value),
)
def test_what_is_held_for_the_backward_pass_is_nearly_as_estimated(
    scope: str, variant: str, dtype: torch.dtype, small_config: RunConfig
) -> None:
    config = changed(small_config, {"adapter.scope": scope, "adapter.variant": variant})
    base = load_base("nano", dtype=dtype)
    encoder = base.encoder(None, "free_ocr")
    model = fresh_adapter(base.network, config, encoder, revision=None).train()
    batch = Collator(encoder.pad_id)(
        [EncodedSamples(Dataset.open(config.dataset).samples(Split.TRAIN), encoder)[index] for index in (0, 2)]
    )
    known = {tensor.untyped_storage().data_ptr() for tensor in itertools.chain(model.parameters(), model.buffers())}
    kept: dict[int, torch.Tensor] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.untyped_storage().data_ptr() not in known:
            kept[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    with (
        torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor),
        torch.autocast("cpu", dtype, enabled=dtype is not torch.float32),
    ):
        loss = model(**normalized(batch)).loss
    held = sum(tensor.untyped_storage().nbytes() for tensor in kept.values())
    assert loss.isfinite()

    samples, tokens = batch["input_ids"].shape
    logits = batch["labels"].numel() * model.config.text_config.vocab_size * 4
    images = batch["pixel_values"].numel() * 4
    ends = (batch["input_ids"] == encoder.image_token_id).nonzero()[-1, 1] + 1
    before = int(ends) if variant == "alora" else 0
    counted = Batch(samples, tokens, (256,), batch["labels"].shape[1], before)
    estimate = estimate_activations(model, counted, Computing(dtype)).held
    assert estimate - images + logits == pytest.approx(held, rel=0.1)


def test_an_adapter_near_the_end_holds_less(small_config: RunConfig) -> None:
    held = []
    for layers in (r"\d+", "2"):
        scope = rf"^model\.language_model\.layers\.{layers}\.self_attn\.q_proj$"
        with torch.device("meta"):
            config = changed(small_config, {"adapter.scope": scope})
            model = fresh_adapter(load_outline("nano"), config, ENCODER, revision=None)
        held.append(estimate_activations(model, Batch(2, 100, (256,)), Computing()).held)
    assert held[0] > 2 * held[1]


def test_lengths_are_those_of_the_encoder(small_dataset: Path) -> None:
    encoder = load_encoder("nano", None, "free_ocr")
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
    encoder = replace(load_encoder("nano", None, "free_ocr"), resolution=tiled)
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
            replace(load_encoder("nano", None, "free_ocr"), resolution=tiled),
        )


def test_a_spread_is_of_values_that_occur() -> None:
    assert spread([5]) == Spread(5, 5, 5, 5)
    assert spread(range(1, 101)) == Spread(1, 50, 95, 100)
    assert spread([1, 1, 1, 9]) == Spread(1, 1, 9, 9)


def test_a_plan_counts_as_training_does(small_config: RunConfig) -> None:
    config = changed(
        small_config,
        {
            "training.steps": None,
            "training.epochs": 2.5,
            "training.samples_per_step": 6,
            "training.samples_per_forward": 3,
            "validation.every_steps": 3,
        },
    )
    plan = make_plan(config, probe=False)
    # Sixteen samples are six batches of three, the last of one, and two batches are a step.
    schedule = plan.schedule
    assert (schedule.samples, schedule.steps, schedule.readings) == (16, 8, 3)
    assert schedule.forwards == 2 * 6 + 2 * 2
    assert schedule.epochs == pytest.approx(8 / 3)
    assert plan.memory.weights == weight_bytes(find_base("nano")[0], torch.float32)
    assert plan.memory.logits == 3 * plan.tokens.text.max * 240 * 12
    assert plan.fits
    assert plan.warnings == ()
    assert (plan.probe, plan.seconds, plan.changes) == (None, None, None)


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


def test_a_training_that_will_not_fit_is_told_how_it_would(small_config: RunConfig, small_card: Room) -> None:
    config = changed(small_config, {"training.samples_per_forward": 4})
    plan = make_plan(config)
    assert not plan.fits
    assert plan.probe is None
    assert plan.changes is not None
    assert plan.changes["training.samples_per_forward"] < 4
    (warning,) = plan.warnings
    assert "it will not fit: about" in warning
    assert f"--set training.samples_per_forward={plan.changes['training.samples_per_forward']}" in warning
    better = make_plan(changed(config, plan.changes), probe=False)
    assert better.fits
    assert better.memory.total <= small_card.free


def test_a_need_of_a_terabyte_is_told(small_config: RunConfig) -> None:
    plan = make_plan(changed(small_config, {"adapter.rank": 10_000_000}))
    assert plan.memory.total > 10**12
    assert (plan.fits, plan.changes, plan.probe) == (False, None, None)
    assert "make it small enough" in plan.warnings[0]


FULL = {"training.samples_per_step": 12, "training.samples_per_forward": 12}


@pytest.mark.parametrize(
    ("settings", "free", "changes"),
    [
        pytest.param({}, 70, {"training.samples_per_forward": 6}, id="as many samples as fit and divide a step"),
        pytest.param({}, 9, {"training.gradient_checkpointing": True, "training.samples_per_forward": 1}, id="slower"),
        pytest.param(
            {"training.attention": "eager"},
            35,
            {"training.attention": "sdpa", "training.samples_per_forward": 3},
            id="what costs nothing first",
        ),
        pytest.param(
            {"training.gradient_checkpointing": True, "adapter.scope": "decoder+vision"},
            12,
            {"adapter.scope": "decoder", "training.samples_per_forward": 2},
            id="learning less where nothing else helps",
        ),
        pytest.param(
            {},
            4,
            {"training.gradient_checkpointing": True, "input.resolution": "half", "training.samples_per_forward": 1},
            id="seeing less, last of all",
        ),
        pytest.param({}, 1, None, id="nothing helps"),
    ],
)
def test_the_change_that_costs_least_is_named(
    settings: dict[str, Any], free: int, changes: dict[str, Any] | None, small_config: RunConfig
) -> None:
    def needed(config: RunConfig) -> int:
        sample = 10 if not config.training.gradient_checkpointing else 5
        sample *= 3 if config.training.attention == "eager" else 1
        sample *= 4 if config.adapter.scope == "decoder+vision" else 1
        sample = 3 if config.input.resolution == "half" else sample
        return sample * config.training.samples_per_forward

    config = changed(small_config, {**FULL, "adapter.scope": "decoder", **settings})
    assert find_smaller(config, needed, free, device=torch.device("cpu"), smaller=["half"]) == changes


def test_a_probe_measures_and_leaves_nothing(small_config: RunConfig) -> None:
    before = {path: path.stat().st_mtime_ns for path in small_config.dataset.rglob("*")}
    state = torch.get_rng_state()
    plan = make_plan(small_config)
    assert plan.probe is not None
    assert plan.probe.passes >= 3
    assert plan.probe.samples_per_forward == 2
    assert plan.probe.samples_per_second > 0
    assert plan.probe.peak_bytes
    assert json.loads(json.dumps(plan.as_dict()))["probe"]["samples_per_second"] == plan.probe.samples_per_second
    assert plan.seconds == pytest.approx(
        plan.schedule.forwards * plan.probe.seconds_per_forward + plan.schedule.steps * plan.probe.seconds_per_update
    )
    assert not small_config.run.exists()
    assert before == {path: path.stat().st_mtime_ns for path in small_config.dataset.rglob("*")}
    assert torch.equal(state, torch.get_rng_state())


def test_a_probe_looks_at_images_once_where_training_keeps_what_is_seen(
    small_config: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DSOCR_CACHE", str(tmp_path / "cache"))
    kept = changed(small_config, {"adapter.scope": "decoder", "training.vision_cache": True})
    varied = changed(kept, {"training.augmentation": 1.0, "training.vision_cache_views": 3})
    for config, images in ((kept, 16), (varied, 48)):
        plan = make_plan(config)
        assert plan.probe is not None
        assert plan.probe.images == images
        assert plan.seconds_before == images * plan.probe.seconds_per_image > 0
        assert plan.seconds is not None
        assert plan.seconds > plan.seconds_before
        assert plan.as_dict()["seconds_before"] == plan.seconds_before
    assert not (tmp_path / "cache").exists()
    too_large = make_plan(changed(kept, {"training.vision_cache_gigabytes": 1e-6})).probe
    assert too_large is not None
    assert too_large.images == 0


def test_a_probe_that_runs_out_of_memory_is_believed(small_config: RunConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: object) -> None:
        raise torch.OutOfMemoryError

    monkeypatch.setattr("dsocr.training.plan.run_probe", full)
    plan = make_plan(small_config)
    assert not plan.fits
    assert "a probe ran out of memory" in plan.warnings[0]


def test_the_command_prints_tables_and_json(call: Call, small_config: RunConfig, tmp_path: Path) -> None:
    path = written(small_config, tmp_path)
    code, out, err = call(path, "--no-probe", "--set", "training.samples_per_forward=1")
    assert (code, err) == (0, "")
    assert "vision" in out
    assert "over max_text_tokens (512): 0" in out
    assert "8 steps, 32 forward passes over 16 samples, 2.0 epochs" in out
    assert out.splitlines()[-1] == f"next: dsocr train {path.as_posix()} --set training.samples_per_forward=1"

    code, out, err = call(path, "--no-probe", "--json")
    assert (code, err) == (0, "")
    told = json.loads(out)
    assert told["memory"]["total"] == sum(told["memory"].values()) - told["memory"]["total"]
    assert told["tokens"]["vision"] == dict.fromkeys(("min", "median", "percentile_95", "max"), 73)
    assert told["probe"] is told["seconds"] is None
    assert not small_config.run.exists()


def test_the_command_exits_with_1_where_it_will_not_fit(
    call: Call, small_config: RunConfig, small_card: Room, tmp_path: Path
) -> None:
    code, out, _ = call(written(small_config, tmp_path), "--set", "training.samples_per_forward=4")
    assert code == 1
    assert "warning: it will not fit" in out
    assert "next:" not in out


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        pytest.param(["nowhere.yaml"], "error: nowhere.yaml: no such file", id="missing config"),
        pytest.param(["config.yaml", "--set", "dataset=nowhere"], "not a dataset folder", id="missing dataset"),
        pytest.param(["config.yaml", "--set", "base=nowhere"], "no base model 'nowhere'", id="missing base"),
        pytest.param(["config.yaml", "--set", "adapter.scope=^no$"], "matches no layer", id="scope without layers"),
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
