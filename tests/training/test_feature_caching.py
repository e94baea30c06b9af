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
from dsocr.models.feature_cache import FeatureCache, FeatureStore
from dsocr.models.loading import load_base
from dsocr.runs import RunFolder
from dsocr.training.features import cache_features
from dsocr.training.samples import EncodedSamples
from dsocr.training.train import Setup, fresh_adapter, make_trainer, train
from dsocr.training.trainer import Trainer
from tests.making_models import deepseek_processor
from tests.raising import raises_code
from tests.training.test_train import PowerCutError, changed, cut_at_step_five, metrics


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DSOCR_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "vision"


@pytest.fixture
def frozen(small_config: RunConfig) -> RunConfig:
    """Three steps with frozen vision towers."""
    return changed(small_config, training={"max_steps": 3}, validation={"every_steps": 3})


def files(cache: Path) -> list[Path]:
    return sorted(cache.rglob("*.safetensors"))


def test_an_adapter_learns_the_same_with_and_without(frozen: RunConfig, cache: Path, tmp_path: Path) -> None:
    kept = changed(frozen, output=tmp_path / "kept", training={"feature_cache": True, "num_workers": 1})
    train(frozen)
    assert not files(cache), "16 samples are too few for auto to bother"
    train(kept)
    assert len(files(cache)) == 16 + 2
    ours, theirs = (load_file(RunFolder(run).adapter / WEIGHTS) for run in (frozen.output, kept.output))
    assert any(bool(tensor.any()) for name, tensor in ours.items() if "lora_B" in name)
    assert all(torch.allclose(ours[name], theirs[name], rtol=1e-4, atol=1e-5) for name in ours)
    for kind in ("train", "validation"):
        losses = [[row["loss"] for row in metrics(run, kind)] for run in (frozen.output, kept.output)]
        assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    assert metrics(frozen.output, "validation")[-1]["cer"] == metrics(kept.output, "validation")[-1]["cer"]


class Cached:
    """Samples whose features are cached, as training sets them up."""

    def __init__(self, config: RunConfig, lines: list[Sample]) -> None:
        self.messages: list[str] = []
        self.stages: list[tuple[str, str, int, int]] = []
        base = load_base("nano")
        self.processor = deepseek_processor(base, config.input.resolution, config.input.prompt)
        augmentation = config.training.augmentation
        self.samples = EncodedSamples(lines, self.processor, augmentation=augmentation, seed=config.seed)
        model = fresh_adapter(base.network, config, revision=None)
        self.is_cached = cache_features(
            config,
            Setup(model, self.processor, self.samples, torch.device("cpu"), torch.float32),
            None,
            on_message=self.messages.append,
            on_stage=lambda *stage: self.stages.append(stage),
        )


def lines(config: RunConfig, count: int = 4) -> list[Sample]:
    return list(Dataset.open(config.dataset).samples(Split.TRAIN))[:count]


def test_cached_features_are_not_computed_again_and_stages_are_reported(frozen: RunConfig, cache: Path) -> None:
    config = changed(frozen, training={"feature_cache": True})
    first = Cached(config, lines(frozen, 10))
    assert [stage[1:] for stage in first.stages[:10]] == [("images", done, 10) for done in range(1, 11)]
    assert [stage[1:] for stage in first.stages[10:]] == [("images", done, 10) for done in (8, 10)]
    before = {path: path.read_bytes() for path in files(cache)}
    assert len(Cached(config, lines(frozen, 10)).stages) == 10
    assert {path: path.read_bytes() for path in files(cache)} == before


def test_a_changed_image_is_looked_at_anew(frozen: RunConfig, cache: Path, tmp_path: Path) -> None:
    config = changed(frozen, training={"feature_cache": True})
    picture = tmp_path / "line.png"
    Image.new("L", (400, 60), 200).save(picture)
    sample = Sample("line.png", picture, "а", Split.TRAIN)
    cached: Any = Cached(config, [sample]).samples[0]
    first = cached.features
    Image.new("L", (400, 60), 60).save(picture)
    cached = Cached(config, [sample]).samples[0]
    second = cached.features
    assert first is not None
    assert second is not None
    assert not torch.equal(first, second)
    assert len(files(cache)) == 2


