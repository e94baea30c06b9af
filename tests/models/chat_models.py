"""Write small chat models with random weights, laid out as their authors publish them.

Each has the network class of transformers, a tokenizer that knows every text, an image processor with the published
class and sizes that suit the small network, and a chat template like the published one.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

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
}
_MROPE: dict[str, Any] = {"rope_type": "default", "mrope_section": [6, 5, 5], "rope_theta": 10000.0}

_CHATML = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}IMAGE{% else %}{{ part['text'] }}{% endif %}{% endfor %}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
_QWEN = _CHATML.replace("IMAGE", "<|vision_start|><|image_pad|><|vision_end|>")
_LIGHTON = _CHATML.replace("IMAGE", "<|vision_start|><|image_pad|><|vision_end|>").replace(
    "{% for message in messages %}", "<|im_start|>system<|im_end|>\n{% for message in messages %}", 1
)
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
_INTERN = _CHATML.replace("IMAGE", "<IMG_CONTEXT>\n")
_QIANFAN = _CHATML.replace("IMAGE", "<image>\n")
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

CHAT_MODELS = ["qwen2_5_vl", "qwen3_vl", "lighton_ocr", "paddleocr_vl", "got_ocr2", "glm_ocr", "smolvlm"]
CHAT_MODELS += ["qwen3_5", "internvl", "qianfan_ocr", "hunyuan_vl"]
"""The types that can be written."""

_PIXELS: dict[str, Any] = {"min_pixels": 784, "max_pixels": 28 * 28 * 16}
_QWEN_TOKENS = ["<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>"]

_SPECIAL = {
    "qwen2_5_vl": [*_QWEN_TOKENS, "<|video_pad|>"],
    "qwen3_vl": [*_QWEN_TOKENS, "<|video_pad|>"],
    "lighton_ocr": _QWEN_TOKENS,
    "qwen3_5": [*_QWEN_TOKENS, "<|video_pad|>"],
    "internvl": [*_QWEN_TOKENS[:3], "<img>", "</img>", "<IMG_CONTEXT>", "<video>"],
    "qianfan_ocr": [*_QWEN_TOKENS[:3], "<img>", "</img>", "<IMG_CONTEXT>"],
    "hunyuan_vl": [
        "<hy_begin>",
        "<hy_3>",
        "<hy_User>",
        "<hy_Assistant>",
        "<hy_100>",
        "<hy_101>",
        "<hy_102>",
        "<hy_pad>",
    ],
    "paddleocr_vl": [
        "<s>",
        "</s>",
        "<pad>",
        "<|begin_of_sentence|>",
        "<|IMAGE_START|>",
        "<|IMAGE_END|>",
        "<|IMAGE_PLACEHOLDER|>",
    ],
    "got_ocr2": ["<|im_start|>", "<|im_end|>", "<|endoftext|>", "<img>", "</img>", "<imgpad>"],
    "glm_ocr": [
        "[gMASK]",
        "<sop>",
        "<|endoftext|>",
        "<|user|>",
        "<|assistant|>",
        "<|image|>",
        "<|video|>",
        "<|begin_of_image|>",
        "<|end_of_image|>",
        "<|begin_of_video|>",
        "<|end_of_video|>",
    ],
    "smolvlm": [
        *[
            "<|im_start|>",
            "<|im_end|>",
            "<end_of_utterance>",
            "<image>",
            "<fake_token_around_image>",
            "<global-img>",
            "<video>",
        ],
        *(f"<row_{row}_col_{column}>" for row in range(1, 9) for column in range(1, 9)),
    ],
}
_END = {
    "hunyuan_vl": "<hy_Assistant>",
    "paddleocr_vl": "</s>",
    "glm_ocr": "<|endoftext|>",
    "smolvlm": "<end_of_utterance>",
}
_PAD = {"hunyuan_vl": "<hy_pad>", "paddleocr_vl": "<pad>", "smolvlm": "<|im_end|>"}
_IMAGE = {
    "hunyuan_vl": "<hy_102>",
    "internvl": "<IMG_CONTEXT>",
    "qianfan_ocr": "<IMG_CONTEXT>",
    "paddleocr_vl": "<|IMAGE_PLACEHOLDER|>",
    "got_ocr2": "<imgpad>",
    "glm_ocr": "<|image|>",
    "smolvlm": "<image>",
}
_UNUSED = {
    "paddleocr_vl": "visual.vision_model.head.probe",
    "glm_ocr": "model.language_model.layers.16.eh_proj.weight",
}
"""Tensors that are published and that the class ignores."""
_TEMPLATES = {
    "qwen2_5_vl": _QWEN,
    "qwen3_vl": _QWEN,
    "lighton_ocr": _LIGHTON,
    "paddleocr_vl": _PADDLE,
    "glm_ocr": _GLM,
    "smolvlm": _SMOL,
    "qwen3_5": _QWEN3_5,
    "internvl": _INTERN,
    "qianfan_ocr": _QIANFAN,
    "hunyuan_vl": _HUNYUAN,
}
_INTERN_TOKENS = {
    "start_image_token": "<img>",
    "end_image_token": "</img>",
    "context_image_token": "<IMG_CONTEXT>",
    "video_token": "<video>",
}
_EXTRA_TOKENS = {
    "internvl": _INTERN_TOKENS,
    "qianfan_ocr": {name: token for name, token in _INTERN_TOKENS.items() if name != "video_token"},
    "hunyuan_vl": {"image_token": "<hy_102>", "image_start_token": "<hy_100>", "image_end_token": "<hy_101>"},
}
_PROCESSORS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "qwen2_5_vl": ("Qwen2_5_VLProcessor", "Qwen2VLImageProcessorFast", {**_PIXELS, "patch_size": 14}),
    "qwen3_vl": (
        "Qwen3VLProcessor",
        "Qwen2VLImageProcessorFast",
        {"size": {"shortest_edge": 1024, "longest_edge": 16 * 1024}, "patch_size": 16, "image_mean": [0.5] * 3}
        | {"image_std": [0.5] * 3},
    ),
    "lighton_ocr": (
        "LightOnOcrProcessor",
        "PixtralImageProcessorFast",
        {"size": {"longest_edge": 224}, "patch_size": {"height": 28, "width": 28}},
    ),
    "paddleocr_vl": ("PaddleOCRVLProcessor", "PaddleOCRVLImageProcessor", {**_PIXELS, "patch_size": 14}),
    "got_ocr2": ("GotOcr2Processor", "GotOcr2ImageProcessor", {"size": {"height": 64, "width": 64}}),
    "qwen3_5": (
        "Qwen3VLProcessor",
        "Qwen2VLImageProcessorFast",
        {"size": {"shortest_edge": 1024, "longest_edge": 16 * 1024}, "patch_size": 16, "image_mean": [0.5] * 3}
        | {"image_std": [0.5] * 3},
    ),
    "internvl": (
        "InternVLProcessor",
        "GotOcr2ImageProcessorFast",
        {"size": {"height": 32, "width": 32}, "max_patches": 2},
    ),
    # As it was first published, with the processor of InternVL.
    "qianfan_ocr": (
        "InternVLProcessor",
        "GotOcr2ImageProcessorFast",
        {"size": {"height": 32, "width": 32}, "max_patches": 2},
    ),
    "hunyuan_vl": (
        "HunYuanVLProcessor",
        "HunYuanVLImageProcessor",
        {"min_pixels": 1024, "max_pixels": 16 * 1024, "patch_size": 16},
    ),
    "glm_ocr": (
        "Glm46VProcessor",
        "Glm46VImageProcessor",
        {"size": {"shortest_edge": 1568, "longest_edge": 2 * 28 * 28 * 16}, "patch_size": 14},
    ),
    "smolvlm": (
        "SmolVLMProcessor",
        "SmolVLMImageProcessor",
        {"size": {"longest_edge": 64}, "max_image_size": {"longest_edge": 32}, "do_image_splitting": True},
    ),
}


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
    vocabulary = _write_tokenizer(folder, model_type)
    torch.manual_seed(7)
    network = AutoModelForImageTextToText.from_config(_config(model_type, vocabulary))
    for name, parameter in network.named_parameters():
        norm = parameter.ndim == 1 and "bias" not in name
        head = "embed_tokens" in name or name == "lm_head.weight"
        # Logits near zero, as a checked base has them, that an adapter can still make large.
        torch.nn.init.normal_(
            parameter, mean=float(norm), std=0.02 if parameter.ndim == 1 else head_std if head else 0.15
        )
    network.save_pretrained(folder)
    if model_type in _UNUSED:
        tensors = load_file(folder / "model.safetensors")
        save_file(
            tensors | {_UNUSED[model_type]: torch.ones(2, 3)}, folder / "model.safetensors", metadata={"format": "pt"}
        )
    end, pad = vocabulary[_END.get(model_type, "<|im_end|>")], vocabulary[_PAD.get(model_type, "<|endoftext|>")]
    # Sampling as some authors publish it, which reading must ignore.
    settings = {"do_sample": True, "temperature": 0.7, "repetition_penalty": 1.5, "eos_token_id": [end, pad]}
    (folder / "generation_config.json").write_text(json.dumps(settings), encoding="utf-8")
    processor, images, sizes = _PROCESSORS[model_type]
    preprocessor = {"processor_class": processor, "image_processor_type": images, **sizes}
    (folder / "preprocessor_config.json").write_text(json.dumps(preprocessor), encoding="utf-8")
    extra: dict[str, Any] = {"patch_size": 14, "spatial_merge_size": 2} if model_type == "lighton_ocr" else {}
    extra |= {"num_image_tokens": 16} if model_type == "got_ocr2" else {}
    extra |= {"image_seq_len": 4} if model_type == "smolvlm" else {}
    extra |= {"image_seq_length": 4} if model_type in ("internvl", "qianfan_ocr") else {}
    (folder / "processor_config.json").write_text(json.dumps({"processor_class": processor, **extra}), encoding="utf-8")
    if model_type == "lighton_ocr":  # published under the name of another class
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        config |= {"model_type": "mistral3", "architectures": ["LightOnOCRForConditionalGeneration"]}
        (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    if model_type == "paddleocr_vl":  # published with code of its own, which must never be run
        for name in ("config.json", "preprocessor_config.json", "processor_config.json"):
            own = {f"Auto{kind}": f"own.{kind}" for kind in ("Config", "ImageProcessor", "Processor", "Model")}
            settings = json.loads((folder / name).read_text(encoding="utf-8")) | {"auto_map": own}
            (folder / name).write_text(json.dumps(settings), encoding="utf-8")
        (folder / "own.py").write_text("raise RuntimeError('foreign code was run')\n", encoding="utf-8")
    if model_type in _TEMPLATES:
        (folder / "chat_template.jinja").write_text(_TEMPLATES[model_type], encoding="utf-8")
    return folder


def draw_text(text: str, size: tuple[int, int] | None = None) -> Image.Image:
    """Draw a line image with the text in Pillow's own font."""
    image = Image.new("L", size or (26 * len(text) + 20, 60), 240)
    ImageDraw.Draw(image).text((8, 8), text, fill=30, font=ImageFont.load_default(36))
    return image


