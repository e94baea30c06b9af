"""Kills commands with SIGKILL at random moments, fills their disks, and compares what they make in the end.

    python benchmarks/faults.py [--kills 100] [--jobs prepare,convert,train,...] [--seed 17]

Each job is run once whole. Then it is killed, run again, killed, ... until it ends, and what it made must be the same
but for times. Only kills that struck a process that was at work count. A full disk (Linux, as root: a tmpfs of the size
that a job needs, less a random part) must be named, and the job must end the same when there is space again.
"""

import argparse
import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw, ImageFont

PATIENCE = 900
TIMES = {"samples_per_second", "seconds", "elapsed_seconds", "tokens_per_second", "memory_bytes", "made_of", "config"}
"""Keys of JSON that differ from run to run."""
_SKIPPED = {".html", ".png", ".log", ".yaml", ".lock"}
_SKIPPED_PARTS = {"tensorboard", "checkpoints", "provenance.json", "source.json", ".lock", ".lock.json"}


@dataclass(frozen=True, slots=True)
class Job:
    """A command that writes the output it is given, and the suffixes of files that differ from run to run."""

    name: str
    command: Callable[[Path], list[str]]
    skipped: frozenset[str] = frozenset(_SKIPPED)


def jobs(folder: Path) -> list[Job]:
    """The jobs, on drawn pages and lines; the reader of pages is trained by the job before."""
    pages, dataset = draw_pages(folder / "pages", 24, 8), folder / "lines"
    dsocr(["prepare", str(draw_pages(folder / "sheets", 8, 5)), "-o", str(dataset), "--split", "0.6/0.2/0.2", "-q"])
    small = {"max_steps": 12, "batch_size": 4, "micro_batch_size": 4}

    def train(base: str, out: Path) -> list[str]:
        settings = {"base": base, "output": out, "checkpoints.every_steps": 2, "validation.every_steps": 4}
        settings |= {f"training.{key}": value for key, value in small.items()} | {"validation.max_samples": 4}
        return ["train", str(dataset), "--no-preflight", "-q", *sets(settings)]

    def tune(out: Path) -> list[str]:
        settings = {"output": out, "training.max_steps": 4, "training.batch_size": 4, "training.micro_batch_size": 4}
        settings |= {"validation.every_steps": 1, "validation.max_samples": 4, "checkpoints.every_steps": 1}
        return ["tune", str(dataset), "--trials", "3", "--seeds", "1", "-q", *sets(settings)]

    def audit(out: Path) -> list[str]:
        settings = {"training.max_steps": 6, "training.batch_size": 4, "training.micro_batch_size": 4}
        return ["audit", str(dataset), "-o", str(out), "--folds", "2", "-q", *sets(settings)]

    everything = frozenset[str]()
    return [
        Job("prepare", lambda out: ["prepare", str(pages), "-o", str(out), "-q"], everything),
        Job("convert", lambda out: ["convert", str(pages), "-o", str(out), "--to", "parquet", "-q"], everything),
        Job("train", lambda out: train("nano", out)),
        Job("train-small", lambda out: train("small", out)),
        Job(
            "transcribe",
            lambda out: ["transcribe", "small", str(pages), "-o", str(out), "--replace", "--format", "alto", "-q"],
            everything,
        ),
        Job("audit", audit),
        Job("tune", tune),
    ]


def sets(settings: dict[str, Any]) -> list[str]:
    """The settings as options."""
    return [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]


