"""Trainings of adapters that begin behind the image: from states that are kept, or computed in every step."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from dsocr.config import RunConfig
from dsocr.errors import ConfigError
from dsocr.model.adapters import WEIGHTS, read_adapter_config, variant_of
from dsocr.model.export import export_merged
from dsocr.model.export_adapter import export_adapter
from dsocr.model.loading import BaseModel
from dsocr.runs import RunFolder
from dsocr.training.preflight import preflight
from dsocr.training.train import train
from tests.training.test_train import PowerCutError, changed, cut_at_step_five, metrics


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DSOCR_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "vision"


@pytest.fixture
def behind(small_config: RunConfig) -> RunConfig:
    return changed(small_config, adapter={"variant": "alora"})


def shapes(cache: Path) -> set[int]:
    """The dimensions of what is kept."""
    return {load_file(path)["tokens"].dim() for path in cache.rglob("*.safetensors")}


def log(config: RunConfig) -> str:
    return RunFolder(config.run).log.read_text(encoding="utf-8")


@pytest.mark.parametrize("workers", [0, 1])
def test_kept_states_teach_what_images_teach(behind: RunConfig, cache: Path, tmp_path: Path, workers: int) -> None:
    kept = changed(behind, run=tmp_path / "kept", training={"vision_cache": True, "workers": workers})
    train(behind)
    assert not cache.exists(), "16 samples are too few for auto to bother"
    train(kept)
    assert shapes(cache) == {5}
    ours, theirs = (load_file(RunFolder(run).adapter / WEIGHTS) for run in (behind.run, kept.run))
    assert any(bool(tensor.any()) for name, tensor in ours.items() if "lora_B" in name)
    assert all(torch.allclose(ours[name], theirs[name], rtol=1e-3, atol=1e-5) for name in ours)
    for kind in ("train", "validation"):
        losses = [[row["loss"] for row in metrics(run, kind)] for run in (behind.run, kept.run)]
        assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    assert metrics(behind.run, "validation")[-1]["cer"] == metrics(kept.run, "validation")[-1]["cer"]


def test_where_states_have_no_room_features_are_kept(behind: RunConfig, cache: Path) -> None:
    features, states = 64 * 160 * 4, 74 * 3 * 2 * 160 * 4
    room = 18 * (features + states) / 2 / 1e9
    train(changed(behind, training={"vision_cache": True, "vision_cache_gigabytes": room}))
    assert shapes(cache) == {2}
    assert "the decoder's part of the images is computed in every step" in log(behind)


def test_another_prompt_has_other_states(behind: RunConfig, cache: Path, tmp_path: Path) -> None:
    first = changed(behind, training={"vision_cache": True, "steps": 2})
    train(first)
    count = len(list(cache.rglob("*.safetensors")))
    train(changed(first, run=tmp_path / "other", input={"prompt": "A<image>\nFree OCR."}))
    assert len(list(cache.rglob("*.safetensors"))) == 2 * count


def test_cut_off_it_goes_on_as_if_nothing_had_been(behind: RunConfig, tmp_path: Path) -> None:
    config = changed(behind, training={"vision_cache": True})
    whole = changed(config, run=tmp_path / "whole")
    train(whole)
    with pytest.raises(PowerCutError):
        train(config, report=cut_at_step_five)
    train(config)
    ours, theirs = ((RunFolder(run).adapter / WEIGHTS).read_bytes() for run in (config.run, whole.run))
    assert ours == theirs


def test_preflight_finds_that_it_learns(behind: RunConfig) -> None:
    found = preflight(changed(behind, training={"samples_per_forward": 4, "samples_per_step": 4}))
    assert [check.name for check in found.checks if check.verdict == "refused"] == []
    assert {check.name for check in found.checks} >= {"first loss", "image matters", "overfit"}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        pytest.param({"adapter": {"scope": "decoder+vision"}}, "adapter.scope must be", id="towers before the image"),
        pytest.param({"adapter": {"scope": "decoder+experts"}}, "adapter.scope must be", id="experts"),
        pytest.param({"training": {"gradient_checkpointing": True}}, "gradient_checkpointing", id="checkpointing"),
    ],
)
def test_what_cannot_be_is_refused_at_once(behind: RunConfig, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        changed(behind, **settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        pytest.param({"input": {"prompt": "Free OCR.<image>"}}, "this prompt has none", id="no words behind"),
        pytest.param({"adapter": {"scope": r"^model\.multi_modal_projector$"}}, "sees it", id="a pattern before"),
    ],
)
def test_what_could_not_act_behind_the_image_is_refused(
    behind: RunConfig, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        train(changed(behind, **settings))


def test_it_is_exported_for_peft_alone(behind: RunConfig, tmp_path: Path, nano: BaseModel) -> None:
    train(behind)
    run = RunFolder(behind.run)
    export_adapter(run, tmp_path / "peft", "peft")
    config = read_adapter_config(tmp_path / "peft")
    assert variant_of(config) == "alora"
    assert config["alora_invocation_tokens"] == list(nano.encoder(None, "free_ocr").words_behind_image)
    with pytest.raises(ConfigError, match="vLLM has no adapters that begin behind the image"):
        export_adapter(run, tmp_path / "vllm", "vllm")
    with pytest.raises(ConfigError, match="cannot be merged"):
        export_merged(run, tmp_path / "merged")
    assert not (tmp_path / "merged").exists()
