"""LoRA adapters on the native network: which layers get one, and how its tensors reach the disk and come back.

On disk the decoder's tensors carry the checkpoint's original names (`model.layers.N...`), because PEFT applies the
base model's key conversions when it loads, which doubles the native names and leaves every such tensor at its fresh
start with no more than a warning. Loading goes through `load_tensors`, which demands that every key matches both ways.
"""

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from peft import LoraConfig, PeftModel, get_peft_model, get_peft_model_state_dict
from peft.tuners.lora import LoraLayer
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor
from torch.nn import Parameter
from transformers import PreTrainedModel

from dsocr.errors import ConfigError, ModelError

WEIGHTS = "adapter_model.safetensors"
CONFIG = "adapter_config.json"

_DECODER = r"language_model\.layers\.\d+\.(self_attn\.[qkvo]_proj|mlp\.(shared_experts\.)?(gate|up|down)_proj)"
_SAM = r"vision_tower\.sam_encoder\.layers\.\d+\.(attn\.(qkv|proj)|mlp\.lin[12])"
_CLIP = r"vision_tower\.vision_encoder\.encoder\.layers\.\d+\.(self_attn\.(q|k|v|out)_proj|mlp\.fc[12])"
_QWEN = r"vision_tower\.vision_encoder\.layers\.\d+\.(self_attn\.[qkvo]_proj|mlp\.(gate|up|down)_proj)"
_PROJECTOR = "multi_modal_projector"

_PATTERN_BY_SCOPE = {
    "decoder": rf"model\.{_DECODER}",
    "decoder+experts": rf"model\.{_DECODER}",
    "decoder+vision": rf"model\.({_DECODER}|{_SAM}|{_CLIP}|{_QWEN}|{_PROJECTOR})",
}
_EXPERTS = ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]

_OTHER_BASE = "was it trained on another base model, or with another scope or rank?"

_NATIVE_DECODER = "model.language_model.layers."
_ORIGINAL_DECODER = "model.layers."


Variant = Literal["lora", "rslora", "dora"]
"""Low-rank adapters as published, with a scale that suits high ranks, or with magnitudes learnt apart."""


def attach_adapter(
    network: PreTrainedModel,
    *,
    base: str,
    revision: str | None,
    scope: str,
    rank: int,
    alpha: int,
    dropout: float = 0.0,
    variant: Variant = "lora",
) -> PeftModel:
    """The network with a fresh adapter, which changes nothing until it is trained; only the adapter has gradients.

    The adapter is float32 whatever the network is, so that no half-precision weight is ever trained. `scope` is a name
    or an anchored pattern over module names. Raises ConfigError where it matches no layer, or where routed experts are
    to have dropout or DoRA, which PEFT cannot give them.
    """
    if scope == "decoder+experts" and (dropout or variant == "dora"):
        setting = "adapter.dropout: must be 0" if dropout else f"adapter.variant: must not be {variant}"
        raise ConfigError(f"{setting} with the scope decoder+experts", hint="the scope decoder can have it")
    pattern = _PATTERN_BY_SCOPE.get(scope, scope)
    names = [name for name, module in network.named_modules() if hasattr(module, "weight")]
    matched = [name for name in names if re.fullmatch(pattern, name)]
    if not matched:
        raise ConfigError(
            f"adapter.target_modules: {scope!r} matches no layer of the network",
            hint=f"scopes are {', '.join(_PATTERN_BY_SCOPE)}; a layer is called, for example, {names[-2]}",
        )
    config = LoraConfig(
        base_model_name_or_path=base,
        revision=revision,
        r=rank,
        lora_alpha=alpha,
        lora_dropout=dropout,
        use_rslora=variant == "rslora",
        use_dora=variant == "dora",
        target_modules=pattern,
        target_parameters=_EXPERTS if scope == "decoder+experts" else None,
    )
    return get_peft_model(network, config)


def save_adapter(model: PeftModel, folder: Path) -> None:
    """Write the adapter's config and weights into an existing folder, for us, for PEFT and for vLLM alike."""
    for name, content in adapter_files(model):
        (folder / name).write_bytes(content)


