"""Kills `dsocr tune` with SIGKILL at random moments, and compares what it finds with a search that was left alone.

    python benchmarks/kill_tuning.py data/copiste --kills 10

Each search trains `small` on 32 lines with checkpoints and validations after each of its few steps. A process is killed
between 8 and 40 seconds after its start, so some die while torch is loaded and most in a trial. Settings, states and
CERs of all trials must be equal to the last digit.
"""

import argparse
import json
import random
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

SETTINGS = {
    "training.max_samples": 32,
    "training.max_steps": 4,
    "training.batch_size": 8,
    "validation.every_steps": 1,
    "validation.max_samples": 12,
    "checkpoints.every_steps": 1,
    "guard.lines": 0,
}


def command(dataset: Path, output: Path, trials: int) -> list[str]:
    """The search."""
    settings = [word for key, value in SETTINGS.items() for word in ("--set", f"{key}={value}")]
    options = ["--trials", str(trials), "--seeds", "1", "--set", f"output={output}", "--quiet"]
    return [sys.executable, "-m", "dsocr", "tune", str(dataset), *settings, *options]


def found(output: Path) -> list[dict[str, Any]]:
    """The finished trials, without the time that they took."""
    path = output / "tune" / "trials.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    complete = [json.loads(line) for line in lines if line.endswith("}")]
    return [{key: value for key, value in row.items() if key != "seconds"} for row in complete]


def main() -> None:
    """Search once whole and once with kills, and compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset", type=Path)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--trials", type=int, default=6)
    parser.add_argument("--seed", type=int, default=17)
    options = parser.parse_args()
    moments = random.Random(options.seed)
    with TemporaryDirectory() as place:
        whole, killed = Path(place) / "whole", Path(place) / "killed"
        subprocess.run(command(options.dataset, whole, options.trials), check=True)
        kills = 0
        while True:
            process = subprocess.Popen(command(options.dataset, killed, options.trials))
            try:
                code = process.wait(moments.uniform(8, 40) if kills < options.kills else None)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                kills += 1
                print(f"kill {kills}: {len(found(killed))} trainings were finished", flush=True)
                continue
            if code:
                sys.exit(f"the search ended with {code}")
            break
        same = found(whole) == found(killed)
        print(f"{kills} kills, {len(found(whole))} trainings: the result is {'the same' if same else 'ANOTHER'}")
        sys.exit(0 if same else 1)


if __name__ == "__main__":
    main()
