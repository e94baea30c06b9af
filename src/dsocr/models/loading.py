"""Find and load bases from the package, a folder or the Hub: their family, and transformers' own class.

No code of a checkpoint ever runs: the family is recognised from `config.json`, and `auto_map` is ignored. torch is
imported where it is needed, so that code that only asks about errors and settings starts fast.
"""

import os
import sys
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dsocr.errors import ConfigError, ModelError, require_package
from dsocr.io.work import MANIFEST
from dsocr.models import ctc, deepseek_ocr, encoder_decoder, image_text_to_text
from dsocr.models.base_folder import (
    INDEX,
    OWN_FILES,
    SINGLE,
    Attention,
    explain_damage,
    explain_missing_base,
    find_base,
    is_plain,
    read_config_json,
)
from dsocr.models.family import Family, Processor, Serving
from dsocr.models.graph import GRAPH, Graph
from dsocr.runs import ReadingSettings, require_intact

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel


_RECOGNIZERS: tuple[Callable[[Mapping[str, Any]], Family | None], ...] = (
    deepseek_ocr.recognize,
    ctc.recognize,
    encoder_decoder.recognize,
    image_text_to_text.recognize,
)
"""Functions from `config.json` to the family of that checkpoint, or None; the first one counts."""

PUBLISHED_BASES: Mapping[str, Serving | None] = {
    **deepseek_ocr.BASES,
    **ctc.BASES,
    **encoder_decoder.BASES,
    **image_text_to_text.BASES,
}
"""The published networks that the families were made for, and how vLLM serves them."""

NAMED_TARGET_MODULES = [
    *deepseek_ocr.TARGET_MODULES.items(),
    *encoder_decoder.TARGET_MODULES.items(),
    *image_text_to_text.TARGET_MODULES.items(),
]
"""The named sets of layers of all families, with their patterns."""

_REGISTERED: dict[str, Family] = {}


def register_family(family: Family) -> None:
    """Add a family, whose checkpoints have its name as `model_type` in their `config.json`."""
    _REGISTERED[family.name] = family


def recognize(folder: Path, config: Mapping[str, Any] | None = None) -> Family:
    """Return the family of the checkpoint in a folder. Raises ModelError if no family knows it."""
    raw = read_config_json(folder) if config is None else config
    if (registered := _REGISTERED.get(str(raw.get("model_type")))) is not None:
        return registered
    for recognize_one in _RECOGNIZERS:
        if (family := recognize_one(raw)) is not None:
            return family
    supported = "supported are " + ", ".join(PUBLISHED_BASES) + ", and networks made from them"
    if raw.get("auto_map"):
        raise ModelError(
            f"Model type {raw.get('model_type')!r} runs only with the code in its own folder, which dsocr never runs",
            code="remote-code",
            where=folder,
            hint=f"choose a base that transformers has a class for; {supported}",
        )
    raise ModelError(
        f"Model type {raw.get('model_type')!r} is not supported", code="model-unknown", where=folder, hint=supported
    )


def family_of(network: "PreTrainedModel") -> Family:
    """Return the family of a network in memory, which `load_base` notes. Raises ModelError if no family knows it."""
    family: Family | None = getattr(network, "dsocr_family", None)
    return family or recognize(Path(network.name_or_path or "network"), network.config.to_dict())


@dataclass(frozen=True, slots=True)
class Base:
    """A base that was found, without its weights: its files, its family, and its commit if it comes from the Hub."""

    name: str
    revision: str | None
    folder: Path
    family: Family

    @classmethod
    def find(cls, name: str, revision: str | None = None) -> "Base":
        """Find a base. Raises ModelError if there is none, or if no family knows it."""
        folder, commit = find_base(name, revision)
        with explain_damage(folder):
            return Base(name, commit, folder, recognize(folder))

    @classmethod
    def of_adapter(cls, adapter: Path) -> "Base":
        """Find the network to read with: the base of an adapter, or the folder if it holds all weights.

        Raises RunError if the settings to read with are damaged, ModelError if the base is not found.
        """
        settings = ReadingSettings.load(adapter)
        if any((adapter / name).is_file() for name in (SINGLE, INDEX)):
            return cls.find(str(adapter))
        with explain_missing_base(adapter):
            return cls.find(settings.base, settings.base_revision)

    def processor(self, resolution: str | None, prompt: str) -> Processor:
        """Return the processor for a resolution (None: the default) and a prompt, by name or as text; needs no torch.

        Raises ModelError if its files are incomplete, ConfigError for an unknown resolution or prompt.
        """
        with explain_damage(self.folder):
            return self.family.processor(self.folder, resolution, prompt)


