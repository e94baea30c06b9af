"""A random checkpoint of DeepSeek-OCR in the authors' layout: names, shapes, config, tokenizer, and files of weights.

Knows nothing about how a checkpoint is loaded, and imports torch only to make weights.
"""

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

if TYPE_CHECKING:
    import torch

INDEX = "model.safetensors.index.json"
SHARD_BYTES = 5_000_000_000
SEED = 20251020

BEGIN, END, PAD, IMAGE = "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜▁pad▁｜>", "<image>"
_CHARACTERS = "\n" + "".join(map(chr, [*range(0x20, 0x7F), 0x401, *range(0x410, 0x450), 0x451]))

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Numbers:
    """What is counted in the network; the defaults are the published ones. Every other size is fixed."""

    layers: int = 12
    vocabulary: int = 129_280
    dense_width: int = 6848
    experts: int = 64
    experts_per_token: int = 6
    expert_width: int = 896
    sam_layers: int = 12
    sam_width: int = 768
    sam_heads: int = 12
    sam_global: tuple[int, ...] = (2, 5, 8, 11)
    clip_layers: int = 24
    clip_mlp: int = 4096

    @property
    def image_token_id(self) -> int:
        """The id of `<image>`; published as 128,815, 465 ids before the end."""
        return self.vocabulary - 465


SMALL = Numbers(
    layers=2,
    vocabulary=2000,
    dense_width=512,
    experts=8,
    experts_per_token=2,
    expert_width=128,
    sam_layers=3,
    sam_width=96,
    sam_heads=4,
    sam_global=(2,),
    clip_layers=2,
    clip_mlp=512,
)
"""A network that is made and trained in seconds, to try a benchmark out."""

_WIDTH = 1280
_CLIP_WIDTH = 1024


def original_tensors(numbers: Numbers) -> dict[str, Shape]:
    """The shape of every tensor in a checkpoint of the authors, by name; the two that no code uses are there too."""
    tensors: dict[str, Shape] = {f"model.{name}": shape for name, shape in _model(numbers)}
    return tensors | {"lm_head.weight": (numbers.vocabulary, _WIDTH)}


def _model(numbers: Numbers) -> Iterator[tuple[str, Shape]]:
    yield "image_newline", (_WIDTH,)
    yield "view_seperator", (_WIDTH,)
    yield "embed_tokens.weight", (numbers.vocabulary, _WIDTH)
    for layer in range(numbers.layers):
        yield from _prefixed(f"layers.{layer}", _decoder_layer(numbers, dense=layer == 0))
    yield "norm.weight", (_WIDTH,)
    yield from _prefixed("sam_model", _sam(numbers))
    yield from _prefixed("vision_model", _clip(numbers))
    yield from _linear("projector.layers", _WIDTH, 2 * _CLIP_WIDTH)


def _decoder_layer(numbers: Numbers, *, dense: bool) -> Iterator[tuple[str, Shape]]:
    for projection in "qkvo":
        yield f"self_attn.{projection}_proj.weight", (_WIDTH, _WIDTH)
    if dense:
        yield from _prefixed("mlp", _gated(numbers.dense_width))
    else:
        for expert in range(numbers.experts):
            yield from _prefixed(f"mlp.experts.{expert}", _gated(numbers.expert_width))
        yield "mlp.gate.weight", (numbers.experts, _WIDTH)
        yield from _prefixed("mlp.shared_experts", _gated(2 * numbers.expert_width))
    yield "input_layernorm.weight", (_WIDTH,)
    yield "post_attention_layernorm.weight", (_WIDTH,)


def _gated(width: int) -> Iterator[tuple[str, Shape]]:
    yield "gate_proj.weight", (width, _WIDTH)
    yield "up_proj.weight", (width, _WIDTH)
    yield "down_proj.weight", (_WIDTH, width)


