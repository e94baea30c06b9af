"""How images and texts become inputs of DeepSeek-OCR and the networks built like it: prompts, tokens, pixels.

Shapes: `S` side of the canvas, `n` image slots, `D` width of the decoder.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from dsocr.errors import ConfigError, ModelError
from dsocr.models.canvas import UNTILED, Grid, Resolution, another_resolution, shrink
from dsocr.models.deepseek_images import NO_VIEWS, Views, show
from dsocr.models.family import IMAGE, InputLength, Processor

if TYPE_CHECKING:
    import torch
    from torch import Tensor
    from transformers import PreTrainedTokenizerBase

    from dsocr.models.feature_cache import Features

_PROMPTS = {
    "free_ocr": f"{IMAGE}\nFree OCR.",
    "ocr": f"{IMAGE}\n<|grounding|>OCR this image.",
    "markdown": f"{IMAGE}\n<|grounding|>Convert the document to markdown.",
    "figure": f"{IMAGE}\nParse the figure.",
    "describe": f"{IMAGE}\nDescribe this image in detail.",
}
"""The prompts of the authors, without the trailing space that their code strips."""


def find_prompt(name: str) -> str:
    """Return the prompt of that name, or the text itself if it contains `<image>`.

    Raises ConfigError for an unknown name, and for a text that does not contain `<image>` exactly once.
    """
    if IMAGE not in name:
        if name not in _PROMPTS:
            raise ConfigError(
                f"Unknown prompt {name!r} in input.prompt",
                code="prompt-unknown",
                hint=f"known prompts are {', '.join(_PROMPTS)}; a custom prompt must contain {IMAGE}",
            )
        return _PROMPTS[name]
    if name.count(IMAGE) != 1:
        raise ConfigError(f"input.prompt must contain {IMAGE} once, not {name.count(IMAGE)} times", code="prompt-image")
    return name.strip()


@dataclass(frozen=True, slots=True)
class DeepseekEncoded:
    """One sample as model inputs.

    `prompt_ids` holds one id for each image slot; `answer_ids` ends with the end token and is empty for transcription.
    `stitches_tiles` says whether the network takes the grid of the tiles. `features` (n, D) are the features of the
    image if they have been computed already; `views` is then ignored.
    """

    prompt_ids: tuple[int, ...]
    answer_ids: tuple[int, ...]
    views: Views
    stitches_tiles: bool = True
    features: "Tensor | None" = None

    @property
    def nbytes(self) -> int:
        """The bytes of its pixels."""
        return self.views.nbytes

    def without_text(self) -> Self:
        """Return it as for transcription."""
        return replace(self, answer_ids=())

    def with_image_of(self, other: Self) -> Self:
        """Return it with the image of another sample, whose tiles decide the number of image slots."""
        return replace(self, views=other.views, prompt_ids=other.prompt_ids, features=other.features)

    def has_input_of(self, other: Self) -> bool:
        """Whether another sample has the same prompt, image slots and pixels."""
        return self.prompt_ids == other.prompt_ids and self.views == other.views

    @property
    def marks(self) -> dict[str, Any]:
        """There are no inputs with a number for each prompt token."""
        return {}

    @staticmethod
    def stack_images(samples: "Sequence[DeepseekEncoded]") -> dict[str, Any]:
        """Return `pixel_values` (B, 3, S, S) as bytes; nothing of samples with features.

        With tiles also `pixel_values_local` (N, 3, s, s), `num_local_patches` with a number per sample and, for
        networks that stitch tiles, `patches_grid` with their columns and rows.
        """
        import torch

        if samples[0].features is not None:
            return {}
        images: dict[str, Any] = {
            "pixel_values": torch.from_numpy(np.stack([sample.views.whole for sample in samples]))
        }
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
class DeepseekProcessor(Processor):
    """Turn images and texts into model inputs, for one base, resolution and prompt.

    `others` are the base's other resolutions.
    """

    tokenizer: "PreTrainedTokenizerBase"
    image_token_id: int
    resolution: Resolution
    others: tuple[Resolution, ...] = ()

    @property
    def resolution_name(self) -> str:
        """The name of the resolution."""
        return self.resolution.name

    @property
    def pad_id(self) -> int:
        """The id that fills a batch."""
        return int(self.tokenizer.pad_token_id)

    @property
    def end_id(self) -> int:
        """The id that ends an answer."""
        return int(self.tokenizer.eos_token_id)

    @property
    def end_ids(self) -> tuple[int]:
        """The ids that end an answer."""
        return (self.end_id,)

    @property
    def answer_start(self) -> str:
        """Nothing precedes a text."""
        return ""

    @property
    def image_slots(self) -> int:
        """The number of image slots without tiles."""
        return self.resolution.slots()

    def prompt_ids(self, grid: Grid = UNTILED) -> tuple[int, ...]:
        """Return begin token, image slots and prompt, without end token; `grid` decides the number of slots."""
        before, after = self.prompt.split(IMAGE)
        slots = (self.image_token_id,) * self.resolution.slots(grid)
        return (int(self.tokenizer.bos_token_id), *self.text_ids(before), *slots, *self.text_ids(after))

    def text_ids(self, text: str) -> tuple[int, ...]:
        """Tokenize a text; special tokens are neither added nor recognised in it."""
        if not text:
            return ()
        return tuple(self.tokenizer(text, add_special_tokens=False, split_special_tokens=True)["input_ids"])

    def answer_ids(self, text: str) -> tuple[int, ...]:
        """Return the ids that the network learns to generate: the text and the end token."""
        return (*self.text_ids(text), self.end_id)

    def encode(self, image: Image.Image, text: str | None = None) -> DeepseekEncoded:
        """Encode one image, with its transcription for training or without for transcription."""
        answer = () if text is None else self.answer_ids(text)
        views = show(image, self.resolution)
        return DeepseekEncoded(self.prompt_ids(views.grid), answer, views, self.resolution.row_ends)

    def encode_features(self, features: "Features", text: str) -> DeepseekEncoded:
        """Encode a sample whose image features have been computed."""
        answer, row_ends = self.answer_ids(text), self.resolution.row_ends
        return DeepseekEncoded(self.prompt_ids(features.grid), answer, NO_VIEWS, row_ends, features.tokens)

    @property
    def feature_key(self) -> str:
        """The resolution, on which an image's features depend."""
        return repr(self.resolution)

    @property
    def feature_code(self) -> tuple[str, ...]:
        """The source files that prepare pixels."""
        return ("models/canvas.py", "models/deepseek_images.py", "models/deepseek_inputs.py")

    def is_encoder(self, name: str) -> bool:
        """Whether a tensor is outside of the decoder."""
        return not (name.startswith("lm_head") or ".language_model." in name)

    def feature_width(self, network: Any) -> int:
        """Return the width of the decoder."""
        return int(network.config.text_config.hidden_size)

    def encoder_features(
        self, network: Any, samples: Sequence[DeepseekEncoded], dtype: "torch.dtype"
    ) -> "list[Features]":
        """Return what the decoder takes in the image slots of each sample."""
        from dsocr.models.feature_cache import Features

        batch = self.collate(samples, padding="right", device=network.device, dtype=dtype)
        names = ("pixel_values", "pixel_values_local", "num_local_patches", "patches_grid")
        images = {name: batch[name] for name in names if name in batch}
        features = network.get_image_features(**images, return_dict=True).pooler_output
        return [Features(tokens, sample.views.grid) for tokens, sample in zip(features, samples, strict=True)]

    def collate(
        self,
        samples: Sequence[DeepseekEncoded],
        *,
        padding: Literal["left", "right"],
        device: "torch.device | str" = "cpu",
        dtype: "torch.dtype | None" = None,
    ) -> dict[str, Any]:
        """Batch encoded samples, padded right for training and left for generation; see `batch.collate`."""
        import torch

        from dsocr.models.batch import collate

        return collate(samples, self.pad_id, padding=padding, device=device, dtype=dtype or torch.float32)

    def training_batch(self, samples: Sequence[DeepseekEncoded]) -> dict[str, Any]:
        """Batch encoded samples with texts on the CPU, pixels as bytes, logits where there are labels only."""
        import torch

        from dsocr.models.batch import drop_ignored_positions

        return drop_ignored_positions(self.collate(samples, padding="right", dtype=torch.uint8))

    def unknown_characters(self, text: str) -> str:
        """Return the characters of the text that the tokenizer cannot encode, each once, in their order."""
        unknown = self.tokenizer.unk_token_id
        if unknown is None:  # a byte-level tokenizer encodes everything
            return ""
        return "".join(c for c in dict.fromkeys(text) if unknown in self.text_ids(c))

    def measure(self, text: str, image_size: Callable[[], tuple[int, int]]) -> InputLength:
        """Measure a sample without encoding it; the size of the image matters for tiles only."""
        grid = UNTILED if self.resolution.tiling is None else self.resolution.grid(*image_size())
        vision, answer = self.resolution.slots(grid), len(self.answer_ids(text))
        return InputLength(vision, answer, len(self.prompt_ids()) - self.resolution.slots() + vision + answer)

    def distortion(self, width: int, height: int) -> float:
        """Return by how much letters of an image of this size are stretched vertically."""
        return self.resolution.distortion(width, height)

    def shrink(self, image: Image.Image) -> Image.Image:
        """Reduce an image that is far larger than it will be shown."""
        return shrink(image, self.resolution)

    def at_another_resolution(self, image: Image.Image) -> Self | None:
        """Return the processor at a resolution that shows an image larger, or else smaller; None if there is none."""
        other = another_resolution(image.size, self.resolution, self.others)
        return None if other is None else replace(self, resolution=other)


def image_token_id(tokenizer: "PreTrainedTokenizerBase", folder: Path) -> int:
    """Return the id that fills the image slots. Raises ModelError if the tokenizer has none."""
    number = tokenizer.convert_tokens_to_ids(IMAGE)
    if number is None or number == tokenizer.unk_token_id:
        raise ModelError(
            f"Tokenizer has no {IMAGE} token",
            code="tokenizer-no-image",
            where=folder,
            hint="its tokenizer.json is another model's: download the base again",
        )
    return int(number)
