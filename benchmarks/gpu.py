"""Measure how fast DeepSeek-OCR trains and reads on one GPU at its full size, and how much memory that takes.

    python benchmarks/gpu.py
    python benchmarks/gpu.py --recipes "grouped, learnt" --images 1,2,4 --checkpointing both
    python benchmarks/gpu.py --device cpu --small --images 1,2 --read 1 --steps 2

A line has 45 characters: 19 tokens of the published tokenizer and the end, as the Russian lines of the sample have 2.4
characters a token. The reference shows one line on a canvas of 1024 x 1024 pixels (273 image slots), makes logits for
every position and loops over the experts; the other recipes change one thing or several. The adapter is the decoder's,
rank 16; everything else is bfloat16, weights are random and made on the device, so no file is needed; --folder takes
those of a checkpoint. A step is forward, backward, clipping and AdamW, as the Trainer does them, on images that lie on
the device as bytes.

`floor` is the share of what the device can do: the operations of a step, counted by torch, over its seconds, against
the rate of a large matrix product measured in the same run; for reading, the bytes that each token has to move at
least, against a large copy.
"""

import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from random_checkpoint import SMALL, Numbers
from runner import Table, describe, gigabytes, make_parser, parse, record

if TYPE_CHECKING:
    import torch


def main() -> None:
    """Measure reading and training; exit with 1 if a loss is wrong."""
    parser = make_parser(__doc__)
    parser.add_argument("--folder", type=Path, help="a checkpoint to load in place of random weights")
    parser.add_argument("--images", type=_counts, default="2,8,16,32", help="canvases in a step, comma-separated")
    parser.add_argument("--checkpointing", choices=["both", "on", "off"], default="off", help="gradient checkpointing")
    parser.add_argument("--recipes", help="the names of some recipes, divided by '; '; 'none' for none")
    parser.add_argument("--scope", default="decoder", help="which layers get an adapter")
    parser.add_argument("--read", type=_counts, default="16,64,256", help="images read at once; 0 for none")
    parser.add_argument("--steps", type=int, default=10, help="steps that are timed, after 3 that are not")
    parser.add_argument("--memory", type=float, help="so many GB of the device's memory and no more")
    parser.add_argument("--device", default="cuda", help="cuda, cuda:1, ... or cpu")
    parser.add_argument("--small", action="store_true", help="46 million weights, to try this out")
    options = parse(parser)
    # PEFT asks transformers for a property under its old name.
    warnings.filterwarnings("ignore", "`is_gradient_checkpointing` is deprecated", FutureWarning)
    device = find_device(options.device, options.memory)

    from gpu_phases import RECIPES, Bench, Ceiling

    ceiling = Ceiling.of(device)
    print(f"a matrix product {ceiling.operations / 1e12:.0f} TFLOP/s, a copy {ceiling.bytes / 1e12:.2f} TB/s")
    numbers = SMALL if options.small else Numbers()
    bench = Bench.prepare(options.folder, numbers, "base", device=device, scope=options.scope)
    print(f"the weights take {gigabytes(bench.allocated())} GB of the device")
    rows: list[dict[str, Any]] = []
    table = Table("images", "merged", "tokens/s", "lines/s", "first s", "ms/token", "floor %", "peak GB")
    for merged in (False, True):
        for images in options.read:
            rows.append(bench.read(images, merged=merged))
            rows[-1]["bytes"] = bench.bytes_read(rows[-1])
            table.row(*reading_cells(rows[-1], ceiling.bytes))
    chosen = [recipe for recipe in RECIPES if not options.recipes or recipe.name in options.recipes.split("; ")]
    heads = ("images", "checkpointing", "steps/s", "lines/s", "ratio", "floor %", "peak GB", "loss", "last")
    table = Table("recipe", *heads)
    usual = 0.0  # the most lines/s of the reference
    for recipe in chosen:
        operations = bench.operations(recipe)
        for checkpointing in {"both": (False, True), "on": (True,), "off": (False,)}[options.checkpointing]:
            for images in options.images:
                row = bench.train(recipe, images, options.steps, checkpointing=checkpointing)
                rows.append(row | {"operations": operations * images})
                if recipe is RECIPES[0] and row["seconds"]:
                    usual = max(usual, row["steps"] * row["images"] / row["seconds"])
                table.row(*training_cells(rows[-1], ceiling.operations, usual))
                if row["seconds"] is None:
                    break
    record(options, rows)
    if any(row.get("falls") is False for row in rows):
        sys.exit("a loss does not fall, or is not finite")


def _counts(text: str) -> list[int]:
    return [int(number) for number in text.split(",") if int(number)]


def find_device(name: str, memory: float | None) -> "torch.device":
    """Return the device, with its memory limited to so many GB; exit if it is not there."""
    import torch

    device = torch.device(name)
    if device.type != "cuda":
        return device
    if not torch.cuda.is_available():
        sys.exit("torch finds no CUDA device; to try this out without one, add --device cpu --small")
    # Limits of memory are set for a device by its number.
    device = torch.device("cuda", torch.cuda.current_device() if device.index is None else device.index)
    gpu = torch.cuda.get_device_properties(device)
    print(describe({"gpu": gpu.name, "gpu GB": gigabytes(gpu.total_memory), "cuda": torch.version.cuda}))
    if memory:
        torch.cuda.set_per_process_memory_fraction(memory * 1e9 / gpu.total_memory, device)
    return device


def reading_cells(row: Mapping[str, Any], ceiling: float) -> list[str]:
    """Return the cells of a reading."""
    names = [str(row["images"]), "yes" if row["merged"] else "no"]
    if row["seconds"] is None:
        return [*names, "out of memory"]
    seconds, steps = row["seconds"], row["tokens"] / row["images"]
    step = (seconds - row["first_seconds"]) / max(1, steps - 1)
    cells = [f"{row['tokens'] / seconds:.0f}", f"{row['images'] / seconds:.1f}", f"{row['first_seconds']:.2f}"]
    cells += [f"{1000 * step:.1f}", f"{100 * row['bytes'] / ceiling / step:.1f}", gigabytes(row["peak_bytes"])]
    return [*names, *cells]


def training_cells(row: Mapping[str, Any], ceiling: float, usual: float) -> list[str]:
    """Return the cells of a training run."""
    names = [row["recipe"], str(row["images"]), "on" if row["checkpointing"] else "off"]
    if row["seconds"] is None:
        return [*names, "out of memory"]
    rate, losses = row["steps"] / row["seconds"], row["losses"]
    lines = rate * row["images"]
    speeds = [f"{rate:.2f}", f"{lines:.1f}", f"{lines / usual:.1f}" if usual else "-"]
    speeds += [f"{100 * rate * row['operations'] / ceiling:.1f}", gigabytes(row["peak_bytes"])]
    return [*names, *speeds, f"{losses[0]:.3f}", f"{losses[-1]:.3f}"]


if __name__ == "__main__":
    main()
