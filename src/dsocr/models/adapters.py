"""LoRA adapters and whole networks: which layers are trained, and how trained weights are saved and loaded.

On disk the decoder's tensors carry the checkpoint's original names (`model.layers.N...`): when PEFT loads an adapter,
it applies the base's key conversions to names that are converted already and leaves those tensors untrained with no
more than a warning. Loading therefore goes through `load_tensors`, which requires all keys to match both ways.
"""

import json
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from peft import LoraConfig, PeftModel, get_peft_model, get_peft_model_state_dict
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor
from torch.nn import Linear, Module, Parameter
from transformers import PreTrainedModel

from dsocr.errors import ConfigError, ModelError, command
from dsocr.io.encodings import reading_json
from dsocr.models.base_folder import CONFIG, WEIGHTS, require_same_tensors
from dsocr.models.loading import NAMED_TARGET_MODULES, family_of

_OTHER_BASE = "was it trained on another base, or with other target_modules or another rank?"

Variant = Literal["lora", "rslora", "dora"]
"""LoRA as published; scaled by alpha / sqrt(r) for high ranks; or with magnitudes learnt separately."""


def attach_adapter(
    network: PreTrainedModel,
    *,
    base: str,
    revision: str | None,
    target_modules: str | Sequence[str],
    r: int,
    alpha: int,
    dropout: float = 0.0,
    variant: Variant = "lora",
) -> PeftModel:
    """Add a fresh adapter, which changes nothing until it is trained; only the adapter gets gradients.

    The adapter is float32 whatever the network is, so that no half-precision weight is ever trained. `target_modules`
    is the name of a set of layers, an anchored pattern over module names, or a list of names. Raises ConfigError if it,
    or a name of the list, matches no layer, if LoRA cannot adapt one, and for dropout or DoRA on routed experts, which
    PEFT does not support.
    """
    experts = has_experts(target_modules)
    if experts and (dropout or variant == "dora"):
        setting = "adapter.dropout must be 0" if dropout else f"adapter.variant must not be {variant}"
        raise ConfigError(
            f"{setting} with target_modules {target_modules}",
            code="experts-unsupported",
            hint="use target_modules without experts",
        )
    family = family_of(network)
    if isinstance(target_modules, str):
        patterns = {target_modules: family.target_modules.get(target_modules, target_modules)}
    else:
        patterns = {name: rf"(?:.*\.)?{re.escape(name)}" for name in target_modules}
    names = [name for name, module in network.named_modules() if hasattr(module, "weight")]
    sets = f"named sets are {', '.join(family.target_modules)}"
    for target, pattern in patterns.items():
        if not any(re.fullmatch(pattern, name) for name in names):
            message = f"adapter.target_modules: {target!r} matches no layer of the network"
            hint = f"{sets}; a layer is named, for example, {names[-2]}"
            raise ConfigError(message, code="target-modules-unmatched", hint=hint)
    config = LoraConfig(
        base_model_name_or_path=base,
        revision=revision,
        r=r,
        lora_alpha=alpha,
        lora_dropout=dropout,
        use_rslora=variant == "rslora",
        use_dora=variant == "dora",
        target_modules="|".join(patterns.values()),
        target_parameters=family.expert_parameters if experts else None,
    )
    try:
        return _add_lora(network, config)
    except ValueError as error:
        message = f"adapter.target_modules {target_modules!r} matches a module that LoRA cannot adapt"
        hint = f"{sets}; or exclude it: {str(error).partition(chr(10))[0]}"
        raise ConfigError(message, code="target-modules-unsupported", hint=hint) from error


def has_experts(target_modules: str | Sequence[str]) -> bool:
    """Whether a named set of layers has the parameters of routed experts, which no pattern can name."""
    return target_modules in ("decoder+experts", "decoder+experts+vision")


def omitted_layers(model: PreTrainedModel | PeftModel, target: str) -> list[str]:
    """Return the linear layers of the named parts of a network, decoder or vision, that a named set does not have.

    The output head is in no part. Empty for a pattern or a list of names.
    """
    network = model.get_base_model() if isinstance(model, PeftModel) else model
    family = family_of(network)
    pattern = family.target_modules.get(target)
    if pattern is None:
        return []
    head = network.get_output_embeddings()
    parts = {is_vision for is_vision, part in ((True, "vision"), (False, "decoder")) if part in target}
    return [
        name
        for name, module in network.named_modules()
        if isinstance(module, Linear)
        and module is not head
        and ".lora_" not in name
        and not re.fullmatch(pattern, name.removesuffix(".base_layer"))
        and family.is_vision(f"{name}.weight") in parts
    ]


def _add_lora(network: PreTrainedModel, config: LoraConfig) -> PeftModel:
    with warnings.catch_warnings():
        # PEFT asks transformers for a property under its old name.
        warnings.filterwarnings("ignore", "`is_gradient_checkpointing` is deprecated", FutureWarning)
        return get_peft_model(network, config)


