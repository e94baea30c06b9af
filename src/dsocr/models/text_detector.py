"""PP-OCRv6's text detector: where on a page there is text.

The network is `PPOCRV6SmallDetForObjectDetection` of transformers (PP-LCNetV4 with a feature pyramid; 2.5 million
weights). For every pixel it gives the probability of being in the middle of a line of text, between its ascenders and
descenders (differentiable binarization, Liao et al. 2020), so that neighbouring lines do not touch.
"""

import json
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from safetensors.torch import load_file, save
from torch import Tensor, nn
from transformers import PPOCRV6SmallDetForObjectDetection
from transformers.models.pp_ocrv6_small_det.configuration_pp_ocrv6_small_det import PPOCRV6SmallDetConfig

from dsocr.errors import ModelError
from dsocr.models.loading import limit_kernel_cache
from dsocr.models.onnx_file import read_onnx

Detector: TypeAlias = Any
"""`PPOCRV6SmallDetForObjectDetection`, whose parts have no useful static types."""

_SIDE = 960
"""Pixels of the longer side of a page, whose shape is nearly kept."""
_MULTIPLE = 32
"""Pixels; the feature pyramid halves a side five times."""


def detect_text(page: Image.Image, detector: Detector | None = None) -> NDArray[np.float32]:
    """Return the probability of text on a page, `(H, W)` of at most 960; `detector` defaults to the shipped one."""
    scale = _SIDE / max(page.size)
    width, height = (max(round(length * scale / _MULTIPLE), 1) * _MULTIPLE for length in page.size)
    small = page.resize((width, height), Image.Resampling.BILINEAR, reducing_gap=2).convert("RGB")
    pixels = np.asarray(small, dtype=np.float32)[:, :, ::-1] / 127.5 - 1  # trained on blue, green, red
    images = torch.from_numpy(np.ascontiguousarray(pixels.transpose(2, 0, 1)[None]))
    with torch.inference_mode():
        probabilities = (detector or load_shipped_detector())(images).last_hidden_state[0, 0]
    found: NDArray[np.float32] = probabilities.numpy()
    return found


@cache
def load_shipped_detector() -> Detector:
    """Load the detector that ships with dsocr, once a process."""
    return load_detector(Path(str(resources.files("dsocr") / "models" / "detector")))


def load_detector(folder: Path) -> Detector:
    """Load a checkpoint folder as float32. Raises ModelError if its tensors are not those of the network."""
    limit_kernel_cache()
    config = PPOCRV6SmallDetConfig.from_dict(json.loads((folder / "config.json").read_text(encoding="utf-8")))
    network = create_detector(config)
    tensors = {name: tensor.float() for name, tensor in load_file(folder / "model.safetensors").items()}
    try:
        missing, unexpected = network.load_state_dict(tensors, strict=False)
    except RuntimeError as error:
        raise ModelError(str(error), code="checkpoint-mismatch", where=folder) from None
    if wrong := [*unexpected, *(name for name in missing if not name.endswith("num_batches_tracked"))]:
        raise ModelError(
            f"Tensors do not match the text detector: {wrong[:3]}", code="checkpoint-mismatch", where=folder
        )
    return network


def create_detector(config: PPOCRV6SmallDetConfig | None = None) -> Detector:
    """Create a detector with random weights; `config` sets other sizes than those of PP-OCRv6 small."""
    return PPOCRV6SmallDetForObjectDetection(config or _small_config()).eval()


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
        raise ModelError("ONNX file is not the PP-OCRv6 small text detector", code="onnx-unknown", where=file)
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
