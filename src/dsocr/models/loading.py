"""Load base models from the package, a folder or the Hub, in transformers' own classes.

No code of a checkpoint ever runs: the family is recognised from `config.json`, and `auto_map` is ignored. torch is
imported where it is needed, so that what only asks about errors and settings starts fast.
"""

import os
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dsocr.errors import ConfigError
from dsocr.io.work import MANIFEST
from dsocr.models.base_folder import CARD, Attention, explain_damage, is_plain
from dsocr.models.families import Base
from dsocr.models.family import Family
from dsocr.runs import READING, require_intact

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel


@dataclass(frozen=True, slots=True)
class BaseModel(Base):
    """A frozen base in memory."""

    network: "PreTrainedModel"


def choose_dtype(precision: str, device: "torch.device", *, whole: bool = False) -> "torch.dtype":
    """Return the number format of the frozen weights for `auto`, `bf16`, `fp16` or `fp32` on a device.

    For a `whole` network that is trained `auto` is bf16 only where the device itself multiplies bf16; frozen weights
    are bf16 on every GPU, also emulated, to fit into memory. Raises ConfigError for fp16 on a CPU, where it is neither
    fast nor trainable.
    """
    import torch

    if precision == "fp16" and device.type == "cpu":
        message = "training.precision fp16 needs an accelerator, and none was found"
        raise ConfigError(message, code="fp16-on-cpu", hint="use bf16 or fp32, or auto to have it chosen")
    if precision == "auto":
        supported = device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=not whole)
        if whole and device.type == "cpu":
            capabilities: dict[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()
            supported = bool(capabilities.get("avx512_bf16") or capabilities.get("amx_bf16"))
        return torch.bfloat16 if supported else torch.float32
    return {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}[precision]


def choose_device() -> "torch.device":
    """Return the first accelerator that torch can use, else the CPU."""
    import torch

    if torch.cuda.is_available():
        return torch.device("cuda")
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu")


def require_quantization(family: Family, quantization: str | None, device: "torch.device | None" = None) -> None:
    """Raise ConfigError if a family's frozen weights cannot be kept in this number format, or not on this machine."""
    if quantization is None:
        return
    if quantization not in family.quantizations:
        message = (
            f"adapter.quantization: models of the family {family.name} are not trained with {quantization} weights"
        )
        raise ConfigError(message, code="quantization-unsupported", hint="leave it out")
    if find_spec("bitsandbytes") is None:
        message = f"adapter.quantization {quantization} needs bitsandbytes, which is not installed"
        raise ConfigError(message, code="package-missing", hint='pip install "dsocr-hw[quant]"')
    if (device or choose_device()).type != "cuda":  # on a CPU bitsandbytes has no backward pass for its products
        message = f"adapter.quantization {quantization} needs an NVIDIA GPU, and none was found"
        raise ConfigError(message, code="quantization-unavailable", hint="leave it out, or choose a smaller base")


def limit_kernel_cache() -> None:
    """Let oneDNN keep 64 kernels instead of 1024, unless the environment says otherwise; call it before any network.

    Convolutions over lines of ever new widths fill the cache with kernels of 20 MB a width that are hardly used again:
    reading 480 lines with `small` peaked at 1.6 GB with the default, at 1.1 GB with 64, and took no longer.
    """
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "64")


def load_base(
    base: str | Base,
    revision: str | None = None,
    *,
    dtype: "torch.dtype | None" = None,
    device: "torch.device | str" = "cpu",
    device_map: str | dict[str, Any] | None = None,
    attention: Attention = "sdpa",
    quantization: str | None = None,
) -> BaseModel:
    """Load the embedded base, one in a local folder, or one from the Hub at a revision; frozen, in evaluation mode.

    `dtype` is float32 by default. `device_map` spreads it over several devices, instead of `device`. Raises ModelError
    if it is not found or not supported, or if any tensor is missing, unexpected or misshapen, and ConfigError if it
    cannot be quantized.
    """
    import torch

    limit_kernel_cache()
    base = Base.find(base, revision) if isinstance(base, str) else base
    folder, family = base.folder, base.family
    if (folder / MANIFEST).is_file():
        require_intact(folder)
    options = {"dtype": dtype or torch.float32, "device": device, "device_map": device_map, "attention": attention}
    with explain_damage(folder):
        require_quantization(family, quantization, torch.device(device))
        network = family.load_network(folder, **options, **({"quantization": quantization} if quantization else {}))
    network.eval().requires_grad_(False)
    if family.trains != "adapter":
        network.plain_files = [(file.name, file.read_bytes()) for file in sorted(folder.iterdir()) if _is_kept(file)]
    # PEFT writes this into every adapter, and a folder of this machine means nothing on another.
    network.name_or_path = base.name
    network.dsocr_family = family
    return BaseModel(base.name, base.revision, folder, family, network)


def _is_kept(file: Path) -> bool:
    """Whether a file of the base belongs to every checkpoint trained from it: tokenizer and image settings."""
    return is_plain(file) and file.name not in {"config.json", CARD, MANIFEST, READING, "provenance.json"}


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error means that memory ran out, on an accelerator or on a CPU, whose allocator has no own error."""
    import torch

    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    text = str(error)
    return "DefaultCPUAllocator" in text or "out of memory" in text.lower()
