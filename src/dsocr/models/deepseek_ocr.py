"""The DeepSeek-OCR family: DeepSeek-OCR, DeepSeek-OCR-2, Unlimited-OCR, and the embedded `nano`.

The published checkpoints of DeepSeek-OCR and DeepSeek-OCR-2 both have the model type `deepseek_vl_v2` and refer to
remote code, which is never run: transformers holds DeepSeek-OCR's network as `unlimited_ocr` with full attention in
every layer, and DeepSeek-OCR-2's as `deepseek_ocr2`. Their `config.json` omits some sizes and states others wrongly, so
sizes come from the shapes of the tensors, and `config.json` is read only for values that shapes do not determine.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from PIL import Image

from dsocr.errors import ConfigError, ModelError
from dsocr.models.base_folder import Shapes, tensor_shapes
from dsocr.models.deepseek_images import (
    UNTILED,
    Grid,
    Resolution,
    Variant,
    Views,
    find_resolution,
    resolutions,
    show,
)

if TYPE_CHECKING:
    import torch
    from torch import Tensor
    from transformers import PreTrainedConfig, PreTrainedTokenizerBase

UNUSED_TENSORS = (
    "model.vision_model.embeddings.patch_embedding.weight",
    "model.vision_model.embeddings.position_ids",
)
"""Tensors of the published DeepSeek-OCR that no code uses: its second tower takes the first one's output."""

NATIVE_DECODER = "model.language_model.layers."
ORIGINAL_DECODER = "model.layers."
"""Where the decoder's layers are in the native network, and in the authors' checkpoints and in saved adapters."""

PROJECTOR = "multi_modal_projector"
"""The layer between the vision towers and the decoder."""

_DECODER = r"language_model\.layers\.\d+\.(self_attn\.[qkvo]_proj|mlp\.(shared_experts\.)?(gate|up|down)_proj)"
_SAM = r"vision_tower\.sam_encoder\.layers\.\d+\.(attn\.(qkv|proj)|mlp\.lin[12])"
_CLIP = r"vision_tower\.vision_encoder\.encoder\.layers\.\d+\.(self_attn\.(q|k|v|out)_proj|mlp\.fc[12])"
_QWEN = r"vision_tower\.vision_encoder\.layers\.\d+\.(self_attn\.[qkvo]_proj|mlp\.(gate|up|down)_proj)"

TARGET_MODULES = {
    "decoder": rf"model\.{_DECODER}",
    "decoder+experts": rf"model\.{_DECODER}",
    "decoder+vision": rf"model\.({_DECODER}|{_SAM}|{_CLIP}|{_QWEN}|{PROJECTOR})",
}
"""Named sets of layers for an adapter; `decoder+experts` adapts the routed experts' parameters as well."""

EXPERTS = ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]

_NANO_VOCABULARY = 1000
"""A native checkpoint with fewer tokens than this is `nano` or was trained from it."""

_QWEN_HEAD = 64
"""Width of an attention head in DeepSeek-OCR-2's second tower, which the checkpoint does not state."""


