"""Layers are compiled in their place; only what is learnt is computed in the last block."""

from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from dsocr.config import RunConfig
from dsocr.models.adapters import adapter_tensors, attach_adapter
from dsocr.models.deepseek_ocr import SparseLastBlock
from dsocr.models.loading import BaseModel, load_base
from dsocr.models.token_batches import collate, drop_ignored_positions, normalize_pixels
from dsocr.training.readers import fresh_adapter
from tests.training.test_train import changed


def test_layers_are_compiled_in_their_place_and_no_tensor_gets_another_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "compile", lambda function, **options: function)  # whose import takes two seconds
    base = load_base("nano")
    model = attach_adapter(base.network, base="nano", revision=None, target_modules="decoder", r=2, alpha=4)
    before = [list(model.state_dict()), list(adapter_tensors(model))]
    base.family.prepare_training(model, base.network, compile_layers=True, checkpoint_activations=False)
    compiled = [name for name, module in model.named_modules() if module._compiled_call_impl is not None]
    assert [name.rpartition(".")[2] for name in compiled] == ["vision_tower", "language_model"]
    assert [list(model.state_dict()), list(adapter_tensors(model))] == before


TEXTS = ["ДЕЖЕЖЕЖ", "А", "БВГД"]


def batch_of(base: BaseModel, resolution: str | None) -> dict[str, Any]:
    encoder: Any = base.processor(resolution, "<image>\nБВГ")
    drawn = np.random.default_rng(0)
    images = [Image.fromarray(drawn.integers(0, 256, (60, 300, 3), dtype=np.uint8)) for _ in TEXTS]
    samples = [encoder.encode(image, text) for image, text in zip(images, TEXTS, strict=True)]
    return normalize_pixels(collate(samples, encoder.pad_id, padding="right"))


def learnt_from(config: RunConfig, base: BaseModel, resolution: str | None, *, everywhere: bool) -> Any:
    """Loss, gradients and the rows of the last block, which computes everywhere without the hooks."""
    torch.manual_seed(0)
    model = fresh_adapter(base.network, config, revision=None).train()
    if everywhere:
        block = base.network.model.language_model.layers[-1].mlp
        block._forward_pre_hooks.clear()
        block._forward_hooks.clear()
    generator = torch.Generator().manual_seed(1)
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.data.copy_(0.1 * torch.randn(parameter.shape, generator=generator))
    rows, batch = list[int](), drop_ignored_positions(batch_of(base, resolution))
    experts = base.network.model.language_model.layers[-1].mlp.shared_experts
    experts.register_forward_hook(lambda _, inputs, made: rows.extend([made.shape[1]] * torch.is_grad_enabled()))
    loss = model(**batch).loss
    loss.backward()
    found = {name: tensor.grad for name, tensor in model.named_parameters() if tensor.requires_grad}
    return loss.detach(), found, rows, batch


@pytest.mark.parametrize(
    ("kind", "resolution"),
    [
        pytest.param("nano", None, id="nano, computed twice"),
        pytest.param("deepseek_ocr", "tiny", id="DeepSeek-OCR"),
        pytest.param("deepseek_ocr_2", "small", id="DeepSeek-OCR-2"),
    ],
)
def test_nothing_is_learnt_otherwise(
    kind: str, resolution: str | None, bases: dict[str, str], small_config: RunConfig
) -> None:
    folder = bases[kind]
    config = changed(small_config, base=folder, training={"gradient_checkpointing": kind == "nano"})
    loss, gradients, rows, batch = learnt_from(config, load_base(folder), resolution, everywhere=False)
    whole = learnt_from(config, load_base(folder), resolution, everywhere=True)
    torch.testing.assert_close(loss, whole[0], rtol=1e-6, atol=1e-6)
    for name, gradient in whole[1].items():
        torch.testing.assert_close(gradients[name], gradient, rtol=1e-3, atol=1e-5)
    learnt, tokens = batch["labels"].shape[1], batch["input_ids"].shape[1]
    assert set(rows) == {learnt}
    assert max(whole[2]) > learnt
    assert tokens > 5 * learnt


def test_where_logits_are_wanted_everywhere_all_is_computed() -> None:
    base = load_base("nano")
    batch = batch_of(base, None)
    with torch.no_grad():
        expected = base.network(**batch).logits
        SparseLastBlock(base.network)
        base.network(**drop_ignored_positions(batch))  # what is remembered of one call is not of the next
        torch.testing.assert_close(base.network(**batch).logits, expected, rtol=0, atol=0)
        del batch["labels"]
        last = base.network(**batch, logits_to_keep=1).logits
        torch.testing.assert_close(last, expected[:, -1:], rtol=1e-5, atol=1e-5)