def dsocr(arguments: Sequence[str]) -> None:
    """Run a command to its end."""
    done = subprocess.run([sys.executable, "-m", "dsocr", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"dsocr {' '.join(arguments)}: {done.returncode}\n{done.stderr}")


def draw_pages(folder: Path, pages: int, lines: int) -> Path:
    """Pages of short printed lines with an ALTO file each."""
    folder.mkdir()
    for number in range(pages):
        page = Image.effect_noise((500, 60 * lines + 40), 20)
        rows = []
        for line in range(lines):
            text, top = f"letter {number} of {1900 + line}", 20 + 60 * line
            ImageDraw.Draw(page).text((30, top + 8), text, fill=20, font=ImageFont.load_default(30))
            box = f'HPOS="20" VPOS="{top}" WIDTH="460" HEIGHT="56"'
            rows.append(f'<TextLine ID="l{line}" {box}><String CONTENT="{text}"/></TextLine>')
        page.save(folder / f"p{number:03d}.png")
        text = f"""<alto xmlns="http://www.loc.gov/standards/alto/ns-v4#"><Description>
<MeasurementUnit>pixel</MeasurementUnit><sourceImageInformation><fileName>p{number:03d}.png</fileName>
</sourceImageInformation></Description><Layout><Page ID="p" PHYSICAL_IMG_NR="1" WIDTH="500" HEIGHT="{60 * lines + 40}">
<PrintSpace><TextBlock ID="b">{"".join(rows)}</TextBlock></PrintSpace></Page></Layout></alto>"""
        (folder / f"p{number:03d}.xml").write_text(text, encoding="utf-8")
    return folder


def content(out: Path, skipped: frozenset[str]) -> dict[str, object]:
    """What a job made, by file: JSON without times, a hash of everything else."""
    made: dict[str, object] = {}
    for path in sorted(path for path in out.rglob("*") if path.is_file()):
        name = path.relative_to(out)
        if path.suffix in skipped or (skipped and _SKIPPED_PARTS & set(name.parts)):
            continue
        raw = path.read_bytes().replace(out.as_posix().encode(), b"OUT")
        if skipped and path.suffix in {".json", ".jsonl"}:
            rows = [raw] if path.suffix == ".json" else raw.splitlines()
            made[name.as_posix()] = [without_times(json.loads(row)) for row in rows]
        else:
            made[name.as_posix()] = hashlib.sha256(raw).hexdigest()
    return made


def without_times(value: Any) -> Any:
    """A value of JSON without what differs from run to run."""
    if isinstance(value, dict):
        return {key: without_times(item) for key, item in value.items() if key not in TIMES}
    return [without_times(item) for item in value] if isinstance(value, list) else value


def start(job: Job, out: Path, log: Path) -> "subprocess.Popen[bytes]":
    """Begin a job."""
    with log.open("wb") as stream:
        command = [sys.executable, "-m", "dsocr", *job.command(out)]
        return subprocess.Popen(command, stdout=stream, stderr=stream)


def kill_job(job: Job, folder: Path, whole: dict[str, object], took: float, kills: int, rng: random.Random) -> int:
    """Kill a job until it has been struck so often, finish it each time it was, and return the number of faults."""
    faults = struck = 0
    while struck < kills:
        out, log = folder / job.name / "out", folder / f"{job.name}.log"
        shutil.rmtree(out.parent, ignore_errors=True)
        out.parent.mkdir()
        for _ in range(min(6, kills - struck)):
            process = start(job, out, log)
            time.sleep(rng.uniform(0.2, 1.0) * took)
            if process.poll() is not None:
                break
            process.kill()
            process.wait()
            struck += 1
        if not out.exists() or job.skipped:
            code = start(job, out, log).wait(PATIENCE)
            ended = log.read_text(encoding="utf-8", errors="replace")
            if code and not (out.exists() and "exists already" in ended):
                print(f"{job.name}: ended with {code}: {ended[-500:]}")
                faults += 1
                continue
        made = content(out, job.skipped)
        others = [path.name for path in out.parent.iterdir() if path != out]
        if made != whole or others:
            different = [name for name in {**whole, **made} if whole.get(name) != made.get(name)]
            print(f"{job.name}: differs in {different[:5]}, left {others}")
            faults += 1
    print(f"{job.name}: {struck} kills of a job of {took:.1f} s, {faults} faults", flush=True)
    return faults


def fill_disk(job: Job, folder: Path, whole: dict[str, object], rng: random.Random) -> int:
    """Run a job on a disk that gets full, then with space; return the number of faults."""
    disk = folder / "disk"
    disk.mkdir(exist_ok=True)
    need = sum(path.stat().st_size for path in (folder / f"{job.name}-whole").rglob("*") if path.is_file())
    size = max(64, int(need * rng.uniform(0.2, 0.8)) >> 10)
    if subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}k", "tmpfs", str(disk)], check=False).returncode:
        return 0
    try:
        log = folder / f"{job.name}.log"
        code = start(job, disk / "out", log).wait(PATIENCE)
        said = log.read_text(encoding="utf-8", errors="replace")
        fault = code != 2 or "Traceback" in said or "disk is full" not in said
        subprocess.run(["mount", "-o", "remount,size=4g", str(disk)], check=True)
        again = start(job, disk / "out", log).wait(PATIENCE)
        fault |= bool(again) or content(disk / "out", job.skipped) != whole
        outcome = f"FAULT: {said[-800:]}" if fault else "named, then the same"
        print(f"{job.name}: disk of {size} kB of {need >> 10}: {outcome}", flush=True)
        return int(fault)
    finally:
        subprocess.run(["umount", str(disk)], check=False)


def main() -> None:
    """Run the suite; the exit code is 1 if there was a fault."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=112, help="of all jobs together")
    parser.add_argument("--jobs", default="")
    parser.add_argument("--seed", type=int, default=17)
    options = parser.parse_args()
    os.environ["SOURCE_DATE_EPOCH"] = "0"
    rng, faults = random.Random(options.seed), 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        chosen = [job for job in jobs(folder) if not options.jobs or job.name in options.jobs.split(",")]
        for job in chosen:
            out, began = folder / f"{job.name}-whole", time.monotonic()
            dsocr(job.command(out))
            took, whole = time.monotonic() - began, content(out, job.skipped)
            faults += kill_job(job, folder, whole, took, -(-options.kills // len(chosen)), rng)
            if sys.platform == "linux" and os.geteuid() == 0:
                faults += fill_disk(job, folder, whole, rng)
    print(f"{faults} faults")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
