"""How images and texts become inputs of chat models: the processor of transformers, its chat template, and labels.

The image is a user's turn with the prompt, the transcription the assistant's answer. The prompt is what the chat
template writes before an answer; only the answer and the token that ends it are learnt. Image processors are those of
Pillow and NumPy, also where torchvision is installed, so that pixels are the same everywhere.
"""

import math
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from dsocr.errors import ConfigError, DataError, ModelError
from dsocr.io.encodings import read_object
from dsocr.models.canvas import PAD_COLOUR, Resolution, shrink_to
from dsocr.models.checkpoints import Instructions, find_instructions
from dsocr.models.family import InputLength, unknown_resolution
from dsocr.models.token_family import Features, TokenEncoded, TokenFamily, TokenProcessor

if TYPE_CHECKING:
    import torch

DEFAULT = "default"
"""The resolution that the checkpoint's own files state."""

_RESOLUTION = re.compile(r"default|pad|wrap|edge(?P<edge>\d+)|pixels(?:(?P<least>\d+)-)?(?P<most>\d+)")
_RESOLUTIONS = (
    "chat models have default and, as their images are prepared, pixelsN and pixelsM-N, edgeN, or pad and wrap"
)
_PROBE = "Qz7"
"""An answer to find in the output of a chat template."""
_MAX_ASPECT = 190
"""Of Qwen's image processors an image may be 200 times as long as it is wide."""

