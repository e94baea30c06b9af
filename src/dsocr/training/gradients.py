"""The way of the gradients through a network with an adapter, gone once before anything is trained."""

from collections.abc import Mapping
from typing import Any

import torch
from peft import PeftModel

from dsocr.errors import ConfigError
from dsocr.model.adapters import without_gradient
from dsocr.model.collating import normalized


def pass_through(model: PeftModel, batch: Mapping[str, Any], dtype: torch.dtype) -> None:
    """One forward and backward pass, as training makes them; leaves gradients, and the random numbers as they were."""
    device = next(model.parameters()).device
    moved = {name: value.to(device) if isinstance(value, torch.Tensor) else value for name, value in batch.items()}
    with torch.random.fork_rng(), torch.autocast(device.type, dtype, enabled=dtype is not torch.float32):
        model.train()
        model(**normalized(moved)).loss.backward()


def demand_gradients(model: PeftModel, batch: Mapping[str, Any], dtype: torch.dtype) -> None:
    """One forward and backward pass that changes nothing. Raises ConfigError for adapter layers it does not reach."""
    pass_through(model, batch, dtype)
    unreached = without_gradient(model)
    model.zero_grad(set_to_none=True)
    if unreached:
        shown = "".join(f"\n  {name}" for name in unreached[:20])
        raise ConfigError(
            f"adapter.scope: {len(unreached)} of its layers would never learn, for no gradient reaches them{shown}",
            hint="leave them out of the pattern",
        )
