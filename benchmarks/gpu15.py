"""Measure what a 16 GB card does with DeepSeek-OCR, in fifteen minutes on any larger one.

    python benchmarks/gpu15.py read      # 16, 64 and 128 lines at once, merged: experts and caches
    python benchmarks/gpu15.py train     # each set of layers in 14 GB: experts, recomputing, 1 to 8 images
    python benchmarks/gpu15.py blocks    # eight lines in one image beside single lines, features kept or not
    python benchmarks/gpu15.py blocks --device cpu --small

Weights are random, as in `gpu.py`, which explains the lines. Each row is printed as soon as it is measured, and none
begins after twelve minutes.
"""

import time
import warnings
from collections.abc import Iterator
from functools import partial
from typing import Any
from unittest.mock import patch

import torch
from transformers import GenerationConfig
from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS, grouped_mm_experts_forward

import gpu_phases
from dsocr.models import token_batches
from gpu import find_device
from gpu_phases import Bench, Recipe
from random_checkpoint import SMALL, Numbers
from runner import Table, gigabytes, make_parser, parse, record

LAST_START = 12 * 60
STEPS = 4
CARD = 14e9
"""Bytes of a 16 GB card that its driver and other programs leave."""
SCOPES = ("decoder+vision", "decoder+experts", "decoder")

Row = dict[str, Any]


def main() -> None:
    """Measure one part, and print its rows."""
    parser = make_parser(__doc__)
    parser.add_argument("part", choices=["read", "train", "blocks"])
    parser.add_argument("--device", default="cuda", help="cuda, cuda:1, ... or cpu")
    parser.add_argument("--small", action="store_true", help="46 million weights, to try this out")
    options = parse(parser)
    # PEFT asks transformers for a property under its old name.
    warnings.filterwarnings("ignore", "`is_gradient_checkpointing` is deprecated", FutureWarning)
    gpu_phases.UNTIMED, begun = 2, time.monotonic()
    device = find_device(options.device, CARD / 1e9 if options.part == "train" else None)
    prepare = partial(Bench.prepare, None, SMALL if options.small else Numbers(), device=device)
    parts = {"read": measure_reading, "train": measure_training, "blocks": measure_blocks}
    rows: list[Row] = []
    table: Table | None = None
    for row in parts[options.part](prepare):
        table = table or Table(*row)
        table.row(*row.values())
        rows.append(row)
        if time.monotonic() - begun > LAST_START:
            print("twelve minutes are over", flush=True)
            break
    record(options, rows)


def measure_reading(prepare: Any) -> Iterator[Row]:
    """Read with transformers' own choice of experts and with grouped ones, with a growing and a static cache.

    In generation transformers replaces "grouped_mm" by "batched_mm", which copies the weights of each token's experts.
    """
    ALL_EXPERTS_FUNCTIONS.register("grouped_kept", grouped_mm_experts_forward)
    bench = prepare("base")
    for images in (16, 64, 128):
        for experts, cache in (("grouped_mm", None), ("grouped_kept", None), ("grouped_kept", "static")):
            bench.model.get_base_model().set_experts_implementation(experts)
            config = partial(GenerationConfig, cache_implementation=cache)
            with patch.object(token_batches, "GenerationConfig", config):
                row = bench.read(images, merged=True)
            yield {
                "images": images,
                "experts": experts,
                "cache": cache or "dynamic",
                "tokens/s": _rate(row["tokens"], row["seconds"]),
                "lines/s": _rate(images, row["seconds"]),
                "first s": _rounded(row["first_seconds"]),
                "peak GB": gigabytes(row["peak_bytes"]),
            }


def measure_training(prepare: Any) -> Iterator[Row]:
    """Train each set of layers with more and more images, until the memory of the card is full."""
    for scope in SCOPES:
        bench = prepare("base", scope=scope)
        for experts in ("grouped_mm", "eager"):
            for checkpointing in (True, False):
                for images in (1, 2, 4, 8):
                    recipe = Recipe("", learnt=True, experts=experts)
                    row = bench.train(recipe, images, STEPS, checkpointing=checkpointing)
                    recomputed = "yes" if checkpointing else "no"
                    yield {"layers": scope, "experts": experts, "recomputed": recomputed, **_trained(row, images)}
                    if row["seconds"] is None:
                        break
        del bench
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


def measure_blocks(prepare: Any) -> Iterator[Row]:
    """Train single lines on both canvases, and eight lines in one image."""
    for resolution, lines in (("base", 1), ("wrap", 1), ("base", 8)):
        bench = prepare(resolution, lines=lines)
        for kept in (False, True):
            for images in (4, 16):
                row = bench.train(Recipe("", learnt=True, experts="grouped_mm", kept=kept), images, STEPS)
                about = {"resolution": resolution, "lines": lines, "features": "kept" if kept else "computed"}
                yield about | _trained(row, images, lines)


def _trained(row: Row, images: int, lines: int = 1) -> Row:
    rate = _rate(STEPS * images * lines, row["seconds"])
    return {"images": images, "lines/s": rate, "peak GB": gigabytes(row["peak_bytes"])}


def _rate(count: int, seconds: float | None) -> str:
    return "out of memory" if seconds is None else f"{count / seconds:.1f}"


def _rounded(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds:.2f}"


if __name__ == "__main__":
    main()
