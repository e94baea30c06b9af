"""An adapter put into its base's weights for good, and the weights under the names of the base's own files.

Each layer is merged in float32 and rounded once, to the type it has in the base. No more than one layer is held twice.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from pathlib import Path

import torch
from peft import PeftModel
from peft.tuners.lora import LoraLayer
from safetensors import safe_open
from torch import Tensor
from transformers import PreTrainedModel
from transformers.core_model_loading import revert_weight_conversion

from dsocr.errors import ModelError
from dsocr.model.architectures import UNUSED_TENSORS
from dsocr.model.weights import tensor_shapes, tensor_types, weight_files

_TYPES = {"F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16}

_LAYER = re.compile(r".*?\.layers\.\d+\.")


def weight_types(folder: Path) -> dict[str, torch.dtype]:
    """The type of each tensor of a checkpoint that its network uses. Raises ModelError for a quantized one."""
    kinds = {name: kind for name, kind in tensor_types(folder).items() if name not in UNUSED_TENSORS}
    if strange := sorted(set(kinds.values()) - _TYPES.keys()):
        raise ModelError(
            f"has weights of type {', '.join(strange)}, which no adapter can be merged into",
            where=folder,
            hint=f"use a base whose weights are {', '.join(_TYPES)}",
        )
    return {name: _TYPES[kind] for name, kind in kinds.items()}


def widest(types: Iterable[torch.dtype]) -> torch.dtype:
    """The smallest type that holds tensors of all these types exactly."""
    kinds = set(types)
    return kinds.pop() if len(kinds) == 1 else torch.float32


def demand_same_tensors(network: PreTrainedModel, folder: Path) -> None:
    """Raises ModelError where the network's tensors would not be called and shaped as in the base's own files."""
    drafts = revert_weight_conversion(network, {name: t.to("meta") for name, t in network.state_dict().items()})
    own = {name: tuple(tensor.shape) for name, tensor in drafts.items()}
    theirs = {name: shape for name, shape in tensor_shapes(folder).items() if name not in UNUSED_TENSORS}
    problems = [f"{name}: not in the base" for name in own.keys() - theirs.keys()]
    problems += [f"{name}: in the base only" for name in theirs.keys() - own.keys()]
    problems += [
        f"{name}: {own[name]}, not {theirs[name]}" for name in own.keys() & theirs.keys() if own[name] != theirs[name]
    ]
    if problems:
        shown = "".join(f"\n  {problem}" for problem in sorted(problems)[:20])
        raise ModelError(f"{len(problems)} tensors would be written otherwise than they were read{shown}", where=folder)


@torch.no_grad()
def merge(model: PeftModel, *, where: object) -> PreTrainedModel:
    """The network with the adapter in its weights and no adapter any more. Raises ModelError for a broken adapter."""
    for layer in model.modules():
        if isinstance(layer, LoraLayer):
            weight = getattr(layer.get_base_layer(), getattr(layer, "parameter_name", "weight"))
            kind = weight.dtype
            weight.data = weight.data.float()
            layer.merge()
            weight.data = weight.data.to(kind)
            if not weight.isfinite().all():
                raise ModelError("gives weights that are not finite when it is merged", where=where)
    return model.unload()


def original_tensors(network: PreTrainedModel, types: Mapping[str, torch.dtype]) -> Iterator[tuple[str, Tensor]]:
    """Every tensor of the network, named and typed as in the base's own files."""
    names = sorted(network.state_dict(), key=_layer)
    tensors = network.state_dict()
    for _, group in groupby(names, key=_layer):
        for name, tensor in revert_weight_conversion(network, {name: tensors[name] for name in group}).items():
            yield name, tensor.to(types[name])


def unused_tensors(folder: Path) -> Iterator[tuple[str, Tensor]]:
    """The tensors that a base has and no code uses, so that its files keep the same names."""
    for file in weight_files(folder):
        with safe_open(file, framework="pt") as tensors:
            for name in UNUSED_TENSORS:
                if name in tensors.keys():  # noqa: SIM118  (not a mapping)
                    yield name, tensors.get_tensor(name)


def _layer(name: str) -> str:
    """What is converted together: a layer, or all that lies in none."""
    match = _LAYER.match(name)
    return match[0] if match else ""
