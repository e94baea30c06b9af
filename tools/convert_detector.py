"""Convert PP-OCRv6's text detector, which ships with dsocr, from ONNX.

python tools/convert_detector.py PP-OCRv6_det_small.onnx FOLDER
"""

import json
import sys
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor, nn
from transformers import PPOCRV6SmallDetForObjectDetection
from transformers.models.pp_ocrv6_small_det.configuration_pp_ocrv6_small_det import PPOCRV6SmallDetConfig

from convert_recogniser import read_onnx
from dsocr.errors import ModelError
from dsocr.layout.detector_network import Detector


def create_detector() -> Detector:
    """Create a detector of PP-OCRv6 small's sizes with random weights."""
    return PPOCRV6SmallDetForObjectDetection(_small_config()).eval()


def convert_detector(file: Path, folder: Path, dtype: torch.dtype = torch.float16) -> None:
    """Convert `PP-OCRv6_det_small.onnx` of the package rapidocr (Apache-2.0) to a checkpoint folder.

    The file has the convolutions in the order of computation, their normalisations folded into them; the folder's
    normalisations are the identity and hold the biases. Raises ModelError for any other ONNX file.
    """
    network = create_detector()
    arrays, _ = read_onnx(file)
    values = [array.reshape(-1) if len(array) == 1 else array for array in arrays.values() if array.ndim == 4]
    parameters = list(_parameters(network))
    if [tuple(parameter.shape) for parameter in parameters] != [value.shape for value in values]:
        raise ModelError("ONNX file is not the PP-OCRv6 small text detector", code="onnx-unreadable", where=file)
    with torch.no_grad():
        for parameter, value in zip(parameters, values, strict=True):
            parameter.copy_(torch.from_numpy(value.copy()))
    tensors = {}
    for name, tensor in network.state_dict().items():
        if name.endswith("running_var"):
            # A variance of exactly 1 would be divided by the square root of 1 + epsilon.
            tensors[name] = torch.full_like(tensor, 1 - nn.BatchNorm2d(1).eps)
        elif not name.endswith("num_batches_tracked"):
            tensors[name] = tensor.to(dtype)
    config = network.config.to_dict() | {"architectures": [PPOCRV6SmallDetForObjectDetection.__name__]}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    (folder / "model.safetensors").write_bytes(save(tensors, metadata={"format": "pt"}))


def _parameters(network: Detector) -> list[Tensor]:
    """Return weight and bias of each convolution in the order in which they are computed, coarse features first."""
    neck = network.model.neck
    parts = [network.model.backbone, *reversed(neck.insert_conv)]
    for part in reversed(neck.input_conv):
        parts += [part.depthwise_convolution, part.pointwise_convolution, part.squeeze_excitation_module]
    parts.append(network.head)
    norms = {}
    for module in network.modules():
        norm = getattr(module, "normalization", getattr(module, "norm", None))
        if norm is not None:
            norms[module.convolution] = norm
    parameters: list[Tensor] = []
    for part in parts:
        for layer in part.modules():
            if not isinstance(layer, nn.Conv2d | nn.ConvTranspose2d):
                continue
            bias = layer.bias
            if layer in norms:
                bias = norms[layer].bias
                if layer.bias is not None:
                    nn.init.zeros_(layer.bias)
            parameters += [layer.weight] if bias is None else [layer.weight, bias]
    return parameters


def _small_config() -> PPOCRV6SmallDetConfig:
    """Return the sizes of PP-OCRv6 small, which are not the defaults of the class."""

    def blocks(channels: int, count: int) -> list[list[Any]]:
        return [[3, channels, channels, 1, number % 2 == 0] for number in range(count)]

    stages = [
        blocks(48, 2),
        [[3, 48, 96, 2, False], *blocks(96, 2)],
        [[3, 96, 192, 2, False], *blocks(192, 4)],
        [[3, 192, 384, 2, False], *blocks(384, 2)],
    ]
    backbone = {
        "model_type": "pp_lcnet_v4",
        "stem_channels": [3, 24, 48],
        "block_configs": stages,
        "out_features": ["stage1", "stage2", "stage3", "stage4"],
    }
    return PPOCRV6SmallDetConfig(backbone_config=backbone, layer_list_out_channels=[48, 96, 192, 384])


if __name__ == "__main__":
    convert_detector(Path(sys.argv[1]), Path(sys.argv[2]))
