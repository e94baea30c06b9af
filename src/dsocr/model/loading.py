"""Base models from the package or a folder, in transformers' own classes; no code from a checkpoint is ever run."""

import json
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import torch
from transformers import AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase, UnlimitedOcrForConditionalGeneration

from dsocr.errors import ConfigError, ModelError
from dsocr.model.encoding import Encoder
from dsocr.model.prompts import find_prompt
from dsocr.model.resolution import Family, find_resolution

EMBEDDED = "nano"
"""The name of the base that ships with the package."""


@dataclass(frozen=True, slots=True)
class BaseModel:
    """A base model in memory, frozen, with what is needed to feed it. `revision` is None for a local base."""

    name: str
    revision: str | None
    family: Family
    network: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase

    def encoder(self, resolution: str | None, prompt: str) -> Encoder:
        """The encoder for a resolution and a prompt, each by name; None is the family's default resolution."""
        return Encoder(
            self.tokenizer,
            int(self.network.config.image_token_id),
            find_resolution(self.family, resolution),
            find_prompt(prompt),
        )


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
) -> BaseModel:
    """The base `nano`, or one in a local folder in the layout of transformers' `unlimited_ocr`.

    Raises ModelError where the folder is missing, is another kind of model, or a tensor does not fit.
    """
    folder = _folder(name)
    network = _network(folder, dtype).to(device)
    network.eval().requires_grad_(False)
    # PEFT writes this into every adapter; a folder of this machine means nothing on the next.
    network.name_or_path = name
    return BaseModel(name, revision, _family(network.config.text_config.vocab_size), network, _tokenizer(folder))


def load_encoder(name: str, resolution: str | None, prompt: str) -> Encoder:
    """The encoder of a base without its weights: enough to check a dataset against it."""
    folder = _folder(name)
    config = _config(folder)
    family = _family(config["text_config"]["vocab_size"])
    return Encoder(
        _tokenizer(folder), int(config["image_token_id"]), find_resolution(family, resolution), find_prompt(prompt)
    )


def _folder(name: str) -> Path:
    if name == EMBEDDED:
        return Path(str(resources.files("dsocr") / "model" / "bases" / EMBEDDED))
    if Path(name).is_dir():
        return Path(name)
    raise ModelError(
        f"no base model {name!r}: neither {EMBEDDED!r} nor a folder here",
        hint="download the checkpoint and give its folder; models are not yet fetched from a hub by this version",
    )


def _config(folder: Path) -> dict[str, Any]:
    try:
        config: dict[str, Any] = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ModelError("is not a model folder: it has no config.json", where=folder) from error
    except json.JSONDecodeError as error:
        raise ModelError(f"is not JSON: {error}", where=folder / "config.json") from error
    if config.get("model_type") != "unlimited_ocr":
        kind = config.get("model_type")
        raise ModelError(
            f"models of type {kind!r} are not read by this version", where=folder, hint="`unlimited_ocr` is"
        )
    return config


def _network(folder: Path, dtype: torch.dtype) -> UnlimitedOcrForConditionalGeneration:
    _config(folder)
    network, report = UnlimitedOcrForConditionalGeneration.from_pretrained(
        folder, dtype=dtype, output_loading_info=True, local_files_only=True, use_safetensors=True
    )
    problems = [
        f"{kind.replace('_', ' ')}: {name}" for kind, names in report.items() for name in sorted(names, key=str)
    ]
    if problems:
        shown = "".join(f"\n  {problem}" for problem in problems[:20])
        raise ModelError(f"{len(problems)} tensors of the checkpoint do not fit the network{shown}", where=folder)
    return network


def _tokenizer(folder: Path) -> PreTrainedTokenizerBase:
    return AutoTokenizer.from_pretrained(folder, local_files_only=True)


def _family(vocabulary: int) -> Family:
    return "nano" if vocabulary < 1000 else "deepseek_ocr"