def _config(model_type: str, vocabulary: dict[str, int]) -> Any:
    text: dict[str, Any] = {**_TEXT, "vocab_size": len(vocabulary), "max_position_embeddings": 2048}
    image = vocabulary[_IMAGE.get(model_type, "<|image_pad|>")]
    tokens: dict[str, Any] = {"image_token_id": image}
    vision: dict[str, Any] = {"depth": 1, "hidden_size": 32, "intermediate_size": 64, "num_heads": 4}
    match model_type:
        case "qwen2_5_vl" | "qwen3_vl":
            text["rope_parameters"] = dict(_MROPE)
            names = {"vision_start_token_id": "<|vision_start|>", "video_token_id": "<|video_pad|>"}
            tokens |= {name: vocabulary[token] for name, token in names.items()}
            vision["out_hidden_size"] = 128
            if model_type == "qwen2_5_vl":
                vision |= {"depth": 2, "window_size": 56, "fullatt_block_indexes": [1]}
            else:
                text["num_hidden_layers"] = 2  # what is added after the first is seen in the second
                text["rope_parameters"] |= {"mrope_interleaved": True}  # which transformers takes for granted, vLLM not
                vision |= {"num_position_embeddings": 16, "deepstack_visual_indexes": [0]}
        case "qwen3_5":
            text["rope_parameters"] = dict(_MROPE) | {"partial_rotary_factor": 1.0, "mrope_interleaved": True}
            text |= {"num_hidden_layers": 2, "layer_types": ["linear_attention", "full_attention"]}
            text |= {"linear_key_head_dim": 16, "linear_value_head_dim": 16}
            text |= {"linear_num_key_heads": 4, "linear_num_value_heads": 4}
            names = {"vision_start_token_id": "<|vision_start|>", "video_token_id": "<|video_pad|>"}
            tokens |= {name: vocabulary[token] for name, token in names.items()}
            vision |= {"out_hidden_size": 128, "num_position_embeddings": 16}
        case "internvl" | "qianfan_ocr":
            text["model_type"] = "qwen3"
            vision = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4}
            vision |= {"image_size": [32, 32], "patch_size": [8, 8]}
            tokens |= {"image_seq_length": 4}
        case "hunyuan_vl":
            text["rope_parameters"] = {"rope_type": "default", "mrope_section": [4, 4, 4, 4], "rope_theta": 10000.0}
            vision = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4}
            vision |= {"out_hidden_size": 128, "text_hidden_size": 128, "max_image_size": 256}
            names = {"image_start_token_id": "<hy_100>", "image_end_token_id": "<hy_101>"}
            tokens |= {name: vocabulary[token] for name, token in names.items()}
        case "lighton_ocr":
            text |= {"model_type": "qwen3", "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}}
            vision = {"model_type": "pixtral", "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1}
            vision |= {"num_attention_heads": 4, "head_dim": 8, "image_size": 224, "patch_size": 14}
            vision |= {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}}
        case "paddleocr_vl":
            text["rope_parameters"] = dict(_MROPE)
            tokens |= {"vision_start_token_id": vocabulary["<|IMAGE_START|>"]}
            vision = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4}
            vision |= {"image_size": 56, "patch_size": 14}
        case "got_ocr2":
            text["model_type"] = "qwen2"
            vision = {"hidden_size": 32, "output_channels": 16, "num_hidden_layers": 1, "num_attention_heads": 4}
            vision |= {"image_size": 64, "patch_size": 4, "window_size": 4, "global_attn_indexes": [0], "mlp_dim": 64}
            tokens = {"image_token_index": image, "image_seq_length": 16}
        case "glm_ocr":
            text["rope_parameters"] = dict(_MROPE)
            names = {"image_start_token_id": "<|begin_of_image|>", "image_end_token_id": "<|end_of_image|>"}
            names |= {"video_start_token_id": "<|begin_of_video|>", "video_end_token_id": "<|end_of_video|>"}
            tokens |= {name: vocabulary[token] for name, token in names.items()} | {
                "video_token_id": vocabulary["<|video|>"]
            }
            vision |= {"out_hidden_size": 128, "image_size": 56}
        case "smolvlm":
            text |= {"model_type": "llama"}
            vision = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4}
            vision |= {"image_size": 32, "patch_size": 8}
            tokens |= {"scale_factor": 2, "pad_token_id": vocabulary["<|im_end|>"]}
    tied = model_type not in ("qwen2_5_vl", "glm_ocr")
    config = {"vision_config": vision, "text_config": text, "tie_word_embeddings": tied, **tokens}
    return AutoConfig.for_model(model_type, **config)


def _write_tokenizer(folder: Path, model_type: str) -> dict[str, int]:
    """Write a tokenizer of bytes or, for PaddleOCR-VL, of characters in the manner of sentencepiece."""
    special = _SPECIAL[model_type]
    if model_type == "paddleocr_vl":
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
    config: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": _END.get(model_type, "<|im_end|>"),
        "pad_token": _PAD.get(model_type, "<|endoftext|>"),
    }
    if model_type in ("lighton_ocr", "paddleocr_vl"):
        config["image_token"] = _IMAGE.get(model_type, "<|image_pad|>")
    if model_type == "lighton_ocr":
        config |= {"image_break_token": "<|vision_start|>", "image_end_token": "<|vision_end|>"}
    if model_type in _EXTRA_TOKENS:
        config["extra_special_tokens"] = _EXTRA_TOKENS[model_type]
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    return vocabulary
