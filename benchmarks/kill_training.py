"""Kills a training with SIGKILL at random moments until it is done, again and again, and compares all that it leaves.

    python benchmarks/kill_training.py [KILLS] [--minutes MINUTES] [--whole-processes]

A small training of nano with augmentation, readings of the validation split and a checkpoint every two steps is killed,
resumed, killed, ... until it ends; then the next begins, until KILLS have struck. Half of the kills wait for a save to
begin. The adapter, metrics.jsonl but for its times, and the pixels, tokens and labels of every step must be those of a
training that was never interrupted, bit for bit.

Processes are forked from one that has imported what they need, which takes most of the time, so this needs Linux or
macOS; --whole-processes starts a new Python for each instead.
"""

import argparse
import contextlib
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psutil
import torch
from PIL import Image, ImageDraw, ImageFont

from dsocr.config import RunConfig
from dsocr.data.prepare import prepare
from dsocr.io.work import find_damage
from dsocr.training.train import train
from dsocr.training.trainer import Trainer

SEED = 17
TIMES = {"samples_per_second", "seconds", "elapsed_seconds", "tokens_per_second", "memory_bytes"}
PATIENCE = 120
MARK = "DSOCR_KILLED_BY"
"""In the environment of every process of ours."""


def draw_dataset(folder: Path) -> Path:
    """14 lines to train on, so that epochs end between checkpoints, and 4 to validate."""
    source = folder / "source"
    source.mkdir()
    rows = []
    for index in range(18):
        text = f"letter {index} of 1905"
        image = Image.new("L", (24 * len(text), 60), 240)
        ImageDraw.Draw(image).text((10, 8), text, fill=30, font=ImageFont.load_default(36))
        image.save(source / f"{index}.png")
        rows.append({"file_name": f"{index}.png", "text": text, "split": "train" if index < 14 else "validation"})
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (source / "lines.jsonl").write_text(lines, encoding="utf-8")
    return prepare(source, folder / "dataset").folder


def settings(dataset: Path, run: Path, steps: int) -> RunConfig:
    """A training of small steps: 14 samples, four a step, 3.5 steps an epoch."""
    return RunConfig.model_validate(
        {
            "dataset": dataset,
            "output": run,
            "adapter": {"target_modules": "decoder", "r": 4, "alpha": 8, "dropout": 0.1},
            "training": {
                "max_steps": steps,
                "batch_size": 4,
                "micro_batch_size": 2,
                "learning_rate": 2e-3,
                "augmentation": 1.0,
            },
            "validation": {"every_steps": 3, "max_samples": 2, "patience": 0},
            "checkpoints": {"every_steps": 2},
            "generation": {"max_new_tokens": 4},
        }
    )


def train_recorded(config: RunConfig, record: Path) -> None:
    """Train or resume; write a hash of the batches of every step to `record`, a line each."""
    torch.set_num_threads(1)
    inner: Callable[..., None] = Trainer._train_step

    def recorded(self: Trainer, batches: Sequence[dict[str, Any]]) -> None:
        whole = hashlib.sha256()
        for batch, name in ((one, name) for one in batches for name in sorted(one)):
            values = batch[name] if isinstance(batch[name], list | tuple) else [batch[name]]
            for value in values:
                raw = value.numpy().tobytes() if isinstance(value, torch.Tensor) else repr(value).encode()
                whole.update(name.encode() + raw)
        with record.open("a", encoding="utf-8", newline="\n") as file:
            file.write(f"{self.state.step + 1} {whole.hexdigest()}\n")
        inner(self, batches)

    Trainer._train_step = recorded  # type: ignore[method-assign, assignment]
    train(config)


def given(record: Path) -> dict[int, set[str]]:
    """Hashes of the inputs of each step; a step with more than one hash got different inputs after a resume."""
    hashes: dict[int, set[str]] = {}
    for line in record.read_text(encoding="utf-8").splitlines():
        step, digest = line.split()
        hashes.setdefault(int(step), set()).add(digest)
    return hashes


def metrics(run: Path) -> list[dict[str, object]]:
    """The rows of metrics.jsonl without their times."""
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    return [{key: value for key, value in row.items() if key not in TIMES} for row in rows]


def result(run: Path, record: Path) -> dict[str, object]:
    """All that must be the same."""
    files = sorted((run / "adapter").iterdir())
    return {
        "adapter": {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files},
        "metrics": metrics(run),
        "order and pixels": given(record),
    }


class Forked:
    """A training in a forked process."""

    def __init__(self, config: RunConfig, record: Path, errors: Path) -> None:
        self.pid = os.fork()
        if self.pid == 0:
            with errors.open("w", encoding="utf-8") as file:
                os.dup2(file.fileno(), 2)
                os.dup2(file.fileno(), 1)
            code = 1
            with contextlib.suppress(KeyboardInterrupt):
                try:
                    train_recorded(config, record)
                    code = 0
                except BaseException:  # noqa: BLE001 - a forked process must not go on as its parent
                    sys.excepthook(*sys.exc_info())
            sys.stderr.flush()
            os._exit(code)
        self.code: int | None = None

    def poll(self) -> int | None:
        """The exit code, negative for a signal; None while it runs."""
        if self.code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.code = None if pid == 0 else os.waitstatus_to_exitcode(status)
        return self.code

    def kill(self) -> None:
        """SIGKILL, and wait."""
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)
            self.code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


