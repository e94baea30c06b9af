"""Line images as the same hand might have written them another time: what a number as augmentation asks for."""

import math

import numpy as np
from PIL import Image, ImageFilter

from dsocr.data.augment.mesh import framed, strip_mesh
from dsocr.data.colours import Colour, median_colour

STRIP = 24
"""Width in pixels of the strips that move on their own, for an image 60 pixels high."""


def vary(image: Image.Image, rng: np.random.Generator, strength: float = 1.0) -> Image.Image:
    """The image slanted, stretched, wavering, in a thicker or thinner pen, in other light; text and order stay.

    `strength` 1 is what one writer's lines differ by, 0 changes nothing.
    """
    if strength == 0:
        return image
    image = _wavering(image, rng, strength)
    image = _another_pen(image, rng, strength)
    return _other_light(image, rng, strength)


def _wavering(image: Image.Image, rng: np.random.Generator, strength: float) -> Image.Image:
    """Slant, rise, waves and local stretching, as one mesh of narrow strips."""
    width, height = image.size
    wide = max(1, round(width * (1 + strength * rng.uniform(-0.14, 0.14))))
    tall = max(1, round(height * (1 + strength * rng.uniform(-0.1, 0.1))))
    step = max(4, STRIP * height // 60)
    edges = np.append(np.arange(0, wide, step), wide).astype(float)
    turn = 2 * math.pi * edges / (height * rng.uniform(3, 9))
    phase = rng.uniform(0, 2 * math.pi, 3)
    rise = (
        height
        * strength
        * (rng.normal(0, 0.02) * (2 * edges / wide - 1) + rng.normal(0, 0.025) * np.sin(turn + phase[0]))
    )
    sway = height * strength * rng.normal(0, 0.05) * np.sin(2.7 * turn + phase[1])
    lean = height / 2 * strength * (rng.normal(0, 0.13) + rng.normal(0, 0.05) * np.sin(1.9 * turn + phase[2]))
    along = edges * width / wide
    top, bottom = along + sway + lean, along + sway - lean
    # The mesh reads beyond the rim, where Pillow finds black; a frame of the image's own paper is found there instead.
    frame = height
    mesh = strip_mesh(edges, tall, top + frame, bottom + frame, rise + frame, height)
    source = framed(image, frame, _paper(image))
    return source.transform((wide, tall), Image.Transform.MESH, mesh, Image.Resampling.BILINEAR)


def _another_pen(image: Image.Image, rng: np.random.Generator, strength: float) -> Image.Image:
    """Strokes a little thicker, thinner or softer."""
    radius = strength * max(image.height, 20) / 60 * rng.uniform(0, 0.9)
    kind = rng.random()
    if kind < 0.4:
        return image.filter(ImageFilter.GaussianBlur(radius))
    if kind < 0.7:
        soft = image.filter(ImageFilter.GaussianBlur(radius))
        extreme = ImageFilter.MinFilter(3) if rng.random() < 0.6 else ImageFilter.MaxFilter(3)
        return Image.blend(soft, image.filter(extreme), 0.5 * strength * rng.random())
    return image


def _other_light(image: Image.Image, rng: np.random.Generator, strength: float) -> Image.Image:
    """Contrast and brightness changed around the paper's shade."""
    gain, shift = 1 + strength * rng.uniform(-0.25, 0.25), strength * rng.uniform(-20, 20)
    paper = _paper(image)
    levels = np.arange(256, dtype=np.float32)
    table: list[int] = []
    for shade in (paper,) if isinstance(paper, int) else paper:
        # A level becomes the same whatever pixel it stands in, so 256 of them are computed and not all pixels.
        table += np.clip((levels - np.float32(shade)) * gain + shade + shift, 0, 255).astype(np.uint8).tolist()
    return image.point(table)


def _paper(image: Image.Image) -> Colour:
    return median_colour(image, step=2)