def adapter_files(model: PeftModel) -> Iterator[tuple[str, bytes]]:
    """The names and contents of the files that `save_adapter` writes."""
    config = model.peft_config["default"].to_dict() | {"inference_mode": True}
    content = {key: sorted(value) if isinstance(value, set) else value for key, value in config.items()}
    yield CONFIG, (json.dumps(content, indent=2) + "\n").encode()
    yield WEIGHTS, save(adapter_tensors(model), metadata={"format": "pt"})


def load_adapter(network: PreTrainedModel, folder: Path) -> PeftModel:
    """The network with a saved adapter. Raises ModelError where a file is missing or a tensor does not match."""
    config, tensors = _saved(folder)
    try:
        model = get_peft_model(network, config)
    except ValueError as error:  # PEFT found none of the layers
        raise _does_not_fit(folder, error) from error
    load_tensors(model, tensors, where=folder / WEIGHTS)
    return model.eval()


def add_adapter(model: PeftModel, folder: Path, name: str) -> None:
    """Put another saved adapter beside those that the network has; `model.set_adapter(name)` switches to it.

    Raises ModelError as `load_adapter` does, and where it cannot stand beside others; then nothing is left of it.
    """
    config, tensors = _saved(folder)
    if config.target_parameters:
        hint = "serve it alone, or merge it with `dsocr export --merged`"
        raise ModelError("adapts routed experts, which one adapter at a time can", where=folder, hint=hint)
    try:
        model.add_adapter(name, config)
        load_tensors(model, tensors, where=folder / WEIGHTS, name=name)
    except ValueError as error:
        _forget(model, name)
        raise _does_not_fit(folder, error) from error
    except ModelError:
        _forget(model, name)
        raise
    model.eval()


def _forget(model: PeftModel, name: str) -> None:
    if name in model.peft_config:
        model.delete_adapter(name)


def _does_not_fit(folder: Path, error: ValueError) -> ModelError:
    return ModelError(f"does not fit the network: {str(error).splitlines()[0]}", where=folder, hint=_OTHER_BASE)


def _saved(folder: Path) -> tuple[LoraConfig, dict[str, Tensor]]:
    """The config and the tensors of a saved adapter. Raises ModelError where a file is missing or damaged."""
    if (folder / "adapter_model.bin").is_file() and not (folder / WEIGHTS).is_file():
        hint = "save it again as safetensors where you trust it"
        raise ModelError("its weights are a pickle, which can run code and is not read", where=folder, hint=hint)
    if not (folder / WEIGHTS).is_file() or not (folder / CONFIG).is_file():
        raise ModelError(f"is not an adapter: it needs {CONFIG} and {WEIGHTS}", where=folder)
    read_adapter_config(folder)
    try:
        return LoraConfig.from_pretrained(str(folder)), load_file(folder / WEIGHTS)
    except SafetensorError as error:
        raise ModelError(f"is not a whole safetensors file ({error})", where=folder / WEIGHTS) from error
    except (TypeError, ValueError) as error:
        raise ModelError(f"is not the config of a LoRA adapter: {error}", where=folder / CONFIG) from error


def read_adapter_config(folder: Path) -> dict[str, Any]:
    """What stands in a saved adapter's config. Raises ModelError where there is none, or none of a LoRA adapter."""
    try:
        config = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ModelError(f"is not an adapter: it needs {CONFIG} and {WEIGHTS}", where=folder) from error
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ModelError(f"is not JSON: {error}", where=folder / CONFIG) from error
    if not isinstance(config, dict) or not {"r", "lora_alpha", "target_modules"} <= config.keys():
        raise ModelError("is not the config of a LoRA adapter", where=folder / CONFIG)
    if config.get("alora_invocation_tokens"):
        raise ModelError(
            "activated LoRA adapters (aLoRA) are not supported any more",
            where=folder / CONFIG,
            hint="train again with adapter.variant lora, or read with the version that trained it",
        )
    return config


def scope_of(config: Mapping[str, Any]) -> str:
    """The scope that a saved adapter's config was made from: a name, or a pattern of the user's."""
    targets, experts = config["target_modules"], bool(config.get("target_parameters"))
    for name, pattern in _PATTERN_BY_SCOPE.items():
        if targets == pattern and experts == (name == "decoder+experts"):
            return name
    return targets if isinstance(targets, str) else ", ".join(targets)