def adapter_files(model: PeftModel) -> Iterator[tuple[str, bytes]]:
    """Yield the names and contents of an adapter's config and weights, as this package, PEFT and vLLM read them."""
    config = model.peft_config["default"].to_dict() | {"inference_mode": True}
    content = {key: sorted(value) if isinstance(value, set) else value for key, value in config.items()}
    yield CONFIG, (json.dumps(content, indent=2) + "\n").encode()
    yield WEIGHTS, save(adapter_tensors(model), metadata={"format": "pt"})


def load_adapter(network: PreTrainedModel, folder: Path, scale: float = 1.0) -> PeftModel:
    """Load a saved adapter onto a network, its output multiplied by `scale`.

    Raises ModelError if a file is missing or a tensor does not match, ConfigError as `scaled_config` does.
    """
    config, tensors = _read_adapter(folder)
    scaled = scaled_config(config.to_dict(), scale)
    config.lora_alpha, config.alpha_pattern = scaled["lora_alpha"], scaled["alpha_pattern"]
    try:
        model = _add_lora(network, config)
    except ValueError as error:  # PEFT found none of the layers
        raise _mismatch(folder, error) from error
    load_tensors(model, tensors, where=folder / WEIGHTS)
    return model.eval()


def start_adapter(model: PeftModel, folder: Path) -> None:
    """Fill a fresh adapter with the tensors of a saved one. Raises ModelError as `load_adapter` does."""
    _, tensors = _read_adapter(folder)
    load_tensors(model, tensors, where=folder / WEIGHTS)


def add_adapter(model: PeftModel, folder: Path, name: str) -> None:
    """Load another adapter beside the network's own; `model.set_adapter(name)` switches to it.

    Raises ModelError as `load_adapter` does, and for an adapter of routed experts.
    """
    config, tensors = _read_adapter(folder)
    if config.target_parameters:
        raise ModelError(
            "Adapters of routed experts cannot be loaded beside others",
            code="experts-unsupported",
            where=folder,
            hint=f"serve it alone, or merge it with {command('export', 'RUN', output='FOLDER', form='merged')}",
        )
    try:
        model.add_adapter(name, config)
    except ValueError as error:
        raise _mismatch(folder, error) from error
    load_tensors(model, tensors, where=folder / WEIGHTS, name=name)
    model.eval()


def _mismatch(folder: Path, error: ValueError) -> ModelError:
    reason = str(error).splitlines()[0]
    message = f"Adapter does not fit the network: {reason}"
    return ModelError(message, code="adapter-mismatch", where=folder, hint=_OTHER_BASE)


def _read_adapter(folder: Path) -> tuple[LoraConfig, dict[str, Tensor]]:
    """Read config and tensors of a saved adapter. Raises ModelError if a file is missing or damaged."""
    if (folder / "adapter_model.bin").is_file() and not (folder / WEIGHTS).is_file():
        raise ModelError(
            "Weights are pickled, which can run code, and are not loaded",
            code="weights-pickled",
            where=folder,
            hint="convert them to safetensors in an environment where you trust them",
        )
    if not (folder / WEIGHTS).is_file() or not (folder / CONFIG).is_file():
        raise ModelError(f"Not an adapter: it needs {CONFIG} and {WEIGHTS}", code="adapter-missing", where=folder)
    read_adapter_config(folder)
    try:
        return LoraConfig.from_pretrained(str(folder)), load_file(folder / WEIGHTS)
    except SafetensorError as error:
        message = f"Not a complete safetensors file ({error})"
        raise ModelError(message, code="weights-damaged", where=folder / WEIGHTS) from error
    except (TypeError, ValueError) as error:
        message = f"Not the config of a LoRA adapter: {error}"
        raise ModelError(message, code="adapter-config", where=folder / CONFIG) from error


def read_adapter_config(folder: Path) -> dict[str, Any]:
    """Read a saved adapter's config. Raises ModelError if it is missing or not that of a LoRA adapter."""
    path = folder / CONFIG
    if not path.is_file():
        message = f"Not an adapter: it needs {CONFIG} and {WEIGHTS}"
        raise ModelError(message, code="adapter-missing", where=folder)
    config: dict[str, Any]
    with reading_json(path, ModelError, "adapter-config", message="Not the config of a LoRA adapter") as config:
        if missing := {"r", "lora_alpha", "target_modules"} - config.keys():
            raise ValueError(f"it lacks {', '.join(sorted(missing))}")
        if config.get("alora_invocation_tokens"):
            raise ValueError("it is of an activated LoRA (aLoRA)")
    return config


def target_modules_of(config: Mapping[str, Any]) -> str:
    """Return the name of the set of layers that a saved adapter trains, or its pattern or list."""
    targets, experts = config["target_modules"], bool(config.get("target_parameters"))
    for name, pattern in NAMED_TARGET_MODULES:
        if targets == pattern and experts == has_experts(name):
            return name
    return targets if isinstance(targets, str) else ", ".join(targets)


