"""The text detector in torch: how it is loaded, trained, and saved."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save
from torch import Tensor, nn
from transformers import PPOCRV6SmallDetForObjectDetection
from transformers.models.pp_ocrv6_small_det.configuration_pp_ocrv6_small_det import PPOCRV6SmallDetConfig

from dsocr.errors import ModelError
from dsocr.models.base_folder import SINGLE, explain_damage
from dsocr.models.graph_export import graph_of, write_graph
from dsocr.models.loading import limit_kernel_cache
from dsocr.runs import DETECTOR

Detector: TypeAlias = Any
"""`PPOCRV6SmallDetForObjectDetection`, whose parts have no useful static types."""


def load_detector(folder: Path) -> Detector:
    """Load a checkpoint folder as float32. Raises ModelError if its tensors are not those of the network."""
    limit_kernel_cache()
    with explain_damage(folder):
        config = PPOCRV6SmallDetConfig.from_dict(json.loads((folder / "config.json").read_text(encoding="utf-8")))
        network = PPOCRV6SmallDetForObjectDetection(config).eval()
        tensors = {name: tensor.float() for name, tensor in load_file(folder / SINGLE).items()}
    try:
        missing, unexpected = network.load_state_dict(tensors, strict=False)
    except RuntimeError as error:
        raise ModelError(str(error), code="checkpoint-mismatch", where=folder) from None
    if wrong := [*unexpected, *(name for name in missing if not name.endswith("num_batches_tracked"))]:
        raise ModelError(
            f"Tensors do not match the text detector: {wrong[:3]}", code="checkpoint-mismatch", where=folder
        )
    network.dsocr_family = LineDetector()
    return network


def detect_with(network: Detector) -> Callable[[NDArray[np.float32]], NDArray[np.float32]]:
    """Return the function from a page to its text that a network on the CPU computes."""

    def detect(image: NDArray[np.float32]) -> NDArray[np.float32]:
        with torch.inference_mode():
            probability: NDArray[np.float32] = network(torch.from_numpy(image)[None]).last_hidden_state[0].numpy()
        return probability

    return detect


class _Probabilities(nn.Module):
    def __init__(self, network: Detector) -> None:
        super().__init__()
        self.network = network

    def forward(self, pixels: Tensor) -> Tensor:
        probabilities: Tensor = self.network(pixels).last_hidden_state
        return probabilities


def write_detector_graph(folder: Path) -> None:
    """Write the graph of a checkpoint into its folder; see `write_graph`."""
    example = torch.rand(1, 3, 320, 256) * 2 - 1
    write_graph(_Probabilities(load_detector(folder)), example, {2: 32, 3: 32}, folder)


class LineDetector:
    """How a detector is trained, saved and restored: the result of `family_of` for one."""

    name = DETECTOR

    def load_network(self, folder: Path, **options: Any) -> Detector:
        """Load a checkpoint folder on the CPU as float32, whatever the options."""
        return load_detector(folder)

    def network_files(self, network: Detector) -> list[tuple[str, bytes]]:
        """Return the names and contents of the files of a checkpoint folder."""
        config = json.dumps(network.config.to_dict(), indent=2, sort_keys=True) + "\n"
        tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in network.state_dict().items()}
        return [("config.json", config.encode()), (SINGLE, save(tensors))]

    def graph_files(self, files: Sequence[tuple[str, bytes]]) -> list[tuple[str, bytes]]:
        """Return the graph of a checkpoint of these files; see `Family.graph_files`."""
        return [graph_of(files, write_detector_graph)]
