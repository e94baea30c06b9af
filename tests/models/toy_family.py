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

    def __init__(self, config: ToyConfig, characters: list[str]) -> None:
        super().__init__(config)
        self.characters = characters
        self.columns = nn.Linear(3 * 48 * 8, len(characters) + 1)

    def forward(self, pixels: Tensor, steps: Tensor) -> Tensor:
        batch, channels, height, width = pixels.shape
        steps = pixels.reshape(batch, channels, height, width // 8, 8).permute(0, 3, 1, 2, 4).flatten(2)
        logits: Tensor = self.columns(steps)
        return logits


@dataclass(frozen=True, slots=True)
class ToyFamily(LineRecognizer):
    """Only what differs from the line recognisers."""

    name: str = "toy"
    learning_rate: float = 1e-3

    def training_defaults(self, learning_rate: float) -> Mapping[str, Any]:
        return {"augmentation": "none"}

    def load_network(self, folder: Path, **options: Any) -> ToyNetwork:
        network = ToyNetwork(ToyConfig(), json.loads((folder / "vocab.json").read_text(encoding="utf-8")))
        network.load_state_dict(load_file(folder / "model.safetensors"))
        return network.to(options["device"], options["dtype"])  # type: ignore[no-any-return]

    def network_files(self, network: Any) -> list[tuple[str, bytes]]:
        return [
            ("config.json", json.dumps({"model_type": "toy"}).encode()),
            ("vocab.json", json.dumps(network.characters).encode()),
            ("model.safetensors", save(dict(network.state_dict()))),
        ]

    def adapt_to(self, network: Any, processor: LineProcessor, texts: Any) -> tuple[Any, LineProcessor]:
        return network, processor


def recognize(config: Mapping[str, Any]) -> ToyFamily | None:
    return ToyFamily() if config.get("model_type") == "toy" else None


register_family(recognize)


def write_base(folder: Path) -> Path:
    """Write a base with random weights."""
    torch.manual_seed(3)
    folder.mkdir(parents=True)
    for name, content in ToyFamily().network_files(ToyNetwork(ToyConfig(), LETTERS)):
        (folder / name).write_bytes(content)
    return folder