@pytest.mark.parametrize("damage", ["removed", "damaged"])
def test_an_entry_that_is_lost_is_computed_again(damage: str, frozen: RunConfig, cache: Path) -> None:
    samples: Any = Cached(changed(frozen, training={"feature_cache": True}), lines(frozen)).samples
    before = samples[1].features
    for path in files(cache):
        if damage == "removed":
            path.unlink()
        else:
            path.write_bytes(path.read_bytes()[:100])
    again = samples[1].features
    assert before is not None
    assert again is not None
    assert torch.allclose(before, again, atol=1e-5)
    assert samples[1].features is not None


def test_variations_come_back_after_as_many_epochs(frozen: RunConfig, cache: Path) -> None:
    config = changed(frozen, training={"feature_cache": True, "feature_cache_views": 2, "augmentation": 1.0})
    kept: Any = Cached(config, lines(frozen, 3))
    assert len(files(cache)) == 6
    seen = []
    for epoch in range(3):
        kept.samples.set_epoch(epoch)
        features = kept.samples[1].features
        assert features is not None
        seen.append(features)
    assert not torch.equal(seen[0], seen[1])
    assert torch.equal(seen[0], seen[2])
    fresh = EncodedSamples(lines(frozen, 3), kept.processor, augmentation=1.0, seed=config.seed)
    fresh.set_epoch(1)
    assert np.array_equal(fresh[1].pixels(), kept.samples.encode_view(1, 1).pixels())
    network = load_base("nano").network
    computed = FeatureCache(FeatureStore(cache, 0), network, kept.processor, autocast=None).fill({"aa": fresh[1]})["aa"]
    assert torch.allclose(computed.tokens, seen[1], atol=1e-5)


@pytest.mark.parametrize(
    ("training", "kept"),
    [
        pytest.param({"feature_cache": True}, True, id="asked for"),
        pytest.param({"feature_cache": False}, False, id="refused"),
        pytest.param({}, True, id="by itself, where it pays"),
        pytest.param({"augmentation": 1.0}, False, id="not by itself in place of fresh variations"),
        pytest.param({"feature_cache_gb": 1e-6}, False, id="by itself, but too large"),
    ],
)
def test_it_is_used_where(
    training: dict[str, Any], kept: bool, frozen: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dsocr.training.features._WORTH_CACHING", 4)
    config = changed(frozen, training={"max_steps": 99, **training})
    assert Cached(config, lines(frozen)).is_cached is kept


def test_a_limit_that_is_too_low_is_an_error_where_the_cache_is_demanded(frozen: RunConfig, cache: Path) -> None:
    config = changed(frozen, training={"feature_cache": True, "feature_cache_gb": 1e-6})
    with raises_code("feature-cache-too-large"):
        Cached(config, lines(frozen))
    assert not files(cache)


def test_towers_that_are_trained_cannot_be_kept(small_config: RunConfig) -> None:
    with raises_code("feature-cache-not-frozen"):
        train(changed(small_config, adapter={"target_modules": "decoder+vision"}, training={"feature_cache": True}))


def test_a_training_from_features_resumes_as_if_nothing_had_happened(frozen: RunConfig, tmp_path: Path) -> None:
    config = changed(frozen, training={"max_steps": 6, "feature_cache": True}, checkpoints={"every_steps": 2})
    uninterrupted = changed(config, output=tmp_path / "uninterrupted")
    train(uninterrupted)
    with pytest.raises(PowerCutError):
        train(config, on_progress=cut_at_step_five)
    assert train(config).resumed_from == 4
    ours, theirs = (
        load_file(run / "checkpoints" / "step-0000006" / WEIGHTS) for run in (config.output, uninterrupted.output)
    )
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_features_are_read_in_this_process(frozen: RunConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    workers: list[int] = []

    def asked(*arguments: Any, num_workers: int, **options: Any) -> Trainer:
        workers.append(num_workers)
        return make_trainer(*arguments, num_workers=num_workers, **options)

    monkeypatch.setattr("dsocr.training.train.make_trainer", asked)
    train(changed(frozen, training={"feature_cache": True, "num_workers": 1, "max_steps": 1}))
    assert workers == [0]