class Started:
    """A training in a new Python."""

    def __init__(self, config: RunConfig, record: Path, errors: Path) -> None:
        file = record.with_suffix(".yaml")
        file.write_text(config.to_yaml(), encoding="utf-8")
        command = [sys.executable, __file__, "--train", str(file), str(record)]
        with errors.open("w", encoding="utf-8") as stream:
            self._process = subprocess.Popen(command, stdout=stream, stderr=stream)

    def poll(self) -> int | None:
        """The exit code, negative for a signal; None while it runs."""
        return self._process.poll()

    def kill(self) -> None:
        """SIGKILL, and wait."""
        self._process.kill()
        self._process.wait()


def steps_recorded(record: Path) -> int:
    """The lines there are so far."""
    return record.read_bytes().count(b"\n") if record.is_file() else 0


def wait_for_the_moment(process: Forked | Started, run: Path, record: Path, rng: random.Random) -> None:
    """Wait until the kill: soon after a save begins, or a number of seconds after the first step or the start."""
    deadline, aim = time.monotonic() + PATIENCE, rng.random()
    before = steps_recorded(record)
    if aim < 0.5:
        saves = rng.randint(1, 3)
        while saves and process.poll() is None and time.monotonic() < deadline:
            if any((run / "checkpoints").glob(".*.tmp")):
                saves -= 1
                while saves and any((run / "checkpoints").glob(".*.tmp")):
                    time.sleep(0.001)
            time.sleep(0.0005)
        time.sleep(rng.uniform(0, 0.03))
        return
    if aim < 0.9:
        while steps_recorded(record) == before and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.005)
        time.sleep(rng.uniform(0, 1.5))
        return
    time.sleep(rng.uniform(0, 2))


def struck(run: Path) -> str:
    """What the training was at when it was killed, as its folder shows."""
    folder = run / "checkpoints"
    drafts = [path.name for path in [*run.glob(".*.tmp"), *folder.glob(".*.tmp")]]
    for kind, start in (("adapter", ".adapter"), ("checkpoint", ".step"), ("best adapter", ".best")):
        if any(name.startswith(start) for name in drafts):
            return f"writing the {kind}"
    if drafts:
        return "writing another file"
    return "training" if folder.is_dir() and any(folder.glob("step-*")) else "before the first checkpoint"


def kill_until_done(
    begin: Callable[[], Forked | Started],
    run: Path,
    record: Path,
    errors: Path,
    rng: random.Random,
    kills: int,
    until: float,
) -> tuple[Counter[str], list[str]]:
    """Kill and resume `kills` times, or until then, and let it end: what the kills struck, and what went wrong."""
    hits: Counter[str] = Counter()
    for _ in range(kills):
        process = begin()
        if time.monotonic() > until:
            break
        wait_for_the_moment(process, run, record, rng)
        if process.poll() is not None:
            break
        process.kill()
        if (run / "adapter").is_dir():  # it was whole, and would say so if it were asked to go on
            hits["the end of a whole run"] += 1
            return hits, []
        hits[struck(run)] += 1
        for place in (run / "checkpoints").glob("[sb]*-*"):
            if fault := find_damage(place):
                return hits, [f"{place.name}: {fault}"]
    else:
        process = begin()
    deadline = time.monotonic() + PATIENCE
    while process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    if process.poll() != 0:
        process.kill()
        return hits, [f"it ended with {process.poll()}: {errors.read_text(encoding='utf-8')[-2000:]}"]
    return hits, []


def others_left() -> int:
    """Processes of our trainings that are still there a while after the last one."""
    others = []
    for one in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if one.environ().get(MARK) == str(os.getpid()) and one.pid != os.getpid():
                others.append(one)
    return len(psutil.wait_procs(others, timeout=10)[1])


def main() -> None:
    """Prints a line for each training and the sums."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kills", nargs="?", type=int, default=200)
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--minutes", type=float, default=float("inf"), help="kill no more after so many")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--whole-processes", action="store_true")
    options = parser.parse_args()
    kind = Started if options.whole_processes or not hasattr(os, "fork") else Forked
    torch.set_num_threads(1)
    os.environ[MARK] = str(os.getpid())
    rng = random.Random(options.seed)
    hits: Counter[str] = Counter()
    trainings = faults = 0
    begun = time.monotonic()
    until = begun + 60 * options.minutes
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run, record, errors = folder / "run", folder / "record.txt", folder / "errors.txt"
        config = settings(draw_dataset(folder), run, options.steps)
        _, wrong = kill_until_done(lambda: kind(config, record, errors), run, record, errors, rng, 0, until)
        assert not wrong, wrong
        wanted = result(run, record)
        print(f"uninterrupted: {options.steps} steps in {time.monotonic() - begun:.1f} s", flush=True)
        while (left := options.kills - hits.total()) > 0 and time.monotonic() < until:
            shutil.rmtree(run)
            record.unlink()
            some, wrong = kill_until_done(lambda: kind(config, record, errors), run, record, errors, rng, left, until)
            if not wrong:
                wrong = [what for what, value in result(run, record).items() if value != wanted[what]]
            hits += some
            trainings += 1
            faults += bool(wrong)
            print(f"training {trainings}: {some.total()} kills, {'; '.join(wrong) or 'the same'}", flush=True)
        faults += (left_over := others_left())
    if left_over:
        print(f"{left_over} processes were left")
    for what, count in hits.most_common():
        print(f"  {count:4} {what}")
    minutes = (time.monotonic() - begun) / 60
    print(f"{hits.total()} kills of {trainings} trainings in {minutes:.1f} min; {faults} faults")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--train"]:
        from dsocr.config import load_config

        train_recorded(load_config(Path(sys.argv[2])), Path(sys.argv[3]))
    else:
        main()
