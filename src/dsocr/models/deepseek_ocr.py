"""The DeepSeek-OCR family: DeepSeek-OCR, DeepSeek-OCR-2, Unlimited-OCR, and the embedded `nano`.

The published checkpoints of DeepSeek-OCR and DeepSeek-OCR-2 both have the model type `deepseek_vl_v2` and refer to
remote code, which is never run: transformers holds DeepSeek-OCR's network as `unlimited_ocr` with full attention in
every layer, and DeepSeek-OCR-2's as `deepseek_ocr2`. Their `config.json` omits some sizes and states others wrongly, so
sizes come from the shapes of the tensors, and `config.json` is read only for values that shapes do not determine.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from dsocr.errors import ConfigError, ModelError
from dsocr.models.base_folder import Shapes, load_tokenizer, read_config_json, tensor_shapes
from dsocr.models.canvas import UNTILED, Grid, Resolution, Tiling
from dsocr.models.family import IMAGE, VLLM_GUARD, Batch, InputLength, Serving, unknown_resolution
from dsocr.models.token_family import CanvasEncoded, CanvasProcessor, Features, TokenFamily

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

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
    "decoder+experts+vision": rf"model\.({_DECODER}|{_SAM}|{_CLIP}|{_QWEN}|{PROJECTOR})",
}
"""Named sets of layers for an adapter; those with `experts` adapt the routed experts' parameters as well."""

EXPERTS = ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]


_BASE_NOTE = (
    "vLLM 0.32 refuses the published base because of its tensor `model.vision_model.embeddings.position_ids`. "
    "`dsocr export RUN -o FOLDER --form merged --scale 0` writes the base without it: serve that folder instead."
)


SERVING = Serving(
    ("--logits-processors", VLLM_GUARD, "--no-enable-prefix-caching", "--mm-processor-cache-gb", "0"),
    "gundam_vllm",
    "vLLM shows the whole image at 1024 x 1024 and up to six tiles",
    _BASE_NOTE,
)
_SERVING_2 = SERVING._replace(resolution="gundam", base_note="")

BASES: Mapping[str, Serving | None] = {
    "deepseek-ai/DeepSeek-OCR": SERVING,
    "deepseek-ai/DeepSeek-OCR-2": _SERVING_2,
    "deepseek-community/DeepSeek-OCR-2": _SERVING_2,
    "baidu/Unlimited-OCR": SERVING,
}
"""Published networks, and how vLLM serves them."""

Variant = Literal["deepseek_ocr", "unlimited_ocr", "deepseek_ocr_2", "nano"]
"""Bases with the same image preparation; `nano` is DeepSeek-OCR's network with small numbers."""

_SQUASHED = [Resolution("tiny", 512, "squash", 64), Resolution("small", 640, "squash", 64)]
_BASE = Resolution("base", 1024, "pad", 64)
# Not one of the authors': a line as a small paragraph, at the size of their `small`.
_WRAP = Resolution("wrap", 640, "wrap", 64, max_row_height=128)

