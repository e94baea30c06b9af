"""Adapters: what they cover, and that they survive the disk."""

import json
import re
from pathlib import Path

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file, save_file

from dsocr.errors import ConfigError, ModelError
from dsocr.model.adapters import WEIGHTS, adapter_tensors, attach_adapter, load_adapter, save_adapter
from dsocr.model.loading import load_base

SCOPES = ["decoder", "decoder+experts", "decoder+vision", r"^model\.language_model\.layers\.1\.self_attn\.q_proj$"]


def fresh(scope: str) -> PeftModel:
    return attach_adapter(
        load_base("nano").network, base="nano", revision=None, scope=scope, rank=4, alpha=8, dropout=0.0
    )


def trained(scope: str) -> PeftModel:
    """An adapter whose every tensor is random, as if it had been trained."""
    model = fresh(scope)
    generator = torch.Generator().manual_seed(1)
    for tensor in adapter_tensors(model).values():
        tensor.data.copy_(torch.randn(tensor.shape, generator=generator))
    return model


@pytest.mark.parametrize("scope", SCOPES)
def test_an_adapter_survives_the_disk_through_our_path_and_through_peft(scope: str, tmp_path: Path) -> None:
    model = trained(scope)
    before = {name: tensor.clone() for name, tensor in adapter_tensors(model).items()}
    save_adapter(model, tmp_path)
    for loaded in (
        load_adapter(load_base("nano").network, tmp_path),
        PeftModel.from_pretrained(load_base("nano").network, str(tmp_path)),
    ):
        after = adapter_tensors(loaded)
        assert after.keys() == before.keys()
        assert all(torch.equal(after[name], before[name]) for name in before)


def test_decoder_tensors_carry_original_names_on_disk(tmp_path: Path) -> None:
    save_adapter(trained("decoder"), tmp_path)
    names = load_file(tmp_path / WEIGHTS).keys()
    assert all(re.match(r"base_model\.model\.model\.layers\.\d+\.", name) for name in names)


def test_an_adapter_names_its_base_and_no_machine(tmp_path: Path) -> None:
    save_adapter(trained("decoder"), tmp_path)
    config = json.loads((tmp_path / "adapter_config.json").read_text(encoding="utf-8"))
    assert config["base_model_name_or_path"] == "nano"


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda tensors: tensors.pop(next(iter(tensors))), id="missing"),
        pytest.param(lambda tensors: tensors.update(strange=torch.zeros(1)), id="unexpected"),
        pytest.param(lambda tensors: tensors.update({next(iter(tensors)): torch.zeros(1)}), id="shape"),
    ],
)
def test_a_tensor_that_does_not_match_is_an_error(damage, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    save_adapter(trained("decoder"), tmp_path)
    tensors = load_file(tmp_path / WEIGHTS)
    damage(tensors)
    save_file(tensors, tmp_path / WEIGHTS)
    with pytest.raises(ModelError, match="1 tensors of the adapter do not match"):
        load_adapter(load_base("nano").network, tmp_path)


def test_an_adapter_of_another_scope_is_refused(tmp_path: Path) -> None:
    save_adapter(trained("decoder"), tmp_path)
    other = tmp_path / "other"
    other.mkdir()
    save_adapter(trained("decoder+vision"), other)
    (other / WEIGHTS).replace(tmp_path / WEIGHTS)
    with pytest.raises(ModelError, match="unexpected"):
        load_adapter(load_base("nano").network, tmp_path)


def test_a_fresh_adapter_changes_nothing_and_alone_has_gradients() -> None:
    model = fresh("decoder+vision")
    names = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    assert names
    assert all("lora_" in name for name in names)
    ids = torch.tensor([[0, 5, 6, 7]])
    with torch.no_grad():
        attached = model(input_ids=ids).logits
        with model.disable_adapter():
            assert torch.equal(model(input_ids=ids).logits, attached)


def test_the_decoder_scope_leaves_the_encoder_alone() -> None:
    names = adapter_tensors(fresh("decoder")).keys()
    assert not any("vision" in name or "projector" in name for name in names)
    wider = adapter_tensors(fresh("decoder+vision")).keys()
    assert {part for name in wider for part in ("sam_encoder", "vision_encoder", "projector") if part in name} == {
        "sam_encoder",
        "vision_encoder",
        "projector",
    }


def test_a_scope_that_matches_nothing_is_an_error_before_training() -> None:
    with pytest.raises(ConfigError, match="matches no layer"):
        fresh(r"^q_proj$")


def test_a_folder_without_an_adapter_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="is not an adapter"):
        load_adapter(load_base("nano").network, tmp_path)
