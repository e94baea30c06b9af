"""Networks that write a text token by token: samples, processors, losses, checks and reading.

A sample is a prompt, which holds a slot for each position of the image, and an answer: the text and its end token.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from dsocr.models.canvas import UNTILED, Grid, Resolution, draw_views, show
from dsocr.models.family import IGNORED, UNWRITABLE, Batch, Check, Family, Processor
from dsocr.models.generation import Decoded, Generation, batches, cut_loop

if TYPE_CHECKING:
    import torch
    from torch import Tensor
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

_SHOWN_TOKENS = 48
_SHOWN_REPEATS = 8
_STRICT_NGRAM = 10
"""N-gram size of the guard when a looping line is read again; its window is then the whole text."""


@dataclass(frozen=True, slots=True)
class Features:
    """The features of one image: `tokens` (n, D), one for each position it takes, and the grid of its tiles."""

    tokens: "Tensor"
    grid: Grid = UNTILED


@dataclass(frozen=True, slots=True, eq=False)
class TokenEncoded:
    """One sample as model inputs.

    `prompt_ids` holds one id for each image slot; `answer_ids` ends with the end token and is empty for transcription.
    `images` are the network's inputs for the image, stacked along their first dimension, and `marks` those with a
    number for each prompt token. `features` (n, D) replace the pixels if they have been computed already.
    """

    prompt_ids: tuple[int, ...]
    answer_ids: tuple[int, ...]
    images: Mapping[str, NDArray[Any]]
    marks: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    features: "Tensor | None" = None

    @property
    def nbytes(self) -> int:
        """The bytes of its pixels."""
        return sum(array.nbytes for array in self.images.values())

    def without_text(self) -> Self:
        """Return it as for transcription."""
        return replace(self, answer_ids=())

    def with_image_of(self, other: Self) -> Self:
        """Return it with the image of another sample, which decides the number of image slots."""
        return replace(other, answer_ids=self.answer_ids)

    def has_input_of(self, other: Self) -> bool:
        """Whether another sample has the same prompt, image slots and pixels."""
        if self.prompt_ids != other.prompt_ids or self.images.keys() != other.images.keys():
            return False
        return all(np.array_equal(array, other.images[name]) for name, array in self.images.items())

    @staticmethod
    def stack_images(samples: "Sequence[TokenEncoded]") -> Batch:
        """Return the image arrays of all samples as tensors, padded with zeros where their sizes differ."""
        import torch

        names = dict.fromkeys(name for sample in samples for name in sample.images)
        stacked: Batch = {}
        for name in names:
            arrays = [sample.images[name] for sample in samples if name in sample.images]
            rest = [max(sizes) for sizes in zip(*(array.shape[1:] for array in arrays), strict=True)]
            joined, start = np.zeros((sum(map(len, arrays)), *rest), dtype=arrays[0].dtype), 0
            for array in arrays:
                joined[(slice(start, start + len(array)), *map(slice, array.shape[1:]))] = array
                start += len(array)
            stacked[name] = torch.from_numpy(joined)
        return stacked


@dataclass(frozen=True, slots=True, eq=False)
class CanvasEncoded(TokenEncoded):
    """One sample whose image is drawn on a canvas: `pixel_values` (1, 3, H, W), tiles `pixel_values_local`, as bytes.

    `grid` is the columns and rows of the tiles, and `stitches_tiles` says whether the network takes it.
    """

    grid: Grid = UNTILED
    stitches_tiles: bool = True

    @staticmethod
    def stack_images(samples: "Sequence[CanvasEncoded]") -> Batch:  # type: ignore[override]
        """Return `pixel_values` (B, 3, H, W) as bytes; nothing of samples with features.

        With tiles also `pixel_values_local` (N, 3, s, s), `num_local_patches` with a number per sample and, for
        networks that stitch tiles, `patches_grid` with their columns and rows.
        """
        images = TokenEncoded.stack_images(samples)
        if "pixel_values_local" in images:
            images["num_local_patches"] = [len(sample.images.get("pixel_values_local", ())) for sample in samples]
            if samples[0].stitches_tiles:
                images["patches_grid"] = [list(sample.grid) for sample in samples]
        return images

    def pixels(self) -> NDArray[np.uint8]:
        """Return the whole view and, below it, the tiles in their grid with a gap between them, (H, W, 3)."""
        return draw_views(self.images["pixel_values"][0], self.images.get("pixel_values_local"), self.grid)


@dataclass(frozen=True, slots=True)
class TokenProcessor(Processor):
    """Turns images and texts into the inputs of a network that writes tokens, the first of `end_ids` at the end."""

    family: "TokenFamily"
    tokenizer: "PreTrainedTokenizerBase"
    end_ids: tuple[int, ...] = field(kw_only=True)
    pad_id: int = field(kw_only=True)
    answer_start: str = field(default="", kw_only=True)
    """The network's text before every answer, which readers are not shown; usually empty."""
    joins_features: bool = field(default=False, kw_only=True)
    """Whether the network takes the features of a batch as one tensor."""

    @property
    def end_id(self) -> int:
        """The id that is learnt at the end of a text."""
        return self.end_ids[0]

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
        """Batch encoded samples on the CPU, labels where there are some only; see `token_batches.collate`."""
        from dsocr.models.token_batches import collate, drop_ignored_positions

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

    def _sample(self, grid: Grid, text: str | None, images: Mapping[str, Any], **features: Any) -> CanvasEncoded:
        ids = self.prompt_ids(grid), self.answer_ids(text)
        return CanvasEncoded(*ids, images, grid=grid, stitches_tiles=self.resolution.row_ends, **features)

    def encode(self, image: Image.Image, text: str | None = None) -> CanvasEncoded:
        """Encode one image, with its transcription for training or without for transcription."""
        return self._sample(self.resolution.grid(*image.size), text, show(image, self.resolution))

    def encode_features(self, features: Features, text: str) -> CanvasEncoded:
        """Encode a sample whose image features have been computed."""
        return self._sample(features.grid, text, {}, features=features.tokens)

    def distortion(self, width: int, height: int) -> float:
        """Return the vertical stretch of letters in an image of this size."""
        return self.resolution.distortion(width, height)

    def shrink(self, image: Image.Image) -> Image.Image:
        """Reduce an image that is far larger than it will be shown."""
        return self.resolution.shrink(image)


