"""Lines as a CTC network takes them: their pixels, the classes of their letters, and the characters of its head."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from dsocr.errors import ModelError
from dsocr.io.encodings import reading_json
from dsocr.models.canvas import cut_to_writing

if TYPE_CHECKING:
    from torch import Tensor

HEIGHT = 48
"""Height of a line image in pixels."""

PIXELS_PER_STEP = 8
"""Width in pixels of one step of the output."""

WIDTH_MULTIPLE = 32
"""Images are padded to a multiple of this width: more lines are then equally wide and can be read together."""


def prepare_line(image: Image.Image, stretch: float = 1.0) -> NDArray[Any]:
    """Scale a line's writing to height 48, and its width by `stretch` in addition; return uint8 BGR `(48, W, 3)`."""
    image = cut_to_writing(image)
    width = max(PIXELS_PER_STEP, round(image.width * HEIGHT / image.height * stretch))
    resized = image.convert("RGB").resize((width, HEIGHT), Image.Resampling.BILINEAR)
    return np.ascontiguousarray(np.asarray(resized)[:, :, ::-1])


def count_steps(text: Sequence[str] | Sequence[int]) -> int:
    """Return the fewest steps for a text, or its classes: CTC needs a blank between repeated characters."""
    return len(text) + sum(first == second for first, second in pairwise(text))


@dataclass(frozen=True, slots=True, eq=False)
class LineInput:
    """One line as input: `image` (48, W, 3) bytes in BGR order, and the class of each character of its text.

    An image with too few steps for its text is drawn wider; `as_read` is then what transcription sees.
    """

    image: NDArray[np.uint8]
    classes: tuple[int, ...] = ()
    as_read: NDArray[np.uint8] | None = None

    @property
    def nbytes(self) -> int:
        """The bytes of its pixels."""
        return self.image.nbytes + (0 if self.as_read is None else self.as_read.nbytes)

    def without_text(self) -> Self:
        """Return it as for transcription."""
        return replace(self, image=self.image if self.as_read is None else self.as_read, classes=(), as_read=None)

    def with_image_of(self, other: Self) -> Self:
        """Return it with the image of another line, drawn wider if the text would not fit."""
        needed = count_steps(self.classes) * PIXELS_PER_STEP
        image = other.image
        if needed > image.shape[1]:
            image = np.asarray(Image.fromarray(image).resize((needed, HEIGHT), Image.Resampling.BILINEAR))
        return replace(self, image=image, as_read=None)

    def has_input_of(self, other: Self) -> bool:
        """Whether another line has the same pixels."""
        return np.array_equal(self.image, other.image)

    def pixels(self) -> NDArray[np.uint8]:
        """Return the line as the network sees it, (48, W, 3) in RGB order."""
        return self.image[:, :, ::-1]


def collate_lines(lines: Sequence[NDArray[Any]], multiple: int = WIDTH_MULTIPLE) -> "tuple[Tensor, Tensor]":
    """Stack prepared lines, padded right with zeros to a multiple of pixels.

    Returns float32 `(B, 3, 48, W)` in -1..1 and the number of steps of each line, int64 `(B,)`.
    """
    import torch

    width = -(-max(line.shape[1] for line in lines) // multiple) * multiple
    batch = np.zeros((len(lines), 3, HEIGHT, width), dtype=np.float32)
    for row, line in zip(batch, lines, strict=True):
        row[:, :, : line.shape[1]] = line.transpose(2, 0, 1) / np.float32(127.5) - 1
    steps = [-(-line.shape[1] // PIXELS_PER_STEP) for line in lines]
    return torch.from_numpy(batch), torch.tensor(steps)


def read_characters(folder: Path) -> tuple[str, ...]:
    """Return the characters of the head: of `vocab.json`, or as published, behind the blank.

    Raises ModelError if they are in neither file.
    """
    path, published = folder / "vocab.json", folder / "preprocessor_config.json"
    path = published if published.is_file() and not path.is_file() else path
    message, hint = "Cannot read the characters of the head", "download it again"
    if not path.is_file():
        raise ModelError(f"{message}: no such file", code="base-incomplete", where=path, hint=hint)
    with reading_json(path, ModelError, "base-incomplete", message=message, hint=hint) as content:
        return tuple(content["character_list"][1:] if path == published else content)
