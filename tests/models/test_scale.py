"""A scaled adapter: the base at 0, the full adapter at 1, and PEFT's result for a scaled config in between."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from peft import PeftModel
from PIL import Image

from dsocr.models.adapters import (
    CONFIG,
    Variant,
    adapter_tensors,
    attach_adapter,
    load_adapter,
    save_adapter,
    scaled_config,
)
from dsocr.models.export import merge
from dsocr.models.loading import load_base
from dsocr.models.token_batches import collate
from tests.raising import raises_code


def adapted(variant: Variant = "lora", scope: str = "decoder+vision") -> Any:
    """nano with an adapter that changes what it says."""
    model = attach_adapter(
        load_base("nano").network, base="nano", revision=None, target_modules=scope, r=4, alpha=8, variant=variant
    )
    torch.manual_seed(3)
    for tensor in adapter_tensors(model).values():
        torch.nn.init.normal_(tensor, std=0.05)
    return model.eval()


@pytest.fixture(scope="module")
def batch() -> dict[str, torch.Tensor]:
    encoder: Any = load_base("nano").processor(None, "free_ocr")
    image = Image.fromarray(np.random.default_rng(1).integers(0, 255, (40, 200, 3), dtype=np.uint8))
    return collate([encoder.encode(image)], encoder.pad_id, padding="left")


@torch.no_grad()
def logits(model: Any, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    found: torch.Tensor = model(**batch).logits
    return found


@pytest.mark.parametrize(
    ("variant", "scope"),
    [
        pytest.param("rslora", "decoder+vision", id="alpha over the root of the rank"),
        pytest.param("lora", "decoder+experts", id="routed experts, which PEFT adapts as parameters"),
    ],
)
def test_a_fractional_scale_equals_scaling_lora_alpha_in_peft(
    variant: Variant, scope: str, batch: dict[str, torch.Tensor], tmp_path: Path
) -> None:
    model = adapted(variant, scope)
    with model.disable_adapter():
        base = logits(model, batch)
    whole = logits(model, batch)
    assert not torch.allclose(base, whole, atol=1e-3)
    save_adapter(model, tmp_path)
    assert torch.equal(logits(loaded(tmp_path, 1), batch), whole)
    part = logits(loaded(tmp_path, 0.4), batch)
    assert not torch.allclose(part, base, atol=1e-3)
    assert not torch.allclose(part, whole, atol=1e-3)

    config = json.loads((tmp_path / CONFIG).read_text(encoding="utf-8"))
    (tmp_path / CONFIG).write_text(json.dumps(scaled_config(config, 0.4)), encoding="utf-8")
    read = PeftModel.from_pretrained(load_base("nano").network, str(tmp_path))
    torch.testing.assert_close(logits(read.eval(), batch), part, rtol=1e-5, atol=1e-5)


def loaded(folder: Path, scale: float) -> Any:
    return load_adapter(load_base("nano").network, folder, scale)


def test_merged_at_a_strength_it_reads_as_it_does_beside_the_base(
    batch: dict[str, torch.Tensor], tmp_path: Path
) -> None:
    save_adapter(adapted(), tmp_path)
    part = logits(loaded(tmp_path, 0.6), batch)
    merged = merge(loaded(tmp_path, 0.6), where="here")
    torch.testing.assert_close(logits(merged, batch), part, rtol=1e-4, atol=1e-4)


def test_layers_with_an_alpha_of_their_own_are_scaled_too() -> None:
    config = {"lora_alpha": 8, "alpha_pattern": {"layers.0.q_proj": 4}, "r": 2}
    assert scaled_config(config, 0.5) == {"lora_alpha": 4, "alpha_pattern": {"layers.0.q_proj": 2}, "r": 2}


@pytest.mark.parametrize(("dora", "strength"), [(False, 0), (True, 0.5)])
def test_a_strength_is_a_part_of_the_whole_and_of_dora_the_whole(dora: bool, strength: float) -> None:
    config = {"lora_alpha": 8, "use_dora": dora}
    assert scaled_config(config, 1) == config
    with raises_code("scale-invalid"):
        scaled_config(config, strength)
