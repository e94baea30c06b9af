"""The family of `VisionEncoderDecoderModel`: TrOCR, Donut, and other pairs of an image encoder and a text decoder.

The encoder sees one canvas of fixed size, and the decoder attends to its output: there are no image tokens and no
prompt. Published TrOCR squashes every line into a square, about tenfold; here a line is wrapped into rows, or padded
with its aspect ratio kept, and `squash` must be asked for. The ids that start, end and pad a text are read from the
checkpoint and set explicitly, because its files often disagree, and a wrong end id makes a network that never stops.
"""

import json
import math
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from dsocr.errors import ConfigError, ModelError
from dsocr.io.work import MANIFEST
from dsocr.models.base_folder import is_plain, read_config_json
from dsocr.models.canvas import PAD_COLOUR, wrap, wrapped_size
from dsocr.models.family import IGNORED, Check, InputLength, Processor, PublishedBase, TokenFamily
from dsocr.models.generation import Generation

if TYPE_CHECKING:
    import torch
    from torch import Tensor
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from dsocr.models.feature_cache import Features

Layout = Literal["wrap", "letterbox", "squash"]
"""How an image fills the canvas; these are the names of the resolutions."""

_PREPROCESSOR = "preprocessor_config.json"
_ROWS = 4
"""Rows into which a line is wrapped at first; up to eight if it is longer."""
_SPARE = 1.5
"""How many times the shown size `shrink` keeps."""

_DECODER = r"decoder\..*\.layers\.\d+\.((self_attn|encoder_attn)\.[kvq]_proj|(self_attn|encoder_attn)\.out_proj|fc[12])"
_VIT = r"encoder\.layers\.\d+\.(attention\.[qkvo]_proj|mlp\.fc[12])"
_SWIN = (
    r"encoder\.encoder\.layers\.\d+\.blocks\.\d+\."
    r"(attention\.self\.(query|key|value)|attention\.output\.dense|intermediate\.dense|output\.dense)"
)

BASES = (
    PublishedBase("microsoft/trocr-base-handwritten", "MIT", "334 million weights"),
    PublishedBase("microsoft/trocr-large-handwritten", "not stated", "558 million weights"),
    PublishedBase("naver-clova-ix/donut-base", "MIT", "about 200 million weights"),
)
"""Published networks, and what of them was tried."""

TARGET_MODULES = {"decoder": _DECODER, "vision": f"{_VIT}|{_SWIN}", "decoder+vision": f"{_DECODER}|{_VIT}|{_SWIN}"}
"""Named sets of layers for an adapter."""

_NO_CANVAS = np.empty((3, 0, 0), dtype=np.uint8)
"""The canvas of a sample whose features have been computed."""

_VISION = re.compile(r"(base_model\.model\.)?(encoder|enc_to_dec_proj)\.")


