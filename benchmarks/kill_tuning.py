"""Kills `dsocr tune` with SIGKILL all over a search, and compares what it finds with a search that was left alone.

    python benchmarks/kill_tuning.py data/copiste --kills 10

Each search trains `small` on 32 lines with checkpoints and validations after each of its few steps. The kills are drawn
among all its steps, and strike up to a second after the step was written, however busy the machine is. The learning
rate of the configuration is too high: with `--no-prune` another is better, and both are trained again with another
seed; else most trials are stopped early. Settings, states and CERs of all trials must be equal to the last digit.
"""

import argparse
import json
import random
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

SETTINGS = {
    "training.max_samples": 32,
    "training.max_steps": 4,
    "training.batch_size": 8,
    "training.learning_rate": 2e-3,
    "training.warmup_ratio": 0,
    "validation.every_steps": 1,
    "validation.max_samples": 12,
    "checkpoints.every_steps": 1,
    "guard.lines": 0,
}


def command(dataset: Path, output: Path, trials: int, *, prune: bool) -> list[str]:
    """The search."""
    settings = [word for key, value in SETTINGS.items() for word in ("--set", f"{key}={value}")]
    options = [
        "--trials",
        str(trials),
        "--seeds",
        "1",
        "--set",
        f"output={output}",
        "--quiet",
        *([] if prune else ["--no-prune"]),
    ]
    return [sys.executable, "-m", "dsocr", "tune", str(dataset), *settings, *options]


def found(output: Path) -> list[dict[str, Any]]:
    """The finished trials, without the time that they took."""
    path = output / "tune" / "trials.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    complete = [json.loads(line) for line in lines if line.endswith("}")]
    return [{key: value for key, value in row.items() if key != "seconds"} for row in complete]


def steps(output: Path) -> dict[str, int]:
    """The last step that each training has written, in their order."""
    reached = {}
    for path in sorted((output / "tune" / "trials").glob("*/metrics.jsonl"), key=lambda path: path.stat().st_ctime):
        rows = path.read_text(encoding="utf-8").splitlines()
        reached[path.parent.name] = max((json.loads(row)["step"] for row in rows if row.endswith("}")), default=0)
    return reached


def main() -> None:
    """Search once whole and once with kills, and compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset", type=Path)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--trials", type=int, default=6)
    parser.add_argument("--no-prune", dest="prune", action="store_false", help="train every trial to its end")
    parser.add_argument("--seed", type=int, default=17)
    options = parser.parse_args()
    draw = random.Random(options.seed)
    with TemporaryDirectory() as place:
        whole, killed = Path(place) / "whole", Path(place) / "killed"
        subprocess.run(command(options.dataset, whole, options.trials, prune=options.prune), check=True)
        total = sum(steps(whole).values())
        kills = sorted(draw.choices(range(1, total - 2), k=options.kills))
        for number, moment in enumerate(kills, 1):
            process = subprocess.Popen(command(options.dataset, killed, options.trials, prune=options.prune))
            while sum(steps(killed).values()) < moment and process.poll() is None:
                time.sleep(0.05)
            time.sleep(draw.random())
            if process.poll() is not None:
                sys.exit(f"the search ended with {process.returncode} before kill {number}")
            process.kill()
            process.wait()
            training, step = list(steps(killed).items())[-1]
            print(f"kill {number}: step {moment} of {total}, training {training} at step {step}", flush=True)
        subprocess.run(command(options.dataset, killed, options.trials, prune=options.prune), check=True)
        same = found(whole) == found(killed)
        print(f"{len(kills)} kills, {len(found(whole))} trainings: the result is {'the same' if same else 'ANOTHER'}")
        sys.exit(0 if same else 1)


if __name__ == "__main__":
    main()
