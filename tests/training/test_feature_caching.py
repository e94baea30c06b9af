"""Training from image features that were computed once."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

from dsocr.config import RunConfig
from dsocr.data.dataset import Dataset
from dsocr.document import Sample, Split
from dsocr.models.adapters import WEIGHTS
from dsocr.models.loading import load_base
from dsocr.runs import RunFolder
from dsocr.training.feature_cache import FeatureCache, FeatureStore, cache_features
from dsocr.training.readers import fresh_adapter, make_trainer
from dsocr.training.samples import EncodedSamples, Setup
from dsocr.training.trainer import Trainer
from tests.making_models import deepseek_processor
from tests.raising import raises_code
from tests.training.running import Heard, train
from tests.training.test_train import changed, losses, metrics


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DSOCR_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "vision"


@pytest.fixture
def frozen(small_config: RunConfig) -> RunConfig:
    """Three steps with frozen vision towers."""
    return changed(small_config, training={"max_steps": 3}, validation={"every_steps": 3})


@pytest.fixture
def kept(frozen: RunConfig) -> RunConfig:
    """The same with cached features."""
    return changed(frozen, training={"feature_cache": True})


def files(cache: Path) -> list[Path]:
    return sorted(cache.rglob("*.safetensors"))


def test_an_adapter_learns_the_same_with_and_without(
    frozen: RunConfig, kept: RunConfig, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workers: list[int] = []

    def asked(*arguments: Any, num_workers: int, **options: Any) -> Trainer:
        workers.append(num_workers)
        return make_trainer(*arguments, num_workers=num_workers, **options)

    train(frozen)
    assert not files(cache), "16 samples are too few for auto to bother"
    monkeypatch.setattr("dsocr.training.readers.make_trainer", asked)
    kept = changed(kept, output=tmp_path / "kept", training={"num_workers": 1})
    train(kept)
    assert workers == [0], "features are read in this process"
    assert len(files(cache)) == 16 + 2
    ours, theirs = (load_file(RunFolder(run).adapter / WEIGHTS) for run in (frozen.output, kept.output))
    assert any(bool(tensor.any()) for name, tensor in ours.items() if "lora_B" in name)
    assert all(torch.allclose(ours[name], theirs[name], rtol=1e-4, atol=1e-5) for name in ours)
    assert losses(frozen.output) == pytest.approx(losses(kept.output), rel=1e-5)
    ((one,), (other,)) = (metrics(run, "validation") for run in (frozen.output, kept.output))
    assert one["loss"] == pytest.approx(other["loss"], rel=1e-5)
    assert one["cer"] == other["cer"]


class Cached:
    """Samples whose features are cached, as training sets them up."""

    def __init__(self, config: RunConfig, lines: list[Sample]) -> None:
        self.stages: list[tuple[str, str, int, int]] = []
        base = load_base(config.base)
        self.processor = deepseek_processor(base, config.input.resolution, config.input.prompt)
        augmentation = config.training.augmentation
        self.samples: Any = EncodedSamples(lines, self.processor, augmentation=augmentation, seed=config.seed)
        model = fresh_adapter(base.network, config, revision=None)
        self.is_cached = cache_features(
            config,
            Setup(model, self.processor, self.samples, torch.device("cpu"), torch.float32),
            None,
            reporter=Heard(on_stage=lambda *stage: self.stages.append(stage)),
        )


def lines(config: RunConfig, count: int = 4) -> list[Sample]:
    return list(Dataset.open(config.dataset).samples(Split.TRAIN))[:count]


def test_cached_features_are_not_computed_again_and_stages_are_reported(kept: RunConfig, cache: Path) -> None:
    first = Cached(kept, lines(kept, 10))
    assert [stage[1:] for stage in first.stages[:10]] == [("images", done, 10) for done in range(1, 11)]
    assert [stage[1:] for stage in first.stages[10:]] == [("images", done, 10) for done in (8, 10)]
    before = {path: path.read_bytes() for path in files(cache)}
    assert len(Cached(kept, lines(kept, 10)).stages) == 10
    assert {path: path.read_bytes() for path in files(cache)} == before


def test_features_of_a_changed_image_are_computed_again(kept: RunConfig, cache: Path, tmp_path: Path) -> None:
    picture = tmp_path / "line.png"
    sample = Sample("line.png", picture, "а", Split.TRAIN)
    features = []
    for shade in (200, 60):
        Image.new("L", (400, 60), shade).save(picture)
        features.append(Cached(kept, [sample]).samples[0].features)
    assert not torch.equal(*features)
    assert len(files(cache)) == 2


def test_views_come_back_after_as_many_epochs(kept: RunConfig, cache: Path) -> None:
    config = changed(kept, training={"feature_cache_views": 2, "augmentation": 1.0})
    cached = Cached(config, lines(kept, 3))
    assert len(files(cache)) == 6
    seen = []
    for epoch in range(3):
        cached.samples.set_epoch(epoch)
        seen.append(cached.samples[1].features)
    assert not torch.equal(seen[0], seen[1])
    assert torch.equal(seen[0], seen[2])
    fresh: Any = EncodedSamples(lines(kept, 3), cached.processor, augmentation=1.0, seed=config.seed)
    fresh.set_epoch(1)
    assert np.array_equal(fresh[1].pixels(), cached.samples.encode_view(1, 1).pixels())
    store, network = FeatureStore(cache, 0), load_base(config.base).network
    computed = FeatureCache(store, network, cached.processor, autocast=None).fill({"aa": fresh[1]})["aa"]
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
    training: dict[str, Any], is_cached: bool, frozen: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dsocr.training.feature_cache._WORTH_CACHING", 4)
    config = changed(frozen, training={"max_steps": 99, **training})
    assert Cached(config, lines(frozen)).is_cached is is_cached


@pytest.mark.parametrize(
    ("sections", "code"),
    [
        pytest.param({"training": {"feature_cache_gb": 1e-6}}, "feature-cache-too-large", id="too large"),
        pytest.param({"adapter": {"target_modules": "decoder+vision"}}, "feature-cache-not-frozen", id="trained"),
    ],
)
def test_features_that_must_be_cached_and_cannot_be_are_an_error(
    sections: dict[str, Any], code: str, kept: RunConfig, cache: Path
) -> None:
    with raises_code(code):
        Cached(changed(kept, **sections), lines(kept))
    assert not files(cache)