def variant_of(config: Mapping[str, Any]) -> Variant:
    """The variant that a saved adapter's config tells of."""
    if config.get("use_dora"):
        return "dora"
    return "rslora" if config.get("use_rslora") else "lora"


def adapter_tensors(model: PeftModel, name: str = "default") -> dict[str, Tensor]:
    """An adapter's tensors under the names they have on disk."""
    # Embeddings are never trained here; asked to find out, PEFT would look the base up on a hub.
    tensors = get_peft_model_state_dict(model, adapter_name=name, save_embedding_layers=False)
    return {name.replace(_NATIVE_DECODER, _ORIGINAL_DECODER): tensor.contiguous() for name, tensor in tensors.items()}


def vision_parameters(model: PeftModel) -> tuple[list[Parameter], list[Parameter]]:
    """The adapter's parameters in the vision towers and their projector, and all its others."""
    vision: list[Parameter] = []
    others: list[Parameter] = []
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            (vision if ".vision_tower." in name or f".{_PROJECTOR}." in name else others).append(parameter)
    return vision, others


def without_gradient(model: PeftModel) -> list[str]:
    """The layers with an adapter that the last backward pass did not reach: they would never learn."""
    names = [name for name, parameter in model.named_parameters() if parameter.requires_grad and parameter.grad is None]
    return sorted({name.partition(".lora_")[0].removeprefix("base_model.model.") for name in names})


def load_tensors(model: PeftModel, tensors: Mapping[str, Tensor], *, where: object, name: str = "default") -> None:
    """Fill an adapter from tensors named as on disk; a missing, unexpected or misshapen one is an error."""
    own = adapter_tensors(model, name)
    problems = [f"missing: {key}" for key in own.keys() - tensors.keys()]
    problems += [f"unexpected: {key}" for key in tensors.keys() - own.keys()]
    problems += [
        f"{key}: shape {tuple(tensors[key].shape)}, not {tuple(tensor.shape)}"
        for key, tensor in own.items()
        if key in tensors and tensors[key].shape != tensor.shape
    ]
    if problems:
        shown = "".join(f"\n  {problem}" for problem in sorted(problems)[:20])
        raise ModelError(
            f"{len(problems)} tensors of the adapter do not match the network{shown}",
            where=where,
            hint=_OTHER_BASE,
        )
    for key, tensor in own.items():
        tensor.data.copy_(tensors[key])


def demand_strength(strength: float, config: Mapping[str, Any]) -> None:
    """Raises ConfigError where the adapter of this config cannot be used at this strength."""
    if not 0 <= strength <= 1:
        raise ConfigError(f"a strength is from 0 (the base) to 1 (the adapter), not {strength:g}")
    if config.get("use_dora") and 0 < strength < 1:
        raise ConfigError(
            f"a DoRA adapter has no strength of {strength:g}: it sets magnitudes beside the direction that it adds",
            hint="train with adapter.variant lora or rslora to choose a strength afterwards",
        )


@contextmanager
def at_strength(model: PeftModel, strength: float) -> Iterator[None]:
    """Inside, the adapter works at this fraction of its strength; afterwards exactly as before, whatever happened.

    Raises ConfigError for a strength outside 0 to 1, or one between for DoRA.
    """
    demand_strength(strength, model.peft_config["default"].to_dict())
    scalings = [layer.scaling for layer in model.modules() if isinstance(layer, LoraLayer)]
    kept = [dict(scaling) for scaling in scalings]
    try:
        for scaling in scalings:
            for name, value in scaling.items():
                scaling[name] = value * strength
        yield
    finally:
        for scaling, values in zip(scalings, kept, strict=True):
            scaling.update(values)


def config_at_strength(config: Mapping[str, Any], strength: float) -> dict[str, Any]:
    """A saved adapter's config with which PEFT, and all who multiply by alpha, read it at this strength.

    Raises ConfigError for a strength outside 0 to 1, or one between for DoRA, and for 0: that is the base itself.
    """
    if strength == 0:
        raise ConfigError("at a strength of 0 nothing is left of the adapter", hint="use the base itself")
    demand_strength(strength, config)
    if strength == 1:
        return dict(config)
    patterns = {name: alpha * strength for name, alpha in (config.get("alpha_pattern") or {}).items()}
    return {**config, "lora_alpha": config["lora_alpha"] * strength, "alpha_pattern": patterns}
