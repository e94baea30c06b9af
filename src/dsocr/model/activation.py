"""Adapters that begin behind the image: the base alone looks at it, and what it makes of it never changes.

Activated LoRA (Greenewald et al. 2025, arXiv:2504.12397) acts from the words of the prompt on. So the keys and values
of the begin token and the image slots are those of the base, however the adapter is trained: they can be computed once
and kept, and no gradient goes back through them. Lines have more image slots than letters, so that is most of the work.

A network prepared by `begin_behind_image` does so in every call that shows it an image, training, scoring or reading.
PEFT's own activated layers compute the same from masks over all positions; here the positions are parted instead.
Shapes: `B` batch, `P` positions up to the last image slot, `R` positions behind it, `N` layers, `H` heads, `d` their
width.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Any

import torch
from peft import LoraConfig, PeftModel
from peft.tuners.tuners_utils import BaseTunerLayer
from torch import Tensor
from transformers import DynamicCache

from dsocr.errors import ConfigError, ModelError
from dsocr.model.collating import IGNORED, ImageStates, collate
from dsocr.model.encoding import Encoded

_WHOLE = "full_attention"
_IMAGES = ("pixel_values", "pixel_values_local", "num_local_patches", "patches_grid", "mm_encoder_outputs")


@dataclass
class ActivatedConfig(LoraConfig):  # type: ignore[misc]  # PEFT has no types
    """The config of an adapter that begins behind the image; PEFT takes it for that of any LoRA adapter.

    `invoked_by` are the ids of the prompt's words behind the image, by which PEFT finds where such an adapter begins.
    """

    invoked_by: tuple[int, ...] = ()


def activated(config: LoraConfig, invoked_by: Sequence[int]) -> ActivatedConfig:
    """A config of the same adapter that begins behind the image, without PEFT's own layers for it."""
    values = {field.name: getattr(config, field.name) for field in fields(config) if field.init}
    plain = {"alora_invocation_tokens": None, "task_type": None}
    return ActivatedConfig(**values | plain, invoked_by=tuple(invoked_by))


def begins_behind_image(model: Any) -> bool:
    """True where the adapter that is active begins behind the image."""
    configs, active = getattr(model, "peft_config", {}), getattr(model, "active_adapter", None)
    return isinstance(active, str) and isinstance(configs.get(active), ActivatedConfig)


def begin_behind_image(model: PeftModel) -> None:
    """Have each call with an image show it to the base alone, where the active adapter begins behind it.

    Raises ConfigError for a network whose decoder forgets what it has seen.
    """
    network = model.get_base_model()
    layers = getattr(network.config.text_config, "layer_types", None) or (_WHOLE,)
    if set(layers) != {_WHOLE}:
        raise ConfigError(
            "adapter.variant: alora needs a decoder that attends to everything before, and this base's has a window",
            hint="set adapter.variant to lora",
        )
    if not any(isinstance(hook, _ShowFirst) for hook in network._forward_pre_hooks.values()):
        network.register_forward_pre_hook(_ShowFirst(model), with_kwargs=True)


@torch.no_grad()
def image_states(
    model: PeftModel, samples: Sequence[Encoded], pad_id: int, autocast: torch.dtype | None
) -> list[Tensor]:
    """What the base alone makes of each sample's prompt up to its image: keys and values (N, 2, H, P, d) on the CPU."""
    network = model.get_base_model()
    device = network.device
    batch = collate(samples, pad_id, padding="right", device=device, dtype=torch.float32 if autocast else network.dtype)
    training, lengths = network.training, _lengths(batch["input_ids"], network)
    network.eval()
    with torch.autocast(device.type, autocast, enabled=autocast is not None):
        cache = _looked_at(network, batch, max(lengths), DynamicCache())
    network.train(training)
    layers = torch.stack([torch.stack([layer.keys, layer.values], 1) for layer in cache.layers], 1)
    layers = layers.to(autocast or network.dtype)  # positions are turned in float32, attention takes them in this
    return [states[..., :length, :].to("cpu", copy=True) for states, length in zip(layers, lengths, strict=True)]