def _sam(numbers: Numbers) -> Iterator[tuple[str, Shape]]:
    width, side, neck = numbers.sam_width, 1024 // 16, 256
    yield "pos_embed", (1, side, side, width)
    yield from _convolution("patch_embed.proj", width, 3, 16)
    yield "patch_embed.proj.bias", (width,)
    for layer in range(numbers.sam_layers):
        reach = 2 * (side if layer in numbers.sam_global else 14) - 1
        yield from _prefixed(f"blocks.{layer}", _sam_block(width, width // numbers.sam_heads, reach))
    yield from _convolution("neck.0", neck, width, 1)
    yield from _norm("neck.1", neck)
    yield from _convolution("neck.2", neck, neck, 3)
    yield from _norm("neck.3", neck)
    yield from _convolution("net_2", 512, neck, 3)
    yield from _convolution("net_3", _CLIP_WIDTH, 512, 3)


def _sam_block(width: int, head: int, reach: int) -> Iterator[tuple[str, Shape]]:
    yield from _norm("norm1", width)
    yield "attn.rel_pos_h", (reach, head)
    yield "attn.rel_pos_w", (reach, head)
    yield from _linear("attn.qkv", 3 * width, width)
    yield from _linear("attn.proj", width, width)
    yield from _norm("norm2", width)
    yield from _linear("mlp.lin1", 4 * width, width)
    yield from _linear("mlp.lin2", width, 4 * width)


def _clip(numbers: Numbers) -> Iterator[tuple[str, Shape]]:
    width, positions = _CLIP_WIDTH, 1 + (224 // 14) ** 2
    yield "embeddings.class_embedding", (width,)
    yield "embeddings.position_ids", (1, positions)
    yield from _convolution("embeddings.patch_embedding", width, 3, 14)
    yield "embeddings.position_embedding.weight", (positions, width)
    for layer in range(numbers.clip_layers):
        yield from _prefixed(f"transformer.layers.{layer}", _clip_layer(width, numbers.clip_mlp))
    yield from _norm("pre_layrnorm", width)


def _clip_layer(width: int, mlp: int) -> Iterator[tuple[str, Shape]]:
    yield from _linear("self_attn.qkv_proj", 3 * width, width)
    yield from _linear("self_attn.out_proj", width, width)
    yield from _linear("mlp.fc1", mlp, width)
    yield from _linear("mlp.fc2", width, mlp)
    yield from _norm("layer_norm1", width)
    yield from _norm("layer_norm2", width)


def _prefixed(prefix: str, tensors: Iterator[tuple[str, Shape]]) -> Iterator[tuple[str, Shape]]:
    return ((f"{prefix}.{name}", shape) for name, shape in tensors)


def _linear(name: str, out: int, into: int) -> Iterator[tuple[str, Shape]]:
    yield f"{name}.weight", (out, into)
    yield f"{name}.bias", (out,)


def _norm(name: str, width: int) -> Iterator[tuple[str, Shape]]:
    yield f"{name}.weight", (width,)
    yield f"{name}.bias", (width,)


def _convolution(name: str, out: int, into: int, side: int) -> Iterator[tuple[str, Shape]]:
    yield f"{name}.weight", (out, into, side, side)


def is_integer(name: str) -> bool:
    """True for the one buffer that is no weight: the positions of the second tower."""
    return name.endswith("position_ids")


def count_weights(tensors: Mapping[str, Shape]) -> int:
    """The numbers in all tensors but the integer buffer."""
    return sum(math.prod(shape) for name, shape in tensors.items() if not is_integer(name))


def checkpoint_bytes(numbers: Numbers) -> int:
    """What the weights take on disk, the files' heads left out."""
    return sum(_bytes(name, shape) for name, shape in original_tensors(numbers).items())


def original_config_json(numbers: Numbers) -> dict[str, Any]:
    """A `config.json` as published, with code in `auto_map` that lies nowhere and must not be looked for."""
    language = {
        "bos_token_id": 0,
        "eos_token_id": 1,
        "hidden_size": _WIDTH,
        "intermediate_size": numbers.dense_width,
        "kv_lora_rank": None,
        "lm_head": True,
        "max_position_embeddings": 8192,
        "moe_intermediate_size": numbers.expert_width,
        "n_group": 1,
        "n_routed_experts": numbers.experts,
        "n_shared_experts": 2,
        "num_attention_heads": 10,
        "num_experts_per_tok": numbers.experts_per_token,
        "num_hidden_layers": numbers.layers,
        "num_key_value_heads": 10,
        "q_lora_rank": None,
        "qk_nope_head_dim": 0,
        "qk_rope_head_dim": 0,
        "topk_group": 1,
        "topk_method": "greedy",
        "first_k_dense_replace": 1,
        "use_mla": False,
        "v_head_dim": 0,
        "vocab_size": numbers.vocabulary,
    }
    clip = {"heads": 16, "image_size": 224, "layers": numbers.clip_layers, "patch_size": 14, "width": _CLIP_WIDTH}
    sam = {
        "downsample_channels": [512, _CLIP_WIDTH],
        "global_attn_indexes": list(numbers.sam_global),
        "heads": numbers.sam_heads,
        "layers": numbers.sam_layers,
        "width": numbers.sam_width,
    }
    code = "modeling_deepseekocr.DeepseekOCR"
    return {
        "model_type": "deepseek_vl_v2",
        "architectures": ["DeepseekOCRForCausalLM"],
        "auto_map": {"AutoConfig": f"{code}Config", "AutoModel": f"{code}ForCausalLM"},
        "candidate_resolutions": [[1024, 1024]],
        "global_view_pos": "head",
        "tile_tag": "2D",
        "torch_dtype": "bfloat16",
        "language_config": language,
        "projector_config": {"input_dim": 2 * _CLIP_WIDTH, "n_embed": _WIDTH, "projector_type": "linear"},
        "vision_config": {
            "image_size": 1024,
            "model_name": "deeplip_b_l",
            "width": {"clip-l-14-224": clip, "sam_vit_b": sam},
        },
    }


def make_tokenizer(numbers: Numbers) -> Tokenizer:
    """One token a character of English and Russian; ids 0, 1, 2 begin, end and pad, the rest stand for no text."""
    names = [BEGIN, END, PAD, *_CHARACTERS]
    names += [f"<{number}>" for number in range(len(names), numbers.vocabulary)]
    names[numbers.image_token_id] = IMAGE
    tokenizer = Tokenizer(models.WordLevel({name: number for number, name in enumerate(names)}, unk_token=PAD))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), behavior="isolated")
    tokenizer.decoder = decoders.Fuse()
    tokenizer.add_special_tokens([BEGIN, END, PAD, IMAGE])
    return tokenizer


def fill(name: str, weights: "torch.Tensor", generator: "torch.Generator | None" = None) -> None:
    """Random weights in place, for names of either layout; a network of them guesses all tokens about alike."""
    if name.endswith(".bias"):
        weights.zero_()
    elif name.endswith(".weight") and weights.dim() == 1:  # a norm
        weights.fill_(1)
    else:
        # Logits of standard deviation 0.018 for hidden states of norm sqrt(1280).
        weights.normal_(0, 0.0005 if name == "lm_head.weight" else 0.02, generator=generator)


def base_folder(folder: Path) -> Path:
    """Where the checkpoint lies in the folder that a benchmark writes into."""
    return folder / "base"


def is_written(folder: Path, numbers: Numbers) -> bool:
    """True where a whole checkpoint of just these numbers lies in the folder."""
    if not (folder / INDEX).is_file():
        return False
    config: object = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    return config == original_config_json(numbers)


def write_checkpoint(folder: Path, numbers: Numbers) -> list[Path]:
    """Write the checkpoint and name its files of weights; one tensor is in memory at a time. The index comes last."""
    import torch

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(original_config_json(numbers), indent=2) + "\n", encoding="utf-8")
    write_tokenizer(folder, numbers)
    tensors = original_tensors(numbers)
    shards = _shards(tensors)
    generator = torch.Generator().manual_seed(SEED)
    files = [folder / f"model-{number:05}-of-{len(shards):06}.safetensors" for number in range(1, len(shards) + 1)]
    for file, names in zip(files, shards, strict=True):
        _write_shard(file, {name: tensors[name] for name in names}, generator)
    weight_map = {name: file.name for file, names in zip(files, shards, strict=True) for name in names}
    index = {"metadata": {"total_size": checkpoint_bytes(numbers)}, "weight_map": weight_map}
    (folder / INDEX).write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")
    return files


