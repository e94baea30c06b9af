"""PP-OCRv6's text detector: where on a page there is text.

The network is `PPOCRV6SmallDetForObjectDetection` of transformers (PP-LCNetV4 with a feature pyramid; 2.5 million
weights). For every pixel it gives the probability of being in the middle of a line of text, between its ascenders and
descenders (differentiable binarization, Liao et al. 2020), so that neighbouring lines do not touch.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from dsocr.errors import require_package
from dsocr.io.files import until_changed
from dsocr.models.base_folder import SINGLE
from dsocr.models.graph import count_threads
from dsocr.models.loading import open_graph
from dsocr.runs import SHIPPED_DETECTOR

Detect: TypeAlias = Callable[[NDArray[np.float32]], NDArray[np.float32]]
"""From a page `(3, H, W)`, see `normalize_pixels`, to the probability of text `(1, H, W)`."""

SIDE = 960
"""Pixels of the longer side of a page, whose shape is nearly kept."""
_MULTIPLE = 32
"""Pixels; the feature pyramid halves a side five times."""


def detect_text(page: Image.Image, detect: Detect | None = None, side: int = SIDE) -> NDArray[np.float32]:
    """Return the probability of text on a page, `(H, W)` of at most `side`; by default with the shipped detector."""
    detect = detect or keep_detector(SHIPPED_DETECTOR)
    probability: NDArray[np.float32] = detect(normalize_pixels(shrink_page(page, side)))[0]
    return probability


def shrink_page(page: Image.Image, side: int = SIDE) -> NDArray[np.uint8]:
    """Return a page as large as the network sees it, `(3, H, W)`: blue, green, red, on which it was trained."""
    scale = side / max(page.size)
    width, height = (max(round(length * scale / _MULTIPLE), 1) * _MULTIPLE for length in page.size)
    small = page.resize((width, height), Image.Resampling.BILINEAR, reducing_gap=2).convert("RGB")
    return np.ascontiguousarray(np.asarray(small)[:, :, ::-1].transpose(2, 0, 1))


def normalize_pixels(pixels: Any) -> Any:
    """Return bytes, in an array or a tensor, as the network takes them: float32."""
    return pixels / np.float32(127.5) - 1


def open_detector(folder: Path) -> Detect:
    """Open the detector in a folder: its graph, or its weights in torch. Raises ModelError if they are damaged."""
    if (graph := open_graph(folder, threads=count_threads())) is not None:
        return graph
    require_package("a text detector without a graph")
    from dsocr.layout.detector_network import detect_with, load_detector

    return detect_with(load_detector(folder))


keep_detector = until_changed(open_detector, SINGLE)
"""The same once a process, or again if another training has written into the folder."""
