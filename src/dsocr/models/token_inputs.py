"""Inputs of networks that write a text token by token: samples and processors.

A sample is a prompt, which holds a slot for each position of the image, and an answer: the text and its end token.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from dsocr.models.canvas import NO_VIEWS, UNTILED, Grid, Resolution, Views, show
from dsocr.models.family import Batch, Processor

if TYPE_CHECKING:
    import torch
    from torch import Tensor
    from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True, slots=True)
class Features:
    """The features of one image: `tokens` (n, D), one for each position it takes, and the grid of its tiles."""

    tokens: "Tensor"
    grid: Grid = UNTILED


@dataclass(frozen=True, slots=True, eq=False)
class TokenEncoded:
    """One sample as model inputs.

    `prompt_ids` holds one id for each image slot; `answer_ids` ends with the end token and is empty for transcription.
    """

    prompt_ids: tuple[int, ...]
    answer_ids: tuple[int, ...]

    def without_text(self) -> Self:
        """Return it as for transcription."""
        return replace(self, answer_ids=())

    def with_image_of(self, other: Self) -> Self:
        """Return it with the image of another sample, which decides the number of image slots."""
        return replace(other, answer_ids=self.answer_ids)


@dataclass(frozen=True, slots=True, eq=False)
class CanvasEncoded(TokenEncoded):
    """One sample whose image is drawn on a canvas.

    `stitches_tiles` says whether the network takes the grid of the tiles. `features` (n, D) are the features of the
    image if they have been computed already; `views` is then ignored.
    """

    views: Views
    stitches_tiles: bool = True
    features: "Tensor | None" = None

    @property
    def nbytes(self) -> int:
        """The bytes of its pixels."""
        return self.views.nbytes

    @property
    def marks(self) -> Mapping[str, tuple[int, ...]]:
        """There are no inputs with a number for each prompt token."""
        return {}

    def has_input_of(self, other: Self) -> bool:
        """Whether another sample has the same prompt, image slots and pixels."""
        return self.prompt_ids == other.prompt_ids and self.views == other.views

    @staticmethod
    def stack_images(samples: "Sequence[CanvasEncoded]") -> Batch:
        """Return `pixel_values` (B, 3, H, W) as bytes; nothing of samples with features.

        With tiles also `pixel_values_local` (N, 3, s, s), `num_local_patches` with a number per sample and, for
        networks that stitch tiles, `patches_grid` with their columns and rows.
        """
        import torch

        if samples[0].features is not None:
            return {}
        images: Batch = {"pixel_values": torch.from_numpy(np.stack([sample.views.whole for sample in samples]))}
        tiles = [sample.views.tiles for sample in samples if sample.views.tiles is not None]
        if tiles:
            images["pixel_values_local"] = torch.from_numpy(np.concatenate(tiles))
            counts = [0 if sample.views.tiles is None else len(sample.views.tiles) for sample in samples]
            images["num_local_patches"] = counts
            if samples[0].stitches_tiles:
                images["patches_grid"] = [list(sample.views.grid) for sample in samples]
        return images

    def pixels(self) -> NDArray[np.uint8]:
        """Return the whole view and, below it, the tiles in their grid with a gap between them, (H, W, 3)."""
        return self.views.picture()


@dataclass(frozen=True, slots=True)
class TokenProcessor(Processor):
    """Turns images and texts into the inputs of a network that writes tokens, the first of `end_ids` at the end."""

    family: Any
    """The `TokenFamily`."""
    tokenizer: "PreTrainedTokenizerBase"
    end_ids: tuple[int, ...] = field(kw_only=True)
    pad_id: int = field(kw_only=True)

    @property
    def end_id(self) -> int:
        """The id that is learnt at the end of a text."""
        return self.end_ids[0]

    @property
    def answer_start(self) -> str:
        """The network's text before every answer, which readers are not shown; usually empty."""
        return ""

    @property
    def image_slots(self) -> int:
        """The number of positions that an image takes, where it is the same for all images."""
        return 1

    @property
    def joins_features(self) -> bool:
        """Whether the network takes the features of a batch as one tensor."""
        return False

    def at_another_resolution(self, image: Image.Image) -> Self | None:
        """Return the processor at a resolution that shows an image well, None if there is no other."""
        return None

    def text_ids(self, text: str) -> tuple[int, ...]:
        """Tokenize a text; special tokens are neither added nor recognised in it."""
        return tuple(self.tokenizer(text, add_special_tokens=False, split_special_tokens=True)["input_ids"])

    def answer_ids(self, text: str | None) -> tuple[int, ...]:
        """Return the ids that the network learns to generate: the text and the end token; none without a text."""
        return () if text is None else (*self.text_ids(text), self.end_id)

    def text_of(self, ids: Sequence[int]) -> str:
        """Decode ids, special tokens included."""
        # `skip_special_tokens` would for some models also drop table tags.
        return str(self.tokenizer.decode(list(ids), skip_special_tokens=False))

    def unknown_characters(self, text: str) -> str:
        """Return the characters of the text that the tokenizer cannot encode, each once, in their order."""
        unknown = self.tokenizer.unk_token_id
        if unknown is None:  # a byte-level tokenizer encodes everything
            return ""
        return "".join(c for c in dict.fromkeys(text) if unknown in self.text_ids(c))

    def collate(self, samples: Sequence[Any], padding: Literal["left", "right"] = "right") -> Batch:
        """Batch encoded samples on the CPU, labels where there are some only; see `batch.collate`."""
        from dsocr.models.batch import collate, drop_ignored_positions

        batch = collate(samples, self.pad_id, padding=padding, dtype=None, join_features=self.joins_features)
        return drop_ignored_positions(batch) if "labels" in batch else batch

    def image_inputs(self, samples: Sequence[Any], network: Any, dtype: "torch.dtype") -> Batch:
        """Return the network's inputs for the images of samples, on its device."""
        return self.on_device(samples[0].stack_images(samples), network, dtype)

    # The features of frozen vision towers, of a family that caches them

    def feature_width(self, network: Any) -> int:
        """Return the numbers in the features of one position, by default the width of the decoder."""
        return int(network.config.get_text_config().hidden_size)

    def encoder_features(self, network: Any, samples: Sequence[Any], dtype: "torch.dtype") -> list[Features]:
        """Return the features of each sample from pixels of this number format; the network is in evaluation mode."""
        raise NotImplementedError

    def encode_features(self, features: Features, text: str) -> Any:
        """Encode a sample whose features have been computed."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class CanvasProcessor(TokenProcessor):
    """Turns images and texts into inputs of a network that sees a canvas of fixed size."""

    resolution: Resolution

    @property
    def resolution_name(self) -> str:
        """The name of the resolution."""
        return self.resolution.name

    def prompt_ids(self, grid: Grid = UNTILED) -> tuple[int, ...]:
        """Return the ids before an answer; `grid` decides the number of image slots."""
        return ()

    def encode(self, image: Image.Image, text: str | None = None) -> CanvasEncoded:
        """Encode one image, with its transcription for training or without for transcription."""
        views = show(image, self.resolution)
        return CanvasEncoded(self.prompt_ids(views.grid), self.answer_ids(text), views, self.resolution.row_ends)

    def encode_features(self, features: Features, text: str) -> CanvasEncoded:
        """Encode a sample whose image features have been computed."""
        prompt, answer = self.prompt_ids(features.grid), self.answer_ids(text)
        return CanvasEncoded(prompt, answer, NO_VIEWS, self.resolution.row_ends, features.tokens)

    def distortion(self, width: int, height: int) -> float:
        """Return the vertical stretch of letters in an image of this size."""
        return self.resolution.distortion(width, height)

    def shrink(self, image: Image.Image) -> Image.Image:
        """Reduce an image that is far larger than it will be shown."""
        return self.resolution.shrink(image)
