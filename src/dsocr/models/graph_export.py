"""Write networks as ONNX graphs, with torch."""

import logging
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from dsocr.errors import RunError
from dsocr.io.work import hash_file
from dsocr.models.base_folder import SINGLE
from dsocr.models.graph import GRAPH, WEIGHTS_HASH, Graph

_TOLERANCE = 1e-4
"""The largest difference of an output from torch's, as a share of the largest output."""


def graph_of(files: Sequence[tuple[str, bytes]], write: Callable[[Path], None]) -> tuple[str, bytes]:
    """Return name and content of the graph that `write` writes into the folder of a checkpoint of these files."""
    with TemporaryDirectory() as folder:
        for name, content in files:
            (Path(folder) / name).write_bytes(content)
        write(Path(folder))
        return GRAPH, (Path(folder) / GRAPH).read_bytes()


def write_graph(network: nn.Module, example: Tensor, dynamic: Mapping[int, int], folder: Path) -> None:
    """Write the graph of a network into the folder of its checkpoint, if it computes what torch computes.

    `network` is called with an image `(1, 3, H, W)` such as `example`, whose dimensions in `dynamic` may have any
    length that is a multiple of the number there. Raises RunError if results differ by more
    than rounding; then there is no graph.
    """
    shapes: dict[int, Any] = {axis: torch.export.Dim(f"side{axis}", min=2) for axis in dynamic}
    shapes = {axis: multiple * shapes[axis] for axis, multiple in dynamic.items()}
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # of its own deprecations
        logging.getLogger("torch.onnx").setLevel(logging.ERROR)
        program = torch.onnx.export(
            network.eval(), (example,), input_names=["pixels"], dynamic_shapes=(shapes,), dynamo=True, verbose=False
        )
    assert program is not None
    program.model.metadata_props[WEIGHTS_HASH] = hash_file(folder / SINGLE)
    program.save(folder / GRAPH)
    graph = Graph(folder)
    for part in (example, example[..., : example.shape[-1] // 2]):
        with torch.no_grad():
            expected = network(part)[0].numpy()
        difference = float(np.abs(graph(part[0].numpy()) - expected).max())
        if not difference <= _TOLERANCE * float(np.abs(expected).max()):
            (folder / GRAPH).unlink()
            message = f"Graph computes otherwise than torch, by up to {difference:.2g}: torch will read"
            raise RunError(message, code="checkpoint-mismatch")
