"""The DeepSeek-OCR family: DeepSeek-OCR, DeepSeek-OCR-2, Unlimited-OCR, and the embedded `nano`.

The published checkpoints of DeepSeek-OCR and DeepSeek-OCR-2 both have the model type `deepseek_vl_v2` and refer to
remote code, which is never run: transformers holds DeepSeek-OCR's network as `unlimited_ocr` with full attention in
every layer, and DeepSeek-OCR-2's as `deepseek_ocr2`. Their `config.json` omits some sizes and states others wrongly, so
sizes come from the shapes of the tensors, and `config.json` is read only for values that shapes do not determine.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dsocr.errors import ModelError
from dsocr.models.base_folder import Shapes, load_tokenizer, read_config_json, tensor_shapes
from dsocr.models.deepseek_inputs import (
    DeepseekProcessor,
    Variant,
    find_prompt,
    find_resolution,
    image_token_id,
    resolutions,
)
from dsocr.models.family import VLLM_GUARD, Check, PublishedBase, Serving
from dsocr.models.token_family import TokenFamily

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedConfig, PreTrainedModel

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

_PARITY = "tested here with random weights of its own size, and against the authors' code with small ones"

BASES = (
    PublishedBase("deepseek-ai/DeepSeek-OCR", "MIT", "6.7 GB", _PARITY),
    PublishedBase("deepseek-ai/DeepSeek-OCR-2", "Apache-2.0", "3 billion weights", _PARITY),
    PublishedBase("deepseek-community/DeepSeek-OCR-2", "Apache-2.0", "3 billion weights"),
    PublishedBase("baidu/Unlimited-OCR", "MIT", "3 billion weights"),
)
"""Published networks, and which parts were tried."""

_BASE_NOTE = (
    "vLLM 0.32 refuses the published base because of its tensor `model.vision_model.embeddings.position_ids`. "
    "`dsocr export RUN -o FOLDER --form merged --scale 0` writes the base without it: serve that folder instead."
)


_VIEWS = "vLLM shows the whole image at 1024 x 1024 and up to six tiles"


def _serving(*, second: bool) -> Serving:
    """Return how vLLM serves a network: with the whole view and up to six tiles."""
    options = ("--logits-processors", VLLM_GUARD, "--no-enable-prefix-caching", "--mm-processor-cache-gb", "0")
    return Serving(options, "gundam", _VIEWS) if second else Serving(options, "gundam_vllm", _VIEWS, _BASE_NOTE)


def serving_of(base: str) -> Serving:
    """Return how vLLM serves a published base."""
    return _serving(second=base.endswith("-2"))


_NANO_VOCABULARY = 1000
"""A native checkpoint with fewer tokens than this is `nano` or was trained from it."""

_QWEN_HEAD = 64
"""Width of an attention head in DeepSeek-OCR-2's second tower, which the checkpoint does not state."""


@dataclass(frozen=True, slots=True)
class DeepseekOcr(TokenFamily):
    """A checkpoint of this family: which variant it is, and whether its files are in the authors' layout."""

    name: Variant
    original: bool
    caches_features = True
    target_modules = TARGET_MODULES
    saved_names = (NATIVE_DECODER, ORIGINAL_DECODER)
    expert_parameters = EXPERTS

    @property
    def serving(self) -> Serving | None:
        """How vLLM serves a checkpoint in the authors' layout; it has no class for others."""
        return _serving(second=self.name == "deepseek_ocr_2") if self.original else None

    @property
    def network_class(self) -> Any:
        """The class of transformers that holds the network. Imports torch."""
        from transformers import DeepseekOcr2ForConditionalGeneration, UnlimitedOcrForConditionalGeneration

        second = self.name == "deepseek_ocr_2"
        return DeepseekOcr2ForConditionalGeneration if second else UnlimitedOcrForConditionalGeneration

    @property
    def unused_tensors(self) -> list[str]:
        """Patterns of the tensors of a checkpoint that its network does not use."""
        return [re.escape(name) for name in UNUSED_TENSORS]

    def is_vision(self, parameter: str) -> bool:
        """Whether a parameter belongs to the vision towers or their projector."""
        return ".vision_tower." in parameter or f".{PROJECTOR}." in parameter

    def network_config(self, raw: Mapping[str, Any], folder: Path) -> Any:
        """Return the native config. Raises ModelError if a tensor or an entry of `config.json` is missing."""
        shapes = tensor_shapes(folder)
        if not self.original:
            return _config_class(self.name).from_dict(raw)
        try:
            return original_config(self, raw, shapes, image_token_id(load_tokenizer(folder), folder))
        except KeyError as error:
            raise ModelError(
                f"Checkpoint is incomplete: {error.args[0]} is missing",
                code="base-incomplete",
                where=folder,
                hint="download it again",
            ) from error

    def validate_input(self, resolution: str | None, prompt: str) -> None:
        """Raise ConfigError for an unknown resolution or prompt."""
        find_resolution(self.name, resolution)
        find_prompt(prompt)

    def load_network(self, folder: Path, **options: Any) -> "PreTrainedModel":
        """Load the network, with the ids that begin, end and pad a text."""
        from dsocr.models.base_folder import load_pretrained
        from dsocr.models.causal_decoding import set_token_ids

        config = self.network_config(read_config_json(folder), folder)
        network = load_pretrained(self.network_class, config, folder, unused=self.unused_tensors, **options)
        set_token_ids(network, load_tokenizer(folder))
        return network

    def processor(self, folder: Path, resolution: str | None, prompt: str) -> DeepseekProcessor:
        """Return the processor for a resolution (None: the default) and a prompt, by name or as text."""
        tokenizer = load_tokenizer(folder)
        chosen = find_resolution(self.name, resolution)
        others = tuple(other for other in resolutions(self.name) if other != chosen)
        slot, ends, pad_id = image_token_id(tokenizer, folder), (tokenizer.eos_token_id,), tokenizer.pad_token_id
        prompt = find_prompt(prompt)
        return DeepseekProcessor(self, tokenizer, chosen, slot, others, end_ids=ends, pad_id=pad_id, prompt=prompt)

    def prepare_training(
        self, model: Any, network: "PreTrainedModel", *, compile_layers: bool, checkpoint_activations: bool
    ) -> None:
        """Compute the last layer at trained positions only, unless layers are compiled."""
        from dsocr.models.causal_training import SparseLastBlock

        if not compile_layers:
            SparseLastBlock(network)
        options = {"compile_layers": compile_layers, "checkpoint_activations": checkpoint_activations}
        TokenFamily.prepare_training(self, model, network, **options)

    def prepare_batch(self, batch: Mapping[str, Any], dtype: "torch.dtype | None" = None) -> dict[str, Any]:
        """Normalize pixels, and drop the mask in training, which a causal decoder padded right ignores."""
        prepared = TokenFamily.prepare_batch(self, batch, dtype)
        if "labels" in prepared:
            prepared.pop("attention_mask", None)
        return prepared

    def check_tokens(self, batch: Mapping[str, Any], processor: Any, vocabulary_size: int) -> Check:
        """Check that each row starts with the begin token, has it once, and has only ids that the base knows."""
        from dsocr.models.causal_training import check_prompt

        return check_prompt(batch, processor, vocabulary_size)


def recognize(config: Mapping[str, Any]) -> DeepseekOcr | None:
    """Return the family of a `config.json`, or None if it is another one."""
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
