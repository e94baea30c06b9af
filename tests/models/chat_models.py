"""Write small chat models with random weights, laid out as their authors publish them.

Each has the network class of transformers, a tokenizer that knows every text, an image processor with the published
class and sizes that suit the small network, and a chat template like the published one.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from PIL import Image, ImageDraw, ImageFont
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import AutoConfig, AutoModelForImageTextToText

_TEXT: dict[str, Any] = {
    "hidden_size": 128,
    "intermediate_size": 64,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 2048,
}
_ROPE: dict[str, Any] = {"rope_type": "default", "rope_theta": 10000.0}
_MROPE = {"rope_parameters": _ROPE | {"mrope_section": [6, 5, 5]}}
_INTERLEAVED = {"mrope_interleaved": True}  # which transformers takes for granted, vLLM not
_VISION: dict[str, Any] = {"depth": 1, "hidden_size": 32, "intermediate_size": 64, "num_heads": 4}
_TOWER = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4}

_CHATML = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}IMAGE{% else %}{{ part['text'] }}{% endif %}{% endfor %}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
_QWEN = _CHATML.replace("IMAGE", "<|vision_start|><|image_pad|><|vision_end|>")
_PADDLE = (
    "{{ '<|begin_of_sentence|>' }}{% for message in messages %}{% if message['role'] == 'user' %}User: "
    "{% for part in message['content'] %}{% if part['type'] == 'image' %}"
    "<|IMAGE_START|><|IMAGE_PLACEHOLDER|><|IMAGE_END|>{% else %}{{ part['text'] }}{% endif %}{% endfor %}{{ '\n' }}"
    "{% else %}{{ 'Assistant: ' }}{% for part in message['content'] %}{{ part['text'] }}{% endfor %}</s>{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}{{ 'Assistant: ' }}{% endif %}"
)
_GLM = (
    "[gMASK]<sop>\n{% for message in messages %}<|{{ message['role'] }}|>\n{% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}<|begin_of_image|><|image|><|end_of_image|>{% else %}{{ part['text'] }}{% endif %}"
    "{% endfor %}{% endfor %}{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
)
_SMOL = (
    "<|im_start|>{% for message in messages %}{{ message['role'] | capitalize }}"
    "{% if message['content'][0]['type'] == 'image' %}:{% else %}: {% endif %}{% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}<image>{% else %}{{ part['text'] }}{% endif %}{% endfor %}<end_of_utterance>\n"
    "{% endfor %}{% if add_generation_prompt %}Assistant:{% endif %}"
)
# Of small Qwen3.5 an answer begins behind an empty block of thoughts.
_QWEN3_5 = _QWEN.replace("assistant\n{% endif %}", "assistant\n<think>\n\n</think>\n\n{% endif %}").replace(
    "{% for part in",
    "{% if message['role'] == 'assistant' %}<think>\n\n</think>\n\n{% endif %}{% for part in",
)
_HUNYUAN = (
    "{% for message in messages %}{% if message['role'] == 'system' %}"
    "<hy_begin>{% if message['content'] is string %}{{ message['content'] }}{% else %}"
    "{% for part in message['content'] %}{{ part['text'] }}{% endfor %}{% endif %}<hy_3>"
    "{% elif message['role'] == 'user' %}"
    "{% for part in message['content'] %}{% if part['type'] == 'image' %}<hy_100><hy_102><hy_101>"
    "{% else %}{{ part['text'] }}{% endif %}{% endfor %}<hy_User>{% else %}"
    "{% if message['content'] is string %}{{ message['content'] }}{% else %}{{ message['content'][0]['text'] }}"
    "{% endif %}<hy_Assistant>{% endif %}{% endfor %}"
)

_CHAT_TOKENS = "<|im_start|> <|im_end|> <|endoftext|>"
_QWEN_TOKENS = f"{_CHAT_TOKENS} <|vision_start|> <|vision_end|> <|image_pad|>"
_VIDEO = {"vision_start_token_id": "<|vision_start|>", "video_token_id": "<|video_pad|>"}
_QWEN_SIZES = {"size": {"shortest_edge": 1024, "longest_edge": 16 * 1024}, "patch_size": 16}
_QWEN_SIZES |= {"image_mean": [0.5] * 3, "image_std": [0.5] * 3}
_PIXELS = {"min_pixels": 784, "max_pixels": 28 * 28 * 16, "patch_size": 14}
_TILES = {"size": {"height": 32, "width": 32}, "max_patches": 2}
_INTERN_TOKENS = {"start_image_token": "<img>", "end_image_token": "</img>", "context_image_token": "<IMG_CONTEXT>"}


class _Type(NamedTuple):
    """One type of chat model as it is published; the defaults are those of Qwen."""

    processor: str
    images: str
    """The class of its image processor, with its settings in `sizes`."""
    sizes: Mapping[str, Any]
    vision: Mapping[str, Any]
    text: Mapping[str, Any] = {}
    """Settings of the text model besides `_TEXT`."""
    ids: Mapping[str, str] = {}
    """Entries of the config that are ids, and their tokens."""
    config: Mapping[str, Any] = {}
    tokens: str = f"{_QWEN_TOKENS} <|video_pad|>"
    """The special tokens, separated by spaces."""
    template: str = _QWEN
    end: str = "<|im_end|>"
    pad: str = "<|endoftext|>"
    image: str = "<|image_pad|>"
    tokenizer: Mapping[str, Any] = {}
    """Further entries of its config."""
    extra: Mapping[str, Any] = {}
    """Entries of the processor's config."""
    unused: str = ""
    """A tensor that is published and that the class ignores."""


