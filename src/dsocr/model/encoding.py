"""One sample as model inputs: the only place where an image and a prompt become ids and pixels.

Training and transcription both call `Encoder.encode`, and `collate` for batches, so they cannot drift apart. Needs no
torch, which takes seconds to load: a dataset is checked without.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from PIL import Image

from dsocr.model.prompts import IMAGE
from dsocr.model.resolution import UNTILED, Grid, Resolution
from dsocr.model.views import Views, show

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True, slots=True)
class Encoded:
    """A sample the model can take: `prompt_ids` with one id an image slot, `answer_ids` with the end token.

    `answer_ids` is empty for transcription. `stitches_tiles` where the model wants to know the grid of the tiles.
    `features`, where the vision towers have seen the image already, are its (slots, D) features, and `views` is
    not looked at.
    """

    prompt_ids: tuple[int, ...]
    answer_ids: tuple[int, ...]
    views: Views
    stitches_tiles: bool = True
    features: "Tensor | None" = None


@dataclass(frozen=True, slots=True)
class Encoder:
    """Turns images and texts into `Encoded`, for one base at one resolution with one prompt.

    `others` are the resolutions that the base has beside.
    """

    tokenizer: "PreTrainedTokenizerBase"
    image_token_id: int
    resolution: Resolution
    prompt: str
    others: tuple[Resolution, ...] = ()

    @property
    def pad_id(self) -> int:
        """The id that fills a batch."""
        return int(self.tokenizer.pad_token_id)

    @property
    def end_id(self) -> int:
        """The id that ends an answer."""
        return int(self.tokenizer.eos_token_id)

    def prompt_ids(self, grid: Grid = UNTILED) -> tuple[int, ...]:
        """Begin token, the image's slots and the words of the prompt; no end token, no space at the end.

        `grid` is that of the image's tiles, on which the number of slots depends.
        """
        before, behind = self.prompt.split(IMAGE)
        slots = (self.image_token_id,) * self.resolution.slots(grid)
        return (int(self.tokenizer.bos_token_id), *self.text_ids(before), *slots, *self.text_ids(behind))

    def text_ids(self, text: str) -> tuple[int, ...]:
        """The ids of a text, special tokens neither added nor understood."""
        if not text:
            return ()
        return tuple(self.tokenizer(text, add_special_tokens=False, split_special_tokens=True)["input_ids"])

    def answer_ids(self, text: str) -> tuple[int, ...]:
        """What the model learns to write for a transcription: its ids and the end token."""
        return (*self.text_ids(text), self.end_id)

    def encode(self, image: Image.Image, text: str | None = None) -> Encoded:
        """Model inputs for one image; with its transcription for training, without for transcription."""
        answer = () if text is None else self.answer_ids(text)
        views = show(image, self.resolution)
        return Encoded(self.prompt_ids(views.grid), answer, views, self.resolution.row_ends)

    def unknown_characters(self, text: str) -> str:
        """The characters of the text that the tokenizer cannot write, each once, in their order."""
        unknown = self.tokenizer.unk_token_id
        if unknown is None:  # a byte-level tokenizer writes everything
            return ""
        return "".join(c for c in dict.fromkeys(text) if unknown in self.text_ids(c))
