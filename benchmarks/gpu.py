"""How fast DeepSeek-OCR trains and reads on one GPU at its full size, and how much memory that takes.

    python benchmarks/gpu.py
    python benchmarks/gpu.py --device cpu --small --batches 1,2 --lines 1 --steps 2

A sample is one view of 1024 x 1024 pixels (273 image slots) and 100 characters; the adapter is the decoder's, rank 16;
everything else is bfloat16. Each batch is trained on by three recipes: logits for all positions, logits for those that
are learnt only, and with the latter features that the vision towers gave beforehand. Weights are random and made on
the device, so no file is needed; --folder takes those of a checkpoint. A step is forward, backward and AdamW, as the
Trainer does them, without the preparation of images.
"""

import argparse
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from measuring import append_json, gigabytes, machine, table_line, told, versions
from random_checkpoint import SMALL, Numbers

if TYPE_CHECKING:
    import torch

HEAD = ["recipe", "batch", "checkpointing", "steps/s", "samples/s", "peak GB", "first loss", "last loss"]
WIDTHS = [max(10, len(name)) for name in HEAD]
RECIPES = ("all logits", "learnt", "cached")


def main() -> None:
    """Prints what it runs on, then a line for each thing measured; exits with 1 where a loss is wrong."""
    options = _parser().parse_args()
    # PEFT asks transformers for a property under its old name.
    warnings.filterwarnings("ignore", "`is_gradient_checkpointing` is deprecated", FutureWarning)
    print(told(versions()))
    device = _device(options.device)
    _demand_network()
    found = _machine(device)
    print(told(found))

    from gpu_phases import Bench

    numbers, resolution = (SMALL, "tiny") if options.small else (Numbers(), "base")
    samples = max(*options.batches, options.lines)
    bench = Bench.prepare(options.folder, numbers, resolution, device=device, samples=samples)
    weights = bench.allocated()
    if weights is not None:
        print(f"the weights take {gigabytes(weights)} GB of the device")
    rows = [bench.read(options.lines)]
    print("\n" + _reading_line(rows[0]))
    print("\n" + table_line(HEAD, WIDTHS))
    for checkpointing in {"both": (False, True), "on": (True,), "off": (False,)}[options.checkpointing]:
        for batch in options.batches:
            for recipe in options.recipes.split(","):
                rows.append(bench.train(batch, options.steps, checkpointing=checkpointing, recipe=recipe))
                print(_training_line(rows[-1]), flush=True)
    settings = {name: getattr(options, name) for name in ("folder", "small", "steps", "lines")}
    append_json(options.json, "gpu", {**settings, "device": found, "weight_bytes": weights}, rows)
    if any(row.get("falls") is False for row in rows):
        sys.exit("a loss does not fall, or is not finite")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, help="a checkpoint to load in place of random weights")
    parser.add_argument("--batches", type=_counts, default="1,2,4,8,16", help="samples in a step, comma-separated")
    parser.add_argument("--checkpointing", choices=["both", "on", "off"], default="both", help="gradient checkpointing")
    parser.add_argument("--recipes", default=",".join(RECIPES), help="of logits and features, comma-separated")
    parser.add_argument("--lines", type=int, default=16, help="lines that are read at once")
    parser.add_argument("--steps", type=int, default=10, help="steps that are timed, after 2 that are not")
    parser.add_argument("--device", default="cuda", help="cuda, cuda:1, ... or cpu")
    parser.add_argument(
        "--small", action="store_true", help="46 million weights and a view of 512 pixels, to try this out"
    )
    parser.add_argument("--json", type=Path, help="a file to add a line of results to")
    return parser


def _counts(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]


def _device(name: str) -> "torch.device":
    import torch

    device = torch.device(name)
    if device.type == "cuda" and not torch.cuda.is_available():
        sys.exit("torch finds no CUDA device here; to try this out without one, add --device cpu --small")
    return device


def _demand_network() -> None:
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


def _reading_line(row: Mapping[str, Any]) -> str:
    lines, tokens, seconds = row["lines"], row["tokens"], row["seconds"]
    rates = f"{lines / seconds:.2f} lines/s, {tokens / seconds:.0f} tokens/s"
    return (
        f"reading {lines} lines at once: {tokens} tokens in {seconds:.2f} s, {rates}, {gigabytes(row['peak_bytes'])} GB"
    )


def _training_line(row: Mapping[str, Any]) -> str:
    names = [row["recipe"], str(row["batch"]), "on" if row["checkpointing"] else "off"]
    if row["seconds"] is None:
        return table_line([*names, "out of memory"], WIDTHS)
    rate, losses = row["steps"] / row["seconds"], row["losses"]
    speeds = [f"{rate:.2f}", f"{rate * row['batch']:.2f}", gigabytes(row["peak_bytes"])]
    return table_line([*names, *speeds, f"{losses[0]:.3f}", f"{losses[-1]:.3f}"], WIDTHS)


if __name__ == "__main__":
    main()
