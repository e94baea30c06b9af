"""A family in one file: a network that guesses each letter of a line from the brightness of its columns."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel

from dsocr.models.ctc import LineProcessor, LineRecognizer
from dsocr.models.family import register_family

LETTERS = [chr(code) for code in (*range(0x20, 0x7F), *range(0x410, 0x452))]


class ToyConfig(PreTrainedConfig):  # type: ignore[misc]
    model_type = "toy"


class ToyNetwork(PreTrainedModel):  # type: ignore[misc]
    config_class = ToyConfig

    def __init__(self, characters: list[str]) -> None:
        super().__init__(ToyConfig())
        self.characters = characters
        self.columns = nn.Linear(3 * 48 * 8, len(characters) + 1)

    def forward(self, pixels: Tensor, steps: Tensor) -> Tensor:
        steps_first = pixels.reshape(*pixels.shape[:3], -1, 8).permute(0, 3, 1, 2, 4)
        logits: Tensor = self.columns(steps_first.flatten(2))
        return logits


@dataclass(frozen=True, slots=True)
class ToyFamily(LineRecognizer):
    """Only what differs from the line recognisers."""

    name: str = "toy"

    def training_defaults(self, learning_rate: float) -> Mapping[str, Any]:
        return {"augmentation": "none"}

    def load_network(self, folder: Path, **options: Any) -> Any:
        network = ToyNetwork(json.loads((folder / "vocab.json").read_text(encoding="utf-8")))
        network.load_state_dict(load_file(folder / "model.safetensors"))
        return network.to(options["device"], options["dtype"])

    def network_files(self, network: Any) -> list[tuple[str, bytes]]:
        texts = {"config.json": {"model_type": "toy"}, "vocab.json": network.characters}
        files = [(name, json.dumps(value).encode()) for name, value in texts.items()]
        return [*files, ("model.safetensors", save(dict(network.state_dict())))]

    def adapt_to(self, network: Any, processor: LineProcessor, texts: Any) -> tuple[Any, LineProcessor]:
        return network, processor


register_family(lambda config: ToyFamily() if config.get("model_type") == "toy" else None)


def write_base(folder: Path) -> Path:
    """Write a base with random weights."""
    torch.manual_seed(3)
    folder.mkdir(parents=True)
    for name, content in ToyFamily().network_files(ToyNetwork(LETTERS)):
        (folder / name).write_bytes(content)
    return folder
