"""Training from image features that were computed once."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

from dsocr.config import RunConfig
from dsocr.console import reporting_to
from dsocr.data.dataset import Dataset
from dsocr.document import Sample, Split
from dsocr.models.base_folder import WEIGHTS
from dsocr.models.generation import Generation
from dsocr.models.loading import BaseModel, load_base
from dsocr.models.token_batches import collate, decode, drop_ignored_positions, normalize_pixels
from dsocr.models.token_family import CanvasEncoded
from dsocr.runs import RunFolder
from dsocr.training.feature_cache import cache_features, vision_features
from dsocr.training.readers import make_trainable, make_trainer
from dsocr.training.samples import EncodedSamples, Setup
from dsocr.training.trainer import Trainer
from tests.making_models import deepseek_processor, write_first, write_second
from tests.raising import raises_code
from tests.training.running import Heard, train
from tests.training.test_train import changed, losses, metrics


def picture(width: int, height: int) -> Image.Image:
    return Image.fromarray(np.random.default_rng(width).integers(0, 256, (height, width, 3), dtype=np.uint8))


PROMPT = "<image>\nБВГ"
UNTILED = {"nano": "wrap", "first": "tiny"}
TILED = {"nano": "wrap", "first": "gundam", "second": "gundam"}


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, BaseModel]:
    folder = tmp_path_factory.mktemp("bases")
    (folder / "first").mkdir()
    (folder / "second").mkdir()
    first, second = write_first(folder / "first"), write_second(folder / "second")
    return {"nano": load_base("nano"), "first": load_base(str(first)), "second": load_base(str(second))}


def samples_of(base: BaseModel, resolution: str) -> tuple[list[CanvasEncoded], int]:
    """Two samples of other lengths; where the resolution has tiles, the second has two of them."""
    encoder = deepseek_processor(base, resolution, PROMPT)
    images = {"ДЕЖЗИЙКЛ": picture(300, 60), "Ж": picture(800, 400)}
    return [encoder.encode(image, text) for text, image in images.items()], encoder.pad_id


@pytest.mark.parametrize("kind", UNTILED)
def test_logits_where_something_is_learnt_give_the_same_loss_and_gradients(
    kind: str, bases: dict[str, BaseModel]
) -> None:
    network = bases[kind].network
    samples, pad_id = samples_of(bases[kind], UNTILED[kind])
    batch = collate(samples, pad_id, padding="right")
    weight = network.get_parameter("model.language_model.layers.1.self_attn.q_proj.weight")
    found = []
    for shown in (batch, drop_ignored_positions(batch)):
        weight.requires_grad_(True)
        answer = network(**shown, num_items_in_batch=torch.tensor(7))
        (gradient,) = torch.autograd.grad(answer.loss, weight)
        weight.requires_grad_(False)
        found.append((answer, gradient))
    (full, full_gradient), (kept, kept_gradient) = found
    assert kept.logits.shape[:2] == (2, max(len(sample.answer_ids) for sample in samples))
    assert kept.loss.item() == pytest.approx(full.loss.item(), rel=1e-6)
    assert float(full_gradient.abs().max()) > 0
    assert torch.allclose(kept_gradient, full_gradient, rtol=1e-5, atol=1e-6 * float(full_gradient.abs().max()))


@pytest.mark.parametrize("kind", TILED)
def test_features_in_place_of_pixels_give_the_same_loss_and_the_same_text(
    kind: str, bases: dict[str, BaseModel]
) -> None:
    base = bases[kind]
    samples, pad_id = samples_of(base, TILED[kind])
    processor = deepseek_processor(base, TILED[kind], PROMPT)
    features = [one.tokens for one in vision_features(base.network, processor, samples, None)]
    assert [len(tokens) for tokens in features] == [
        sample.prompt_ids.count(base.network.config.image_token_id) for sample in samples
    ]
    cached = [replace(sample, images={}, features=tokens) for sample, tokens in zip(samples, features, strict=True)]
    with torch.inference_mode():
        losses = [base.network(**collate(them, pad_id, padding="right")).loss.item() for them in (samples, cached)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)
    read = [[replace(sample, answer_ids=()) for sample in them] for them in (samples, cached)]
    for beams in (1, 2) if kind == "nano" else ():  # decoding knows no kinds, and the published towers are slow
        settings = Generation(max_new_tokens=2, num_beams=beams)
        texts = [[reading.text for reading in decode(base.network, processor, them, settings)] for them in read]
        assert texts[0] == texts[1]


def test_pixels_that_travel_as_bytes_are_the_same_numbers(bases: dict[str, BaseModel]) -> None:
    samples, pad_id = samples_of(bases["first"], "gundam")
    before = collate(samples, pad_id, padding="right")
    moved = collate(samples, pad_id, padding="right", dtype=None)
    for name in ("pixel_values", "pixel_values_local"):
        assert moved[name].dtype is torch.uint8
        assert torch.equal(normalize_pixels(moved)[name], before[name])


@pytest.fixture
def frozen(small_config: RunConfig) -> RunConfig:
    """Three steps with frozen vision towers."""
    return changed(small_config, training={"max_steps": 3}, validation={"every_steps": 3})


@pytest.fixture
def kept(frozen: RunConfig) -> RunConfig:
    """The same with cached features."""
    return changed(frozen, training={"feature_cache": True})


def test_an_adapter_learns_the_same_with_and_without(
    frozen: RunConfig, kept: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[int, int]] = []

    def watched(*arguments: Any, num_workers: int, **options: Any) -> Trainer:
        cached = list(RunFolder(arguments[1].output).features.rglob("*.safetensors"))
        seen.append((num_workers, len(cached)))
        return make_trainer(*arguments, num_workers=num_workers, **options)

    monkeypatch.setattr("dsocr.training.readers.make_trainer", watched)
    train(frozen)
    kept = changed(kept, output=tmp_path / "kept", training={"num_workers": 1})
    train(kept)
    # 16 samples are too few for auto to bother; features are read in this process.
    assert seen == [(0, 0), (0, 16 + 2)]
    assert not RunFolder(kept.output).features.exists()
    ours, theirs = (load_file(RunFolder(run).adapter / WEIGHTS) for run in (frozen.output, kept.output))
    assert any(bool(tensor.any()) for name, tensor in ours.items() if "lora_B" in name)
    assert all(torch.allclose(ours[name], theirs[name], rtol=1e-4, atol=1e-5) for name in ours)
    assert losses(frozen.output) == pytest.approx(losses(kept.output), rel=1e-5)
    ((one,), (other,)) = (metrics(run, "validation") for run in (frozen.output, kept.output))
    assert one["loss"] == pytest.approx(other["loss"], rel=1e-5)
    assert one["cer"] == other["cer"]


class Cached:
    """Samples whose features are cached, as training sets them up."""

    def __init__(self, config: RunConfig, lines: list[Sample], folder: Path) -> None:
        self.stages: list[tuple[str, str, int, int]] = []
        base = load_base(config.base)
        self.processor = deepseek_processor(base, config.input.resolution, config.input.prompt)
        augmentation = config.training.augmentation
        self.samples: Any = EncodedSamples(lines, self.processor, augmentation=augmentation, seed=config.seed)
        model = make_trainable(base.network, config, revision=None)
        setup = Setup(model, self.processor, self.samples, torch.device("cpu"), torch.float32)
        with reporting_to(Heard(on_stage=lambda *stage: self.stages.append(stage))):
            self.is_cached = cache_features(config, setup, None, folder / "features")


def lines(config: RunConfig, count: int = 4) -> list[Sample]:
    return list(Dataset.open(config.dataset).samples(Split.TRAIN))[:count]


def test_views_come_back_after_as_many_epochs(kept: RunConfig, tmp_path: Path) -> None:
    config = changed(kept, training={"feature_cache_views": 2, "augmentation": 1.0})
    cached = Cached(config, lines(kept, 5), tmp_path)
    assert cached.stages == [("computing image features", "images", done, 10) for done in (8, 10)]
    assert len(list(tmp_path.rglob("*.safetensors"))) == 10
    seen = []
    for epoch in range(3):
        cached.samples.set_epoch(epoch)
        seen.append(cached.samples[1].features)
    assert not torch.equal(seen[0], seen[1])
    assert torch.equal(seen[0], seen[2])
    fresh: Any = EncodedSamples(lines(kept, 3), cached.processor, augmentation=1.0, seed=config.seed)
    fresh.set_epoch(1)
    assert np.array_equal(fresh[1].pixels(), cached.samples.encode_view(1, 1).pixels())
    (computed,) = vision_features(load_base(config.base).network, cached.processor, [fresh[1]], None)
    assert torch.allclose(computed.tokens, seen[1], atol=1e-5)


@pytest.mark.parametrize(
    ("training", "is_cached"),
    [
        pytest.param({"feature_cache": False}, False, id="refused"),
        pytest.param({}, True, id="by itself, where it pays"),
        pytest.param({"augmentation": 1.0}, False, id="not by itself in place of fresh variations"),
        pytest.param({"feature_cache_gb": 1e-6}, False, id="by itself, but too large"),
    ],
)
def test_features_are_cached_where_it_pays(
    training: dict[str, Any], is_cached: bool, frozen: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dsocr.training.feature_cache._WORTH_CACHING", 4)
    config = changed(frozen, training={"max_steps": 99, **training})
    assert Cached(config, lines(frozen), tmp_path).is_cached is is_cached


@pytest.mark.parametrize(
    ("sections", "code"),
    [
        pytest.param({"training": {"feature_cache_gb": 1e-6}}, "feature-cache-too-large", id="too large"),
        pytest.param({"adapter": {"target_modules": "decoder+vision"}}, "feature-cache-not-frozen", id="trained"),
    ],
)
def test_features_that_must_be_cached_and_cannot_be_are_an_error(
    sections: dict[str, Any], code: str, kept: RunConfig, tmp_path: Path
) -> None:
    with raises_code(code):
        Cached(changed(kept, **sections), lines(kept), tmp_path)
    assert not (tmp_path / "features").exists()
