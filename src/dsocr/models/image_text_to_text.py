"""The family of chat models that read images: whatever transformers loads as `AutoModelForImageTextToText`.

Tested with small random networks of Qwen2.5-VL, Qwen3-VL, Qwen3.5 (LightOnOCR-3, Chandra 2), LightOnOCR-2,
PaddleOCR-VL, GOT-OCR2, GLM-OCR, HunyuanOCR, InternVL, Qianfan-OCR and SmolVLM; others work if their class, processor
and chat template are transformers' own. Their layers are found by the names that transformers gives to text models and
vision towers.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dsocr.errors import ModelError
from dsocr.models.base_folder import read_config_json
from dsocr.models.chat_inputs import ChatProcessor, load_processor, validate_resolution
from dsocr.models.checkpoints import network_type
from dsocr.models.family import VLLM_GUARD, Serving
from dsocr.models.token_family import TokenFamily

if TYPE_CHECKING:
    import torch
    from torch import Tensor
    from transformers import PreTrainedModel

_TEXT_MODEL = r"(language_model|text_model)"
_VISION = r"(visual|vision_tower|vision_model|vision_encoder)"
_PROJECTOR = r"(projector|multi_modal_projector|vision_projection|connector|aligner|merger)"
_LINEAR = (
    r"([qkvo]_proj|out_proj|in_proj_(qkv|z)|qkv|proj|(gate|up|down|gate_up)_proj|(linear_)?fc[12]|lin[12]|w[123]"
    r"|query|key|value|dense|projection_layer)"
)

_DECODER = rf"{_TEXT_MODEL}\.(\w+\.)*layers\.\d+\.(\w+\.)*{_LINEAR}"
_TOWER = rf"{_VISION}\.(\w+\.)*(blocks|layers|layer)\.\d+\.(\w+\.)*{_LINEAR}"
_MERGER = rf"({_VISION}\.(merger|deepstack_merger_list\.\d+)|{_PROJECTOR})\.(\w+\.)*"
_MERGER += r"([02]|linear|linear(_fc)?_?[12]|fc[12]|proj|(gate|up|down)_proj|merging_layer|multimodal_projector)"
_MERGER = rf"({_MERGER}|{_VISION}\.patch_merger\.mlp)"

TARGET_MODULES = {
    "decoder": rf"(model\.)+{_DECODER}",
    "vision": rf"(model\.)+({_TOWER}|{_MERGER})",
    "decoder+vision": rf"(model\.)+({_DECODER}|{_TOWER}|{_MERGER})",
}
"""Named sets of layers for an adapter; `vision` includes the projector to the text model."""

_LIMITS = ("--limit-mm-per-prompt", '{"image": 1, "video": 0}')
_SERVING = Serving(
    ("--logits-processors", VLLM_GUARD, "--generation-config", "vllm", *_LIMITS),
    None,
    "vLLM prepares images with the checkpoint's own processor",
)
"""How vLLM serves Qwen3-VL: greedily whatever its authors publish, and without videos.

