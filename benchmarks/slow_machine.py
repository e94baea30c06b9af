"""Dry run, training and forecast beside a load of 16 busy processes: are their words, steps and threads right?

    python benchmarks/slow_machine.py data/small --work runs/slow [--busy 16] [--seconds 200]

The dataset should be small: 30 lines took 12 minutes. The busy processes end by themselves, before that. A dry run that
does not come to an end must say that it is too slow to tell, a training must make the steps that it planned, in one
thread on two cores, and a forecast must never show more steps than it has. Exits with 1 otherwise.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil

import dsocr
from dsocr.config import load_run_config
from dsocr.runs import RunFolder, read_history
from measuring import machine

BUSY = "import time; end = time.monotonic() + {seconds}\nwhile time.monotonic() < end: pass"
EPOCHS = "training.epochs=1"
CHANGES = (EPOCHS, "guard.lines=0")


def start(*command: str, output: Path) -> "subprocess.Popen[bytes]":
    """Start a command of dsocr that chooses its threads, and write what it prints."""
    environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    with output.open("wb") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "dsocr", *command], stdout=log, stderr=subprocess.STDOUT, env=environment
        )


def judge_dry_run(code: int, output: Path) -> tuple[dict[str, Any], list[str]]:
    """What the dry run said of overfitting, and what is wrong with it."""
    text = output.read_text(encoding="utf-8")
    result = json.loads(text[text.index("{\n") : text.rindex("}") + 1])
    check = next(check for check in result["checks"] if check["name"] == "overfit")
    wrong = []
    if code or not result["ready"]:
        wrong.append(f"the dry run ended with {code}: {result['errors']}")
    if check["verdict"] == "warning" and not check["message"].startswith("too slow to tell"):
        wrong.append(f"the dry run said: {check['message']}")
    return {"overfit": check, "seconds_planned": result["plan"]["seconds"]}, wrong


def judge_training(code: int, run: RunFolder, output: Path) -> tuple[dict[str, Any], list[str]]:
    """What the training did, and what is wrong with it."""
    printed = output.read_text(encoding="utf-8")
    if code:
        return {"printed": printed}, [f"the training ended with {code}"]
    threads, steps = load_run_config(run.config).training.threads, read_history(run.path).training[-1]["step"]
    log = run.log.read_text(encoding="utf-8")
    said = [line for line in printed.splitlines() if "thread" in line]
    wrong = []
    if threads != 1 or not said:
        wrong.append(f"the training computed in {threads} threads and said {said}")
    if f"training ended at step {steps}" not in log:
        wrong.append(f"the log does not end at step {steps}")
    return {"threads": threads, "said": said, "steps": steps}, wrong


def forecast(dataset: Path, output: Path) -> tuple[dict[str, Any], list[str]]:
    """Forecast in this process; return the counts of steps, and what is wrong with them."""
    counts: list[tuple[int, int]] = []
    settings = [*CHANGES, f"output={output.as_posix()}"]
    result = dsocr.forecast(
        dataset=dataset, changes=settings, sizes=(0.5, 1.0), progress=lambda done, total: counts.append((done, total))
    )
    trained = sum(point.steps for point in result.points)
    wrong = [f"the forecast showed {done} of {total}" for done, total in counts if done > total]
    if not counts or counts[-1] != (trained, trained):
        wrong.append(f"the forecast ended at {counts[-1:]}, but trained {trained} steps")
    return {"counts": counts, "steps": trained}, wrong


def main() -> None:
    """Print what was seen as JSON, and fail if any of it is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset", type=Path)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--busy", type=int, default=16)
    parser.add_argument("--seconds", type=int, default=200, help="how long they are busy")
    options = parser.parse_args()
    options.work.mkdir(parents=True)
    os.environ.pop("OMP_NUM_THREADS", None)
    code = BUSY.format(seconds=options.seconds)
    busy = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(options.busy)]
    started = time.monotonic()
    try:
        while psutil.getloadavg()[0] < 3 * (os.cpu_count() or 1) and time.monotonic() - started < options.seconds / 4:
            time.sleep(1)
        load, run = psutil.getloadavg()[0], RunFolder(options.work / "trained")
        dry_log, log = options.work / "dry_run.log", options.work / "train.log"
        changes = [word for change in (*CHANGES, f"output={run.path.as_posix()}") for word in ("--set", change)]
        dry_changes = ("--set", f"output={(options.work / 'dry').as_posix()}")
        dry = start("train", str(options.dataset), "--dry-run", "--json", *dry_changes, output=dry_log)
        training = start("train", str(options.dataset), "--no-preflight", *changes, output=log)
        seen, wrong = {}, []
        seen["forecast"], faults = forecast(options.dataset, options.work / "forecast")
        seen["training"], more = judge_training(training.wait(), run, log)
        seen["dry_run"], most = judge_dry_run(dry.wait(), dry_log)
        wrong = [*faults, *more, *most]
    finally:
        for process in busy:
            process.kill()
    seconds = time.monotonic() - started
    print(json.dumps({"machine": machine(), "load": load, "seconds": seconds, **seen, "wrong": wrong}, indent=1))
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
