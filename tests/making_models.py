"""Write small checkpoints with random weights in the authors' layout, and finished runs on them."""

import json
import re
import shutil
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from peft import PeftModel
from PIL import Image
from safetensors.torch import load_file, save_file
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    DeepseekOcr2Config,
    DeepseekOcr2ForConditionalGeneration,
    PreTrainedModel,
    UnlimitedOcrConfig,
    UnlimitedOcrForConditionalGeneration,
)

from dsocr.io.work import write_manifest
from dsocr.models.adapters import adapter_files, adapter_tensors, attach_adapter
from dsocr.models.base_folder import find_base
from dsocr.models.deepseek_ocr import UNUSED_TENSORS, DeepseekProcessor
from dsocr.models.loading import BaseModel, load_base, recognize
from dsocr.models.token_batches import collate
from dsocr.runs import ReadingSettings, RunFolder
from dsocr.text import TextPolicy

BEGIN, END, PAD, IMAGE = "<begin>", "<end>", "<pad>", "<image>"
_LETTERS = 92
_VOCABULARY = 4 + _LETTERS

_TEXT = {
    "vocab_size": _VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "n_routed_experts": 4,
    "n_shared_experts": 2,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "n_group": 1,
    "topk_group": 1,
    "bos_token_id": 0,
    "eos_token_id": 1,
}
_SAM = {
    "hidden_size": 32,
    "output_channels": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "image_size": 128,
    "patch_size": 16,
    "window_size": 4,
    "global_attn_indexes": [1],
    "mlp_dim": 64,
    "initializer_range": 0.05,
    "downsample_channels": [32, 64],
}


def write_first(folder: Path, *, dtype: torch.dtype = torch.float32) -> Path:
    """Write a small DeepSeek-OCR, with unused tensors and with code that must never be run."""
    text = {**_TEXT, "layer_types": ["full_attention"] * 3, "sliding_window": 128, "max_position_embeddings": 8192}
    encoder = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = UnlimitedOcrConfig(
        vision_config={"sam_config": _SAM, "encoder_config": {**encoder, "image_size": 64, "patch_size": 16}},
        text_config=text,
        image_token_id=3,
    )
    patches, positions = UNUSED_TENSORS
    unused = {patches: torch.randn(64, 3, 16, 16).to(dtype), positions: torch.arange(17)[None]}
    width = {"clip-l-14-224": {"heads": 4, "image_size": 64, "patch_size": 16}}
    vision = {"model_name": "deeplip_b_l", "width": width}
    return _write(folder, UnlimitedOcrForConditionalGeneration, config, vision, "DeepseekOCR", unused, dtype)


def write_second(folder: Path, *, dtype: torch.dtype = torch.float32) -> Path:
    """Write a small DeepSeek-OCR-2."""
    text = {**_TEXT, "mlp_layer_types": ["dense", "sparse", "sparse"], "max_position_embeddings": 8192}
    encoder = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 1}
    config = DeepseekOcr2Config(
        vision_config={"sam_config": _SAM, "encoder_config": {**encoder, "num_key_value_heads": 1}},
        text_config=text,
        image_token_id=3,
    )
    vision = {"model_name": "deepencoderv2", "width": {"qwen2-0-5b": {"dim": 64}}}
    return _write(folder, DeepseekOcr2ForConditionalGeneration, config, vision, "DeepseekOCR2", {}, dtype)


def write_shallow(folder: Path) -> Path:
    """Write nano without most of its layers: the first of the decoder, which is dense, and of each vision tower."""
    nano, _ = find_base("nano")
    shutil.copytree(nano, folder)
    config = json.loads((nano / "config.json").read_text(encoding="utf-8"))
    text, vision = config["text_config"], config["vision_config"]
    text |= {"num_hidden_layers": 1} | {name: text[name][:1] for name in ("layer_types", "mlp_layer_types")}
    vision["encoder_config"]["num_hidden_layers"] = vision["sam_config"]["num_hidden_layers"] = 1
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    tensors = load_file(nano / "model.safetensors")
    for name in list(tensors):
        layer = re.search(r"\.(layers|blocks)\.(\d+)\.", name)
        if layer and int(layer[2]) > 0:
            del tensors[name]
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    return folder