@dataclass(frozen=True, slots=True)
class TokenFamily(Family):
    """Networks that write a text token by token."""

    def prepare_training(
        self, model: Any, network: "PreTrainedModel", *, compile_layers: bool, checkpoint_activations: bool
    ) -> None:
        """Compile decoder and vision towers, whose tensors keep their names, or recompute activations, if wanted."""
        if compile_layers:
            for name, module in model.named_modules():
                if name.endswith((".language_model", ".vision_tower")):
                    module.compile()
        if checkpoint_activations:
            # Reentrant checkpointing needs inputs with gradients, which would draw frozen vision towers into the
            # backward pass.
            model.activation_checkpointing_enable(activation_checkpointing_kwargs={"use_reentrant": False})
            model.disable_input_require_grads()
            model.config.use_cache = False

    def prepare_batch(self, batch: Mapping[str, Any], dtype: "torch.dtype | None" = None) -> Batch:
        """Normalize bytes, and convert the pixels to a number format."""
        from dsocr.models.token_batches import normalize_pixels

        return normalize_pixels(batch, dtype)

    def encode_images(self, model: Any, batch: Batch) -> Batch:
        """Return a batch with the features of its images in place of pixels, if that saves memory."""
        return batch

    def logits(self, model: Any, batch: Mapping[str, Any]) -> "Tensor":
        """Return the logits (B, L, V) at the positions of a batch's labels."""
        inputs = {name: value for name, value in batch.items() if name not in ("labels", "shift_labels")}
        inputs = self.encode_images(model, inputs)
        logits: Tensor = model(**inputs, use_cache=False).logits
        return logits

    def loss(self, model: Any, batch: Mapping[str, Any], num_items: "Tensor") -> "Tensor":
        """Return the sum of the cross-entropies of a batch's tokens over the number of tokens in the step."""
        from torch.nn.functional import cross_entropy

        logits = self.logits(model, batch).float()
        return cross_entropy(logits.flatten(0, 1), batch["labels"].flatten(), reduction="sum") / num_items

    def sample_losses(self, model: Any, batch: Mapping[str, Any]) -> list[float]:
        """Return the mean cross-entropy of a trained token for each sample of a batch."""
        import torch

        losses = []
        with torch.no_grad():
            for logits, labels in zip(self.logits(model, batch), batch["labels"], strict=True):
                kept = labels >= 0  # sample by sample: logits in float32 take much memory
                losses.append(float(torch.nn.functional.cross_entropy(logits[kept].float(), labels[kept])))
        return losses

    def uniform_loss(self, network: Any, processor: Any, samples: Sequence[Any]) -> float:
        """Return the loss of a guess over the whole vocabulary."""
        return math.log(network.config.get_text_config(decoder=True).vocab_size)

    def check_inputs(self, model: Any, processor: Any, samples: Sequence[Any], texts: Sequence[str]) -> list[Check]:
        """Check labels, the tokens' numbers, and image slots."""
        return [
            check_labels(processor.collate(samples), samples, texts, processor),
            check_vocabulary(samples, int(model.config.get_text_config().vocab_size)),
            check_image_slots(model, samples, processor),
        ]

    def log_likelihoods(
        self, network: Any, processor: Any, images: "Sequence[Image.Image]", texts: Sequence[Sequence[str]]
    ) -> list[list[float]]:
        """Return the log probability of each text of each image, with its end token, by teacher forcing."""
        network.eval()
        results = []
        for image, candidates in zip(images, texts, strict=True):
            unknown = [processor.unknown_characters(text) for text in candidates]
            known = [
                "".join(character for character in text if character not in missing)
                for text, missing in zip(candidates, unknown, strict=True)
            ]
            batch = processor.collate([processor.encode(image, text) for text in known])
            counts = (batch["labels"] >= 0).sum(1).tolist()
            losses = self.sample_losses(network, processor.on_device(batch, network, network.dtype))
            missing = [len(text) - len(kept) for text, kept in zip(candidates, known, strict=True)]
            results.append([m * UNWRITABLE - loss * n for m, loss, n in zip(missing, losses, counts, strict=True)])
        return results

    def decode(self, network: Any, processor: Any, samples: Sequence[Any], generation: Generation) -> list[Decoded]:
        """Generate a text for each sample of a batch, token by token."""
        from dsocr.models.token_batches import decode

        limit = min(generation.max_new_tokens, processor.max_text_tokens or generation.max_new_tokens)
        return decode(network, processor, samples, replace(generation, max_new_tokens=limit))

    def retry_loops(
        self,
        network: Any,
        processor: Any,
        generation: Generation,
        images: "Sequence[Image.Image]",
        decoded: Sequence[Decoded],
    ) -> list[Decoded]:
        """Read the images whose text loops again, greedily, with a guard that sees the whole text.

        If the text loops again, the first one is kept up to its loop and stays `looping`.
        """
        results, strict = list(decoded), stricter(generation)
        for places in batches([i for i, d in enumerate(decoded) if d.looping], generation.batch_size):
            samples = [processor.encode(images[place]) for place in places]
            for place, again in zip(places, self.decode(network, processor, samples, strict), strict=True):
                results[place] = replace(again if again.is_complete else cut_loop(decoded[place]), retried=True)
        return results