def load_processor(name: str, resolution: str | None, prompt: str, revision: str | None = None) -> Processor:
    """Load the processor of a base, which is enough to check a dataset; see `Base`."""
    return Base.find(name, revision).processor(resolution, prompt)


@dataclass(frozen=True, slots=True)
class BaseModel(Base):
    """A frozen base in memory."""

    network: "PreTrainedModel"


def choose_dtype(precision: str, device: "torch.device", *, whole: bool = False) -> "torch.dtype":
    """Return the number format of the frozen weights for `auto`, `bf16`, `fp16` or `fp32` on a device.

    `auto` is bf16 where the device itself multiplies it; on older GPUs frozen weights are fp16, to fit into memory, and
    a `whole` network that is trained is fp32. Raises ConfigError for fp16 on a CPU, where it is neither fast nor
    trainable.
    """
    import torch

    if precision == "fp16" and device.type == "cpu":
        message = "training.precision fp16 needs an accelerator, and none was found"
        raise ConfigError(message, code="fp16-on-cpu", hint="use bf16 or fp32, or auto to have it chosen")
    if precision == "auto":
        supported = device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
        if device.type == "cuda" and not whole and not supported:
            return torch.float16
        if whole and device.type == "cpu":
            capabilities: dict[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()
            supported = bool(capabilities.get("avx512_bf16") or capabilities.get("amx_bf16"))
        return torch.bfloat16 if supported else torch.float32
    return {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}[precision]


def choose_device() -> "torch.device":
    """Return the first accelerator that torch can use, else the CPU."""
    require_package("a model without a graph")
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
    attention: Attention = "sdpa",
    quantization: str | None = None,
) -> BaseModel:
    """Load the embedded base, one in a local folder, or one from the Hub at a revision; frozen, in evaluation mode.

    `dtype` is float32 by default. Raises ModelError if it is not found or not supported, or if any tensor is missing,
    unexpected or misshapen, and ConfigError if it cannot be quantized.
    """
    require_package("a base without a graph")
    import torch

    limit_kernel_cache()
    base = Base.find(base, revision) if isinstance(base, str) else base
    folder, family = base.folder, base.family
    if (folder / MANIFEST).is_file():
        require_intact(folder)
    options = {"dtype": dtype or torch.float32, "device": device, "attention": attention}
    with explain_damage(folder):
        require_quantization(family, quantization, torch.device(device))
        network = family.load_network(folder, **options, **({"quantization": quantization} if quantization else {}))
    network.eval().requires_grad_(False)
    if family.trains != "adapter":
        # Tokenizer and image settings belong to every checkpoint trained from this one.
        kept = [file for file in folder.iterdir() if is_plain(file) and file.name not in {"config.json", *OWN_FILES}]
        network.plain_files = [(file.name, file.read_bytes()) for file in sorted(kept)]
    # PEFT writes this into every adapter, and a folder of this machine means nothing on another.
    network.name_or_path = base.name
    network.dsocr_family = family
    return BaseModel(base.name, base.revision, folder, family, network)


def open_graph(folder: Path, *, threads: int = 1) -> Graph | None:
    """Return the graph in the folder of a checkpoint.

    None without one, and where torch is loaded already and computes faster: on a GPU, and in bf16 on a processor that
    has it. A graph that cannot be opened is replaced by torch with a warning; raises its ModelError without torch.
    """
    if not (folder / GRAPH).is_file() or _is_torch_faster():
        return None
    try:
        return Graph(folder, threads=threads)
    except ModelError as error:
        if find_spec("torch") is None:
            raise
        warnings.warn(f"{error}; torch reads instead", stacklevel=2)
        return None


def _is_torch_faster() -> bool:
    if "torch" not in sys.modules:
        return False
    device = choose_device()
    return device.type != "cpu" or choose_dtype("auto", device, whole=True).itemsize == 2


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error means that memory ran out, on an accelerator or on a CPU, whose allocators have no own error."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":  # torch's
        return True
    text = str(error)
    return any(sign in text for sign in ("DefaultCPUAllocator", "out of memory", "Failed to allocate memory"))