_INTERN = _Type(
    "InternVLProcessor",
    "GotOcr2ImageProcessorFast",
    _TILES,
    {**_TOWER, "image_size": [32, 32], "patch_size": [8, 8]},
    {"model_type": "qwen3"},
    config={"image_seq_length": 4, "tie_word_embeddings": True},
    tokens=f"{_CHAT_TOKENS} <img> </img> <IMG_CONTEXT> <video>",
    template=_CHATML.replace("IMAGE", "<IMG_CONTEXT>\n"),
    image="<IMG_CONTEXT>",
    tokenizer={"extra_special_tokens": {**_INTERN_TOKENS, "video_token": "<video>"}},
    extra={"image_seq_length": 4},
)
_TYPES = {
    "qwen2_5_vl": _Type(
        "Qwen2_5_VLProcessor",
        "Qwen2VLImageProcessorFast",
        _PIXELS,
        {**_VISION, "depth": 2, "window_size": 56, "fullatt_block_indexes": [1], "out_hidden_size": 128},
        _MROPE,
        _VIDEO,
        {"tie_word_embeddings": False},
    ),
    "qwen3_vl": _Type(
        "Qwen3VLProcessor",
        "Qwen2VLImageProcessorFast",
        _QWEN_SIZES,
        {**_VISION, "out_hidden_size": 128, "num_position_embeddings": 16, "deepstack_visual_indexes": [0]},
        # What is added after the first layer is seen in the second.
        {"num_hidden_layers": 2, "rope_parameters": _MROPE["rope_parameters"] | _INTERLEAVED},
        _VIDEO,
    ),
    "lighton_ocr": _Type(
        "LightOnOcrProcessor",
        "PixtralImageProcessorFast",
        {"size": {"longest_edge": 224}, "patch_size": {"height": 28, "width": 28}},
        {**_TOWER, "model_type": "pixtral", "head_dim": 8, "image_size": 224, "patch_size": 14}
        | {"rope_parameters": _ROPE},
        {"model_type": "qwen3", "rope_parameters": _ROPE},
        tokens=_QWEN_TOKENS,
        template="<|im_start|>system<|im_end|>\n" + _QWEN,
        tokenizer={"image_token": "<|image_pad|>", "image_break_token": "<|vision_start|>"}
        | {"image_end_token": "<|vision_end|>"},
        extra={"patch_size": 14, "spatial_merge_size": 2},
    ),
    "paddleocr_vl": _Type(
        "PaddleOCRVLProcessor",
        "PaddleOCRVLImageProcessor",
        _PIXELS,
        {**_TOWER, "image_size": 56, "patch_size": 14},
        _MROPE,
        {"vision_start_token_id": "<|IMAGE_START|>"},
        tokens="<s> </s> <pad> <|begin_of_sentence|> <|IMAGE_START|> <|IMAGE_END|> <|IMAGE_PLACEHOLDER|>",
        template=_PADDLE,
        end="</s>",
        pad="<pad>",
        image="<|IMAGE_PLACEHOLDER|>",
        tokenizer={"image_token": "<|IMAGE_PLACEHOLDER|>"},
        unused="visual.vision_model.head.probe",
    ),
    "got_ocr2": _Type(
        "GotOcr2Processor",
        "GotOcr2ImageProcessor",
        {"size": {"height": 64, "width": 64}},
        {"hidden_size": 32, "output_channels": 16, "num_hidden_layers": 1, "num_attention_heads": 4}
        | {"image_size": 64, "patch_size": 4, "window_size": 4, "global_attn_indexes": [0], "mlp_dim": 64},
        {"model_type": "qwen2"},
        {"image_token_index": "<imgpad>"},
        {"image_seq_length": 16},
        tokens=f"{_CHAT_TOKENS} <img> </img> <imgpad>",
        template="",
        image="<imgpad>",
        extra={"num_image_tokens": 16},
    ),
    "glm_ocr": _Type(
        "Glm46VProcessor",
        "Glm46VImageProcessor",
        {"size": {"shortest_edge": 1568, "longest_edge": 2 * 28 * 28 * 16}, "patch_size": 14},
        {**_VISION, "out_hidden_size": 128, "image_size": 56},
        _MROPE,
        {
            "image_start_token_id": "<|begin_of_image|>",
            "image_end_token_id": "<|end_of_image|>",
            "video_start_token_id": "<|begin_of_video|>",
            "video_end_token_id": "<|end_of_video|>",
            "video_token_id": "<|video|>",
        },
        {"tie_word_embeddings": False},
        tokens="[gMASK] <sop> <|endoftext|> <|user|> <|assistant|> <|image|> <|video|> "
        "<|begin_of_image|> <|end_of_image|> <|begin_of_video|> <|end_of_video|>",
        template=_GLM,
        end="<|endoftext|>",
        image="<|image|>",
        unused="model.language_model.layers.16.eh_proj.weight",
    ),
    "smolvlm": _Type(
        "SmolVLMProcessor",
        "SmolVLMImageProcessor",
        {"size": {"longest_edge": 64}, "max_image_size": {"longest_edge": 32}, "do_image_splitting": True},
        {**_TOWER, "image_size": 32, "patch_size": 8},
        {"model_type": "llama"},
        {"pad_token_id": "<|im_end|>"},
        {"scale_factor": 2},
        tokens="<|im_start|> <|im_end|> <end_of_utterance> <image> <fake_token_around_image> <global-img> <video> "
        + " ".join(f"<row_{row}_col_{column}>" for row in range(1, 9) for column in range(1, 9)),
        template=_SMOL,
        end="<end_of_utterance>",
        pad="<|im_end|>",
        image="<image>",
        extra={"image_seq_len": 4},
    ),
    "qwen3_5": _Type(
        "Qwen3VLProcessor",
        "Qwen2VLImageProcessorFast",
        _QWEN_SIZES,
        {**_VISION, "out_hidden_size": 128, "num_position_embeddings": 16},
        {
            "rope_parameters": _MROPE["rope_parameters"] | _INTERLEAVED | {"partial_rotary_factor": 1.0},
            "num_hidden_layers": 2,
            "layer_types": ["linear_attention", "full_attention"],
            "linear_key_head_dim": 16,
            "linear_value_head_dim": 16,
            "linear_num_key_heads": 4,
            "linear_num_value_heads": 4,
        },
        _VIDEO,
        template=_QWEN3_5,
    ),
    "internvl": _INTERN,
    # As it was first published, with the processor of InternVL.
    "qianfan_ocr": _INTERN._replace(
        tokens=f"{_CHAT_TOKENS} <img> </img> <IMG_CONTEXT>",
        template=_CHATML.replace("IMAGE", "<image>\n"),
        tokenizer={"extra_special_tokens": _INTERN_TOKENS},
    ),
    "hunyuan_vl": _Type(
        "HunYuanVLProcessor",
        "HunYuanVLImageProcessor",
        {"min_pixels": 1024, "max_pixels": 16 * 1024, "patch_size": 16},
        {**_TOWER, "out_hidden_size": 128, "text_hidden_size": 128, "max_image_size": 256},
        {"rope_parameters": _ROPE | {"mrope_section": [4, 4, 4, 4]}},
        {"image_start_token_id": "<hy_100>", "image_end_token_id": "<hy_101>"},
        tokens="<hy_begin> <hy_3> <hy_User> <hy_Assistant> <hy_100> <hy_101> <hy_102> <hy_pad>",
        template=_HUNYUAN,
        end="<hy_Assistant>",
        pad="<hy_pad>",
        image="<hy_102>",
        tokenizer={
            "extra_special_tokens": {"image_token": "<hy_102>"}
            | {"image_start_token": "<hy_100>", "image_end_token": "<hy_101>"}
        },
    ),
}
CHAT_MODELS = [*_TYPES]
"""The types that can be written."""


