"""Write small checkpoints of an image encoder and a text decoder with random weights, as published ones look."""

import json
from pathlib import Path
from typing import Any

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    DonutSwinConfig,
    MBartConfig,
    TrOCRConfig,
    VisionEncoderDecoderConfig,
    VisionEncoderDecoderModel,
    ViTConfig,
)

SPECIAL = ["<s>", "<pad>", "</s>", "<unk>"]
LETTERS = [chr(code) for code in (*range(0x20, 0x7F), *range(0x400, 0x460), 0x2116)]
VOCABULARY = len(SPECIAL) + len(LETTERS)
_DECODER: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "d_model": 48,
    "decoder_layers": 2,
    "decoder_attention_heads": 2,
    "decoder_ffn_dim": 96,
    "max_position_embeddings": 64,
    "dropout": 0.0,
}


def write_trocr(folder: Path, std: float = 0.02, **changes: Any) -> Path:
    """Write a small TrOCR with a square canvas; `changes` go to `config.json`, `std` is that of its weights."""
    encoder = ViTConfig(
        hidden_size=48, num_hidden_layers=2, num_attention_heads=2, intermediate_size=96, image_size=96, patch_size=16
    )
    decoder = TrOCRConfig(**_DECODER, cross_attention_hidden_size=48)
    image = {"image_processor_type": "ViTImageProcessor", "size": {"height": 96, "width": 96}, "resample": 2}
    return _write(folder, encoder, decoder, image, {"decoder_start_token_id": 2, **changes}, std)


def write_donut(folder: Path, std: float = 0.02) -> Path:
    """Write a small Donut with a canvas that is higher than wide; `std` is that of its weights."""
    encoder = DonutSwinConfig(
        image_size=[64, 128], embed_dim=24, depths=[1, 1], num_heads=[2, 2], window_size=4, patch_size=4
    )
    decoder = MBartConfig(**_DECODER, encoder_layers=2, is_decoder=True, add_cross_attention=True)
    image = {"image_processor_type": "DonutImageProcessor", "do_pad": True, "size": [128, 64]}
    return _write(folder, encoder, decoder, image, {"decoder_start_token_id": 0}, std)


def _write(
    folder: Path, encoder: Any, decoder: Any, image: dict[str, Any], changes: dict[str, Any], std: float = 0.02
) -> Path:
    torch.manual_seed(11)
    network = VisionEncoderDecoderModel(VisionEncoderDecoderConfig.from_encoder_decoder_configs(encoder, decoder))
    for parameter in network.parameters():
        if parameter.ndim > 1:
            torch.nn.init.normal_(parameter, std=std)
    network.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    (folder / "config.json").write_text(json.dumps(config | changes), encoding="utf-8")
    image |= {"image_mean": [0.5, 0.4, 0.3], "image_std": [0.5, 0.6, 0.7]}
    (folder / "preprocessor_config.json").write_text(json.dumps(image), encoding="utf-8")
    write_letter_tokenizer(folder)
    return folder


def write_letter_tokenizer(folder: Path) -> None:
    """Write a tokenizer with a token for each letter."""
    vocabulary = {token: number for number, token in enumerate([*SPECIAL, *LETTERS])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), behavior="isolated")
    tokenizer.decoder = decoders.Fuse()
    tokenizer.add_special_tokens(SPECIAL)
    tokenizer.save(str(folder / "tokenizer.json"))
    names = {"bos_token": "<s>", "pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
    config = {"tokenizer_class": "PreTrainedTokenizerFast", **names}
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
