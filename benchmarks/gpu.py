"""How fast DeepSeek-OCR trains and reads on one GPU at its full size, and how much memory that takes.

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

import argparse
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from measuring import append_json, describe, gigabytes, machine, table_line, versions
from random_checkpoint import SMALL, Numbers

if TYPE_CHECKING:
    import torch

HEAD = ["recipe", "images", "ckpt", "steps/s", "lines/s", "ratio", "floor %", "peak GB", "loss", "last"]
WIDTHS = [39, 6, 5, 8, 8, 7, 8, 8, 7, 7]
READING = ["images", "merged", "tokens/s", "lines/s", "first s", "ms/token", "floor %", "peak GB"]
READING_WIDTHS = [6, 7, 9, 8, 8, 9, 8, 8]


def main() -> None:
    """Prints what it runs on, then a line for each thing measured; exits with 1 where a loss is wrong."""
    options = _parser().parse_args()
    # PEFT asks transformers for a property under its old name.
    warnings.filterwarnings("ignore", "`is_gradient_checkpointing` is deprecated", FutureWarning)
    print(describe(versions()))
    device = _device(options.device)
    _require_network()
    found = _machine(device)
    print(describe(found))

    from gpu_floor import Ceiling
    from gpu_phases import RECIPES, Bench

    if options.memory:
        _limit_memory(device, options.memory)
    ceiling = Ceiling.of(device)
    print(f"a matrix product {ceiling.operations / 1e12:.0f} TFLOP/s, a copy {ceiling.bytes / 1e12:.2f} TB/s")
    numbers, resolution = (SMALL, "base") if options.small else (Numbers(), "base")
    bench = Bench.prepare(options.folder, numbers, resolution, device=device, scope=options.scope)
    weights = bench.allocated()
    if weights is not None:
        print(f"the weights take {gigabytes(weights)} GB of the device")
    rows = []
    if options.read:
        print("\n" + table_line(READING, READING_WIDTHS))
    for merged in (False, True):
        for images in options.read:
            rows.append(bench.read(images, merged=merged))
            rows[-1]["bytes"] = bench.bytes_read(rows[-1])
            print(_reading_line(rows[-1], ceiling.bytes), flush=True)
    wanted = [recipe for recipe in RECIPES if not options.recipes or recipe.name in options.recipes.split("; ")]
    if wanted:
        print("\n" + table_line(HEAD, WIDTHS))
    usual = 0.0  # the most lines a second of the reference
    for recipe in wanted:
        operations = bench.operations(recipe)
        for checkpointing in {"both": (False, True), "on": (True,), "off": (False,)}[options.checkpointing]:
            for images in options.images:
                row = bench.train(recipe, images, options.steps, checkpointing=checkpointing, trace=options.trace)
                rows.append(row | {"operations": operations * images})
                if recipe is RECIPES[0] and row["seconds"]:
                    usual = max(usual, row["steps"] * row["images"] / row["seconds"])
                print(_training_line(rows[-1], ceiling.operations, usual), flush=True)
                if row["seconds"] is None:
                    break
    settings = {name: getattr(options, name) for name in ("folder", "small", "steps", "scope", "memory")}
    about = {**settings, "device": found, "weight_bytes": weights, "flops": ceiling.operations, "bytes": ceiling.bytes}
    append_json(options.json, "gpu", about, rows)
    if any(row.get("falls") is False for row in rows):
        sys.exit("a loss does not fall, or is not finite")


def _limit_memory(device: "torch.device", most: float) -> None:
    """Limit torch to this much device memory, in GB."""
    import torch

    total = torch.cuda.get_device_properties(device).total_memory
    torch.cuda.set_per_process_memory_fraction(most * 1e9 / total, device)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, help="a checkpoint to load in place of random weights")
    parser.add_argument("--images", type=_counts, default="2,8,16,32", help="canvases in a step, comma-separated")
    parser.add_argument("--checkpointing", choices=["both", "on", "off"], default="off", help="gradient checkpointing")
    parser.add_argument("--recipes", help="the names of some recipes, divided by '; '; 'none' for none")
    parser.add_argument("--scope", default="decoder", help="which layers get an adapter")
    parser.add_argument("--read", type=_counts, default="16,64,256", help="images that are read at once; 0 for none")
    parser.add_argument("--steps", type=int, default=10, help="steps that are timed, after 3 that are not")
    parser.add_argument("--memory", type=float, help="so many GB of the device's memory and no more")
    parser.add_argument("--trace", type=Path, help="a file for what one more step of each is made of")
    parser.add_argument("--device", default="cuda", help="cuda, cuda:1, ... or cpu")
    parser.add_argument("--small", action="store_true", help="46 million weights, to try this out")
    parser.add_argument("--json", type=Path, help="a file to add a line of results to")
    return parser


def _counts(text: str) -> list[int]:
    return [int(number) for number in text.split(",") if int(number)]


def _device(name: str) -> "torch.device":
    import torch

    device = torch.device(name)
    if device.type != "cuda":
        return device
    if not torch.cuda.is_available():
        sys.exit("torch finds no CUDA device here; to try this out without one, add --device cpu --small")
    # Limits of memory are set for a device by its number.
    return torch.device("cuda", torch.cuda.current_device() if device.index is None else device.index)


def _require_network() -> None:
    try:
        from transformers import UnlimitedOcrForConditionalGeneration  # noqa: F401
    except ImportError:
        sys.exit("this transformers does not know the network, which it calls unlimited_ocr; install 5.23 or later")


def _machine(device: "torch.device") -> dict[str, Any]:
    import torch

    if device.type != "cuda":
        return machine()
    gpu = torch.cuda.get_device_properties(device)
    return {"gpu": gpu.name, "gpu GB": gigabytes(gpu.total_memory), "cuda": torch.version.cuda, **machine()}


def _reading_line(row: Mapping[str, Any], ceiling: float) -> str:
    names = [str(row["images"]), "yes" if row["merged"] else "no"]
    if row["seconds"] is None:
        return table_line([*names, "out of memory"], READING_WIDTHS)
    seconds, steps = row["seconds"], row["tokens"] / row["images"]
    step = (seconds - row["first_seconds"]) / max(1, steps - 1)
    cells = [f"{row['tokens'] / seconds:.0f}", f"{row['images'] / seconds:.1f}", f"{row['first_seconds']:.2f}"]
    cells += [f"{1000 * step:.1f}", f"{100 * row['bytes'] / ceiling / step:.1f}", gigabytes(row["peak_bytes"])]
    return table_line([*names, *cells], READING_WIDTHS)


def _training_line(row: Mapping[str, Any], ceiling: float, usual: float) -> str:
    names = [row["recipe"], str(row["images"]), "on" if row["checkpointing"] else "off"]
    if row["seconds"] is None:
        return table_line([*names, "out of memory"], WIDTHS)
    rate, losses = row["steps"] / row["seconds"], row["losses"]
    lines = rate * row["images"]
    speeds = [f"{rate:.2f}", f"{lines:.1f}", f"{lines / usual:.1f}" if usual else "-"]
    speeds += [f"{100 * rate * row['operations'] / ceiling:.1f}", gigabytes(row["peak_bytes"])]
    return table_line([*names, *speeds, f"{losses[0]:.3f}", f"{losses[-1]:.3f}"], WIDTHS)


if __name__ == "__main__":
    main()