Not Qwen2.5-VL: vLLM 0.32 on a CPU has other probabilities of a small random network than its class in transformers.
"""

BASES: Mapping[str, Serving | None] = {
    "Qwen/Qwen2.5-VL-3B-Instruct": None,
    "Qwen/Qwen2.5-VL-7B-Instruct": None,
    "Qwen/Qwen3-VL-2B-Instruct": _SERVING,
    "Qwen/Qwen3-VL-4B-Instruct": _SERVING,
    "lightonai/LightOnOCR-2-1B": None,
    "PaddlePaddle/PaddleOCR-VL": None,
    "stepfun-ai/GOT-OCR-2.0-hf": None,
    "zai-org/GLM-OCR": None,
    "HuggingFaceTB/SmolVLM-Instruct": None,
}
"""Published networks, and how vLLM serves them."""

_CACHED = {"glm_ocr", "got_ocr2", "hunyuan_vl", "internvl", "lighton_ocr", "paddleocr_vl", "qianfan_ocr"}
_CACHED |= {"qwen2_5_vl", "qwen3_5", "qwen3_vl"}
"""Models whose features replace every pixel in a tested way."""


@dataclass(frozen=True, slots=True)
class ImageTextToText(TokenFamily):
    """A checkpoint of this family; `name` is its `model_type`."""

    quantizations = ("nf4",)
    target_modules = TARGET_MODULES
    vision_pattern = rf"(^|\.)({_VISION}|{_PROJECTOR})\."

    @property
    def serving(self) -> Serving | None:
        """How vLLM serves such a checkpoint; None for models with which it was not tried."""
        return _SERVING if self.name == "qwen3_vl" else None

    @property
    def caches_features(self) -> bool:
        """The vision tower is frozen unless the adapter is on it; only for models for which that was tested."""
        return self.name in _CACHED

    @property
    def unused_tensors(self) -> Sequence[str]:
        """Patterns of published tensors that the class ignores, such as layers for speculative decoding."""
        import transformers
        from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES

        network_class = getattr(transformers, MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES[self.name])
        return list(network_class._keys_to_ignore_on_load_unexpected or ())

    def load_network(self, folder: Path, **options: Any) -> "PreTrainedModel":
        """Load the network in its class, which reads greedily and stops where the checkpoint says."""
        from transformers import CONFIG_MAPPING, GenerationConfig
        from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING

        from dsocr.models.base_folder import load_pretrained

        raw = read_config_json(folder)
        if raw.get("quantization_config"):
            raise ModelError(
                "Weights are quantized, which cannot be trained or merged here",
                code="weights-quantized",
                where=folder,
                hint="use the checkpoint before quantization",
            )
        try:
            config = CONFIG_MAPPING[self.name].from_dict({**raw, "model_type": self.name})
            network_class = MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING[type(config)]
        except (ValueError, KeyError, TypeError, ImportError) as error:
            message = f"Cannot make a network from config.json: {error}"
            raise ModelError(message, code="base-incomplete", where=folder) from error
        if options.pop("quantization", None):
            options["quantization_config"] = _four_bits(options["dtype"])
        network = load_pretrained(network_class, config, folder, unused=self.unused_tensors, **options)
        if self.name == "hunyuan_vl":
            network.model.get_rope_index = _positions_by_row(network.model.get_rope_index)
        # The published settings may sample or penalise repetition.
        tokens = {name: getattr(network.generation_config, name) for name in ("bos_token_id", "eos_token_id")}
        network.generation_config = GenerationConfig(**tokens)
        return network

    def validate_input(self, resolution: str | None, prompt: str) -> None:
        """Raise ConfigError for a resolution that no chat model has."""
        validate_resolution(resolution)

    def processor(self, folder: Path, resolution: str | None, prompt: str) -> ChatProcessor:
        """Return the processor for a resolution (None: the checkpoint's own) and a prompt."""
        return load_processor(self, folder, resolution, prompt)


def _positions_by_row(find_positions: Callable[..., Any]) -> Callable[..., Any]:
    """Return HunyuanOCR's function of positions for batches of one image a row.

    That of transformers 5.23 numbers the images through the batch and not in each row, as its documentation says, so
    that a line is read otherwise in company than alone.
    """

    def find(
        input_ids: "Tensor", mm_token_type_ids: "Tensor", image_grid_thw: "Tensor", attention_mask: "Tensor | None"
    ) -> tuple["Tensor", "Tensor"]:
        import torch

        rows = [slice(row, row + 1) for row in range(len(input_ids))]
        masks = [None if attention_mask is None else attention_mask[row] for row in rows]
        parts = [
            find_positions(input_ids[row], mm_token_type_ids[row], image_grid_thw[row], mask)
            for row, mask in zip(rows, masks, strict=True)
        ]
        return torch.cat([positions for positions, _ in parts], dim=1), torch.cat([delta for _, delta in parts])

    return find


def _four_bits(dtype: "torch.dtype") -> Any:
    """Return the quantization of QLoRA (arXiv 2305.14314) for the text model; vision and head keep their format."""
    from transformers import BitsAndBytesConfig

    return BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=dtype,
        llm_int8_skip_modules=["lm_head", rf"(model\.)*({_VISION}|{_PROJECTOR})"],
    )


def recognize(config: Mapping[str, Any]) -> ImageTextToText | None:
    """Return the family if transformers has a class of its own for a `config.json`, else None.

    Asked last: transformers also counts classes of other families among these.
    """
    model_type = network_type(config)
    if model_type is None:
        return None
    from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES

    return ImageTextToText(model_type) if model_type in MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES else None