@dataclass(frozen=True, slots=True)
class DeepseekOcr:
    """A checkpoint of this family: which variant it is, and whether its files are in the authors' layout."""

    name: Variant
    original: bool

    @property
    def network_class(self) -> Any:
        """The class of transformers that holds the network. Imports torch."""
        from transformers import DeepseekOcr2ForConditionalGeneration, UnlimitedOcrForConditionalGeneration

        second = self.name == "deepseek_ocr_2"
        return DeepseekOcr2ForConditionalGeneration if second else UnlimitedOcrForConditionalGeneration

    @property
    def target_modules(self) -> Mapping[str, str]:
        """Named sets of layers that an adapter may train, as anchored patterns over module names."""
        return TARGET_MODULES

    @property
    def saved_names(self) -> tuple[str, str]:
        """A part of the native tensor names, and what replaces it in saved adapters."""
        return NATIVE_DECODER, ORIGINAL_DECODER

    @property
    def expert_parameters(self) -> list[str]:
        """Parameters of the routed experts, which are not modules of their own."""
        return EXPERTS

    @property
    def unused_tensors(self) -> tuple[str, ...]:
        """Tensors of the checkpoint that its network does not use."""
        return UNUSED_TENSORS

    def is_vision(self, parameter: str) -> bool:
        """Whether a parameter belongs to the vision towers or their projector."""
        return ".vision_tower." in parameter or f".{PROJECTOR}." in parameter

    def network_config(self, raw: Mapping[str, Any], folder: Path, tokenizer: "PreTrainedTokenizerBase") -> Any:
        """Return the native config. Raises ModelError if a tensor or an entry of `config.json` is missing."""
        shapes = tensor_shapes(folder)
        if not self.original:
            return _config_class(self.name).from_dict(raw)
        try:
            return original_config(self, raw, shapes, image_token_id(tokenizer, folder))
        except KeyError as error:
            raise ModelError(
                f"Checkpoint is incomplete: {error.args[0]} is missing",
                code="checkpoint-incomplete",
                where=folder,
                hint="download it again",
            ) from error

    def validate_input(self, resolution: str | None, prompt: str) -> None:
        """Raise ConfigError for an unknown resolution or prompt."""
        find_resolution(self.name, resolution)
        find_prompt(prompt)

    def processor(
        self, tokenizer: "PreTrainedTokenizerBase", folder: Path, resolution: str | None, prompt: str
    ) -> "Processor":
        """Return the processor for a resolution (None: the default) and a prompt, by name or as text."""
        chosen = find_resolution(self.name, resolution)
        others = tuple(other for other in resolutions(self.name) if other != chosen)
        return Processor(tokenizer, image_token_id(tokenizer, folder), chosen, find_prompt(prompt), others)


def recognize(config: Mapping[str, Any]) -> DeepseekOcr | None:
    """Return what a `config.json` describes, or None if it is not of this family."""
    model_type = str(config.get("model_type", "")).lower().replace("-", "_")
    vision, text = config.get("vision_config"), config.get("text_config")
    encoder = vision.get("model_name") if isinstance(vision, Mapping) else None
    if encoder == "deeplip_b_l" and model_type != "unlimited_ocr":
        return DeepseekOcr("deepseek_ocr", original=True)
    if encoder == "deepencoderv2":
        return DeepseekOcr("deepseek_ocr_2", original=True)
    if model_type == "deepseek_ocr2":
        return DeepseekOcr("deepseek_ocr_2", original=False)
    if model_type != "unlimited_ocr":
        return None
    text = text if isinstance(text, Mapping) else {}
    if 0 < int(text.get("vocab_size", 0)) < _NANO_VOCABULARY:
        return DeepseekOcr("nano", original=False)
    # Saved by transformers, DeepSeek-OCR has full attention in all layers. Unlimited-OCR, of the same class, has not.
    full = bool(text.get("layer_types")) and set(text["layer_types"]) == {"full_attention"}
    return DeepseekOcr("deepseek_ocr" if full else "unlimited_ocr", original=False)


def _config_class(name: Variant) -> Any:
    from transformers import DeepseekOcr2Config, UnlimitedOcrConfig

    return DeepseekOcr2Config if name == "deepseek_ocr_2" else UnlimitedOcrConfig


