"""The nano base before training: DeepSeek-OCR's network with small numbers, and its character tokenizer."""

from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, UnlimitedOcrConfig, UnlimitedOcrForConditionalGeneration

from texts import ALPHABET

BEGIN, END, PAD, IMAGE, UNKNOWN = "<begin>", "<end>", "<pad>", "<image>", "\N{REPLACEMENT CHARACTER}"
SPECIAL = [BEGIN, END, PAD, IMAGE, UNKNOWN]
CANVAS = 256
TOKEN_PIXELS = 32
"""Side of the square of pixels under one vision token: patch 8, then two convolutions of stride 2."""
ROW_PIXELS = 64
"""Height of a wrapped row: two vision tokens, so that one token shows about two letters."""


def make_tokenizer() -> PreTrainedTokenizerFast:
    """One token a character; ids 0, 1, 2 are begin, end and pad, as in DeepSeek-OCR."""
    vocabulary = {token: index for index, token in enumerate([*SPECIAL, *ALPHABET])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=UNKNOWN))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), behavior="isolated")
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=BEGIN,
        eos_token=END,
        pad_token=PAD,
        unk_token=UNKNOWN,
        additional_special_tokens=[IMAGE],
        clean_up_tokenization_spaces=False,
    )


def make_config(vocabulary: int, width: int = 160) -> UnlimitedOcrConfig:
    """The native class's config; `layer_types` and `sliding_window` as DeepSeek-OCR needs them."""
    layers = 3
    return UnlimitedOcrConfig(
        image_token_id=SPECIAL.index(IMAGE),
        vision_config={
            "sam_config": {
                "hidden_size": 64,
                "output_channels": 64,
                "num_hidden_layers": 3,
                "num_attention_heads": 2,
                "image_size": CANVAS,
                "patch_size": 8,
                # A window is as high as a row of text; the second tower sees what is beyond it.
                "window_size": ROW_PIXELS // 8,
                "global_attn_indexes": [],
                "mlp_dim": 256,
                "downsample_channels": [128, width],
                # The class default of 1e-10 leaves the layers dead; at 0.02 reading starts far later.
                "initializer_range": 0.06,
            },
            "encoder_config": {
                "hidden_size": width,
                "intermediate_size": 4 * width,
                "num_hidden_layers": 3,
                "num_attention_heads": 5,
                "image_size": CANVAS,
                "patch_size": TOKEN_PIXELS,
                "initializer_range": 0.06,
            },
        },
        text_config={
            "vocab_size": vocabulary,
            "hidden_size": width,
            "intermediate_size": 3 * width,
            "num_hidden_layers": layers,
            "num_attention_heads": 5,
            "num_key_value_heads": 5,
            "n_routed_experts": 4,
            "n_shared_experts": 1,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 160,
            "max_position_embeddings": 1024,
            "sliding_window": 128,
            "layer_types": ["full_attention"] * layers,
            "bos_token_id": 0,
            "eos_token_id": 1,
            "pad_token_id": 2,
        },
    )


def make_network(tokenizer: PreTrainedTokenizerFast) -> UnlimitedOcrForConditionalGeneration:
    """Untrained weights under torch's current seed."""
    size = -(-len(tokenizer) // 8) * 8
    return UnlimitedOcrForConditionalGeneration(make_config(size))


def save_base(network: UnlimitedOcrForConditionalGeneration, tokenizer: PreTrainedTokenizerFast, folder: Path) -> None:
    """A base folder that `from_pretrained` and `generate` take as it is."""
    network.generation_config.update(
        bos_token_id=0, eos_token_id=1, pad_token_id=2, do_sample=False, max_new_tokens=128
    )
    network.save_pretrained(folder, safe_serialization=True)
    tokenizer.save_pretrained(folder)
