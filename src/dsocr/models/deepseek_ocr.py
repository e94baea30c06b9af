"""Which network a checkpoint is for, and its config for transformers' own classes.

The published checkpoints of DeepSeek-OCR and DeepSeek-OCR-2 both call themselves `deepseek_vl_v2` and name code of
their own, which is never run: DeepSeek-OCR is the network that transformers knows as `unlimited_ocr` with full
attention in every layer, DeepSeek-OCR-2 is its `deepseek_ocr2`. Their `config.json` leaves out some sizes and gives
others wrongly, so sizes are taken from the tensors and only what no shape tells from `config.json`.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from PIL import Image
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from dsocr.errors import ConfigError, ModelError
from dsocr.models.checkpoint import Shapes, find_base
from dsocr.models.deepseek_images import UNTILED, Family, Grid, Resolution, Views, find_resolution, resolutions, show

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedConfig


UNUSED_TENSORS = (
    "model.vision_model.embeddings.patch_embedding.weight",
    "model.vision_model.embeddings.position_ids",
)
"""Tensors of the published DeepSeek-OCR that no code uses: its second tower takes the first one's output."""

_NANO_VOCABULARY = 1000
"""A native checkpoint with fewer tokens than this is `nano` or was made from it."""

_QWEN_HEAD = 64
"""Width of an attention head in DeepSeek-OCR-2's second tower, which no file of the checkpoint tells."""


@dataclass(frozen=True, slots=True)
class Architecture:
    """A kind of checkpoint: how its images are prepared, and whether its files are in the authors' layout."""

    family: Family
    original: bool

    @property
    def network_class(self) -> Any:
        """The class of transformers that holds the network."""
        # These load torch, which takes seconds and is not needed to recognise a checkpoint.
        from transformers import DeepseekOcr2ForConditionalGeneration, UnlimitedOcrForConditionalGeneration

        second = self.family == "deepseek_ocr_2"
        return DeepseekOcr2ForConditionalGeneration if second else UnlimitedOcrForConditionalGeneration

    @property
    def config_class(self) -> Any:
        """The class of its config."""
        from transformers import DeepseekOcr2Config, UnlimitedOcrConfig

        return DeepseekOcr2Config if self.family == "deepseek_ocr_2" else UnlimitedOcrConfig


def read_config_json(folder: Path) -> dict[str, Any]:
    """The `config.json` of a checkpoint folder. Raises ModelError where there is none."""
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ModelError("is not a model folder: it has no config.json", where=folder) from error
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ModelError(f"is not JSON: {error}", where=folder / "config.json") from error
    if not isinstance(config, dict):
        raise ModelError("is not a model's configuration", where=folder / "config.json")
    return config


def recognise(config: Mapping[str, Any], folder: Path) -> Architecture:
    """What kind of checkpoint a `config.json` describes. Raises ModelError for one that is none of ours."""
    kind = str(config.get("model_type", "")).lower().replace("-", "_")
    vision = config.get("vision_config")
    encoder = vision.get("model_name") if isinstance(vision, Mapping) else None
    if encoder == "deeplip_b_l" and kind != "unlimited_ocr":
        return Architecture("deepseek_ocr", original=True)
    if encoder == "deepencoderv2":
        return Architecture("deepseek_ocr_2", original=True)
    if kind == "unlimited_ocr":
        text = config.get("text_config")
        small = isinstance(text, Mapping) and int(text.get("vocab_size", 0)) in range(1, _NANO_VOCABULARY)
        return Architecture("nano" if small else _unlimited_or_first(text), original=False)
    if kind == "deepseek_ocr2":
        return Architecture("deepseek_ocr_2", original=False)
    raise ModelError(
        f"holds a model of type {config.get('model_type')!r}, which is not known here",
        where=folder,
        hint="known are DeepSeek-OCR, DeepSeek-OCR-2, Unlimited-OCR and nano",
    )


def _unlimited_or_first(text: object) -> Family:
    """DeepSeek-OCR saved by transformers has full attention; Unlimited-OCR, whose class it shares, has not."""
    layers = text.get("layer_types") if isinstance(text, Mapping) else None
    return "deepseek_ocr" if layers and set(layers) == {"full_attention"} else "unlimited_ocr"


