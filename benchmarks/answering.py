"""How long commands take to answer that need no network: errors, and inspections of a dataset.

    python benchmarks/answering.py            # PYTHONPATH=OTHER/src in front of it measures another checkout

Each command runs in a new process, as users start it, in a temporary folder: the shipped handwriting, and a
run that lacks only its weights. Reported is the fastest of three tries, in seconds of wall time and of
processors, children included.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from dsocr.io.files import shipped_path
from measuring import write_reading

TRIES = 3
COMMANDS = [
    "check data",
    "preview data -o sheet.html",
    "preview data --as-model -o sheet.html",
    "transcribe run data/test -o there.txt",
    "transcribe moved data/test -o new.txt",
    "evaluate run --split train --dataset tested",
    "evaluate moved",
    "evaluate moved --calibrate",
    "suggest run data -o queue",
    "export run -o data --form merged",
    "demo -o data",
    "train config.yaml --dry-run --set dataset=nowhere",
    "train config.yaml --set input.resolution=gundam",
    "forecast config.yaml --split test --set base=./gone/base",
    "workbench there.txt --no-show",
]


def make(place: Path) -> None:
    """The dataset, one with a test split alone, a configuration, and two runs, of which one has lost its base."""
    data = shipped_path("examples/handwriting")
    (place / "config.yaml").write_text(f"dataset: {data.as_posix()}\noutput: new\n", encoding="utf-8")
    (place / "data").symlink_to(data)
    (place / "tested").mkdir()
    (place / "tested" / "test").symlink_to(data / "test")
    card = json.loads((data / "dataset.json").read_text(encoding="utf-8"))
    card["splits"] = {"test": card["splits"]["test"]}
    (place / "tested" / "dataset.json").write_text(json.dumps(card), encoding="utf-8")
    (place / "there.txt").touch()
    for name, base in (("run", "nano"), ("moved", "./gone/base")):
        write_reading(place / name, base)
        (place / name / "config.yaml").write_text(f"dataset: {data.as_posix()}\noutput: {name}\n", encoding="utf-8")


def processors() -> float:
    """The seconds of processors that ended children have taken."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def measure(command: str, place: Path) -> tuple[float, float, int]:
    """Seconds on the clock and of processors of the quickest try, and the exit code."""
    tries = []
    for _ in range(TRIES):
        began, before = time.perf_counter(), processors()
        done = subprocess.run([sys.executable, "-m", "dsocr", *command.split()], cwd=place, capture_output=True)
        tries.append((time.perf_counter() - began, processors() - before, done.returncode))
    return min(tries)


def main() -> None:
    """Measure all commands and print a table."""
    with tempfile.TemporaryDirectory(prefix="dsocr-answering-") as folder:
        place = Path(folder)
        make(place)
        print(f"{'command':<60} clock  processors  exit  (load {os.getloadavg()[0]:.1f})")
        for command in COMMANDS:
            clock, used, code = measure(command, place)
            print(f"{command:<60}{clock:>6.2f}{used:>12.2f}{code:>6}", flush=True)


if __name__ == "__main__":
    main()
