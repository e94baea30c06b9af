"""Pixels of an image at a resolution, in Pillow and NumPy: what training and transcription both show the model.

Shapes: `S` side of the canvas. Pixels stay bytes until a batch is on its device; `normalize` is the authors' arithmetic
(mean and standard deviation 0.5, not those of ImageNet).
"""

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageOps
from torch import Tensor

from dsocr.model.folding import PAD_COLOUR, fold
from dsocr.model.resolution import Resolution


def view_pixels(image: Image.Image, resolution: Resolution) -> NDArray[np.uint8]:
    """The image on its canvas, (3, S, S) bytes. Expects the upright RGB or grey image that `open_image` gives."""
    canvas = _canvas(image.convert("RGB"), resolution)
    return np.ascontiguousarray(np.asarray(canvas).transpose(2, 0, 1))


def normalize(pixels: Tensor) -> Tensor:
    """Bytes 0..255 as float32 -1..1, of any shape."""
    return pixels.to(torch.float32).div_(255).sub_(0.5).div_(0.5)


def _canvas(image: Image.Image, resolution: Resolution) -> Image.Image:
    size = (resolution.size, resolution.size)
    if resolution.layout == "fold":
        return fold(image, resolution.size, resolution.tallest_row)
    if resolution.layout == "squash":
        return image.resize(size, Image.Resampling.BICUBIC)
    return ImageOps.pad(image, size, Image.Resampling.BICUBIC, color=(PAD_COLOUR,) * 3)
