"""Quicker products on a CPU: the same numbers, and everything put back."""

import pytest
import torch
from torch.nn import functional

from dsocr.config import RunConfig
from dsocr.data.dataset import Dataset
from dsocr.samples import Split
from dsocr.training import processor
from dsocr.training.collator import Collator
from dsocr.training.gradients import pass_through
from dsocr.training.processor import quick_processor
from dsocr.training.setup import set_up

CPU = torch.device("cpu")


def test_products_are_those_of_float32_and_everything_is_put_back() -> None:
    before = torch.get_float32_matmul_precision()
    left, right = torch.randn(300, 160), torch.randn(160, 160)
    with quick_processor(CPU):
        product = left @ right
    torch.testing.assert_close(product.double(), left.double() @ right.double(), rtol=1e-4, atol=1e-4)
    assert torch.get_float32_matmul_precision() == before


def test_everything_is_put_back_after_an_error() -> None:
    before = torch.get_float32_matmul_precision()
    with pytest.raises(KeyboardInterrupt), quick_processor(CPU):
        raise KeyboardInterrupt
    assert torch.get_float32_matmul_precision() == before


def test_a_processor_that_rounds_multiplies_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    def rounded(left: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return (left.bfloat16() @ weight.bfloat16().T).float()

    before = torch.get_float32_matmul_precision()
    monkeypatch.setattr(functional, "linear", rounded)
    with quick_processor(CPU) as quick:
        assert not quick
        assert torch.get_float32_matmul_precision() == before


def test_a_graphics_card_needs_none_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processor, "_keep_freed_memory", lambda: pytest.fail("memory was touched"))
    before = torch.get_float32_matmul_precision()
    with quick_processor(torch.device("cuda")) as quick:
        assert not quick
        assert torch.get_float32_matmul_precision() == before


def test_loss_and_gradients_are_the_same(small_config: RunConfig) -> None:
    setup = set_up(small_config, Dataset.open(small_config.dataset).samples(Split.TRAIN))
    batch = Collator(setup.encoder.pad_id)([setup.samples[index] for index in range(4)])
    found = []
    for device in (torch.device("cuda"), CPU):  # as it is, and quick
        with quick_processor(device):
            setup.model.zero_grad()
            pass_through(setup.model, batch, setup.dtype)
        found.append({name: one.grad.clone() for name, one in setup.model.named_parameters() if one.grad is not None})
    usual, quick = found
    assert usual
    for name, gradient in usual.items():
        torch.testing.assert_close(quick[name], gradient, rtol=1e-3, atol=1e-5)
