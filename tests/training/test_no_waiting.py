"""Steps that do not wait for the device: seen by what is read from tensors, which is what waits on a graphics card."""

import copy
from typing import Any

import pytest
import torch
from PIL import Image
from torch.utils._python_dispatch import TorchDispatchMode

from dsocr.config import RunConfig
from dsocr.errors import ModelError
from dsocr.model.collating import collate, normalized, only_learnt
from dsocr.model.loading import BaseModel
from dsocr.training.no_waiting import NoWaiting
from dsocr.training.train import train
from dsocr.training.trainer import AdapterTrainer


class Reads(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the numbers that are read from tensors."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = str(func)
        self.count += "_local_scalar_dense" in name or "nonzero" in name
        return func(*args, **(kwargs or {}))


@pytest.fixture
def batch(nano: BaseModel) -> dict[str, Any]:
    """Two lines of unlike lengths, so that one is padded."""
    encoder = nano.encoder(None, "free_ocr")
    samples = [encoder.encode(Image.new("L", (300, 40), 200), text) for text in ("да", "длинная строка")]
    return normalized(only_learnt(collate(samples, encoder.pad_id, padding="right", dtype=torch.uint8)))


def test_a_forward_pass_reads_nothing(nano: BaseModel, batch: dict[str, Any]) -> None:
    no_waiting = NoWaiting(nano.network)
    with Reads() as usual:
        nano.network(**batch)
    with Reads() as ours, no_waiting.unchecked():
        nano.network(**no_waiting.without_mask(batch))
        no_waiting.count(batch["attention_mask"])
    assert usual.count >= 3
    assert ours.count == 0
    assert no_waiting.tokens() == int(batch["attention_mask"].sum())
    assert no_waiting.tokens() == 0
    no_waiting.demand_slots()


def test_a_mask_of_padding_on_the_right_changes_nothing_that_is_learnt(nano: BaseModel, batch: dict[str, Any]) -> None:
    assert not batch["attention_mask"].bool().all()
    masked = nano.network(**batch)
    causal = nano.network(**NoWaiting(nano.network).without_mask(batch))
    learnt = batch["labels"] >= 0
    torch.testing.assert_close(causal.logits[learnt], masked.logits[learnt], atol=1e-5, rtol=0)
    torch.testing.assert_close(causal.loss, masked.loss, atol=1e-6, rtol=0)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        pytest.param("_attn_implementation", "eager", id="step by step, no mask would be no causality"),
        pytest.param("layer_types", ["reference_sliding_attention"], id="a window is a mask"),
    ],
)
def test_a_network_that_needs_its_mask_keeps_it(
    name: str, value: object, nano: BaseModel, batch: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = copy.deepcopy(nano.network.config.text_config)
    setattr(text, name, value)
    monkeypatch.setattr(nano.network.config, "text_config", text)
    assert NoWaiting(nano.network).without_mask(batch)["attention_mask"] is batch["attention_mask"]


def test_features_and_slots_that_differ_are_told_later(nano: BaseModel, batch: dict[str, Any]) -> None:
    no_waiting = NoWaiting(nano.network)
    image_token = nano.network.config.image_token_id
    ids = batch["input_ids"].clone()
    ids[0, (ids[0] == image_token).nonzero()[0]] = 5
    with no_waiting.unchecked():
        nano.network(**{**batch, "input_ids": ids})
        nano.network(**batch)
    with pytest.raises(ModelError, match="number of features"):
        no_waiting.demand_slots()
    no_waiting.demand_slots()


def test_the_networks_own_check_is_back_afterwards(nano: BaseModel, batch: dict[str, Any]) -> None:
    with NoWaiting(nano.network).unchecked():
        pass
    ids = torch.full_like(batch["input_ids"], 5)
    with pytest.raises(ValueError, match="do not match"):
        nano.network(**{**batch, "input_ids": ids})


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """What each forward and backward pass of a training read."""
    reads: list[int] = []
    usual = AdapterTrainer.training_step

    def step(trainer: AdapterTrainer, *args: Any, **kwargs: Any) -> Any:
        with Reads() as seen:
            loss = usual(trainer, *args, **kwargs)
        reads.append(seen.count)
        return loss

    monkeypatch.setattr(AdapterTrainer, "training_step", step)
    return reads


@pytest.mark.parametrize("scope", ["decoder", "decoder+vision"])
def test_a_training_reads_nothing_in_its_steps(scope: str, small_config: RunConfig, watched: list[int]) -> None:
    values = small_config.model_dump()
    values["adapter"] |= {"scope": scope}
    values["training"] |= {"steps": 2}
    train(RunConfig.model_validate(values))
    assert watched == [0, 0, 0, 0]
