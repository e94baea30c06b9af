"""Batches of encoded samples, for training and transcription.

Shapes: `B` batch, `T` tokens, `S` side of the canvas, `s` side of a tile, `N` tiles of the whole batch.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor
from torch.nn.functional import pad

from dsocr.errors import ModelError
from dsocr.models.chat_inputs import ChatEncoded
from dsocr.models.family import IGNORED, UNWRITABLE

PIXELS = ("pixel_values", "pixel_values_local")
"""The entries of a batch that are pixels."""


@dataclass(slots=True)
class ImageFeatures:
    """The features of each image of a batch, which the native forward takes instead of pixels.

    Not frozen, because beam search in transformers repeats them in place.
    """

    pooler_output: list[Tensor] | Tensor
    deepstack_features: list[list[Tensor]] | None = None
    """What Qwen3-VL adds in its first layers: for each layer, the features of each image."""

    def to(self, device: torch.device | str, non_blocking: bool = False) -> "ImageFeatures":
        """Move the features to a device."""
        return self._map(lambda image: image.to(device, non_blocking=non_blocking))

    def pin_memory(self) -> "ImageFeatures":
        """Copy the features to pinned memory."""
        return self._map(Tensor.pin_memory)

    def _map(self, change: Callable[[Tensor], Tensor]) -> "ImageFeatures":
        pooled = self.pooler_output
        return ImageFeatures(
            change(pooled) if isinstance(pooled, Tensor) else [change(image) for image in pooled],
            self.deepstack_features and [[change(image) for image in layer] for layer in self.deepstack_features],
        )


def collate(
    samples: Sequence[Any],
    pad_id: int,
    *,
    padding: Literal["left", "right"],
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> dict[str, Any]:
    """Return `input_ids`, `attention_mask` (B, T), `pixel_values` (B, 3, S, S) and, for training, `labels` (B, T).

    With tiles also `pixel_values_local` (N, 3, s, s), `num_local_patches` with a number per sample and, for networks
    that stitch tiles, `patches_grid` with their columns and rows. If the samples have features, `mm_encoder_outputs`
    replaces all pixels. With `dtype` torch.uint8 pixels stay bytes; see `normalize_pixels`.

    Labels are `IGNORED` except for the transcription and its end token. Training pads right, generation left. Raises
    ModelError for an empty batch and for samples with and without transcription in one.
    """
    if len({bool(sample.answer_ids) for sample in samples}) != 1:
        raise ModelError("Samples with and without transcription cannot share a batch", code="batch-mixed")
    rows = [(*sample.prompt_ids, *sample.answer_ids) for sample in samples]
    longest = max(map(len, rows))
    batch: dict[str, Any] = {
        "input_ids": _padded(rows, pad_id, longest, padding).to(device),
        "attention_mask": _padded([(1,) * len(row) for row in rows], 0, longest, padding).to(device),
        **_images(samples, device, dtype),
    }
    if samples[0].answer_ids:
        labels = [(*(IGNORED,) * len(sample.prompt_ids), *sample.answer_ids) for sample in samples]
        batch["labels"] = _padded(labels, IGNORED, longest, padding).to(device)
    return batch


def collate_chat(
    samples: Sequence[ChatEncoded],
    pad_id: int,
    *,
    padding: Literal["left", "right"],
    device: torch.device | str = "cpu",
    dtype: torch.dtype | None = None,
    stack_features: bool = False,
) -> dict[str, Any]:
    """Batch samples of a chat model as `collate` does; image tensors are in one row after the other.

    Images of different sizes are padded with zeros at the bottom and right, as their processors do. Floating point
    tensors become `dtype` if it is given. Features replace pixels as in `collate`; with `stack_features` they are one
    tensor. Raises ModelError for samples with and without transcription, or with and without features, in one batch.
    """
    if len({bool(sample.answer_ids) for sample in samples}) != 1:
        raise ModelError("Samples with and without transcription cannot share a batch", code="batch-mixed")
    if len({sample.features is None for sample in samples}) != 1:
        raise ModelError("Samples with and without features cannot share a batch", code="batch-mixed")
    rows = [(*sample.prompt_ids, *sample.answer_ids) for sample in samples]
    longest = max(map(len, rows))
    batch: dict[str, Any] = {
        "input_ids": _padded(rows, pad_id, longest, padding),
        "attention_mask": _padded([(1,) * len(row) for row in rows], 0, longest, padding),
    }
    for name in samples[0].marks:
        marks = [(*sample.marks[name], *(0,) * len(sample.answer_ids)) for sample in samples]
        batch[name] = _padded(marks, 0, longest, padding)
    for name in samples[0].images:
        batch[name] = _concatenate([sample.images[name] for sample in samples])
    if samples[0].answer_ids:
        labels = [(*(IGNORED,) * len(sample.prompt_ids), *sample.answer_ids) for sample in samples]
        batch["labels"] = _padded(labels, IGNORED, longest, padding)
    batch = {name: _moved(tensor, device, dtype) for name, tensor in batch.items()}
    if features := [sample.features for sample in samples if sample.features is not None]:
        pooled = [image[:, 0] for image in features]
        deeper = [[image[:, layer] for image in features] for layer in range(1, features[0].shape[1])]
        made = ImageFeatures(torch.stack(pooled) if stack_features else pooled, deeper or None)
        batch["mm_encoder_outputs"] = {"image": made.to(device)}
    return batch


def _concatenate(tensors: Sequence[Tensor]) -> Tensor:
    """Concatenate tensors along the first dimension, padded with zeros in all others."""
    largest = [max(sizes) for sizes in zip(*(tensor.shape[1:] for tensor in tensors), strict=True)]
    padded = []
    for tensor in tensors:
        missing = [want - have for want, have in zip(largest, tensor.shape[1:], strict=True)]
        padded.append(
            pad(tensor, [size for more in reversed(missing) for size in (0, more)]) if any(missing) else tensor
        )
    return torch.cat(padded)


def _moved(tensor: Tensor, device: torch.device | str, dtype: torch.dtype | None) -> Tensor:
    return tensor.to(device, dtype if tensor.is_floating_point() else None)


def drop_ignored_positions(batch: dict[str, Any]) -> dict[str, Any]:
    """Restrict `labels` to the positions with a loss, (B, L) with L the largest number of them in a sample.

    The network computes logits for `logits_to_keep` only, which saves most of the memory of a large vocabulary; the
    loss is the same. Call it while `labels` are on the CPU, so that no device has to be waited for.
    """
    following = pad(batch["labels"], (0, 1), value=IGNORED)[:, 1:]
    most = max(1, int((following != IGNORED).sum(1).max()))  # the network needs at least one position
    positions = (following == IGNORED).to(torch.uint8).argsort(dim=1, stable=True)[:, :most]
    labels = following.gather(1, positions)
    return {**batch, "labels": labels, "shift_labels": labels, "logits_to_keep": positions}


def aligned_labels(batch: dict[str, Any]) -> Tensor:
    """Return the labels (B, T) aligned with `input_ids`, also after `drop_ignored_positions`."""
    labels: Tensor = batch["labels"]
    if "logits_to_keep" not in batch:
        return labels
    rows, length = batch["input_ids"].shape
    aligned = labels.new_full((rows, length + 1), IGNORED)
    return aligned.scatter(1, batch["logits_to_keep"] + 1, labels)[:, :length]


@torch.no_grad()
def mean_losses(model: Any, batch: Mapping[str, Any]) -> list[float]:
    """Return the mean loss of a trained token for each sample of a batch that `drop_ignored_positions` returned."""
    inputs = dict(batch)
    labels, _ = inputs.pop("labels"), inputs.pop("shift_labels")
    losses = []
    for row, wanted in zip(model(**inputs).logits, labels, strict=True):
        kept = wanted != IGNORED  # sample by sample: logits in float32 take much memory
        losses.append(float(torch.nn.functional.cross_entropy(row[kept].float(), wanted[kept])))
    return losses


def normalize_pixels(batch: dict[str, Any], dtype: torch.dtype = torch.float32) -> dict[str, Any]:
    """Convert a batch's pixels from bytes to numbers on their device, so that four times fewer bytes are moved."""
    pixels = {name: batch[name] for name in PIXELS if name in batch and batch[name].dtype is torch.uint8}
    return {**batch, **{name: normalize(values).to(dtype) for name, values in pixels.items()}}


