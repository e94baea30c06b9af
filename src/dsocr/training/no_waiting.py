"""Steps that do not wait for the device: what transformers reads from it in every forward pass, put off or left out.

Whoever reads a number from a graphics card waits until it has done all it was told, and it then waits to be told more.
transformers does so to find out whether a mask hides anything, whether images and their slots are as many, and how many
tokens it was given. Training pads on the right, where a causal decoder looks at no padding from what is learnt: no mask
is needed. The other two are remembered on the device, and read where the loss is read, at the next log.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from dsocr.errors import ModelError

_WHOLE = "full_attention"


class NoWaiting:
    """Forward passes of one network that read nothing from the device; `tokens` and `demand_slots` read it later."""

    def __init__(self, network: PreTrainedModel) -> None:
        self._model = network.model
        self._image_token_id = int(network.config.image_token_id)
        text = network.config.text_config
        layers = set(getattr(text, "layer_types", None) or ())
        # A decoder that takes its masks by kind takes none, too; computed step by step it would then look ahead.
        by_kind = "unlimited_ocr" in type(network).__module__
        self._maskless = by_kind and layers == {_WHOLE} and text._attn_implementation == "sdpa"
        self._tokens: Tensor | None = None
        self._wrong: Tensor | None = None

    def without_mask(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """The inputs of a batch padded right, where the network can do without a mask of it."""
        return {**inputs, "attention_mask": {_WHOLE: None}} if self._maskless else inputs

    @contextmanager
    def unchecked(self) -> Iterator[None]:
        """Inside, the network remembers on the device whether image slots and features were as many."""
        self._model.get_placeholder_mask = self._slots
        try:
            yield
        finally:
            del self._model.get_placeholder_mask

    def count(self, mask: Tensor) -> None:
        """Remember the tokens of a batch, by its mask (B, T) of what is no padding."""
        tokens = mask.sum()
        self._tokens = tokens if self._tokens is None else self._tokens + tokens

    def tokens(self) -> int:
        """The tokens since this was asked last."""
        tokens, self._tokens = self._tokens, None
        return 0 if tokens is None else int(tokens)

    def demand_slots(self) -> None:
        """Raises ModelError where image slots and features were not as many since this was asked last."""
        wrong, self._wrong = self._wrong, None
        if wrong is not None and bool(wrong):
            raise ModelError("the network has another number of features for an image than its prompt has slots")

    def _slots(self, input_ids: Tensor, inputs_embeds: Tensor, image_features: Tensor) -> Tensor:
        """Which positions (B, T, 1) take a feature; stands in for the network's own method."""
        slots = (input_ids == self._image_token_id).unsqueeze(-1)
        wrong = slots.sum() != image_features.shape[0]
        self._wrong = wrong if self._wrong is None else torch.logical_or(self._wrong, wrong)
        return slots
