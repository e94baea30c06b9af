"""DeepSeek-OCR at its published size, without memory: every number of the network and its adapter fits."""

import hashlib
import sys
from pathlib import Path

import torch
from transformers import PreTrainedModel

from dsocr.models.deepseek_ocr import UNUSED_TENSORS, DeepseekOcr, original_config
from tests.parity.rules import SHIPPED, Fixture

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

from random_checkpoint import (
    Numbers,
    count_weights,
    original_config_json,
    original_tensors,
)

PUBLISHED = Numbers()
PARAMETERS = 3_335_504_128


def network() -> PreTrainedModel:
    """The native network of the published numbers, on the meta device."""
    shapes = original_tensors(PUBLISHED)
    architecture = DeepseekOcr("deepseek_ocr", original=True)
    config = original_config(architecture, original_config_json(PUBLISHED), shapes, PUBLISHED.image_token_id)
    with torch.device("meta"):
        return architecture.network_class(config)


def test_the_names_are_the_published_ones() -> None:
    names = original_tensors(PUBLISHED)
    assert len(names) == 2711
    # Of the names in the published model.safetensors.index.json, sorted, a line each.
    digest = hashlib.sha256("\n".join(sorted(names)).encode()).hexdigest()
    assert digest == "00b79bb850c7fde1de8c068b18342804379583cbae45c0839c97df7b19876d04"


def test_the_network_has_every_weight_but_the_unused() -> None:
    shapes = original_tensors(PUBLISHED)
    assert sum(parameter.numel() for parameter in network().parameters()) == PARAMETERS
    assert count_weights({name: shape for name, shape in shapes.items() if name not in UNUSED_TENSORS}) == PARAMETERS
    assert shapes.keys() >= set(UNUSED_TENSORS)


def test_the_shapes_are_those_of_the_authors_code() -> None:
    numbers = Fixture.read(SHIPPED[0]).numbers
    language, sam, clip = numbers["language"], numbers["sam"], numbers["clip"]
    small = Numbers(
        layers=language["num_hidden_layers"],
        vocabulary=language["vocab_size"],
        dense_width=language["intermediate_size"],
        experts=language["n_routed_experts"],
        experts_per_token=language["num_experts_per_tok"],
        expert_width=language["moe_intermediate_size"],
        sam_layers=sam["depth"],
        sam_width=sam["width"],
        sam_heads=sam["heads"],
        sam_global=tuple(sam["global_attention"]),
        clip_layers=clip["depth"],
        clip_mlp=clip["mlp"],
    )
    theirs = {
        name: tuple(size for size in shape if isinstance(size, int)) for name, shape in numbers["tensors"].items()
    }
    assert original_tensors(small) == theirs
