"""The family of `VisionEncoderDecoderModel`: TrOCR, Donut, and other pairs of an image encoder and a text decoder.

The encoder sees one canvas of fixed size, and the decoder attends to its output: there are no image tokens and no
prompt. Published TrOCR squashes every line into a square, about tenfold; here a line is wrapped into rows, or padded
with its aspect ratio kept, and `squash` must be asked for. The ids that start, end and pad a text are read from the
checkpoint and set explicitly, because its files often disagree, and a wrong end id makes a network that never stops.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from PIL import Image

from dsocr.errors import ConfigError, ModelError
from dsocr.io.encodings import read_object, reading_json
from dsocr.models.base_folder import read_config_json
from dsocr.models.canvas import PAD_COLOUR, Layout, Resolution
from dsocr.models.family import IGNORED, Batch, Check, InputLength, unknown_resolution
from dsocr.models.token_family import CanvasEncoded, CanvasProcessor, Features, TokenFamily, check_labels

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

_PREPROCESSOR = "preprocessor_config.json"
_ROWS = 4
"""Rows into which a line is wrapped at first; up to eight if it is longer."""

_DECODER = r"decoder\..*\.layers\.\d+\.((self_attn|encoder_attn)\.[kvq]_proj|(self_attn|encoder_attn)\.out_proj|fc[12])"
_VIT = r"encoder\.layers\.\d+\.(attention\.[qkvo]_proj|mlp\.fc[12])"
_SWIN = (
    r"encoder\.encoder\.layers\.\d+\.blocks\.\d+\."
    r"(attention\.self\.(query|key|value)|attention\.output\.dense|intermediate\.dense|output\.dense)"
)

BASES = dict.fromkeys(
    ("microsoft/trocr-base-handwritten", "microsoft/trocr-large-handwritten", "naver-clova-ix/donut-base")
)
"""Published networks."""

TARGET_MODULES = {"decoder": _DECODER, "vision": f"{_VIT}|{_SWIN}", "decoder+vision": f"{_DECODER}|{_VIT}|{_SWIN}"}
"""Named sets of layers for an adapter."""


@dataclass(frozen=True, slots=True)
class EncoderDecoderProcessor(CanvasProcessor):
    """Turn images and texts into inputs; `mean` and `std` normalize pixels of 0 to 1, a number for each channel."""

    family: "EncoderDecoder"
    mean: tuple[float, ...]
    std: tuple[float, ...]
    start_id: int

    def collate(self, samples: Sequence[CanvasEncoded], padding: Literal["left", "right"] = "right") -> Batch:
        """Return `pixel_values` (B, 3, H, W) as bytes, and `decoder_input_ids` and `labels` (B, L).

        Of samples with features, `encoder_states` (B, n, D) replaces the pixels. The decoder's input is the labels
        moved one to the right behind the start token; without a text it is `input_ids` (B, 1), the start token. Raises
        ModelError for a text that is longer than the decoder's positions.
        """
        import torch

        from dsocr.models.token_batches import list_features, pad_rows

        longest = max(len(sample.answer_ids) for sample in samples)
        if longest > self.family.positions:
            message = f"A text has {longest} tokens, and the decoder has {self.family.positions} positions"
            hint = f"set training.max_text_tokens to {self.max_text_tokens} or less, with long_text: exclude"
            raise ModelError(message, code="text-too-long", hint=hint)
        batch: Batch = {"input_ids": torch.full((len(samples), 1), self.start_id)}
        if longest:
            inputs = [(self.start_id, *sample.answer_ids[:-1]) for sample in samples]
            labels = pad_rows([sample.answer_ids for sample in samples], IGNORED)
            batch = {"decoder_input_ids": pad_rows(inputs, self.pad_id), "labels": labels}
        if features := list_features(samples):
            return {**batch, "encoder_states": torch.stack(features)}
        return {**batch, **CanvasEncoded.stack_images(samples), "mean_and_std": torch.tensor([self.mean, self.std])}

    def feature_width(self, network: Any) -> int:
        """Return the width of the encoder."""
        return int(network.encoder.config.hidden_size)

    def encoder_features(self, network: Any, samples: Sequence[CanvasEncoded], dtype: "torch.dtype") -> list[Features]:
        """Return the last states of the encoder for each sample."""
        pixels = self.on_device(self.collate(samples), network, dtype)["pixel_values"]
        return [Features(states) for states in network.encoder(pixel_values=pixels).last_hidden_state]

    def unknown_characters(self, text: str) -> str:
        """Return the characters of a text that its tokens do not decode to, each once, in their order."""
        if self.text_of(self.text_ids(text)) == text:
            return ""
        return "".join(c for c in dict.fromkeys(text) if self.text_of(self.text_ids(c)).strip() != c.strip())

    def measure(self, text: str, image_size: Callable[[], tuple[int, int]]) -> InputLength:
        """Measure a sample; all images take the same, so the text alone decides the batches."""
        length = len(self.text_ids(text)) + 1
        return InputLength(self.family.patches, length, length)


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
    vision_pattern = r"^(base_model\.model\.)?(encoder|enc_to_dec_proj)\."

    @property
    def layouts(self) -> tuple[Layout, ...]:
        """The resolutions, the default first; only a square canvas has rows of a wrapped line."""
        return ("wrap", "pad", "squash") if self.size[0] == self.size[1] else ("pad", "squash")

    def load_network(self, folder: Path, **options: Any) -> "PreTrainedModel":
        """Load the network, with the ids that start, end and pad a text."""
        from transformers import GenerationConfig, VisionEncoderDecoderConfig, VisionEncoderDecoderModel

        from dsocr.models.base_folder import load_pretrained

        processor = self.processor(folder, None, "")
        try:
            config = VisionEncoderDecoderConfig.from_dict(read_config_json(folder))
        except (ValueError, KeyError) as error:
            message = f"transformers does not know its encoder or decoder: {error}"
            raise ModelError(message, code="model-unknown", where=folder) from error
        network = load_pretrained(VisionEncoderDecoderModel, config, folder, unused=(), **options)
        ids = {"decoder_start_token_id": processor.start_id, "eos_token_id": processor.end_id}
        ids |= {"pad_token_id": processor.pad_id}
        for key, value in ids.items():
            setattr(network.config, key, value)
        network.generation_config = GenerationConfig(**ids)
        return network

    def validate_input(self, resolution: str | None, prompt: str) -> None:
        """Raise ConfigError for an unknown resolution, and for a prompt."""
        if resolution is not None and resolution not in self.layouts:
            raise unknown_resolution(resolution, f"it has {', '.join(self.layouts)}")
        if prompt not in ("", "free_ocr"):
            message = "input.prompt: networks of encoder and decoder take no prompt"
            raise ConfigError(message, code="prompt-unsupported", hint="leave it out")

    def processor(self, folder: Path, resolution: str | None, prompt: str) -> EncoderDecoderProcessor:
        """Return the processor for a resolution; None: `wrap` for a square canvas, else `pad`."""
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
            raise ModelError(message, code="base-incomplete", where=folder, hint="download the checkpoint again")
        fill = 0 if image.get("do_pad") else PAD_COLOUR  # Donut's own padding is black
        height, width = self.size
        resample = Image.Resampling.BILINEAR if layout == "squash" else Image.Resampling.BICUBIC
        canvas = Resolution(
            layout, width, layout, max_row_height=width // _ROWS, height=height, fill=fill, resample=resample
        )
        start, end, pad = ids
        return EncoderDecoderProcessor(
            self,
            tokenizer,
            canvas,
            mean,
            std,
            start,
            end_ids=(end,),
            pad_id=pad,
            max_text_tokens=self.positions - 1,  # the last position is for the end token
            # Networks trained on a tokenizer's own output write the begin token first.
            answer_start=str(tokenizer.bos_token or ""),
        )

    def prepare_training(
        self, model: Any, network: "PreTrainedModel", *, compile_layers: bool, checkpoint_activations: bool
    ) -> None:
        """Compile encoder and decoder, and recompute activations, if wanted."""
        if (pooler := getattr(network.encoder, "pooler", None)) is not None:
            pooler.requires_grad_(False)  # the decoder attends to the encoder's states, not to the pooled ones
        if compile_layers:
            network.encoder.compile()
            network.decoder.compile()
        options = {"compile_layers": False, "checkpoint_activations": checkpoint_activations}
        TokenFamily.prepare_training(self, model, network, **options)

    def prepare_batch(self, batch: Mapping[str, Any], dtype: "torch.dtype | None" = None) -> Batch:
        """Normalize pixels, or wrap the encoder's output as the decoder takes it."""
        import torch
        from transformers.modeling_outputs import BaseModelOutput

        prepared, dtype = dict(batch), dtype or torch.float32
        if "encoder_states" in prepared:
            prepared["encoder_outputs"] = BaseModelOutput(prepared.pop("encoder_states").to(dtype))
        else:
            mean, std = prepared.pop("mean_and_std")[..., None, None]  # of pixels of 0 to 1, for each colour
            prepared["pixel_values"] = ((prepared["pixel_values"].float() / 255 - mean) / std).to(dtype)
        return prepared

    def check_inputs(
        self, model: Any, processor: EncoderDecoderProcessor, samples: Sequence[CanvasEncoded], texts: Sequence[str]
    ) -> list[Check]:
        """Check that the labels are the texts with their end token."""
        return [check_labels(processor.collate(samples), samples, texts, processor)]


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
        raise ModelError(message, code="base-incomplete", hint="download the checkpoint again") from error


