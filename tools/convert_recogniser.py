"""Convert PP-OCRv6 small's line recogniser from ONNX, and make networks of its kind.

python tools/convert_recogniser.py PP-OCRv6_rec_small.onnx FOLDER
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.numpy_helper
import torch
from google.protobuf.message import DecodeError
from numpy.typing import NDArray
from torch import nn
from transformers.models.pp_ocrv6_small_rec.configuration_pp_ocrv6_small_rec import PPOCRV6SmallRecConfig

from dsocr.errors import ModelError
from dsocr.models.ctc_network import NETWORKS, Network, fold_normalization, network_files


def create_network(characters: Sequence[str], config: Any = None) -> Network:
    """Create a network with random weights for the given characters; without a `config` it is PP-OCRv6 small."""
    config = config or PPOCRV6SmallRecConfig()
    config.head_out_channels = len(characters) + 1
    network = NETWORKS[config.model_type](config)
    fold_normalization(network)
    return network


def save_network(network: Network, characters: Sequence[str], folder: Path, dtype: torch.dtype | None = None) -> None:
    """Write a checkpoint folder, its tensors in `dtype` if given, with the names that transformers loads."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in network_files(network, characters, dtype):
        (folder / name).write_bytes(content)


def convert_recogniser(file: Path, folder: Path) -> None:
    """Convert `PP-OCRv6_rec_small.onnx` of the package rapidocr (Apache-2.0) to a checkpoint folder.

    The file's parameters are in the order of the network's layers, each kind of layer for itself, with the
    normalisation of the trunk already folded into its convolutions. Raises ModelError for any other ONNX file.
    """
    tensors, metadata = read_onnx(file)
    characters = [*metadata.get("character", "").split("\n"), " "]
    network = create_network(characters, PPOCRV6SmallRecConfig(layer_norm_eps=1e-5))
    convolutions: list[NDArray[Any]] = []
    normalizations: list[NDArray[Any]] = []
    layer_norms: list[NDArray[Any]] = []
    linears: list[NDArray[Any]] = []
    for name, tensor in tensors.items():
        if tensor.ndim == 4:
            convolutions.append(tensor.reshape(-1) if tensor.shape[0] == 1 else tensor)
        elif name.startswith("batch_norm"):  # follows the weight of one of the last three convolutions
            normalizations.append(tensor)
            if len(normalizations) == 4:
                weight, bias, mean, variance = normalizations
                scale = weight / np.sqrt(variance + nn.BatchNorm2d(1).eps)
                convolutions[-1] = convolutions[-1] * scale[:, None, None, None]
                convolutions.append(bias - mean * scale)
                normalizations.clear()
        elif name.startswith("helper.reshape"):
            layer_norms.append(tensor)
        elif name.startswith("linear"):
            linears.append(tensor.T)
    parameters = []
    for kind, values in ((nn.Conv2d, convolutions), (nn.LayerNorm, layer_norms), (nn.Linear, linears)):
        layers = [module for module in network.modules() if isinstance(module, kind)]
        targets: list[Any] = [parameter for layer in layers for parameter in (layer.weight, layer.bias)]
        if [tuple(parameter.shape) for parameter in targets] != [value.shape for value in values]:
            raise ModelError("ONNX file is not the PP-OCRv6 small recogniser", code="onnx-unreadable", where=file)
        parameters += list(zip(targets, values, strict=True))
    with torch.no_grad():
        for parameter, value in parameters:
            parameter.copy_(torch.from_numpy(value.copy()))
    save_network(network, characters, folder)


def read_onnx(file: Path) -> tuple[dict[str, NDArray[Any]], dict[str, str]]:
    """Read the float32 initializers and the metadata of an ONNX file."""
    try:
        model = onnx.load(file)
    except DecodeError as error:
        raise ModelError(f"File cannot be read as ONNX: {error}", code="onnx-unreadable", where=file) from None
    floats = (tensor for tensor in model.graph.initializer if tensor.data_type == onnx.TensorProto.FLOAT)
    tensors = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in floats}
    return tensors, {entry.key: entry.value for entry in model.metadata_props}


if __name__ == "__main__":
    convert_recogniser(Path(sys.argv[1]), Path(sys.argv[2]))
