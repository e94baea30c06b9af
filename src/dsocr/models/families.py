"""The known families of networks, and the bases found on this machine or on the Hub."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dsocr.errors import ModelError
from dsocr.models import ctc, deepseek_ocr, encoder_decoder, image_text_to_text
from dsocr.models.base_folder import SINGLE, explain_damage, explain_missing_base, find_base, read_config_json
from dsocr.models.family import Family, Processor, Serving
from dsocr.runs import ReadingSettings

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_RECOGNIZERS: tuple[Callable[[Mapping[str, Any]], Family | None], ...] = (
    deepseek_ocr.recognize,
    ctc.recognize,
    encoder_decoder.recognize,
    image_text_to_text.recognize,
)
"""Functions from `config.json` to the family of that checkpoint, or None; the first one counts."""

PUBLISHED_BASES = (*deepseek_ocr.BASES, *ctc.BASES, *encoder_decoder.BASES, *image_text_to_text.BASES)
"""The published networks that the families were made for."""

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
    supported = "supported are " + ", ".join(base.name for base in PUBLISHED_BASES) + ", and networks made from them"
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


def published_serving(base: str) -> Serving | None:
    """Return how vLLM serves a published base that is not on this machine."""
    if any(published.name == base for published in deepseek_ocr.BASES):
        return deepseek_ocr.serving_of(base)
    if any(published.name == base for published in image_text_to_text.BASES):
        return image_text_to_text.serving_of(base)
    return None


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
        if (adapter / SINGLE).is_file():
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
