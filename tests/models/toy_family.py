"""A family in one file: a network that guesses each letter of a line from the brightness of its columns."""

import json
from pathlib import Path
from typing import Any

from torch import Tensor, manual_seed, nn
from transformers import PreTrainedConfig, PreTrainedModel

from dsocr.models.base_folder import load_pretrained
from dsocr.models.ctc import LineProcessor, LineRecognizer
from dsocr.models.family import Family
from dsocr.models.loading import register_family

LETTERS = [chr(code) for code in (*range(0x20, 0x7F), *range(0x410, 0x452), ord("№"))]


class ToyNetwork(PreTrainedModel):  # type: ignore[misc]
    config_class = type("ToyConfig", (PreTrainedConfig,), {"model_type": "toy", "dropout": 0.0})

    def __init__(self, config: PreTrainedConfig) -> None:
        super().__init__(config)
        self.columns = nn.Linear(3 * 48 * 8, len(LETTERS) + 1)
        self.post_init()

    def forward(self, pixels: Tensor, steps: Tensor) -> Tensor:
        columns = pixels.unfold(3, 8, 8).permute(0, 3, 1, 2, 4).flatten(2)
        columns = nn.functional.dropout(columns, self.config.dropout, self.training)
        return nn.functional.linear(columns, self.columns.weight, self.columns.bias)


class ToyFamily(LineRecognizer):
    network_files, adapt_to = Family.network_files, Family.adapt_to  # type: ignore[assignment]
    vision_pattern = Family.vision_pattern
    training_defaults = Family.training_defaults

    def load_network(self, folder: Path, **options: Any) -> Any:
        network_class: Any = ToyNetwork
        config = network_class.config_class.from_pretrained(folder)
        return load_pretrained(network_class, config, folder, unused=(), **options)

    def fit_language_model(self, processor: LineProcessor, *_: Any, **options: Any) -> LineProcessor:
        """Fit none: among letters that are all as likely, the search for the weight takes seconds."""
        return processor


register_family(ToyFamily("toy"))


def write_base(folder: Path, *, dropout: float = 0.0) -> Path:
    manual_seed(7)
    ToyNetwork(ToyNetwork.config_class(dropout=dropout)).save_pretrained(folder)
    (folder / "vocab.json").write_text(json.dumps(LETTERS), encoding="utf-8")
    return folder