@dataclass(frozen=True, slots=True)
class Canvas:
    """What the encoder sees: `size` (height, width) in pixels, how an image fills it, and the grey level around it."""

    size: tuple[int, int]
    layout: Layout
    fill: int = PAD_COLOUR

    def draw(self, image: Image.Image) -> Image.Image:
        """Draw an image."""
        height, width = self.size
        if self.layout == "wrap":
            return wrap(image, width, width // _ROWS)
        if self.layout == "squash":
            return image.resize((width, height), Image.Resampling.BILINEAR)
        return ImageOps.pad(image, (width, height), Image.Resampling.BICUBIC, color=(self.fill,) * 3)

    def distortion(self, width: int, height: int) -> float:
        """Return by how much letters are stretched vertically; 1 is undistorted."""
        return (self.size[0] / height) / (self.size[1] / width) if self.layout == "squash" else 1.0

    def shrink(self, image: Image.Image) -> Image.Image:
        """Reduce an image that is far larger than it will be drawn."""
        height, width = self.size
        scales = (height / image.height, width / image.width)
        scale = max(scales) if self.layout == "squash" else min(scales)
        if self.layout == "wrap":
            rows, _ = wrapped_size(image.width, image.height, width, width // _ROWS)
            scale = width // rows / image.height
        scale *= _SPARE
        if scale > 1 / _SPARE:
            return image
        size = (math.ceil(image.width * scale), math.ceil(image.height * scale))
        return image.resize(size, Image.Resampling.BICUBIC)


@dataclass(frozen=True, slots=True, eq=False)
class CanvasWithText:
    """One sample: `canvas` (3, H, W) bytes, and the ids of its text with the end token, none for transcription.

    `features` (n, D) is the output of the encoder if it has been computed already; `canvas` is then ignored.
    """

    canvas: NDArray[np.uint8]
    answer_ids: tuple[int, ...] = ()
    features: "Tensor | None" = None

    @property
    def nbytes(self) -> int:
        """The bytes of its pixels."""
        return self.canvas.nbytes

    def without_text(self) -> Self:
        """Return it as for transcription."""
        return replace(self, answer_ids=())

    def with_image_of(self, other: Self) -> Self:
        """Return it with the image of another sample."""
        return replace(self, canvas=other.canvas, features=other.features)

    def has_input_of(self, other: Self) -> bool:
        """Whether another sample has the same pixels."""
        return np.array_equal(self.canvas, other.canvas)

    def pixels(self) -> NDArray[np.uint8]:
        """Return the canvas, (H, W, 3)."""
        return self.canvas.transpose(1, 2, 0)


@dataclass(frozen=True, slots=True)
class EncoderDecoderProcessor(Processor):
    """Turn images and texts into inputs; `mean` and `std` normalize pixels of 0 to 1, a number for each channel."""

    family: "EncoderDecoder"
    tokenizer: "PreTrainedTokenizerBase"
    canvas: Canvas
    mean: tuple[float, ...]
    std: tuple[float, ...]
    start_id: int
    end_id: int
    pad_id: int

    @property
    def resolution_name(self) -> str:
        """The layout of the canvas."""
        return self.canvas.layout

    @property
    def end_ids(self) -> tuple[int]:
        """The id that ends a text."""
        return (self.end_id,)

    @property
    def max_text_tokens(self) -> int:
        """The most tokens of a text: one position of the decoder is for its end."""
        return self.family.positions - 1

    @property
    def answer_start(self) -> str:
        """The begin token, which networks trained on a tokenizer's own output write first."""
        return str(self.tokenizer.bos_token or "")

    @property
    def image_slots(self) -> int:
        """The image takes no position of the decoder."""
        return 1

    def at_another_resolution(self, image: Image.Image) -> None:
        """Return None: the network was trained at one layout."""

    def encode(self, image: Image.Image, text: str | None = None) -> CanvasWithText:
        """Encode one image, with its transcription for training or without for transcription."""
        canvas = np.asarray(self.canvas.draw(image.convert("RGB"))).transpose(2, 0, 1)
        answer = () if text is None else (*self.text_ids(text), self.end_id)
        return CanvasWithText(np.ascontiguousarray(canvas), answer)

    def training_batch(self, samples: Sequence[CanvasWithText]) -> dict[str, Any]:
        """Return `pixel_values` (B, 3, H, W) as bytes, `decoder_input_ids` and `labels` (B, L), on the CPU.

        Of samples with features, `encoder_states` (B, n, D) replaces the pixels. The decoder's input is the labels
        moved one to the right behind the start token. Raises ModelError for a text
        that is longer than the decoder's positions.
        """
        import torch

        from dsocr.models.batch import list_features, pad_rows

        longest = max(len(sample.answer_ids) for sample in samples)
        if longest > self.family.positions:
            message = f"A text has {longest} tokens, and the decoder has {self.family.positions} positions"
            hint = f"set training.max_text_tokens to {self.family.positions - 1} or less, with long_text: exclude"
            raise ModelError(message, code="text-too-long", hint=hint)
        batch = {
            "decoder_input_ids": pad_rows(
                [(self.start_id, *sample.answer_ids[:-1]) for sample in samples], self.pad_id
            ),
            "labels": pad_rows([sample.answer_ids for sample in samples], IGNORED),
        }
        if features := list_features(samples):
            return {**batch, "encoder_states": torch.stack(features)}
        pixels = torch.from_numpy(np.stack([sample.canvas for sample in samples]))
        return {**batch, "pixel_values": pixels, "mean_and_std": torch.tensor([self.mean, self.std])}

    def collate(
        self,
        samples: Sequence[CanvasWithText],
        *,
        padding: Literal["left", "right"],
        device: "torch.device | str" = "cpu",
        dtype: "torch.dtype | None" = None,
    ) -> dict[str, Any]:
        """Batch samples for generation: `pixel_values` (B, 3, H, W), and the start token as `input_ids` (B, 1)."""
        import torch

        from dsocr.models.batch import list_features

        start = torch.full((len(samples), 1), self.start_id, device=device)
        if features := list_features(samples):
            from transformers.modeling_outputs import BaseModelOutput

            states = torch.stack(features).to(device, dtype)
            return {"encoder_outputs": BaseModelOutput(states), "input_ids": start}
        pixels = torch.from_numpy(np.stack([sample.canvas for sample in samples])).to(device)
        mean, std = torch.tensor([self.mean, self.std], device=device)
        return {"pixel_values": normalize(pixels, mean, std).to(dtype or torch.float32), "input_ids": start}

    @property
    def feature_key(self) -> str:
        """The canvas and the normalization, on which the encoder's output depends."""
        return repr((self.canvas, self.mean, self.std))

    @property
    def feature_code(self) -> tuple[str, ...]:
        """The source files that prepare pixels."""
        return ("models/encoder_decoder.py", "models/canvas.py")

    def is_encoder(self, name: str) -> bool:
        """Whether a tensor belongs to the encoder."""
        return name.startswith("encoder.")

    def feature_width(self, network: Any) -> int:
        """Return the width of the encoder."""
        return int(network.encoder.config.hidden_size)

    def encoder_features(
        self, network: Any, samples: Sequence[CanvasWithText], dtype: "torch.dtype"
    ) -> "list[Features]":
        """Return the last states of the encoder for each sample."""
        from dsocr.models.feature_cache import Features

        batch = self.collate(samples, padding="right", device=network.device, dtype=dtype)
        return [Features(states) for states in network.encoder(pixel_values=batch["pixel_values"]).last_hidden_state]

    def encode_features(self, features: "Features", text: str) -> CanvasWithText:
        """Encode a sample whose encoder output has been computed."""
        return CanvasWithText(_NO_CANVAS, (*self.text_ids(text), self.end_id), features.tokens)

    def text_ids(self, text: str) -> tuple[int, ...]:
        """Tokenize a text; special tokens are neither added nor recognised in it."""
        return tuple(self.tokenizer(text, add_special_tokens=False, split_special_tokens=True)["input_ids"])

    def text_of(self, ids: Sequence[int]) -> str:
        """Decode ids, special tokens included."""
        return str(self.tokenizer.decode(list(ids), skip_special_tokens=False))

    def unknown_characters(self, text: str) -> str:
        """Return the characters of a text that its tokens do not decode to, each once, in their order."""
        if self.text_of(self.text_ids(text)) == text:
            return ""
        return "".join(c for c in dict.fromkeys(text) if self.text_of(self.text_ids(c)).strip() != c.strip())

    def measure(self, text: str, image_size: Callable[[], tuple[int, int]]) -> InputLength:
        """Measure a sample; all images take the same, so the text alone decides what is batched together."""
        length = len(self.text_ids(text)) + 1
        return InputLength(self.family.patches, length, length)

    def distortion(self, width: int, height: int) -> float:
        """Return by how much letters of an image of this size are stretched vertically."""
        return self.canvas.distortion(width, height)

    def shrink(self, image: Image.Image) -> Image.Image:
        """Reduce an image that is far larger than it will be shown."""
        return self.canvas.shrink(image)


@dataclass(frozen=True, slots=True)
class EncoderDecoder(TokenFamily):
    """A checkpoint of this family: the `size` (height, width) of its canvas, and the `positions` of its decoder."""

    size: tuple[int, int]
    patches: int
    positions: int
    vocabulary: int
    caches_features = True
    trains = "either"
    target_modules = TARGET_MODULES

    @property
    def layouts(self) -> tuple[Layout, ...]:
        """The resolutions, the default first; only a square canvas has rows of a wrapped line."""
        square = self.size[0] == self.size[1]
        return ("wrap", "letterbox", "squash") if square else ("letterbox", "squash")

    def is_vision(self, parameter: str) -> bool:
        """Whether a parameter belongs to the encoder or its projection."""
        return _VISION.match(parameter) is not None

    def load_network(self, folder: Path, **options: Any) -> "PreTrainedModel":
        """Load the network, with the ids that start, end and pad a text."""
        from transformers import GenerationConfig, VisionEncoderDecoderConfig, VisionEncoderDecoderModel

        from dsocr.models.loading import load_pretrained

        processor = self.processor(folder, None, "")
        try:
            config = VisionEncoderDecoderConfig.from_dict(read_config_json(folder))
        except (ValueError, KeyError) as error:
            message = f"transformers does not know its encoder or decoder: {error}"
            raise ModelError(message, code="model-unknown", where=folder) from error
        # Few encoders and decoders have fused attention; None takes it where it exists.
        options["attention"] = None if options.get("attention", "sdpa") == "sdpa" else options["attention"]
        network = load_pretrained(VisionEncoderDecoderModel, config, folder, unused=(), **options)
        ids = {"decoder_start_token_id": processor.start_id, "eos_token_id": processor.end_id}
        ids |= {"pad_token_id": processor.pad_id}
        for key, value in ids.items():
            setattr(network.config, key, value)
        network.generation_config = GenerationConfig(**ids)
        network.plain_files = [(file.name, file.read_bytes()) for file in sorted(folder.iterdir()) if _is_kept(file)]
        return network

    def network_files(self, network: Any) -> list[tuple[str, bytes]]:
        """Return the files of a checkpoint as transformers writes them, with tokenizer and preprocessor."""
        with tempfile.TemporaryDirectory() as folder:
            network.save_pretrained(folder, max_shard_size="1000GB")
            written = {file.name: file.read_bytes() for file in Path(folder).iterdir()}
        return [*({**dict(network.plain_files), **written}).items()]

    def validate_input(self, resolution: str | None, prompt: str) -> None:
        """Raise ConfigError for an unknown resolution, and for a prompt."""
        if resolution is not None and resolution not in self.layouts:
            raise ConfigError(
                f"This base has no resolution {resolution!r} (input.resolution)",
                code="resolution-unknown",
                hint=f"it has {', '.join(self.layouts)}",
            )
        if prompt not in ("", "free_ocr"):
            message = "input.prompt: networks of encoder and decoder take no prompt"
            raise ConfigError(message, code="prompt-unsupported", hint="leave it out")

    def processor(self, folder: Path, resolution: str | None, prompt: str) -> EncoderDecoderProcessor:
        """Return the processor for a resolution; None: `wrap` for a square canvas, else `letterbox`."""
        self.validate_input(resolution, prompt)
        layout = next(name for name in self.layouts if resolution in (None, name))
        image = _read_preprocessor(folder)
        normalizes = image.get("do_normalize", True)
        mean, std = (
            tuple(map(float, image.get(name) or [0.5] * 3)) if normalizes else (default,) * 3
            for name, default in (("image_mean", 0.0), ("image_std", 1.0))
        )
        if not (len(mean) == len(std) == 3 and all(std)):
            raise ValueError(f"{_PREPROCESSOR} has no mean and deviation of three colours")
        tokenizer = _load_tokenizer(folder)
        ids = _token_ids(folder, tokenizer)
        if (largest := max(*ids, len(tokenizer) - 1)) >= self.vocabulary:
            message = f"the tokenizer writes id {largest}, and the decoder has {self.vocabulary} tokens"
            raise ModelError(message, code="tokenizer-mismatch", where=folder, hint="download the checkpoint again")
        fill = 0 if image.get("do_pad") else PAD_COLOUR  # Donut's own padding is black
        return EncoderDecoderProcessor(self, tokenizer, Canvas(self.size, layout, fill), mean, std, *ids)

    def prepare_training(
        self, model: Any, network: "PreTrainedModel", *, compile_layers: bool, checkpoint_activations: bool
    ) -> None:
        """Compile encoder and decoder, and recompute activations, if wanted."""
        from dsocr.models import causal_training

        if (pooler := getattr(network.encoder, "pooler", None)) is not None:
            pooler.requires_grad_(False)  # the decoder attends to the encoder's states, not to what is pooled
        if compile_layers:
            network.encoder.compile()
            network.decoder.compile()
        if checkpoint_activations:
            causal_training.checkpoint_activations(model)

    def prepare_batch(self, batch: Mapping[str, Any], dtype: "torch.dtype | None" = None) -> dict[str, Any]:
        """Normalize pixels on their device."""
        import torch

        prepared = {name: batch[name] for name in ("decoder_input_ids", "labels")}
        if "encoder_states" in batch:
            return {**prepared, "encoder_states": batch["encoder_states"].to(dtype or torch.float32)}
        mean, std = batch["mean_and_std"]
        return {**prepared, "pixel_values": normalize(batch["pixel_values"], mean, std).to(dtype or torch.float32)}

    def loss(self, model: Any, batch: Mapping[str, Any], num_items: "Tensor") -> "Tensor":
        """Return the sum of the cross-entropies of a batch's tokens over the number of tokens in the step."""
        from torch.nn.functional import cross_entropy

        logits = self._logits(model, batch).float()
        return cross_entropy(logits.flatten(0, 1), batch["labels"].flatten(), reduction="sum") / num_items

    def sample_losses(self, model: Any, batch: Mapping[str, Any]) -> list[float]:
        """Return the mean cross-entropy of a trained token for each sample of a batch."""
        import torch
        from torch.nn.functional import cross_entropy

        with torch.no_grad():
            logits = self._logits(model, batch).float()
        return [float(cross_entropy(row, wanted)) for row, wanted in zip(logits, batch["labels"], strict=True)]

    def uniform_loss(self, network: Any, processor: Any, samples: Sequence[Any]) -> float:
        """Return the loss of a guess over the whole vocabulary."""
        return math.log(self.vocabulary)

    def _logits(self, model: Any, batch: Mapping[str, Any]) -> "Tensor":
        image = {"pixel_values": batch.get("pixel_values")}
        if "encoder_states" in batch:
            image = {"encoder_outputs": (batch["encoder_states"],)}
        logits: Tensor = model(**image, decoder_input_ids=batch["decoder_input_ids"], use_cache=False).logits
        return logits

    def check_inputs(
        self, model: Any, processor: EncoderDecoderProcessor, samples: Sequence[CanvasWithText], texts: Sequence[str]
    ) -> list[Check]:
        """Check that the labels are the texts with their end token, and that the decoder gets them one step later."""
        batch = processor.training_batch(samples)
        fix = "this is no setting: the checkpoint's tokenizer does not belong to its decoder"
        details = []
        for inputs, labels, text in zip(
            batch["decoder_input_ids"].tolist(), batch["labels"].tolist(), texts, strict=True
        ):
            wanted = [label for label in labels if label != IGNORED]
            decoded = processor.text_of(wanted[:-1])
            if decoded != text and not processor.unknown_characters(text):
                message = f"labels are not the transcriptions: got {decoded[:60]!r}, expected {text[:60]!r}"
                return [Check("labels", "error", message, fix)]
            if wanted[-1] != processor.end_id or inputs[: len(wanted)] != [processor.start_id, *wanted[:-1]]:
                return [Check("labels", "error", "start and end tokens are not where they should be", fix)]
            details.append(f"trained {len(wanted):>5}  {'|'.join(processor.text_of([token]) for token in wanted)}")
        count = sum(len(sample.answer_ids) for sample in samples)
        start, end = processor.text_of([processor.start_id]), processor.text_of([processor.end_id])
        message = f"{count} tokens of {len(texts)} samples are trained on, after {start}, each text with its end {end}"
        return [Check("labels", "ok", message, details=tuple(details))]

    def answer_logits(self, network: Any, processor: Any, sample: CanvasWithText, ids: Sequence[int]) -> "Tensor":
        """Return the logits (n, V) at which each of `ids` was chosen."""
        import torch

        batch = processor.collate([sample], padding="right", device=network.device, dtype=network.dtype)
        inputs = torch.tensor([[processor.start_id, *ids[:-1]]], device=network.device)
        image = {name: value for name, value in batch.items() if name != "input_ids"}
        logits: Tensor = network(**image, decoder_input_ids=inputs).logits[0]
        return logits

    def limit(self, generation: Generation) -> Generation:
        """Return the settings within the positions of the decoder."""
        return replace(generation, max_new_tokens=min(generation.max_new_tokens, self.positions - 1))


def recognize(config: Mapping[str, Any]) -> EncoderDecoder | None:
    """Return the family if a `config.json` describes an image encoder with a text decoder, else None.

    Raises ModelError if it lacks the size of the images or of the vocabulary.
    """
    if config.get("model_type") != "vision-encoder-decoder":
        return None
    encoder, decoder = config.get("encoder") or {}, config.get("decoder") or {}
    try:
        side = encoder["image_size"]
        height, width = (side, side) if isinstance(side, int) else (int(side[0]), int(side[1]))
        stride = int(encoder["patch_size"]) * 2 ** max(0, len(encoder.get("depths") or [0]) - 1)
        # A class token and, in DeiT, a second one come before the patches; Swin has none.
        special = {"deit": 2}.get(encoder.get("model_type", ""), 0 if encoder.get("depths") else 1)
        patches = (height // stride) * (width // stride) + special
        positions, vocabulary = int(decoder["max_position_embeddings"]), int(decoder["vocab_size"])
        return EncoderDecoder("encoder_decoder", (height, width), patches, positions, vocabulary)
    except (KeyError, TypeError, ValueError, IndexError) as error:
        message = f"config.json of an encoder and decoder is incomplete: {error}"
        raise ModelError(message, code="checkpoint-incomplete", hint="download the checkpoint again") from error


def normalize(pixels: "Tensor", mean: "Tensor", std: "Tensor") -> "Tensor":
    """Map bytes (B, 3, H, W) to float32, given mean and standard deviation (3,) of pixels of 0 to 1."""
    return (pixels.float() / 255 - mean[:, None, None]) / std[:, None, None]


def _read_preprocessor(folder: Path) -> dict[str, Any]:
    """Read how the checkpoint's images are normalized. Raises ModelError if the file is missing or not JSON."""
    path = folder / _PREPROCESSOR
    if not path.is_file() and (folder / "processor_config.json").is_file():
        path = folder / "processor_config.json"
    try:
        settings = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        hint = f"download {_PREPROCESSOR} from the page of the checkpoint into this folder"
        raise ModelError(f"{_PREPROCESSOR} is missing", code="processor-missing", where=folder, hint=hint) from error
    except (OSError, ValueError) as error:
        raise ModelError(f"Cannot read the image settings: {error}", code="processor-missing", where=path) from error
    found: dict[str, Any] = settings.get("image_processor", settings) if isinstance(settings, dict) else {}
    return found


def _load_tokenizer(folder: Path) -> "PreTrainedTokenizerBase":
    """Load the tokenizer, from `tokenizer.json` or from the files of its class. Raises ModelError if that fails."""
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    if (folder / "tokenizer.json").is_file():
        return PreTrainedTokenizerFast.from_pretrained(folder, local_files_only=True)
    try:
        return AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # each tokenizer has its own way to miss a file or a package
        hint = "download the tokenizer's files, or save it with AutoTokenizer where its packages are installed"
        raise ModelError(
            f"Cannot load the tokenizer: {error}", code="tokenizer-missing", where=folder, hint=hint
        ) from error


def _token_ids(folder: Path, tokenizer: "PreTrainedTokenizerBase") -> tuple[int, int, int]:
    """Return the ids that start, end and pad a text, from the checkpoint's configs, else from the tokenizer.

    Raises ModelError if one of them is stated nowhere.
    """
    config = read_config_json(folder)
    path = folder / "generation_config.json"
    generation = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    sources = (config, generation, config.get("decoder") or {})

    def find(name: str, *tokens: int | None) -> int:
        stated = [source.get(name) for source in sources]
        stated = [value[0] if isinstance(value, list) else value for value in stated]
        for value in (*stated, *tokens):
            if value is not None:
                return int(value)
        message = f"No {name}: neither config.json nor generation_config.json nor the tokenizer has one"
        raise ModelError(message, code="token-ids-missing", where=folder, hint=f"add {name} to config.json")

    end = find("eos_token_id", tokenizer.eos_token_id, tokenizer.sep_token_id)
    start = find("decoder_start_token_id", tokenizer.bos_token_id, tokenizer.cls_token_id)
    return start, end, find("pad_token_id", tokenizer.pad_token_id)


def _is_kept(file: Path) -> bool:
    """Whether a file of the base belongs to every checkpoint trained from it: tokenizer and image settings."""
    return is_plain(file) and file.name not in {"config.json", "README.md", MANIFEST, "reading.json", "provenance.json"}