@contextmanager
def small_processors() -> Iterator[None]:
    """GOT-OCR2's processor always writes 256 tokens; SmolVLM's wants a package that counts the frames of videos."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("transformers.GotOcr2Processor.num_image_tokens", 16)
        patch.setattr("transformers.models.smolvlm.processing_smolvlm.num2words", str)
        yield


def write_chat_model(folder: Path, model_type: str, head_std: float = 0.055) -> Path:
    """Write a checkpoint of this type into a new folder; `head_std` is that of its embeddings and head."""
    folder.mkdir(parents=True)
    kind = _TYPES[model_type]
    vocabulary = _write_tokenizer(folder, kind)
    torch.manual_seed(7)
    ids = {"image_token_id": kind.image, **kind.ids} if model_type != "got_ocr2" else kind.ids
    entries: dict[str, Any] = {name: vocabulary[token] for name, token in ids.items()}
    text = {**_TEXT, **kind.text, "vocab_size": len(vocabulary)}
    entries = {"vision_config": kind.vision, "text_config": text, "tie_word_embeddings": True, **entries, **kind.config}
    entries = json.loads(json.dumps(entries))  # transformers changes them in their place
    network = AutoModelForImageTextToText.from_config(AutoConfig.for_model(model_type, **entries))
    for name, parameter in network.named_parameters():
        norm = parameter.ndim == 1 and "bias" not in name
        head = "embed_tokens" in name or name == "lm_head.weight"
        # Logits near zero, as a checked base has them, that an adapter can still make large.
        std = 0.02 if parameter.ndim == 1 else head_std if head else 0.15
        torch.nn.init.normal_(parameter, mean=float(norm), std=std)
    network.save_pretrained(folder)
    if kind.unused:
        tensors = load_file(folder / "model.safetensors") | {kind.unused: torch.ones(2, 3)}
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    # Sampling as some authors publish it, which reading must ignore.
    settings = {"do_sample": True, "temperature": 0.7, "repetition_penalty": 1.5}
    files: dict[str, dict[str, Any]] = {
        "generation_config.json": {**settings, "eos_token_id": [vocabulary[kind.end], vocabulary[kind.pad]]},
        "preprocessor_config.json": {
            **{"processor_class": kind.processor, "image_processor_type": kind.images},
            **kind.sizes,
        },
        "processor_config.json": {"processor_class": kind.processor, **kind.extra},
        "config.json": json.loads((folder / "config.json").read_text(encoding="utf-8")),
    }
    if model_type == "lighton_ocr":  # published under the name of another class
        files["config.json"] |= {"model_type": "mistral3", "architectures": ["LightOnOCRForConditionalGeneration"]}
    if model_type == "paddleocr_vl":  # published with code of its own, which must never be run
        own = {f"Auto{part}": f"own.{part}" for part in ("Config", "ImageProcessor", "Processor", "Model")}
        for name in ("config.json", "preprocessor_config.json", "processor_config.json"):
            files[name]["auto_map"] = own
        (folder / "own.py").write_text("raise RuntimeError('foreign code was run')\n", encoding="utf-8")
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content), encoding="utf-8")
    if kind.template:
        (folder / "chat_template.jinja").write_text(kind.template, encoding="utf-8")
    return folder


def draw_text(text: str, size: tuple[int, int] | None = None) -> Image.Image:
    """Draw a line image with the text in Pillow's own font."""
    image = Image.new("L", size or (26 * len(text) + 20, 60), 240)
    ImageDraw.Draw(image).text((8, 8), text, fill=30, font=ImageFont.load_default(36))
    return image