RESOLUTIONS = {
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


def find_resolution(variant: Variant, name: str | None) -> Resolution:
    """Return the resolution of that name, or the default for None. Raises ConfigError listing the names."""
    known = {resolution.name: resolution for resolution in RESOLUTIONS[variant]}
    name = name or ("wrap" if variant == "nano" else "base")
    chosen = known.get(name)
    if chosen is None:
        raise unknown_resolution(name, f"it has {', '.join(known)}")
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
    """Turn images and texts into model inputs, for one base, resolution and prompt."""

    image_token_id: int

    def prompt_ids(self, grid: Grid = UNTILED) -> tuple[int, ...]:
        """Return begin token, image slots and prompt, without end token; `grid` decides the number of slots."""
        before, after = self.prompt.split(IMAGE)
        slots = (self.image_token_id,) * self.resolution.slots(grid)
        return (int(self.tokenizer.bos_token_id), *self.text_ids(before), *slots, *self.text_ids(after))

    def encoder_features(self, network: Any, samples: Sequence[CanvasEncoded], dtype: "torch.dtype") -> list[Features]:
        """Return the decoder's inputs in the image slots of each sample."""
        images = self.image_inputs(samples, network, dtype)
        features = network.get_image_features(**images, return_dict=True).pooler_output
        return [Features(tokens, sample.grid) for tokens, sample in zip(features, samples, strict=True)]

    def measure(self, text: str, image_size: Callable[[], tuple[int, int]]) -> InputLength:
        """Measure a sample without encoding it; the size of the image matters for tiles only."""
        grid = UNTILED if self.resolution.tiling is None else self.resolution.grid(*image_size())
        vision, answer = self.resolution.slots(grid), len(self.answer_ids(text))
        return InputLength(vision, answer, len(self.prompt_ids()) - self.resolution.slots() + vision + answer)


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
    unused_tensors = tuple(map(re.escape, UNUSED_TENSORS))
    vision_pattern = rf"\.(vision_tower|{PROJECTOR})\."

    @property
    def serving(self) -> Serving | None:
        """How vLLM serves a checkpoint in the authors' layout; it has no class for others."""
        if not self.original:
            return None
        return _SERVING_2 if self.name == "deepseek_ocr_2" else SERVING

    @property
    def network_class(self) -> Any:
        """The class of transformers that holds the network. Imports torch."""
        from transformers import DeepseekOcr2ForConditionalGeneration, UnlimitedOcrForConditionalGeneration

        second = self.name == "deepseek_ocr_2"
        return DeepseekOcr2ForConditionalGeneration if second else UnlimitedOcrForConditionalGeneration

    def validate_input(self, resolution: str | None, prompt: str) -> None:
        """Raise ConfigError for an unknown resolution or prompt."""
        find_resolution(self.name, resolution)
        find_prompt(prompt)

    def load_network(self, folder: Path, **options: Any) -> "PreTrainedModel":
        """Load the network, with the ids that begin, end and pad a text."""
        from transformers import GenerationConfig

        from dsocr.models.base_folder import load_pretrained

        raw, shapes, tokenizer = read_config_json(folder), tensor_shapes(folder), load_tokenizer(folder)
        try:
            if self.original:
                config = original_config(self, raw, shapes, image_token_id(tokenizer, folder))
            else:
                config = self.network_class.config_class.from_dict(raw)
        except KeyError as error:
            message = f"Checkpoint is incomplete: {error.args[0]} is missing"
            raise ModelError(message, code="base-incomplete", where=folder, hint="download it again") from error
        network = load_pretrained(self.network_class, config, folder, unused=self.unused_tensors, **options)
        ids = {f"{name}_token_id": getattr(tokenizer, f"{name}_token_id") for name in ("bos", "eos", "pad")}
        network.generation_config = GenerationConfig(**ids)
        return network

    def processor(self, folder: Path, resolution: str | None, prompt: str) -> DeepseekProcessor:
        """Return the processor for a resolution (None: the default) and a prompt, by name or as text."""
        tokenizer, chosen = load_tokenizer(folder), find_resolution(self.name, resolution)
        slot, ends, pad_id = image_token_id(tokenizer, folder), (tokenizer.eos_token_id,), tokenizer.pad_token_id
        return DeepseekProcessor(self, tokenizer, chosen, slot, end_ids=ends, pad_id=pad_id, prompt=find_prompt(prompt))

    def encode_images(self, model: Any, batch: Batch) -> Batch:
        """Encode images one by one, unless vision towers are trained: SAM takes 0.8 GB for each that is encoded."""
        import torch

        from dsocr.models.token_batches import ImageFeatures

        if "pixel_values" not in batch:
            return batch
        network = getattr(model, "module", model)  # of DistributedDataParallel
        vision = [weight for name, weight in network.named_parameters() if self.is_vision(name)]
        if torch.is_grad_enabled() and any(weight.requires_grad for weight in vision):
            return batch
        pixels, dtype = batch["pixel_values"], vision[0].dtype
        names = ("pixel_values", "pixel_values_local", "num_local_patches", "patches_grid")
        counts: Sequence[int] = batch.get("num_local_patches") or [0] * len(pixels)
        features: list[torch.Tensor] = []
        for place, count in enumerate(counts):
            image: Batch = {"pixel_values": pixels[place : place + 1]}
            if count:
                end = sum(counts[: place + 1])
                image |= {"pixel_values_local": batch["pixel_values_local"][end - count : end]}
                image |= {"num_local_patches": [count]}
                image |= {"patches_grid": [batch["patches_grid"][place]]} if "patches_grid" in batch else {}
            # Accelerate computes a forward pass with autocast, but no other method of the network.
            with torch.autocast(pixels.device.type, dtype, enabled=dtype != pixels.dtype):
                features.extend(network.get_image_features(**image, return_dict=True).pooler_output)
        kept = {name: value for name, value in batch.items() if name not in names}
        return {**kept, "mm_encoder_outputs": {"image": ImageFeatures(features)}}

    def prepare_batch(self, batch: Mapping[str, Any], dtype: "torch.dtype | None" = None) -> dict[str, Any]:
        """Normalize pixels, and drop the mask in training, which a causal decoder padded right ignores."""
        prepared = TokenFamily.prepare_batch(self, batch, dtype)
        if "labels" in prepared:
            prepared.pop("attention_mask", None)
        return prepared


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


def original_config(
    family: DeepseekOcr, config: Mapping[str, Any], shapes: Shapes, image_token_id: int
) -> "PreTrainedConfig":
    """Build the native config of a checkpoint in the authors' layout.

    Raises KeyError if a required tensor or entry of `config.json` is missing.
    """
    text, make = _text_config(config["language_config"], shapes), family.network_class.config_class
    if family.name == "deepseek_ocr_2":
        # DeepSeek-OCR-2 is built from the same decoder, but its class has other defaults.
        text |= {"rms_norm_eps": 1e-6, "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}}
        dense = text.pop("first_k_dense_replace")
        text["mlp_layer_types"] = ["dense" if n < dense else "sparse" for n in range(text["num_hidden_layers"])]
        vision = {"sam_config": _sam_config(shapes), "encoder_config": _qwen_config(shapes)}
        return make(vision_config=vision, text_config=text, image_token_id=image_token_id)
    # Unlimited-OCR attends to the prompt and the last 128 tokens, which DeepSeek-OCR was not trained for. The window
    # must still be a number; full attention ignores it.
    text |= {"layer_types": ["full_attention"] * text["num_hidden_layers"], "sliding_window": 128}
    heads = config["vision_config"]["width"]["clip-l-14-224"]["heads"]
    vision = {"sam_config": _sam_config(shapes), "encoder_config": _clip_config(shapes, heads)}
    return make(vision_config=vision, text_config=text, image_token_id=image_token_id)


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