def original_config(
    family: DeepseekOcr, config: Mapping[str, Any], shapes: Shapes, image_token_id: int
) -> "PreTrainedConfig":
    """Build the native config of a checkpoint in the authors' layout.

    Raises KeyError if a required tensor or entry of `config.json` is missing.
    """
    text = _text_config(config["language_config"], shapes)
    if family.name == "deepseek_ocr_2":
        # DeepSeek-OCR-2 is built from the same decoder, but its class has other defaults.
        text |= {"rms_norm_eps": 1e-6, "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}}
        text |= {"mlp_layer_types": _mlp_types(text.pop("first_k_dense_replace"), text["num_hidden_layers"])}
        vision = {"sam_config": _sam_config(shapes), "encoder_config": _qwen_config(shapes)}
        return _config_class(family.name)(vision_config=vision, text_config=text, image_token_id=image_token_id)
    # Unlimited-OCR attends to the prompt and the last 128 tokens, which DeepSeek-OCR was not trained for. The window
    # must still be a number; full attention ignores it.
    text |= {"layer_types": ["full_attention"] * text["num_hidden_layers"], "sliding_window": 128}
    heads = config["vision_config"]["width"]["clip-l-14-224"]["heads"]
    vision = {"sam_config": _sam_config(shapes), "encoder_config": _clip_config(shapes, heads)}
    return _config_class(family.name)(vision_config=vision, text_config=text, image_token_id=image_token_id)


def _mlp_types(dense: int, layers: int) -> list[str]:
    return ["dense" if layer < dense else "sparse" for layer in range(layers)]


def _text_config(language: Mapping[str, Any], shapes: Shapes) -> dict[str, Any]:
    layers = _layers(shapes, "model.layers.")
    dense = int(language.get("first_k_dense_replace", 1))
    vocabulary, width = shapes["model.embed_tokens.weight"]
    sparse = f"model.layers.{layers - 1}.mlp"
    expert = shapes[f"{sparse}.experts.0.gate_proj.weight"][0]
    return {
        "vocab_size": vocabulary,
        "hidden_size": width,
        "intermediate_size": shapes["model.layers.0.mlp.gate_proj.weight"][0],
        "num_hidden_layers": layers,
        "num_attention_heads": language["num_attention_heads"],
        "num_key_value_heads": language["num_key_value_heads"],
        "n_routed_experts": shapes[f"{sparse}.gate.weight"][0],
        "n_shared_experts": shapes[f"{sparse}.shared_experts.gate_proj.weight"][0] // expert,
        "num_experts_per_tok": language["num_experts_per_tok"],
        "moe_intermediate_size": expert,
        "n_group": language.get("n_group", 1),
        "topk_group": language.get("topk_group", 1),
        "topk_method": language.get("topk_method", "greedy"),
        "max_position_embeddings": language.get("max_position_embeddings", 8192),
        "first_k_dense_replace": dense,
        "bos_token_id": 0,
        "eos_token_id": 1,
    }


def _sam_config(shapes: Shapes) -> dict[str, Any]:
    prefix = "model.sam_model"
    layers = _layers(shapes, f"{prefix}.blocks.")
    width, _, patch, _ = shapes[f"{prefix}.patch_embed.proj.weight"]
    # Windowed layers have relative positions -window+1..window-1, global layers one for each patch of the canvas.
    reaches = [shapes[f"{prefix}.blocks.{layer}.attn.rel_pos_h"] for layer in range(layers)]
    side = shapes[f"{prefix}.pos_embed"][1]
    global_layers = [layer for layer, (reach, _) in enumerate(reaches) if reach == 2 * side - 1]
    window = min((reach + 1) // 2 for reach, _ in reaches)
    return {
        "hidden_size": width,
        "output_channels": shapes[f"{prefix}.neck.0.weight"][0],
        "num_hidden_layers": layers,
        "num_attention_heads": width // reaches[0][1],
        "image_size": side * patch,
        "patch_size": patch,
        "window_size": window,
        "global_attn_indexes": global_layers,
        "mlp_dim": shapes[f"{prefix}.blocks.0.mlp.lin1.weight"][0],
        "downsample_channels": [shapes[f"{prefix}.net_2.weight"][0], shapes[f"{prefix}.net_3.weight"][0]],
    }


def _clip_config(shapes: Shapes, heads: int) -> dict[str, Any]:
    prefix = "model.vision_model"
    width, _, patch, _ = shapes[f"{prefix}.embeddings.patch_embedding.weight"]
    positions = shapes[f"{prefix}.embeddings.position_embedding.weight"][0]
    return {
        "hidden_size": width,
        "intermediate_size": shapes[f"{prefix}.transformer.layers.0.mlp.fc1.weight"][0],
        "num_hidden_layers": _layers(shapes, f"{prefix}.transformer.layers."),
        "num_attention_heads": heads,
        "image_size": round((positions - 1) ** 0.5) * patch,
        "patch_size": patch,
    }


def _qwen_config(shapes: Shapes) -> dict[str, Any]:
    prefix = "model.qwen2_model.model.model.layers."
    width = shapes[f"{prefix}0.self_attn.q_proj.weight"][0]
    return {
        "hidden_size": width,
        "intermediate_size": shapes[f"{prefix}0.mlp.gate_proj.weight"][0],
        "num_hidden_layers": _layers(shapes, prefix),
        "num_attention_heads": width // _QWEN_HEAD,
        "num_key_value_heads": shapes[f"{prefix}0.self_attn.k_proj.weight"][0] // _QWEN_HEAD,
        "rms_norm_eps": 1e-6,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1_000_000.0},
    }


def _layers(shapes: Shapes, prefix: str) -> int:
    numbers = (re.match(rf"{re.escape(prefix)}(\d+)\.", name) for name in shapes)
    return 1 + max((int(match[1]) for match in numbers if match), default=-1)


IMAGE = "<image>"
"""Placeholder of the image in a prompt; the tokenizer's id for it fills the image slots."""

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
class Encoded:
    """One sample as model inputs.

    `prompt_ids` holds one id for each image slot; `answer_ids` ends with the end token and is empty for transcription.
    `stitches_tiles` says whether the network takes the grid of the tiles. `features` (slots, D) are the features of the
    image if they have been computed already; `views` is then ignored.
    """

    prompt_ids: tuple[int, ...]
    answer_ids: tuple[int, ...]
    views: Views
    stitches_tiles: bool = True
    features: "Tensor | None" = None


@dataclass(frozen=True, slots=True)
class Processor:
    """Turn images and texts into model inputs, for one base, resolution and prompt.

    `others` are the base's other resolutions.
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

    def encode(self, image: Image.Image, text: str | None = None) -> Encoded:
        """Encode one image, with its transcription for training or without for transcription."""
        answer = () if text is None else self.answer_ids(text)
        views = show(image, self.resolution)
        return Encoded(self.prompt_ids(views.grid), answer, views, self.resolution.row_ends)

    def collate(
        self,
        samples: Sequence[Encoded],
        *,
        padding: Literal["left", "right"],
        device: "torch.device | str" = "cpu",
        dtype: "torch.dtype | None" = None,
    ) -> dict[str, Any]:
        """Batch encoded samples, padded right for training and left for generation; see `batch.collate`."""
        import torch

        from dsocr.models.batch import collate

        return collate(samples, self.pad_id, padding=padding, device=device, dtype=dtype or torch.float32)

    def unknown_characters(self, text: str) -> str:
        """Return the characters of the text that the tokenizer cannot encode, each once, in their order."""
        unknown = self.tokenizer.unk_token_id
        if unknown is None:  # a byte-level tokenizer encodes everything
            return ""
        return "".join(c for c in dict.fromkeys(text) if unknown in self.text_ids(c))


def image_token_id(tokenizer: "PreTrainedTokenizerBase", folder: Path) -> int:
    """Return the id that fills the image slots. Raises ModelError if the tokenizer has none."""
    number = tokenizer.convert_tokens_to_ids(IMAGE)
    if number is None or number == tokenizer.unk_token_id:
        raise ModelError(f"Tokenizer has no {IMAGE} token", code="tokenizer-no-image", where=folder)
    return int(number)
