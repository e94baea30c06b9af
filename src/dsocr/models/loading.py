"""Base models from the package, a folder or the Hub, in transformers' own classes; no code of a checkpoint ever runs.

A base is recognised from its `config.json` (`architectures.py`); `auto_map`, which names code, is never followed.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from transformers import GenerationConfig, PreTrainedModel, PreTrainedTokenizerBase

from dsocr.errors import ConfigError, ModelError
from dsocr.models.checkpoint import find_base, tensor_shapes
from dsocr.models.deepseek_images import Family
from dsocr.models.deepseek_ocr import (
    UNUSED_TENSORS,
    Architecture,
    Encoder,
    image_token_id,
    load_tokenizer,
    make_encoder,
    original_config,
    read_config_json,
    recognise,
)

Attention = Literal["sdpa", "eager"]
"""How attention is computed: by torch's fused kernels, or step by step as written."""


@dataclass(frozen=True, slots=True)
class BaseModel:
    """A base model in memory, frozen, with what is needed to feed it.

    `revision` is the commit of a base from the Hub and None for a local one; `folder` is where its files lie.
    """

    name: str
    revision: str | None
    architecture: Architecture
    network: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    folder: Path

    @property
    def family(self) -> Family:
        """The base models that are prepared for as this one is."""
        return self.architecture.family

    def encoder(self, resolution: str | None, prompt: str) -> Encoder:
        """The encoder for a resolution and a prompt, each by name; None is the family's default resolution."""
        return make_encoder(self.tokenizer, self.family, self.folder, resolution, prompt)


def choose_dtype(precision: str, device: torch.device) -> torch.dtype:
    """The number format of the frozen weights for `auto`, `bf16`, `fp16` or `fp32` on a device.

    Raises ConfigError for fp16 on a CPU, where it would neither be fast nor train.
    """
    if precision == "fp16" and device.type == "cpu":
        hint = "use bf16 or fp32, or auto to have it chosen"
        raise ConfigError("training.precision: fp16 needs an accelerator, and none was found", hint=hint)
    if precision == "auto":
        ready = device.type == "cuda" and torch.cuda.is_bf16_supported()
        return torch.bfloat16 if ready else torch.float32
    return {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}[precision]


def choose_device() -> torch.device:
    """The first accelerator torch can use, else the CPU."""
    if torch.cuda.is_available():
        return torch.device("cuda")
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu")


def load_base(
    name: str,
    revision: str | None = None,
    *,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
    device_map: str | dict[str, Any] | None = None,
    attention: Attention = "sdpa",
) -> BaseModel:
    """The base `nano`, one in a local folder, or one of the Hub at a revision; frozen, in evaluation mode.

    `device_map` spreads it over several devices, in place of `device`. Raises ModelError where it is not there, is
    of an unknown kind, or any tensor is missing, unexpected or misshapen.
    """
    folder, commit = find_base(name, revision)
    raw = read_config_json(folder)
    architecture = recognise(raw, folder)
    tokenizer = load_tokenizer(folder)
    config = _network_config(architecture, raw, folder, tokenizer)
    options = {"device_map": device_map or {"": device}} if device_map or str(device) != "cpu" else {}
    network, report = _pretrained(
        architecture, folder, config=config, dtype=dtype, attn_implementation=attention, **options
    )
    _demand_every_tensor(report, folder)
    network.eval().requires_grad_(False)
    network.generation_config = GenerationConfig(
        bos_token_id=tokenizer.bos_token_id, eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id
    )
    # PEFT writes this into every adapter; a folder of this machine means nothing on the next.
    network.name_or_path = name
    return BaseModel(name, commit, architecture, network, tokenizer, folder)


def _network_config(
    architecture: Architecture, raw: dict[str, Any], folder: Path, tokenizer: PreTrainedTokenizerBase
) -> Any:
    shapes = tensor_shapes(folder)
    if not architecture.original:
        return architecture.config_class.from_dict(raw)
    try:
        return original_config(architecture, raw, shapes, image_token_id(tokenizer, folder))
    except KeyError as error:
        raise ModelError(
            f"is not a whole checkpoint of its kind: {error.args[0]} is missing",
            where=folder,
            hint="was it downloaded whole?",
        ) from error


def _pretrained(architecture: Architecture, folder: Path, **options: Any) -> tuple[PreTrainedModel, dict[str, Any]]:
    network, report = architecture.network_class.from_pretrained(
        folder,
        output_loading_info=True,
        local_files_only=True,
        use_safetensors=True,
        trust_remote_code=False,
        ignore_mismatched_sizes=True,  # told as a problem below, with all the others
        **options,
    )
    return network, report


def _demand_every_tensor(report: dict[str, Any], folder: Path) -> None:
    problems = [
        f"{kind.replace('_', ' ')}: {name}"
        for kind, names in report.items()
        for name in sorted(map(_tensor_name, names))
        if not (kind == "unexpected_keys" and name in UNUSED_TENSORS)
    ]
    if problems:
        shown = "".join(f"\n  {problem}" for problem in problems[:20])
        raise ModelError(f"{len(problems)} tensors of the checkpoint do not fit the network{shown}", where=folder)


def _tensor_name(entry: object) -> str:
    """Mismatched tensors are reported as (name, shape there, shape here)."""
    return str(entry[0]) if isinstance(entry, tuple) else str(entry)


def is_out_of_memory(error: BaseException) -> bool:
    """True for what torch raises on a card and on a CPU, where its allocator has no error of its own."""
    import torch  # slow, and not needed where other programs read

    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    text = str(error)
    return "DefaultCPUAllocator" in text or "out of memory" in text.lower()