def original_config(
    architecture: Architecture, config: Mapping[str, Any], shapes: Shapes, image_token_id: int
) -> "PreTrainedConfig":
    """The native config of a checkpoint in the authors' layout.

    Raises KeyError where a tensor or an entry of `config.json` that is needed is not there.
    """
    text = _text_config(config["language_config"], shapes)
    if architecture.family == "deepseek_ocr_2":
        # DeepSeek-OCR-2 is built from the same decoder, but its class has other defaults.
        text |= {"rms_norm_eps": 1e-6, "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}}
        text |= {"mlp_layer_types": _mlp_types(text.pop("first_k_dense_replace"), text["num_hidden_layers"])}
        vision = {"sam_config": _sam_config(shapes), "encoder_config": _qwen_config(shapes)}
        return architecture.config_class(vision_config=vision, text_config=text, image_token_id=image_token_id)
    # Unlimited-OCR attends to the prompt and the last 128 tokens, which DeepSeek-OCR was not trained for. The window
    # must be a number all the same, and is then unused.
    text |= {"layer_types": ["full_attention"] * text["num_hidden_layers"], "sliding_window": 128}
    heads = config["vision_config"]["width"]["clip-l-14-224"]["heads"]
    vision = {"sam_config": _sam_config(shapes), "encoder_config": _clip_config(shapes, heads)}
    return architecture.config_class(vision_config=vision, text_config=text, image_token_id=image_token_id)


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
    # Windowed layers have relative positions -window+1..window-1, global ones as many as the canvas has patches.
    reaches = [shapes[f"{prefix}.blocks.{layer}.attn.rel_pos_h"] for layer in range(layers)]
    side = shapes[f"{prefix}.pos_embed"][1]
    everywhere = [layer for layer, (reach, _) in enumerate(reaches) if reach == 2 * side - 1]
    window = min((reach + 1) // 2 for reach, _ in reaches)
    return {
        "hidden_size": width,
        "output_channels": shapes[f"{prefix}.neck.0.weight"][0],
        "num_hidden_layers": layers,
        "num_attention_heads": width // reaches[0][1],
        "image_size": side * patch,
        "patch_size": patch,
        "window_size": window,
        "global_attn_indexes": everywhere,
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
"""Where the image stands in a prompt; the tokenizer's id for it fills the image slots."""

_PROMPT_BY_NAME = {
    "free_ocr": f"{IMAGE}\nFree OCR.",
    "ocr": f"{IMAGE}\n<|grounding|>OCR this image.",
    "markdown": f"{IMAGE}\n<|grounding|>Convert the document to markdown.",
    "figure": f"{IMAGE}\nParse the figure.",
    "describe": f"{IMAGE}\nDescribe this image in detail.",
}


def find_prompt(name: str) -> str:
    """The prompt of that name, or the text itself where it holds `<image>`.

    Raises ConfigError for a name that is not known and for a text without exactly one `<image>`.
    """
    if IMAGE not in name:
        if name not in _PROMPT_BY_NAME:
            names = ", ".join(_PROMPT_BY_NAME)
            raise ConfigError(
                f"input.prompt: {name!r} is not the name of a prompt",
                hint=f"the names are {names}; a prompt of your own must hold {IMAGE}",
            )
        return _PROMPT_BY_NAME[name]
    if name.count(IMAGE) != 1:
        raise ConfigError(f"input.prompt: must hold {IMAGE} once, not {name.count(IMAGE)} times")
    return name.strip()


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


def load_encoder(name: str, resolution: str | None, prompt: str, revision: str | None = None) -> Encoder:
    """The encoder of a base without its weights: enough to check a dataset against it."""
    folder, _ = find_base(name, revision)
    architecture = recognise(read_config_json(folder), folder)
    return make_encoder(load_tokenizer(folder), architecture.family, folder, resolution, prompt)


def make_encoder(
    tokenizer: PreTrainedTokenizerBase, family: Family, folder: Path, resolution: str | None, prompt: str
) -> Encoder:
    """The encoder for a resolution and a prompt, each by name; None is the family's default resolution."""
    image_token = image_token_id(tokenizer, folder)
    chosen = find_resolution(family, resolution)
    others = tuple(other for other in resolutions(family) if other != chosen)
    return Encoder(tokenizer, image_token, chosen, find_prompt(prompt), others)


def load_tokenizer(folder: Path) -> PreTrainedTokenizerBase:
    """The tokenizer in the folder of a base. Raises ModelError where there is none, or a token is missing."""
    if not (folder / "tokenizer.json").is_file():
        raise ModelError("has no tokenizer.json", where=folder, hint="was it downloaded whole?")
    # Not AutoTokenizer: the published folders name a class with another pre-tokenizer than their tokenizer.json has.
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder, local_files_only=True)
    for name in ("bos", "eos", "pad"):
        if getattr(tokenizer, f"{name}_token_id") is None:
            raise ModelError(f"its tokenizer has no {name} token", where=folder)
    return tokenizer


def image_token_id(tokenizer: PreTrainedTokenizerBase, folder: Path) -> int:
    """The id that fills the image slots. Raises ModelError where the tokenizer of the base in `folder` has none."""
    number = tokenizer.convert_tokens_to_ids(IMAGE)
    if number is None or number == tokenizer.unk_token_id:
        raise ModelError(f"its tokenizer has no {IMAGE} token", where=folder)
    return int(number)
