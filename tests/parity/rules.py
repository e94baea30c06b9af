"""Checkpoints and pictures by rule, so that the answers of the authors' code can be compared without their weights.

Each fixture is a JSON file (the network's numbers, its tensors' names and shapes, the cases) and an npz file with what
the authors' code answered for each case. `fixtures/README.md` has the rules in words.
"""

import json
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

from tests.making_models import write_in_two

HERE = Path(__file__).parent
SHIPPED = [HERE / "fixtures" / "deepseek_ocr_v1", HERE / "fixtures" / "deepseek_ocr_2"]

SPECIAL = {0: "<begin>", 1: "<end>", 2: "<pad>"}


@dataclass(frozen=True)
class Fixture:
    """One fixture, read."""

    numbers: dict[str, Any]
    answers: dict[str, NDArray[np.float32]]

    @classmethod
    def read(cls, stem: Path) -> "Fixture":
        numbers = json.loads(stem.with_name(stem.name + ".json").read_text(encoding="utf-8"))
        with np.load(stem.with_name(stem.name + ".npz"), allow_pickle=False) as answers:
            return cls(numbers, dict(answers))

    @property
    def is_second(self) -> bool:
        """True for DeepSeek-OCR-2."""
        return "encoder" in self.numbers

    def write_checkpoint(self, folder: Path) -> None:
        """A checkpoint folder in the authors' layout: config, tokenizer, and weights in two files with an index."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.json").write_text(json.dumps(self._config()), encoding="utf-8")
        self._write_tokenizer(folder)
        shapes, salt = self.numbers["tensors"], self.numbers["salt"]
        write_in_two(folder, {name: weight(salt, name, shape) for name, shape in shapes.items()})

    def text(self, ids: list[int]) -> str:
        """The text whose tokens are these ids."""
        return "".join(token(number) for number in ids)

    def _config(self) -> dict[str, Any]:
        """The published config with this fixture's numbers, and code that must never be run."""
        second = self.is_second
        name = "modeling_deepseekocr2.DeepseekOCR2" if second else "modeling_deepseekocr.DeepseekOCR"
        language: dict[str, Any] = {"num_attention_heads": 10, "num_key_value_heads": 10, "n_shared_experts": 2}
        language |= {"n_group": 1, "topk_group": 1, "topk_method": "greedy", "first_k_dense_replace": 1}
        language |= {"hidden_size": 1280} | self.numbers["language"]
        sam = self.numbers["sam"]
        width: dict[str, Any] = {
            "sam_vit_b": {"downsample_channels": [512, 1024], "global_attn_indexes": sam["global_attention"]}
        }
        if second:
            width["qwen2-0-5b"] = {"dim": 896}
        else:
            width["clip-l-14-224"] = {"heads": self.numbers["clip"]["heads"], "image_size": 224, "patch_size": 14}
        return {
            "model_type": "deepseek_vl_v2",
            "architectures": [f"{name.partition('.')[2]}ForCausalLM"],
            "auto_map": {"AutoConfig": f"{name}Config", "AutoModel": f"{name}ForCausalLM"},
            "language_config": language,
            "projector_config": {"input_dim": 896 if second else 2048, "n_embed": 1280},
            "vision_config": {"model_name": "deepencoderv2" if second else "deeplip_b_l", "width": width},
        }

    def _write_tokenizer(self, folder: Path) -> None:
        count = self.numbers["vocab_size"]
        names = {number: token(number) for number in range(count)} | SPECIAL
        names[self.numbers["image_token_id"]] = "<image>"
        tokenizer = Tokenizer(models.WordLevel({name: number for number, name in names.items()}, unk_token="<pad>"))
        tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), behavior="isolated")
        tokenizer.decoder = decoders.Fuse()
        tokenizer.add_special_tokens([*SPECIAL.values(), "<image>"])
        tokenizer.save(str(folder / "tokenizer.json"))
        special = {"bos_token": "<begin>", "eos_token": "<end>", "pad_token": "<pad>"}
        config = {"tokenizer_class": "LlamaTokenizer", **special}
        (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")


def token(number: int) -> str:
    """The single character that stands for a token."""
    return chr(0x4E00 + number)


def weight(salt: str, name: str, shape: list[Any]) -> torch.Tensor:
    """A tensor of the checkpoint, from its name and shape; a shape that ends in a dtype is of an integer buffer."""
    if isinstance(shape[-1], str):
        return torch.arange(int(np.prod(shape[:-1])), dtype=torch.int64).reshape(shape[:-1])
    generator = np.random.Generator(np.random.PCG64(zlib.crc32((salt + name).encode())))
    values = generator.standard_normal(shape, dtype=np.float32)
    plain = not any(part in name for part in ("rel_pos", "pos_embed", "embedding", "embed_tokens"))
    if name.endswith("gate.weight"):
        values = 0.1 * values
    elif len(shape) >= 2 and plain:
        values = values / np.sqrt(np.prod(shape[1:]))
    elif len(shape) == 1 and name.endswith("weight"):
        values = 1 + 0.1 * values
    else:
        values = 0.05 * values
    return torch.from_numpy(np.ascontiguousarray(values, dtype=np.float32))


def picture(case: dict[str, Any]) -> Image.Image:
    """The picture of a case."""
    generator = np.random.Generator(np.random.PCG64(case["seed"]))
    shape = (max(2, case["height"] // 16), max(2, case["width"] // 16), 3)
    low = generator.integers(0, 256, shape, dtype=np.uint8)
    return Image.fromarray(low).resize((case["width"], case["height"]), Image.Resampling.BICUBIC)
