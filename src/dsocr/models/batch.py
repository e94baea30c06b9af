"""Batches of encoded samples, for training and transcription.

Shapes: `B` batch, `T` tokens, `S` side of the canvas, `s` side of a tile, `N` tiles of the whole batch.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn.functional import pad

from dsocr.errors import ModelError
from dsocr.models.family import IGNORED


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
    dtype: torch.dtype | None = torch.float32,
    join_features: bool = False,
) -> dict[str, Any]:
    """Return `input_ids`, `attention_mask` (B, T), the samples' marks and images and, for training, `labels` (B, T).

    Pixels become `dtype`, or stay as they are with None. If the samples have features, `mm_encoder_outputs` replaces
    all pixels, of `join_features` as one tensor.

    Labels are `IGNORED` except for the transcription and its end token. Training pads right, generation left. Raises
    ModelError for samples with and without transcription, or with and without features, in one batch.
    """
    if len({bool(sample.answer_ids) for sample in samples}) != 1:
        raise ModelError("Samples with and without transcription cannot share a batch", code="batch-mixed")
    features = list_features(samples)
    rows = [(*sample.prompt_ids, *sample.answer_ids) for sample in samples]
    batch: dict[str, Any] = {
        "input_ids": pad_rows(rows, pad_id, padding),
        "attention_mask": pad_rows([(1,) * len(row) for row in rows], 0, padding),
    }
    for name in samples[0].marks:
        marks = [(*sample.marks[name], *(0,) * len(sample.answer_ids)) for sample in samples]
        batch[name] = pad_rows(marks, 0, padding)
    batch |= samples[0].stack_images(samples)
    if samples[0].answer_ids:
        labels = [(*(IGNORED,) * len(sample.prompt_ids), *sample.answer_ids) for sample in samples]
        batch["labels"] = pad_rows(labels, IGNORED, padding)
    if features:
        batch["mm_encoder_outputs"] = {"image": _join_features(features, join=join_features)}
    return batch if dtype is None else normalize_pixels(batch, dtype)


def list_features(samples: Sequence[Any]) -> list[Tensor]:
    """Return the features of samples, none if no sample has any. Raises ModelError if only some have."""
    features = [sample.features for sample in samples if sample.features is not None]
    if len(features) not in (0, len(samples)):
        raise ModelError("Samples with and without features cannot share a batch", code="batch-mixed")
    return features


def _join_features(features: Sequence[Tensor], *, join: bool) -> ImageFeatures:
    """Return features (n, D), or (n, 1 + layers, D) with those of later layers, as the native forward takes them."""
    if features[0].dim() == 2:
        return ImageFeatures(list(features))
    pooled = [image[:, 0] for image in features]
    deeper = [[image[:, layer] for image in features] for layer in range(1, features[0].shape[1])]
    if join:
        same = len({len(image) for image in pooled}) == 1
        return ImageFeatures(torch.stack(pooled) if same else torch.cat(pooled))
    return ImageFeatures(pooled, deeper or None)


def pad_rows(rows: Sequence[Sequence[int]], value: int, padding: Literal["left", "right"] = "right") -> Tensor:
    """Return rows of numbers as one tensor (B, T), the shorter ones filled with a value."""
    tensors = [torch.tensor(row, dtype=torch.int64) for row in rows]
    return torch.nn.utils.rnn.pad_sequence(tensors, batch_first=True, padding_value=value, padding_side=padding)


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


def normalize_pixels(batch: Mapping[str, Any], dtype: torch.dtype | None = None) -> dict[str, Any]:
    """Convert a batch's pixels, by default to float32: bytes on their device, so that four times fewer are moved."""
    converted, dtype = dict(batch), dtype or torch.float32
    for name, value in batch.items():
        if isinstance(value, Tensor) and (value.dtype is torch.uint8 or value.is_floating_point()):
            converted[name] = (normalize(value) if value.dtype is torch.uint8 else value).to(dtype)
    return converted


def normalize(pixels: Tensor) -> Tensor:
    """Map bytes 0..255 to float32 -1..1, with the authors' mean and standard deviation of 0.5, for any shape."""
    return pixels.to(torch.float32).div_(255).sub_(0.5).div_(0.5)
