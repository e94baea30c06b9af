"""All cores by processes against all cores by threads: the same training of nano, as a user starts it.

    python benchmarks/processes.py
    python benchmarks/processes.py --rounds 5 --steps 20

`dsocr train` with each scope, in turn: in one process, in which torch has a thread for each core, in one process with
one thread, and in a process of one thread for each core. The lines are those of the copiste pages where DSOCR_REAL_DATA
says where these lie, else the shipped sample. Lines a second are of the clock and of the steps from the second to the
last, so no start counts; ratios are medians over the rounds. All learn from the same lines; their losses are shown so
that one can see it.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

import psutil

from dsocr.data.prepare import prepare
from measuring import machine, table_line, told, versions

PROJECT = Path(__file__).resolve().parents[1]
HEAD = ["scope, processes x threads", "lines/s", "ratio", "last loss"]
WIDTHS = [30, 9, 6, 9]


def trained(place: Path, data: Path, scope: str, processes: int, threads: int, steps: int) -> tuple[float, float]:
    """Lines a second, and the last loss."""
    settings = {
        "dataset": data,
        "run": place / "run",
        "adapter.scope": scope,
        "training.epochs": "null",
        "training.steps": steps,
        "training.samples_per_step": 32,
        "training.samples_per_forward": 16,
        "training.augmentation": "none",
        "training.vision_cache": str(scope == "decoder").lower(),
        "training.processes": processes,
        "validation.every_steps": steps,
        "validation.samples": 1,
        "guard.lines": 0,
    }
    changes = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    command = [sys.executable, "-m", "dsocr", "train", str(PROJECT / "configs" / "demo.yaml"), "--overwrite", "-q"]
    environment = {**os.environ, "DSOCR_CACHE": str(place / "cache"), "OMP_NUM_THREADS": str(threads)}
    subprocess.run([*command, "--no-preflight", *changes], check=True, capture_output=True, env=environment)
    metrics = (place / "run" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [row for row in map(json.loads, metrics) if row["kind"] == "train"][:-1]  # the last waits for a reading
    seconds = rows[-1]["elapsed_seconds"] - rows[0]["elapsed_seconds"]
    return 32 * (rows[-1]["step"] - rows[0]["step"]) / seconds, rows[-1]["loss"]


def main() -> None:
    """Prints what it runs on, then a row for each way; nothing is left on the disk."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="times that each way is trained")
    parser.add_argument("--steps", type=int, default=12, help="steps of each training")
    options = parser.parse_args()
    cores = psutil.cpu_count() or 1
    print(told(versions()))
    print(told(machine()))
    ways = [(1, cores), (1, 1), (cores, 1)]
    print(table_line(HEAD, WIDTHS))
    for scope in ("decoder", "decoder+vision"):
        found: dict[tuple[int, int], list[tuple[float, float]]] = {way: [] for way in ways}
        with tempfile.TemporaryDirectory() as place:
            data = PROJECT / "examples" / "handwriting"
            if pages := os.environ.get("DSOCR_REAL_DATA"):
                data = prepare(Path(pages), Path(place) / "dataset").dataset
            for _ in range(options.rounds):
                for way in ways:
                    found[way].append(trained(Path(place), data, scope, *way, options.steps))
        for way in ways:
            ratio = median(own[0] / usual[0] for own, usual in zip(found[way], found[ways[0]], strict=True))
            rate, loss = median(rate for rate, _ in found[way]), found[way][-1][1]
            name = f"{scope}, {way[0]} x {way[1]}"
            print(table_line([name, f"{rate:.1f}", f"{ratio:.2f}", f"{loss:.4f}"], WIDTHS), flush=True)


if __name__ == "__main__":
    main()