def write_tokenizer(folder: Path, numbers: Numbers) -> None:
    """Write the tokenizer's two files."""
    make_tokenizer(numbers).save(str(folder / "tokenizer.json"), pretty=False)
    config = {"tokenizer_class": "LlamaTokenizerFast", "bos_token": BEGIN, "eos_token": END, "pad_token": PAD}
    (folder / "tokenizer_config.json").write_text(json.dumps(config, ensure_ascii=False), encoding="utf-8")


def _bytes(name: str, shape: Shape) -> int:
    return math.prod(shape) * (8 if is_integer(name) else 2)


def _shards(tensors: Mapping[str, Shape]) -> list[list[str]]:
    """The names by file: at most SHARD_BYTES in one, and always more than one file."""
    sizes = {name: _bytes(name, shape) for name, shape in tensors.items()}
    limit = min(SHARD_BYTES, int(0.7 * sum(sizes.values())))
    shards: list[list[str]] = [[]]
    used = 0
    for name, size in sizes.items():
        if shards[-1] and used + size > limit:
            shards.append([])
            used = 0
        shards[-1].append(name)
        used += size
    return shards


def _write_shard(file: Path, tensors: Mapping[str, Shape], generator: "torch.Generator") -> None:
    """A safetensors file: the head's length in 8 bytes, the head, the tensors one after another."""
    head: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, shape in tensors.items():
        begin, end = end, end + _bytes(name, shape)
        dtype = "I64" if is_integer(name) else "BF16"
        head[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}
    encoded = json.dumps(head, separators=(",", ":")).encode()
    encoded += b" " * (-len(encoded) % 8)
    with file.open("wb") as stream:
        stream.write(len(encoded).to_bytes(8, "little") + encoded)
        for name, shape in tensors.items():
            _write_tensor(stream, name, shape, generator)


def _write_tensor(stream: BinaryIO, name: str, shape: Shape, generator: "torch.Generator") -> None:
    import torch

    if is_integer(name):
        tensor = torch.arange(math.prod(shape))
    else:
        tensor = torch.empty(shape, dtype=torch.bfloat16)
        fill(name, tensor, generator)
    stream.write(tensor.flatten().view(torch.uint8).numpy().data)
