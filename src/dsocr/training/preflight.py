"""What is looked at before a training is begun: the dataset as this base will see it, and the way of the gradients."""

from collections.abc import Mapping
from typing import Any

import torch
from peft import PeftModel

from dsocr.data.checks import Finding, Survey, survey_dataset
from dsocr.data.dataset import Dataset
from dsocr.data.prepare import Progress
from dsocr.errors import ConfigError
from dsocr.model.adapters import without_gradient
from dsocr.model.encoding import Encoder, normalized


def check_for_base(
    dataset: Dataset, encoder: Encoder, *, max_text_tokens: int | None, progress: Progress | None = None
) -> list[Finding]:
    """All findings about a dataset that is to be shown to a base through `encoder`, errors first."""
    return survey_for_base(dataset, encoder, max_text_tokens=max_text_tokens, progress=progress).findings


def survey_for_base(
    dataset: Dataset,
    encoder: Encoder,
    *,
    max_text_tokens: int | None,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Survey:
    """The same, with the samples beside the findings; `workers` as `check_dataset` has them."""
    return survey_dataset(
        dataset,
        unknown_characters=encoder.unknown_characters,
        count_tokens=lambda text: len(encoder.text_ids(text)),
        max_text_tokens=max_text_tokens,
        distortion=encoder.resolution.distortion,
        workers=workers,
        progress=progress,
    )


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