def normalize(pixels: Tensor) -> Tensor:
    """Map bytes 0..255 to float32 -1..1, with the authors' mean and standard deviation of 0.5, for any shape."""
    return pixels.to(torch.float32).div_(255).sub_(0.5).div_(0.5)


def _images(samples: Sequence[Any], device: torch.device | str, dtype: torch.dtype) -> dict[str, Any]:
    """Return the images' entries of a batch: features, or pixels of the whole images and their tiles."""
    features = [sample.features for sample in samples if sample.features is not None]
    if features:
        if len(features) != len(samples):
            raise ModelError("Samples with and without features cannot share a batch", code="batch-mixed")
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


def force_texts(
    network: Any, processor: Any, images: Sequence[Image.Image], texts: Sequence[Sequence[str]]
) -> list[list[float]]:
    """Return the log probability of each text of each image, given to the network token by token.

    Characters that the processor does not know are left out and count as `UNWRITABLE`.
    """
    network.eval()
    found = []
    for image, candidates in zip(images, texts, strict=True):
        known = [_leave_out(text, processor.unknown_characters(text)) for text in candidates]
        batch = processor.training_batch([processor.encode(image, text) for text in known])
        counts = (batch["labels"] != IGNORED).sum(1).tolist()
        moved = {
            name: value.to(network.device) if isinstance(value, Tensor) else value for name, value in batch.items()
        }
        with torch.no_grad():
            losses = processor.family.sample_losses(network, processor.family.prepare_batch(moved, network.dtype))
        missing = [len(text) - len(own) for text, own in zip(candidates, known, strict=True)]
        found.append([gone * UNWRITABLE - loss * n for gone, loss, n in zip(missing, losses, counts, strict=True)])
    return found


def _leave_out(text: str, unknown: str) -> str:
    return "".join(character for character in text if character not in unknown)