class _ShowFirst:
    """A network's forward pass in two parts: the base alone up to the image, then the adapter from there on."""

    def __init__(self, model: PeftModel) -> None:
        self._model = model

    def __call__(
        self, network: Any, args: tuple[Any, ...], inputs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        """The inputs of the second part, where an image is shown."""
        if not any(inputs.get(name) is not None for name in _IMAGES) or not begins_behind_image(self._model):
            return None
        if args:
            raise ModelError("a network with an adapter that begins behind the image takes its inputs by name")
        shown = (inputs.get("mm_encoder_outputs") or {}).get("image")
        cache = inputs.get("past_key_values")
        cache = DynamicCache() if cache is None else cache
        if isinstance(shown, ImageStates):
            # A search for the likeliest text follows several of each image.
            each = len(inputs["input_ids"]) // len(shown.states)
            states = [image for image in shown.states for _ in range(each)]
            lengths = [image.shape[-2] for image in states]
            _fill(cache, states, max(lengths))
        else:
            lengths = _lengths(inputs["input_ids"], network)
            _looked_at(network, inputs, max(lengths), cache)
        rest = {name: value for name, value in inputs.items() if name not in _IMAGES}
        parted = _rest_alike if min(lengths) == max(lengths) else _rest_by_rows
        return (), {**rest, **parted(inputs, lengths), "past_key_values": cache}


def _lengths(ids: Tensor, network: Any) -> list[int]:
    """The positions of each row up to its last image slot."""
    slots = ids == network.config.image_token_id
    if not bool(slots.any(1).all()):
        raise ModelError("a prompt has no image slots, and an adapter that begins behind the image would never begin")
    last: list[int] = (ids.shape[1] - slots.flip(1).to(torch.uint8).argmax(1)).tolist()
    return last


@torch.no_grad()
def _looked_at(network: Any, inputs: dict[str, Any], length: int, cache: Any) -> Any:
    """The cache, filled with what the base alone makes of the first positions."""
    first: dict[str, Any] = {name: inputs[name] for name in _IMAGES if inputs.get(name) is not None}
    for name in ("input_ids", "attention_mask", "position_ids"):
        value = inputs.get(name)
        first[name] = value[:, :length] if isinstance(value, Tensor) else value
    with _adapters_off(network):
        network.model(**first, past_key_values=cache, use_cache=True)
    return cache


@contextmanager
def _adapters_off(network: Any) -> Iterator[None]:
    """Inside, the base computes alone; unlike PEFT's own way, nothing is told of gradients."""
    layers = [module for module in network.modules() if isinstance(module, BaseTunerLayer)]
    former = [layer._disable_adapters for layer in layers]
    try:
        for layer in layers:
            layer._disable_adapters = True
        yield
    finally:
        for layer, off in zip(layers, former, strict=True):
            layer._disable_adapters = off


def _fill(cache: Any, images: Sequence[Tensor], length: int) -> None:
    """Put kept states into a cache, filled up on the right to one length."""
    filled = torch.stack([torch.nn.functional.pad(states, (0, 0, 0, length - states.shape[-2])) for states in images])
    for number in range(filled.shape[1]):
        cache.update(filled[:, number, 0], filled[:, number, 1], number)


def _rest_alike(inputs: dict[str, Any], lengths: Sequence[int]) -> dict[str, Any]:
    """What stands behind the image, where it ends at the same position in all rows."""
    length, ids, mask = lengths[0], inputs["input_ids"], inputs.get("attention_mask")
    rest: dict[str, Any] = {"input_ids": ids[:, length:], "attention_mask": mask}
    if isinstance(mask, dict):  # none was needed, but now there is more to look at than there are positions
        size = ids.shape[1]
        seen = torch.ones(size - length, size, dtype=torch.bool, device=ids.device).tril(length)
        rest["attention_mask"] = {_WHOLE: seen[None, None]}
    if inputs.get("position_ids") is not None:
        rest["position_ids"] = inputs["position_ids"][..., length:]
    kept = inputs.get("logits_to_keep")
    if isinstance(kept, Tensor):
        rest["logits_to_keep"] = (kept - length).clamp_min(0)
    elif inputs.get("labels") is not None:
        rest["labels"] = inputs["labels"][:, length:]
    return rest


def _rest_by_rows(inputs: dict[str, Any], lengths: Sequence[int]) -> dict[str, Any]:
    """The same where images take more slots in some rows than in others; such a batch is padded on the right."""
    ids, mask = inputs["input_ids"], inputs.get("attention_mask")
    first = torch.tensor(lengths, device=ids.device)[:, None]
    longest, size = max(lengths), ids.shape[1]
    positions = first + torch.arange(size - min(lengths), device=ids.device)
    there = positions < size
    held = positions.clamp_max(size - 1)
    own = mask.gather(1, held) * there if isinstance(mask, Tensor) else there.to(ids.dtype)
    before = (torch.arange(longest, device=ids.device) < first).to(own.dtype)
    rest: dict[str, Any] = {
        "input_ids": ids.gather(1, held),
        "attention_mask": torch.cat([before, own], 1),
        "position_ids": positions,
    }
    kept = inputs.get("logits_to_keep")
    if isinstance(kept, Tensor):
        rest["logits_to_keep"] = (kept - first).clamp_min(0)
    elif inputs.get("labels") is not None:
        rest["labels"] = inputs["labels"].gather(1, held).masked_fill(~there, IGNORED)
    return rest