def _read_preprocessor(folder: Path) -> dict[str, Any]:
    """Read how the checkpoint's images are normalized. Raises ModelError if the file is missing or not JSON."""
    path = folder / _PREPROCESSOR
    if not path.is_file() and (folder / "processor_config.json").is_file():
        path = folder / "processor_config.json"
    if not path.is_file():
        hint = f"download {_PREPROCESSOR} from the page of the checkpoint into this folder"
        raise ModelError(f"{_PREPROCESSOR} is missing", code="base-incomplete", where=folder, hint=hint)
    with reading_json(path, ModelError, "base-incomplete", message="Cannot read the image settings") as settings:
        return dict(settings.get("image_processor", settings))


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
            f"Cannot load the tokenizer: {error}", code="base-incomplete", where=folder, hint=hint
        ) from error


def _token_ids(folder: Path, tokenizer: "PreTrainedTokenizerBase") -> tuple[int, int, int]:
    """Return the ids that start, end and pad a text, from the checkpoint's configs, else from the tokenizer.

    Raises ModelError if one of them is stated nowhere.
    """
    config = read_config_json(folder)
    sources = (config, read_object(folder / "generation_config.json"), config.get("decoder") or {})

    def find(name: str, *tokens: int | None) -> int:
        stated = [source.get(name) for source in sources]
        stated = [value[0] if isinstance(value, list) else value for value in stated]
        for value in (*stated, *tokens):
            if value is not None:
                return int(value)
        message = f"No {name}: neither config.json nor generation_config.json nor the tokenizer has one"
        raise ModelError(message, code="base-incomplete", where=folder, hint=f"add {name} to config.json")

    end = find("eos_token_id", tokenizer.eos_token_id, tokenizer.sep_token_id)
    start = find("decoder_start_token_id", tokenizer.bos_token_id, tokenizer.cls_token_id)
    return start, end, find("pad_token_id", tokenizer.pad_token_id)