def stricter(generation: Generation) -> Generation:
    """Return greedy settings with a guard that sees the whole text and shorter repetitions."""
    size = min(generation.no_repeat_ngram_size or _STRICT_NGRAM, _STRICT_NGRAM)
    return replace(generation, no_repeat_ngram_size=size, no_repeat_ngram_window=generation.max_new_tokens, num_beams=1)


def check_labels(batch: Mapping[str, Any], samples: Sequence[Any], texts: Sequence[str], processor: Any) -> Check:
    """Check that the labels of a batch are its texts and their end tokens; the details show the tokens."""
    details: list[str] = []
    for sample, row, text in zip(samples, batch["labels"].tolist(), texts, strict=True):
        labels = [label for label in row if label != IGNORED]
        kinds = {"masked": sample.prompt_ids, "trained": labels}
        details += [_list_tokens(kind, ids, processor) for kind, ids in kinds.items() if ids]
        learnt = processor.text_of(labels[:-1]).removeprefix(processor.answer_start)
        is_text = learnt == text or processor.unknown_characters(text)  # see `check_unknown_characters`
        if not is_text or labels[-1:] != [processor.end_id]:
            message = f"labels are not the transcriptions: got {learnt[:60]!r}, expected {text[:60]!r}"
            fix = "the tokenizer does not belong to the base: download the base again"
            return Check("labels", "error", message, fix, tuple(details))
    count = int((batch["labels"] != IGNORED).sum())
    message = f"{count} tokens of {len(texts)} samples are trained on: each transcription and its end token"
    return Check("labels", "ok", message, details=tuple(details))


def _list_tokens(kind: str, ids: Sequence[int], processor: Any) -> str:
    names: list[str] = []
    for token, same in groupby(ids):
        count, name = len(list(same)), processor.text_of([token]).replace("\n", "\\n")
        names += [f"{count} x {name}"] if count > _SHOWN_REPEATS else [name] * count
    if len(names) > _SHOWN_TOKENS:
        names = [*names[: _SHOWN_TOKENS - 8], "...", *names[-7:]]
    return f"{kind:<8}{len(ids):>5}  {'|'.join(names)}"


def check_vocabulary(samples: Sequence[Any], vocabulary_size: int) -> Check:
    """Check that samples have only ids that the base knows."""
    largest = max(max(*sample.prompt_ids, *sample.answer_ids) for sample in samples)
    if largest >= vocabulary_size:
        message = f"the tokenizer writes id {largest}, and the base has {vocabulary_size} tokens"
        return Check("vocabulary", "error", message, "the tokenizer is another base's: download the base again")
    return Check("vocabulary", "ok", f"the base knows all tokens, up to id {largest} of {vocabulary_size}")


def check_image_slots(model: Any, samples: Sequence[Any], processor: Any) -> Check:
    """Check that the prompts have as many image tokens as the vision towers make features."""
    import torch

    model.eval()
    with torch.no_grad():
        outputs = model.get_image_features(**processor.image_inputs(samples, model, model.dtype)).pooler_output
    features = sum(output.numel() for output in outputs) // model.config.get_text_config().hidden_size
    slots = sum(sample.prompt_ids.count(processor.image_token_id) for sample in samples)
    if features != slots:
        fix = "this is no setting: the base's files do not match its config.json, or the code is wrong"
        return Check("image slots", "error", f"{slots} image slots for {features} features", fix)
    return Check("image slots", "ok", f"{slots} image slots for as many features, in {len(samples)} samples")
