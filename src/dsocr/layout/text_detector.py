"""PP-OCRv6's text detector: where on a page there is text.

The network is `PPOCRV6SmallDetForObjectDetection` of transformers (PP-LCNetV4 with a feature pyramid; 2.5 million
weights). For every pixel it gives the probability of being in the middle of a line of text, between its ascenders and
descenders (differentiable binarization, Liao et al. 2020), so that neighbouring lines do not touch.
"""

import json
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from safetensors.torch import load_file, save
from transformers import PPOCRV6SmallDetForObjectDetection
from transformers.models.pp_ocrv6_small_det.configuration_pp_ocrv6_small_det import PPOCRV6SmallDetConfig

from dsocr.errors import ModelError
from dsocr.io.files import until_changed
from dsocr.models.base_folder import SINGLE, explain_damage
from dsocr.models.loading import limit_kernel_cache
from dsocr.runs import DETECTOR, SHIPPED_DETECTOR

Detector: TypeAlias = Any
"""`PPOCRV6SmallDetForObjectDetection`, whose parts have no useful static types."""

SIDE = 960
"""Pixels of the longer side of a page, whose shape is nearly kept."""
_MULTIPLE = 32
"""Pixels; the feature pyramid halves a side five times."""


def detect_text(page: Image.Image, detector: Detector | None = None, side: int = SIDE) -> NDArray[np.float32]:
    """Return the probability of text on a page, `(H, W)` of at most `side`; `detector` defaults to the shipped one."""
    with torch.inference_mode():
        images = normalize_pixels(shrink_page(page, side)[None])
        probabilities = (detector or keep_detector(SHIPPED_DETECTOR))(images).last_hidden_state[0, 0]
    probability: NDArray[np.float32] = probabilities.numpy()
    return probability


def shrink_page(page: Image.Image, side: int = SIDE) -> torch.Tensor:
    """Return a page as large as the network sees it, bytes `(3, H, W)`: blue, green, red, on which it was trained."""
    scale = side / max(page.size)
    width, height = (max(round(length * scale / _MULTIPLE), 1) * _MULTIPLE for length in page.size)
    small = page.resize((width, height), Image.Resampling.BILINEAR, reducing_gap=2).convert("RGB")
    return torch.from_numpy(np.asarray(small)[:, :, ::-1].transpose(2, 0, 1).copy())


def normalize_pixels(pixels: torch.Tensor) -> torch.Tensor:
    """Return bytes as the network takes them."""
    return pixels.float() / 127.5 - 1


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


keep_detector = until_changed(load_detector, SINGLE)
"""The same once a process, or again if another training has written into the folder; it must not be changed."""


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