def _write_tokenizer(folder: Path, kind: _Type) -> dict[str, int]:
    """Write a tokenizer of bytes or, for PaddleOCR-VL, of characters in the manner of sentencepiece."""
    special = kind.tokens.split()
    if "<s>" in special:
        letters = [*(chr(code) for code in (*range(33, 127), *range(0x410, 0x452))), "\u2581", "\u2581M", "\u2581П"]
        pieces = [*special, "<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), *letters]
        vocabulary = {piece: number for number, piece in enumerate(pieces)}
        merges = [("\u2581", "M"), ("\u2581", "П")]
        tokenizer = Tokenizer(models.BPE(vocabulary, merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True))
        tokenizer.normalizer = normalizers.Replace(" ", "\u2581")
        steps = [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()]
        tokenizer.decoder = decoders.Sequence(steps)
    else:
        pieces = [*special, *sorted(pre_tokenizers.ByteLevel.alphabet())]
        vocabulary = {piece: number for number, piece in enumerate(pieces)}
        tokenizer = Tokenizer(models.BPE(vocabulary, []))
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(special)
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": kind.end, "pad_token": kind.pad}
    (folder / "tokenizer_config.json").write_text(json.dumps({**config, **kind.tokenizer}), encoding="utf-8")
    return vocabulary