_TEMPLATES = {
    "got_ocr2": (
        "<|im_start|>system\nYou should follow the instructions carefully and explain your answers in detail.<|im_end|>"
        "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{% for part in message['content'] %}"
        "{% if part['type'] == 'image' %}<img><imgpad></img>\n{% else %}{{ part['text'] }}{% endif %}{% endfor %}"
        "<|im_end|>{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
}
"""Chat templates of models that are published without one."""

_JOINED = ("got_ocr2", "internvl", "qianfan_ocr")
"""Models that take the features of a batch, of all tiles of its images, as one tensor."""

_TRIAL = (320, 64)
"""Width and height of an image that every image processor takes."""
_PROCESSOR_FILES = ("processor_config.json", "preprocessor_config.json", "tokenizer_config.json")
_AGAIN = "download the checkpoint again, with its processor and tokenizer files"


@dataclass(frozen=True, slots=True)
class PixelFormat:
    """How the numbers of an image processor become a picture again."""

    mean: tuple[float, ...]
    std: tuple[float, ...]
    patch: int
    merge: int

    def picture(self, images: Mapping[str, NDArray[Any]]) -> NDArray[np.uint8]:
        """Return the pixels as one picture, (H, W, 3); several images are put below each other."""
        pixels, p, m = images["pixel_values"], self.patch, self.merge
        if "image_grid_thw" not in images:
            height, width = pixels.shape[-2:]
            pixels = pixels.reshape(-1, 3, height, width).transpose(0, 2, 3, 1)
        else:
            _, rows, columns = images["image_grid_thw"][0].tolist()
            width = columns * p
            if pixels.ndim == 4:  # patches row by row
                pixels = pixels.reshape(rows, columns, 3, p, p).transpose(0, 3, 1, 4, 2)
            else:  # squares of patches that are merged, and each frame twice
                pixels = pixels.reshape(rows // m, columns // m, m, m, 3, -1, p, p)[:, :, :, :, :, 0]
                pixels = pixels.transpose(0, 2, 5, 1, 3, 6, 4)
        values = (pixels.reshape(-1, width, 3) * np.asarray(self.std) + np.asarray(self.mean)) * 255
        rounded: NDArray[np.uint8] = np.clip(np.rint(values), 0, 255).astype(np.uint8)
        return rounded


@dataclass(frozen=True, slots=True, eq=False)
class ChatEncoded(TokenEncoded):
    """One sample as model inputs; `features` may be (n, 1 + layers, D), with those added in later layers."""

    format: PixelFormat = field(kw_only=True)

    def pixels(self) -> NDArray[np.uint8]:
        """Return the network's input as one picture, (H, W, 3)."""
        return self.format.picture(self.images)


@dataclass(frozen=True, slots=True)
class Conversation:
    """Parts of a chat template's output: `prompt` up to the answer, `start` before its first letter, `end` after it."""

    prompt: str
    start: str
    end: str


@dataclass(frozen=True, slots=True, eq=False)
class ChatProcessor(TokenProcessor):
    """Turn images and texts into inputs of a chat model, at one resolution and with one prompt.

    `transformers` is the processor of transformers; `canvas` is set if images are drawn on a square first.
    """

    folder: Path
    resolution: str
    transformers: Any = field(repr=False)
    format: PixelFormat
    instructions: Instructions
    conversation: Conversation
    image_token_id: int
    """The id of an image's tokens."""
    around: tuple[tuple[int, ...], tuple[int, ...]] = field(repr=False)
    """The ids of the prompt before the first and after the last token of an image."""
    unmeasured: int
    """Tokens of a prompt that `count_image_tokens` does not count."""
    canvas: Resolution | None = None
    _slots: dict[tuple[int, int], int] = field(default_factory=dict, repr=False)

    def __reduce__(self) -> tuple[Any, ...]:
        # Loaded again in worker processes: its class may be made here, see `load_transformers_processor`.
        return load_processor, (self.family, self.folder, self.resolution, self.prompt)

    @property
    def resolution_name(self) -> str:
        """The resolution, which has no other name."""
        return self.resolution

    def encode(self, image: Image.Image, text: str | None = None) -> ChatEncoded:
        """Encode one image, with its transcription for training or without for transcription.

        Raises DataError for a shape that the image processor does not take.
        """
        image = image.convert("RGB")
        if self.canvas is not None:
            shown = self.canvas.draw(image)
        else:  # a strip too long for image processors, such as a ruled line, is padded
            padded = padded_size(*image.size)
            shown = image if padded == image.size else ImageOps.pad(image, padded, color=(PAD_COLOUR,) * 3)
        try:
            inputs = _inputs(self.transformers, self.conversation, shown)
        except ValueError as error:
            size = f"{image.width} x {image.height}"
            raise DataError(f"Cannot prepare an image of {size} pixels: {error}", code="image-shape") from error
        ids = tuple(inputs.pop("input_ids")[0].tolist())
        inputs.pop("attention_mask", None)
        marks = {name: tuple(inputs.pop(name)[0].tolist()) for name in [*inputs] if name.endswith("token_type_ids")}
        return ChatEncoded(ids, self.answer_ids(text), dict(inputs), marks, format=self.format)

    def text_ids(self, text: str) -> tuple[int, ...]:
        """Tokenize a text as it is learnt after the prompt; special tokens are not recognised in it."""
        text, tokenize = self.answer_start + text, partial(TokenProcessor.text_ids, self)
        # Behind a line break, because some tokenizers write a space before the first word.
        before, ids = tokenize("\n"), tokenize(f"\n{text}")
        return ids[len(before) :] if ids[: len(before)] == before else tokenize(text)

    def measure(self, text: str, image_size: Callable[[], tuple[int, int]]) -> InputLength:
        """Measure a sample without encoding it; an image's size decides its number of tokens."""
        size, answer = image_size(), len(self.answer_ids(text))
        if size not in self._slots:
            shown = padded_size(*size) if self.canvas is None else self.canvas.shape
            self._slots[size] = count_image_tokens(self.transformers, *shown)
        vision = self._slots[size]
        return InputLength(vision, answer, self.unmeasured + vision + answer)

    def distortion(self, width: int, height: int) -> float:
        """Return the vertical stretch of letters in an image of this size."""
        if self.canvas is not None:
            return self.canvas.distortion(width, height)
        width, height = padded_size(width, height)
        shown_width, shown_height = shown_size(self.transformers, width, height)
        return (shown_height / height) / (shown_width / width)

    def shrink(self, image: Image.Image) -> Image.Image:
        """Reduce an image that is far larger than it will be shown."""
        if self.canvas is not None:
            return self.canvas.shrink(image)
        if padded_size(*image.size) != image.size:
            return image
        width, height = shown_size(self.transformers, *image.size)
        return shrink_to(image, max(width / image.width, height / image.height))

    def encode_features(self, features: Features, text: str) -> ChatEncoded:
        """Encode a sample whose image features have been computed."""
        columns, rows = features.grid
        images = {"image_grid_thw": np.array([[1, rows, columns]])} if rows else {}
        before, after = self.around
        ids = (*before, *[self.image_token_id] * len(features.tokens), *after)
        marks = {}
        if self.transformers.return_mm_token_type_ids:
            marks["mm_token_type_ids"] = tuple(int(token == self.image_token_id) for token in ids)
        return ChatEncoded(ids, self.answer_ids(text), images, marks, features.tokens, format=self.format)

    def feature_width(self, network: Any) -> int:
        """Return the width of the decoder, once for each layer that takes features."""
        layers = getattr(network.config.vision_config, "deepstack_visual_indexes", None) or ()
        return int(network.config.get_text_config().hidden_size) * (1 + len(layers))

    def encoder_features(self, network: Any, samples: Sequence[ChatEncoded], dtype: "torch.dtype") -> list[Features]:
        """Return the decoder's inputs for the image of each sample, also those of its later layers."""
        import torch

        outputs = network.get_image_features(**self.image_inputs(samples, network, dtype), return_dict=True)
        layers = [outputs.pooler_output, *(getattr(outputs, "deepstack_features", None) or ())]
        if self.joins_features:
            tiles = [len(sample.images["pixel_values"]) for sample in samples]
            layers = [[part.flatten(0, 1) for part in layers[0].split(tiles)]]
        features = []
        for place, sample in enumerate(samples):
            grid = sample.images["image_grid_thw"][0].tolist() if "image_grid_thw" in sample.images else (0, 0, 0)
            tokens = torch.stack([layer[place] for layer in layers], dim=1)
            features.append(Features(tokens, (int(grid[2]), int(grid[1]))))
        return features


def _inputs(processor: Any, conversation: Conversation, image: Image.Image) -> Any:
    """Return the arrays that a processor of transformers makes of the prompt and an image."""
    begin = processor.tokenizer.bos_token
    return processor(
        images=[image],
        text=[conversation.prompt],
        return_tensors="np",  # GLM-OCR's would warn about tensors
        add_special_tokens=begin is None or not conversation.prompt.startswith(begin),
    )


def padded_size(width: int, height: int) -> tuple[int, int]:
    """Return the size to which an image is padded, so that its longer side is at most `_MAX_ASPECT` times the other."""
    return max(width, math.ceil(height / _MAX_ASPECT)), max(height, math.ceil(width / _MAX_ASPECT))


def validate_resolution(name: str | None) -> "re.Match[str] | None":
    """Match the name of a resolution. Raises ConfigError for one that no chat model has."""
    match = _RESOLUTION.fullmatch(name or DEFAULT)
    if match is None:
        raise unknown_resolution(name or DEFAULT, _RESOLUTIONS)
    return match


def load_processor(family: TokenFamily, folder: Path, resolution: str | None, prompt: str) -> ChatProcessor:
    """Load the processor of a base, at a resolution (None: its own) and with a prompt.

    Raises ModelError if a file is missing or the chat template cannot be used, ConfigError for an unknown resolution.
    """
    processor = load_transformers_processor(folder, family.name)
    name = resolution or DEFAULT
    canvas = _set_resolution(processor.image_processor, name)
    instructions = find_instructions(folder).asking(prompt)
    prompt = instructions.prompt
    conversation = read_conversation(processor, instructions, folder)
    _require_image_token(processor, conversation.prompt, prompt, folder)
    tokenizer = processor.tokenizer
    ends = _find_end(tokenizer, conversation.end, folder)
    pad_id = ends[0] if tokenizer.pad_token_id is None else tokenizer.pad_token_id
    # Settings that no image can be prepared with show here, and not with the first image.
    ids = _inputs(processor, conversation, Image.new("RGB", _TRIAL))["input_ids"][0].tolist()
    places = [place for place, number in enumerate(ids) if number == processor.image_token_id]
    images = processor.image_processor
    patch = images.patch_size if isinstance(getattr(images, "patch_size", None), int) else 0
    # HunyuanOCR's flat patches are in rows also where they are merged.
    merge = 1 if hasattr(images, "spatial_patch_size") else getattr(images, "merge_size", 1)
    words = f"{prompt!r}" if prompt else "the image alone"
    words += f" and the system message {instructions.system!r}" if instructions.system else ""
    return ChatProcessor(
        family,
        tokenizer,
        folder,
        name,
        processor,
        PixelFormat(tuple(images.image_mean), tuple(images.image_std), patch, merge),
        instructions,
        conversation,
        int(processor.image_token_id),
        (tuple(ids[: places[0]]), tuple(ids[places[-1] + 1 :])),
        len(ids) - count_image_tokens(processor, *_TRIAL),
        canvas,
        end_ids=ends,
        pad_id=pad_id,
        prompt=prompt,
        asked=f"asked with {words} ({instructions.source})",
        answer_start=conversation.start,
        joins_features=family.name in _JOINED,
    )


def load_transformers_processor(folder: Path, model_type: str) -> Any:
    """Load the processor of transformers with the image processor of Pillow and NumPy, and without that of videos.

    Raises ModelError if its files are missing, need code of their own or a package that is not installed.
    """
    import transformers
    from transformers import AutoTokenizer

    kind = getattr(transformers, _processor_class(folder, model_type), None)
    options = {"local_files_only": True, "trust_remote_code": False}
    try:
        if kind is None:
            raise ValueError(f"its files name no class of transformers ({', '.join(_PROCESSOR_FILES)})")
        images = _load_image_processor(folder, model_type, options)
        tokenizer = AutoTokenizer.from_pretrained(folder, **options)
        parts = {"image_processor": images, "tokenizer": tokenizer}
        attributes: list[str] = kind.get_attributes()

        class ImageTextProcessor(kind):  # type: ignore[misc, valid-type]
            """The processor without its part for videos, which would need torchvision."""

            @classmethod
            def get_attributes(cls) -> list[str]:
                return [name for name in attributes if name in parts]

            @classmethod
            def _get_arguments_from_pretrained(cls, *args: Any, **options: Any) -> list[Any]:
                return [parts.get(name) for name in attributes]

        processor = ImageTextProcessor.from_pretrained(folder, **options)
    except (OSError, ValueError, TypeError, KeyError, AttributeError, ImportError) as error:
        reason = str(error).strip().splitlines()[0]
        message = f"Cannot load the processor: {reason}"
        raise ModelError(message, code="base-incomplete", where=folder, hint=_AGAIN) from error
    processor.chat_template = processor.chat_template or tokenizer.chat_template or _TEMPLATES.get(model_type)
    if not processor.chat_template:
        raise ModelError(
            "Model has no chat template",
            code="chat-template-invalid",
            where=folder,
            hint="use a model that was trained for instructions, or add its chat_template.jinja",
        )
    return processor


def _processor_class(folder: Path, model_type: str) -> str:
    """Return the name of the processor's class: transformers' own of this type, or that in its files.

    Qianfan-OCR was published with the name of InternVL's, which does not know how its template writes an image.
    """
    import transformers
    from transformers.models.auto.processing_auto import PROCESSOR_MAPPING_NAMES

    name = str(PROCESSOR_MAPPING_NAMES.get(model_type) or "")
    if name and f".{model_type}." in getattr(transformers, name).__module__:
        return name
    for name in _PROCESSOR_FILES:
        if stated := read_object(folder / name).get("processor_class"):
            return str(stated)
    return name


def _load_image_processor(folder: Path, model_type: str, options: Mapping[str, Any]) -> Any:
    """Load the image processor of Pillow and NumPy. Raises ModelError if transformers has only one of torchvision."""
    import transformers
    from transformers import AutoImageProcessor
    from transformers.models.auto.image_processing_auto import IMAGE_PROCESSOR_MAPPING_NAMES

    kinds = IMAGE_PROCESSOR_MAPPING_NAMES.get(model_type)
    if isinstance(kinds, Mapping) and kinds.get("torchvision") and not kinds.get("pil"):
        message = f"Model type {model_type} cannot be used: its image processor is written for torchvision only"
        hint = f"transformers {transformers.__version__} has none for Pillow, which dsocr prepares images with"
        raise ModelError(message, code="torchvision-only", where=folder, hint=f"{hint}: choose another base")
    return AutoImageProcessor.from_pretrained(folder, backend="pil", **options)


def _set_resolution(images: Any, name: str) -> Resolution | None:
    """Set the size of an image processor; return the canvas on which images are drawn first, if any.

    Raises ConfigError if the image processor has no such resolution.
    """
    from transformers.image_utils import SizeDict

    match = validate_resolution(name)
    assert match is not None
    if name == DEFAULT:
        return None
    size = dict(images.size)
    if "height" in size and size["height"] == size["width"] and name in ("pad", "wrap"):
        side = int(size["height"])
        return Resolution(name, side, "pad" if name == "pad" else "wrap", side, max_row_height=side // 6)
    if _resizes_by_pixels(images) and match["most"]:
        most = int(match["most"])
        least = int(match["least"] or min(size["shortest_edge"], most))
        if least <= most:
            images.size = SizeDict(shortest_edge=least, longest_edge=most)
            return None
    if "longest_edge" in size and not _resizes_by_pixels(images) and match["edge"]:
        images.size = SizeDict(longest_edge=int(match["edge"]))
        return None
    raise unknown_resolution(name, _RESOLUTIONS)


def _resizes_by_pixels(images: Any) -> bool:
    """Whether an image processor keeps the aspect ratio within a least and a largest number of pixels."""
    return hasattr(sys.modules[type(images).__module__], "smart_resize")


def shown_size(processor: Any, width: int, height: int) -> tuple[int, int]:
    """Return width and height to which a processor resizes an image of this size, in all tiles together."""
    images = processor.image_processor
    size, module = dict(images.size), sys.modules[type(images).__module__]
    stated = processor.images_kwargs.get("crop_to_patches") if hasattr(processor, "images_kwargs") else None
    cuts_tiles = getattr(images, "crop_to_patches", False) if stated is None else stated
    if cuts_tiles and hasattr(module, "get_optimal_tiled_canvas"):
        tile = (int(size["height"]), int(size["width"]))
        columns, rows = module.get_optimal_tiled_canvas((height, width), tile, images.min_patches, images.max_patches)
        return tile[1] * columns, tile[0] * rows
    if "height" in size:
        return int(size["width"]), int(size["height"])
    if _resizes_by_pixels(images):
        resize, options = module.smart_resize, {"factor": images.patch_size * images.merge_size}
        options |= {"min_pixels": size["shortest_edge"], "max_pixels": size["longest_edge"]}
        if "num_frames" in signature(resize).parameters:
            options |= {"num_frames": images.temporal_patch_size, "temporal_factor": images.temporal_patch_size}
        shown_height, shown_width = resize(height=height, width=width, **options)
        return int(shown_width), int(shown_height)
    scale = size["longest_edge"] / max(width, height)
    if isinstance(getattr(images, "patch_size", None), int | type(None)):
        return max(1, round(width * scale)), max(1, round(height * scale))
    scale = min(1.0, scale)  # larger images are reduced, and the rest of the last patch is filled by stretching
    patch = dict(images.patch_size)
    across, down = -(-int(width * scale) // patch["width"]), -(-int(height * scale) // patch["height"])
    return max(1, across) * patch["width"], max(1, down) * patch["height"]


def count_image_tokens(processor: Any, width: int, height: int) -> int:
    """Return the number of tokens that a processor of transformers writes for an image of this size."""
    images = processor.image_processor
    if hasattr(processor, "_get_num_multimodal_tokens"):
        return int(processor._get_num_multimodal_tokens(image_sizes=[(height, width)]).num_image_tokens[0])
    if hasattr(images, "get_number_of_image_patches") and hasattr(images, "merge_size"):
        return int(images.get_number_of_image_patches(height, width, {}) // images.merge_size**2)
    inputs = processor(images=[Image.new("RGB", (width, height))], text=[processor.image_token])
    return len(inputs["input_ids"][0])


def read_conversation(processor: Any, instructions: Instructions, folder: Path) -> Conversation:
    """Find the text of the chat template before and after an answer.

    Raises ModelError if it changes the prompt or the answer once there is one, for then a network would be trained on
    other inputs than it reads.
    """
    question = instructions.messages()
    asked = _render(processor, question, folder, add_generation_prompt=True)
    if instructions.system and instructions.system not in asked:  # some templates take it as a list only
        question[0]["content"] = [{"type": "text", "text": instructions.system}]
        asked = _render(processor, question, folder, add_generation_prompt=True)
    if any(text and text.strip() not in asked for text in (instructions.system, instructions.prompt)):
        message = "Chat template leaves out the prompt or the system message"
        raise ModelError(message, code="chat-template-invalid", where=folder, hint="correct its chat_template.jinja")
    for content in ([{"type": "text", "text": _PROBE}], _PROBE):  # some templates take the answer as a list only
        answered = _render(processor, [*question, {"role": "assistant", "content": content}], folder)
        before, probe, after = answered.rpartition(_PROBE)
        if probe:
            break
    else:
        message = "Chat template does not write the answer as it is given"
        raise ModelError(message, code="chat-template-invalid", where=folder)
    if not before.startswith(asked):
        raise ModelError(
            f"Chat template writes another prompt once there is an answer: {asked[-60:]!r}, then {before[-60:]!r}",
            code="chat-template-invalid",
            where=folder,
            hint="correct its chat_template.jinja",
        )
    extra = before[len(asked) :]
    # A space belongs to the first word; anything else, such as an empty block of thoughts, to the prompt.
    return Conversation(before, "", after) if extra.strip() else Conversation(asked, extra, after)


def _render(processor: Any, messages: list[Any], folder: Path, *, add_generation_prompt: bool = False) -> str:
    from jinja2 import TemplateError

    try:
        return str(
            processor.tokenizer.apply_chat_template(
                messages,
                chat_template=processor.chat_template,
                tokenize=False,
                add_generation_prompt=add_generation_prompt,
            )
        )
    except (TemplateError, TypeError, ValueError, KeyError) as error:
        message = f"Chat template fails: {error}"
        raise ModelError(message, code="chat-template-invalid", where=folder) from error


def _require_image_token(processor: Any, written: str, prompt: str, folder: Path) -> None:
    """Raise ModelError unless the prompt has one token for the image, ConfigError if the user's prompt has one too."""
    token = getattr(processor, "image_placeholder_token", None) or getattr(processor, "image_token", None)
    number = getattr(processor, "image_token_id", None)
    if token is None or number is None or number == processor.tokenizer.unk_token_id or token not in written:
        message = f"Tokenizer or chat template has no {token or 'image token'}"
        raise ModelError(message, code="base-incomplete", where=folder, hint=_AGAIN)
    if token in prompt or "<image>" in prompt or written.count(token) != 1:
        message = "input.prompt must not contain the image: the chat template puts it first"
        raise ConfigError(message, code="prompt-image", hint=f"leave out {token} and <image>")


def _find_end(tokenizer: Any, after: str, folder: Path) -> tuple[int, ...]:
    """Return the tokens that stop generation, first the one that is learnt: the template's, or the tokenizer's."""
    stated = read_object(folder / "generation_config.json").get("eos_token_id")
    stops = [stated] if isinstance(stated, int) else list(stated or [])
    if tokenizer.eos_token_id is not None:
        stops.append(tokenizer.eos_token_id)
    special = {number for number, token in tokenizer.added_tokens_decoder.items() if token.special} | {*stops}
    written = [number for number in tokenizer(after, add_special_tokens=False)["input_ids"] if number in special]
    if not written and not stops:
        raise ModelError("Tokenizer has no eos token", code="base-incomplete", where=folder)
    end = written[0] if written else tokenizer.eos_token_id if tokenizer.eos_token_id is not None else stops[0]
    return tuple(dict.fromkeys([int(end), *map(int, stops)]))
