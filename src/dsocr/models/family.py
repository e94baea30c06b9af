"""What the rest of the package asks of a kind of network, and which kinds there are.

A family answers for every checkpoint of its kind: which class of transformers holds it, how an image and a text become
inputs, where an adapter may sit, and how its files are named. Everything else asks the family and never compares names
of networks. To add a family, write one module with a class that satisfies `Family` and list it in `_FAMILIES`.
"""

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from dsocr.errors import ModelError
from dsocr.models.base_folder import find_base, read_config_json

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from dsocr.models.deepseek_ocr import Processor

_FAMILIES = ("dsocr.models.deepseek_ocr:recognize",)
"""A function for each family: from `config.json` to the family of that checkpoint, or None."""


class Family(Protocol):
    """One kind of network, as a checkpoint folder holds it."""

    @property
    def name(self) -> str:
        """The kind's name, for example `deepseek_ocr`."""

    @property
    def original(self) -> bool:
        """Whether the files are in the layout that the authors published, which servers know."""

    @property
    def network_class(self) -> "type[PreTrainedModel]":
        """The class of transformers that holds the network. Imports torch."""

    @property
    def target_modules(self) -> Mapping[str, str]:
        """Named sets of layers that an adapter may train, each as an anchored pattern over module names."""

    @property
    def saved_names(self) -> tuple[str, str]:
        """A part of the native tensor names, and what replaces it in saved adapters."""

    @property
    def expert_parameters(self) -> list[str]:
        """Parameters of routed experts that `decoder+experts` adapts."""

    @property
    def unused_tensors(self) -> tuple[str, ...]:
        """Tensors of the checkpoint that its network does not use."""

    def is_vision(self, parameter: str) -> bool:
        """Whether a parameter of the native network belongs to the vision towers or their projector."""

    def network_config(self, raw: Mapping[str, Any], folder: Path, tokenizer: "PreTrainedTokenizerBase") -> Any:
        """Return the config for `network_class`. Raises ModelError if the checkpoint is incomplete."""

    def validate_input(self, resolution: str | None, prompt: str) -> None:
        """Raise ConfigError for an unknown resolution or prompt."""

    def processor(
        self, tokenizer: "PreTrainedTokenizerBase", folder: Path, resolution: str | None, prompt: str
    ) -> "Processor":
        """Return what turns images and texts into inputs. Raises ConfigError for an unknown resolution or prompt."""


def recognize(folder: Path, config: Mapping[str, Any] | None = None) -> Family:
    """Return the family of the checkpoint in a folder. Raises ModelError if no family knows it."""
    raw = read_config_json(folder) if config is None else config
    for entry in _FAMILIES:
        module, function = entry.split(":")
        family: Family | None = getattr(import_module(module), function)(raw)
        if family is not None:
            return family
    raise ModelError(
        f"Model type {raw.get('model_type')!r} is not supported",
        code="model-unknown",
        where=folder,
        hint="supported are DeepSeek-OCR, DeepSeek-OCR-2, Unlimited-OCR and nano",
    )


def family_of(network: "PreTrainedModel") -> Family:
    """Return the family of a network in memory. Raises ModelError if no family knows it."""
    return recognize(Path(network.name_or_path or "network"), network.config.to_dict())


def load_processor(name: str, resolution: str | None, prompt: str, revision: str | None = None) -> "Processor":
    """Load the processor of a base without its weights, which is enough to check a dataset; needs no torch.

    Raises ModelError if the base is not found or incomplete, ConfigError for an unknown resolution or prompt.
    """
    from dsocr.models.base_folder import load_tokenizer

    folder, _ = find_base(name, revision)
    return recognize(folder).processor(load_tokenizer(folder), folder, resolution, prompt)
