"""How DeepSeek-OCR and the networks built like it see an image and a text: named resolutions, prompts, tokens.

The published sizes are those of the authors' `infer` and of their vLLM configuration.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from PIL import Image

from dsocr.errors import ConfigError, ModelError
from dsocr.models.canvas import UNTILED, Grid, Resolution, Tiling, another_resolution
from dsocr.models.family import IMAGE, InputLength
from dsocr.models.token_inputs import CanvasEncoded, CanvasProcessor, Features

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedTokenizerBase

Variant = Literal["deepseek_ocr", "unlimited_ocr", "deepseek_ocr_2", "nano"]
"""Bases with the same image preparation; `nano` is DeepSeek-OCR's network with small numbers."""

_SQUASHED = [Resolution("tiny", 512, "squash", 64), Resolution("small", 640, "squash", 64)]
_BASE = Resolution("base", 1024, "pad", 64)
# Not one of the authors': a line as a small paragraph, at the size of their `small`.
_WRAP = Resolution("wrap", 640, "wrap", 64, max_row_height=128)

_RESOLUTIONS = {
    "deepseek_ocr": [
        *_SQUASHED,
        _BASE,
        Resolution("large", 1280, "pad", 64),
        Resolution("gundam", 1024, "pad", 64, tiling=Tiling(640, 2, 9)),
        # The authors' vLLM configuration, and vLLM's own, stop at six tiles.
        Resolution("gundam_vllm", 1024, "pad", 64, tiling=Tiling(640, 2, 6)),
        _WRAP,
    ],
    "unlimited_ocr": [*_SQUASHED, _BASE, Resolution("gundam", 1024, "pad", 64, tiling=Tiling(640, 2, 32)), _WRAP],
    "deepseek_ocr_2": [
        Resolution("small", 768, "squash", 64, row_ends=False),
        Resolution("base", 1024, "pad", 64, row_ends=False),
        Resolution("gundam", 1024, "pad", 64, tiling=Tiling(768, 2, 6), row_ends=False),
        Resolution("wrap", 768, "wrap", 64, max_row_height=128, row_ends=False),
    ],
    "nano": [Resolution("wrap", 256, "wrap", 32, max_row_height=64)],
}
_DEFAULTS = {"deepseek_ocr": "base", "unlimited_ocr": "base", "deepseek_ocr_2": "base", "nano": "wrap"}


def resolutions(variant: Variant) -> list[Resolution]:
    """Return every resolution of a base."""
    return list(_RESOLUTIONS[variant])


def find_resolution(variant: Variant, name: str | None) -> Resolution:
    """Return the resolution of that name, or the default for None. Raises ConfigError listing the names."""
    known = {resolution.name: resolution for resolution in _RESOLUTIONS[variant]}
    name = name or _DEFAULTS[variant]
    chosen = known.get(name)
    if chosen is None:
        raise ConfigError(
            f"This base has no resolution {name!r} (input.resolution)",
            code="resolution-unknown",
            hint=f"it has {', '.join(known)}",
        )
    return chosen


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
class DeepseekProcessor(CanvasProcessor):
    """Turn images and texts into model inputs, for one base, resolution and prompt.

    `others` are the base's other resolutions.
    """

    image_token_id: int
    others: tuple[Resolution, ...] = ()

    @property
    def image_slots(self) -> int:
        """The number of image slots without tiles."""
        return self.resolution.slots()

    def prompt_ids(self, grid: Grid = UNTILED) -> tuple[int, ...]:
        """Return begin token, image slots and prompt, without end token; `grid` decides the number of slots."""
        before, after = self.prompt.split(IMAGE)
        slots = (self.image_token_id,) * self.resolution.slots(grid)
        return (int(self.tokenizer.bos_token_id), *self.text_ids(before), *slots, *self.text_ids(after))

    def is_encoder(self, name: str) -> bool:
        """Whether a tensor is outside of the decoder."""
        return not (name.startswith("lm_head") or ".language_model." in name)

    def encoder_features(self, network: Any, samples: Sequence[CanvasEncoded], dtype: "torch.dtype") -> list[Features]:
        """Return the decoder's inputs in the image slots of each sample."""
        images = self.image_inputs(samples, network, dtype)
        features = network.get_image_features(**images, return_dict=True).pooler_output
        return [Features(tokens, sample.views.grid) for tokens, sample in zip(features, samples, strict=True)]

    def measure(self, text: str, image_size: Callable[[], tuple[int, int]]) -> InputLength:
        """Measure a sample without encoding it; the size of the image matters for tiles only."""
        grid = UNTILED if self.resolution.tiling is None else self.resolution.grid(*image_size())
        vision, answer = self.resolution.slots(grid), len(self.answer_ids(text))
        return InputLength(vision, answer, len(self.prompt_ids()) - self.resolution.slots() + vision + answer)

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
            code="base-incomplete",
            where=folder,
            hint="its tokenizer.json is another model's: download the base again",
        )
    return int(number)