def variant_of(config: Mapping[str, Any]) -> Variant:
    """Return the variant of a saved adapter."""
    if config.get("use_dora"):
        return "dora"
    return "rslora" if config.get("use_rslora") else "lora"


def adapter_tensors(model: PeftModel, name: str = "default") -> dict[str, Tensor]:
    """Return an adapter's tensors under the names they have on disk."""
    native, saved = family_of(model.get_base_model()).saved_names
    # Embeddings are never trained here; asked to find out, PEFT would look the base up on a hub.
    tensors = get_peft_model_state_dict(model, adapter_name=name, save_embedding_layers=False)
    return {name.replace(native, saved): tensor.contiguous() for name, tensor in tensors.items()}


def load_tensors(model: PeftModel, tensors: Mapping[str, Tensor], *, where: object, name: str = "default") -> None:
    """Fill an adapter from tensors named as on disk. Raises ModelError for missing, unexpected or misshapen ones."""
    current = adapter_tensors(model, name)
    require_same_tensors(tensors, current, code="adapter-mismatch", where=where, hint=_OTHER_BASE)
    for key, tensor in current.items():
        tensor.data.copy_(tensors[key])


def vision_parameters(model: Any) -> tuple[list[Parameter], list[Parameter]]:
    """Return the trained parameters in the vision towers and their projector, and all others."""
    family = family_of(model.get_base_model() if isinstance(model, PeftModel) else model)
    vision: list[Parameter] = []
    others: list[Parameter] = []
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            (vision if family.is_vision(name) else others).append(parameter)
    return vision, others


def frozen_towers(model: Any) -> list[Module]:
    """Return the largest parts of the vision towers none of whose weights are trained; none without an adapter.

    They stay in evaluation mode while the rest is trained, so that an image's features are the same at every step, as
    they are at reading time and in the cache: some are made with dropout of whole layers.
    """
    if not isinstance(model, PeftModel):
        return []
    family = family_of(model.get_base_model())
    names = [
        name for name, parameter in model.named_parameters() if parameter.requires_grad or not family.is_vision(name)
    ]
    others = {name[:end] for name in names for end in (place for place, sign in enumerate(name) if sign == ".")}
    towers: dict[str, Module] = {}
    for name, module in model.named_modules():
        is_frozen = name not in others and next(module.parameters(), None) is not None
        if name and is_frozen and not any(name.startswith(f"{tower}.") for tower in towers):
            towers[name] = module
    return list(towers.values())


def train_mode(model: Any) -> None:
    """Set a model to training mode, except `frozen_towers`."""
    model.train()
    for tower in frozen_towers(model):
        tower.eval()


def layers_without_gradient(model: Any) -> list[str]:
    """Return the trained layers that the last backward pass did not reach, which would never be trained."""
    names = [name for name, parameter in model.named_parameters() if parameter.requires_grad and parameter.grad is None]
    return sorted({name.partition(".lora_")[0].removeprefix("base_model.model.") for name in names})


def scaled_config(config: Mapping[str, Any], scale: float) -> dict[str, Any]:
    """Return a saved adapter's config with its alphas multiplied by `scale`.

    LoRA adds `scaling * B A` to a weight, with `scaling` alpha / r, or alpha / sqrt(r) for rsLoRA, so a scale is a
    point on the line from base to adapter. DoRA also sets the magnitude of the sum, so it has no such line. Raises
    ConfigError for 0, which is the base itself, and for another than 1 of DoRA.
    """
    if scale == 0:
        raise ConfigError("At a scale of 0 nothing is left of the adapter", code="scale-invalid", hint="use the base")
    if scale == 1:
        return dict(config)
    if config.get("use_dora"):
        raise ConfigError(
            f"A DoRA adapter cannot be scaled to {scale:g}",
            code="scale-invalid",
            hint="train with adapter.variant lora or rslora to choose a scale afterwards",
        )
    patterns = {name: alpha * scale for name, alpha in (config.get("alpha_pattern") or {}).items()}
    return {**config, "lora_alpha": config["lora_alpha"] * scale, "alpha_pattern": patterns}


# Trained weights: an adapter's or all of a network's, whichever the family trains


def trained_files(model: Any) -> list[tuple[str, bytes]]:
    """Return the names and contents of the files of an adapter, or of the whole network."""
    return list(adapter_files(model) if isinstance(model, PeftModel) else family_of(model).network_files(model))


def restore_trained(model: Any, folder: Path) -> None:
    """Load the files of `trained_files` into a model of the same shape. Raises ModelError for other tensors."""
    if isinstance(model, PeftModel):
        load_tensors(model, load_file(folder / WEIGHTS), where=folder / WEIGHTS)
        return
    saved = family_of(model).load_network(folder, device="cpu", dtype=torch.float32).state_dict()
    current: dict[str, Tensor] = model.state_dict()
    require_same_tensors(saved, current, code="checkpoint-mismatch", where=folder)
    for name, tensor in current.items():
        tensor.copy_(saved[name])