def _write(
    folder: Path,
    network_class: type[PreTrainedModel],
    config: Any,
    vision: dict[str, Any],
    name: str,
    unused: dict[str, torch.Tensor],
    dtype: torch.dtype,
) -> Path:
    torch.manual_seed(5)
    network = network_class(config)
    for parameter in network.parameters():  # zeros of the class would look like lost weights
        torch.nn.init.normal_(parameter, mean=float(parameter.ndim == 1), std=0.05)
    network.to(dtype).save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    write_in_two(folder, tensors | unused)
    code = {"AutoConfig": f"modeling.{name}Config", "AutoModel": f"modeling.{name}ForCausalLM"}
    original = {"model_type": "deepseek_vl_v2", "architectures": [f"{name}ForCausalLM"], "auto_map": code}
    original |= {"language_config": _TEXT, "vision_config": vision}
    (folder / "config.json").write_text(json.dumps(original, indent=1) + "\n\n", encoding="utf-8")
    (folder / "modeling.py").write_text("raise RuntimeError('foreign code was run')\n", encoding="utf-8")
    (folder / "processor_config.json").write_text('{"image_mean": [0.5, 0.5, 0.5]}', encoding="utf-8")
    _write_tokenizer(folder)
    return folder


def write_in_two(folder: Path, tensors: dict[str, torch.Tensor]) -> None:
    """Write tensors into two files with an index."""
    names = sorted(tensors)
    parts = {"model-00001-of-00002.safetensors": names[::2], "model-00002-of-00002.safetensors": names[1::2]}
    for file, part in parts.items():
        save_file({name: tensors[name] for name in part}, folder / file, metadata={"format": "pt"})
    index = {"metadata": {}, "weight_map": {name: file for file, part in parts.items() for name in part}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")


def _write_tokenizer(folder: Path) -> None:
    letters = [chr(0x410 + number) for number in range(_LETTERS)]
    vocabulary = {token: number for number, token in enumerate([BEGIN, END, PAD, IMAGE, *letters])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=PAD))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), behavior="isolated")
    tokenizer.decoder = decoders.Fuse()
    tokenizer.add_special_tokens([BEGIN, END, PAD, IMAGE])
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {"tokenizer_class": "LlamaTokenizer", "bos_token": BEGIN, "eos_token": END, "pad_token": PAD}
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")


def save_adapter(model: PeftModel, folder: Path) -> None:
    """Write an adapter into an existing folder."""
    for name, content in adapter_files(model):
        (folder / name).write_bytes(content)


def make_run(
    folder: Path,
    base: str,
    scope: str = "decoder",
    *,
    variant: Any = "lora",
    rank: int = 4,
    stated_base: str = "",
    prompt: str = "<image>\nБВГ",
) -> RunFolder:
    """Write a finished run whose adapter has random weights."""
    run = RunFolder(folder)
    run.adapter.mkdir(parents=True)
    run.config.write_text("dataset: data\n", encoding="utf-8")
    for name, content in _random_adapter(base, scope, variant, rank):
        (run.adapter / name).write_bytes(content)
    generation = {"max_new_tokens": 64, "no_repeat_ngram_size": 20, "no_repeat_ngram_window": 90}
    resolution = _RESOLUTIONS.get(recognize(find_base(base)[0]).name, "default")
    ReadingSettings(stated_base or base, None, prompt, resolution, TextPolicy(), generation).save(run.adapter)
    write_manifest(run.adapter)
    provenance = {"dsocr_version": "0.0.1", "dataset_source": "letters", "dataset": {"train": "abc", "test": "def"}}
    run.provenance.write_text(json.dumps(provenance), encoding="utf-8")
    return run


@cache
def _random_adapter(base: str, scope: str, variant: Any, rank: int) -> list[tuple[str, bytes]]:
    """Return the names and contents of an adapter's files, made once for each base."""
    model = attach_adapter(
        load_base(base).network, base=base, revision=None, target_modules=scope, r=rank, alpha=2 * rank, variant=variant
    )
    generator = torch.Generator().manual_seed(1)
    for name, tensor in adapter_tensors(model).items():
        if "magnitude" in name:
            tensor.data.mul_(1.1)
        else:
            tensor.data.copy_(0.1 * torch.randn(tensor.shape, generator=generator))
    return list(adapter_files(model))


_RESOLUTIONS = {"deepseek_ocr": "tiny", "deepseek_ocr_2": "small", "nano": "wrap", "unlimited_ocr": "tiny"}


def logits(base: BaseModel, network: Any = None) -> torch.Tensor:
    """Logits of a base, or of another network on it, for a random image with a text."""
    processor = deepseek_processor(base, _RESOLUTIONS[base.family.name], "<image>\nБВГ")
    pixels = np.random.default_rng(0).integers(0, 256, (60, 300, 3), dtype=np.uint8)
    batch = collate([processor.encode(Image.fromarray(pixels), "ДЕЖ")], processor.pad_id, padding="right")
    with torch.inference_mode():
        answer: torch.Tensor = (network or base.network)(**batch).logits
    return answer


def deepseek_processor(base: BaseModel, resolution: str | None, prompt: str) -> DeepseekProcessor:
    """Return the processor of a base of the DeepSeek-OCR family."""
    processor = base.processor(resolution, prompt)
    assert isinstance(processor, DeepseekProcessor)
    return processor
