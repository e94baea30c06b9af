"""Encoded samples as a batch of tensors, for training and for transcription alike.

Shapes: `B` batch, `T` tokens, `S` side of the canvas, `s` side of a tile, `N` tiles of the whole batch.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import pad

from dsocr.errors import ModelError
from dsocr.models.deepseek_ocr import Encoded

IGNORED = -100
"""The label of a position that is not learnt."""

PIXELS = ("pixel_values", "pixel_values_local")
"""The parts of a batch that are pixels."""


@dataclass(slots=True)
class ImageFeatures:
    """What the vision towers said of each image of a batch, as the native forward takes it in place of pixels.

    Not frozen: transformers repeats them in place where a search follows several texts of an image.
    """

    pooler_output: list[Tensor]

    def to(self, device: torch.device | str, non_blocking: bool = False) -> "ImageFeatures":
        """The same on a device; the Trainer moves batches so."""
        return ImageFeatures([image.to(device, non_blocking=non_blocking) for image in self.pooler_output])

    def pin_memory(self) -> "ImageFeatures":
        """The same in memory that a device can read while it computes."""
        return ImageFeatures([image.pin_memory() for image in self.pooler_output])


def collate(
    samples: Sequence[Encoded],
    pad_id: int,
    *,
    padding: Literal["left", "right"],
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> dict[str, Any]:
    """A batch: `input_ids`, `attention_mask` (B, T) and `pixel_values` (B, 3, S, S), and for training `labels` (B, T).

    Where an image has tiles, also `pixel_values_local` (N, 3, s, s), `num_local_patches` with a number for each sample
    and, for models that stitch tiles, `patches_grid` with their columns and rows. Where the samples have features,
    `mm_encoder_outputs` takes the place of all pixels. With torch.uint8 as `dtype` pixels stay bytes: see `normalized`.

    Only the transcription and its end token are learnt; prompt, image slots and padding are `IGNORED`. Training pads
    right, generation left. Samples with and without transcription do not mix.
    """
    if len({bool(sample.answer_ids) for sample in samples}) != 1:
        raise ModelError("a batch needs samples, and all of them with a transcription or none")
    rows = [(*sample.prompt_ids, *sample.answer_ids) for sample in samples]
    longest = max(map(len, rows))
    batch: dict[str, Any] = {
        "input_ids": _padded(rows, pad_id, longest, padding).to(device),
        "attention_mask": _padded([(1,) * len(row) for row in rows], 0, longest, padding).to(device),
        **_images(samples, device, dtype),
    }
    if samples[0].answer_ids:
        learnt = [(*(IGNORED,) * len(sample.prompt_ids), *sample.answer_ids) for sample in samples]
        batch["labels"] = _padded(learnt, IGNORED, longest, padding).to(device)
    return batch


def only_learnt(batch: dict[str, Any]) -> dict[str, Any]:
    """The batch with `labels` (B, L) for the positions alone from which something is learnt, at most L in a sample.

    The network gives logits for `logits_to_keep` and no others, which is most of the memory where the vocabulary is
    large. The loss is the same. Done where `labels` still are on the CPU, no device has to be waited for.
    """
    following = pad(batch["labels"], (0, 1), value=IGNORED)[:, 1:]
    most = max(1, int((following != IGNORED).sum(1).max()))  # the network wants a position, if only to ignore it
    positions = (following == IGNORED).to(torch.uint8).argsort(dim=1, stable=True)[:, :most]
    labels = following.gather(1, positions)
    return {**batch, "labels": labels, "shift_labels": labels, "logits_to_keep": positions}


def aligned_labels(batch: dict[str, Any]) -> Tensor:
    """The labels (B, T) of a batch, each beside its own id, whether or not `only_learnt` has taken most of them out."""
    labels: Tensor = batch["labels"]
    if "logits_to_keep" not in batch:
        return labels
    rows, length = batch["input_ids"].shape
    aligned = labels.new_full((rows, length + 1), IGNORED)
    return aligned.scatter(1, batch["logits_to_keep"] + 1, labels)[:, :length]


def normalized(batch: dict[str, Any], dtype: torch.dtype = torch.float32) -> dict[str, Any]:
    """The batch with its pixels as numbers, where they are bytes: computed where they lie, four times less to move."""
    pixels = {name: batch[name] for name in PIXELS if name in batch and batch[name].dtype is torch.uint8}
    return {**batch, **{name: normalize(values).to(dtype) for name, values in pixels.items()}}


def normalize(pixels: Tensor) -> Tensor:
    """Bytes 0..255 as float32 -1..1, of any shape.

    This is the authors' arithmetic: mean and standard deviation 0.5, not those of ImageNet.
    """
    return pixels.to(torch.float32).div_(255).sub_(0.5).div_(0.5)


def _images(samples: Sequence[Encoded], device: torch.device | str, dtype: torch.dtype) -> dict[str, Any]:
    """What the model is told of the images: their features, or pixels of the whole and of the tiles."""
    features = [sample.features for sample in samples if sample.features is not None]
    if features:
        if len(features) != len(samples):
            raise ModelError("a batch needs samples that all have features or none")
        return {"mm_encoder_outputs": {"image": ImageFeatures(features).to(device)}}
    images: dict[str, Any] = {
        "pixel_values": _pixels(np.stack([sample.views.whole for sample in samples]), device, dtype)
    }
    tiles = [sample.views.tiles for sample in samples if sample.views.tiles is not None]
    if tiles:
        images["pixel_values_local"] = _pixels(np.concatenate(tiles), device, dtype)
        counts = [0 if sample.views.tiles is None else len(sample.views.tiles) for sample in samples]
        images["num_local_patches"] = counts
        if samples[0].stitches_tiles:
            images["patches_grid"] = [list(sample.views.grid) for sample in samples]
    return images


def _pixels(stacked: NDArray[np.uint8], device: torch.device | str, dtype: torch.dtype) -> Tensor:
    pixels = torch.from_numpy(stacked).to(device)
    return pixels if dtype is torch.uint8 else normalize(pixels).to(dtype)


def _padded(rows: Sequence[Sequence[int]], value: int, longest: int, side: Literal["left", "right"]) -> Tensor:
    filler = [(value,) * (longest - len(row)) for row in rows]
    return torch.tensor(
        [(*fill, *row) if side == "left" else (*row, *fill) for row, fill in zip(rows, filler, strict=True)]
    )
