"""Kill commands with SIGKILL, fill their disks and damage their files, and compare the results.

    python benchmarks/faults.py [--kills 135] [--jobs prepare,train,...] [--parts kills,disks,damage] [--files 24]
                                [--seed 17] [--spawn]

Each job runs once without interruption. Then it is killed at a random change of a file, or at any moment, run again,
killed, ... until it ends: its files must be the same but for times, nothing may be left beside them, and a kill may
cost only so much work. A kill counts if it struck a process at work whose files were neither none nor all. A full disk
(Linux, as root: a tmpfs) must be named, and the job must end the same when there is space again. Of kept folders, each
file is flipped, cut, emptied, deleted or edited (`fault_damage.py`).

Processes are forked from one with the slow imports; where there is no fork, or with `--spawn`, each is a new Python.
"""

import argparse
import contextlib
import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import psutil

import fault_jobs
from fault_damage import KEPT, damage, make_kept
from fault_jobs import MARK, SETTLED, Job, Process, content, draw_sources, draw_strike, jobs, serving, was_killed
from runner import Table, make_parser, parse, record

_SIZES = (0.2, 0.5, 0.85)
"""Sizes of disks, as parts of what a job needs."""
_LEFT = {"out", "cache"}
"""What may be beside the output of a job."""
_PARTS = ("kills", "disks", "damage")


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one part of the suite for a job: kills, full disks or damaged files, and pieces done again."""

    part: str
    job: str
    count: int
    again: int
    units: int
    faults: Sequence[str]


class Suite:
    """A folder with the sources, and the faults that were found."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.rng = folder, random.Random()
        self.faults: list[str] = []

    def fault(self, where: str, what: str) -> None:
        """Print and count a fault."""
        print(f"FAULT {where}: {what}", flush=True)
        self.faults.append(f"{where}: {what}")

    def outcome(self, part: str, job: str, count: int, again: int = 0, units: int = 0) -> Outcome:
        """What was counted, with the faults since this was asked."""
        faults, self.faults = self.faults, []
        return Outcome(part, job, count, again, units, faults)

    def place(self, job: Job) -> Path:
        """An empty place for the output of a job."""
        out = self.folder / "work" / job.name / "out"
        shutil.rmtree(out.parent, ignore_errors=True)
        out.parent.mkdir(parents=True)
        return out

    def units(self) -> list[str]:
        """The pieces of work that were done since this was asked."""
        record = self.folder / "units.txt"
        done = record.read_text(encoding="utf-8").splitlines() if record.is_file() else []
        record.unlink(missing_ok=True)
        return done

    def kill(self, job: Job, kills: int) -> Outcome:
        """Kill a job until so many kills have struck."""
        out = self.place(job)
        began, process = time.monotonic(), Process(job, out, self.folder)
        if process.wait():
            self.fault(job.name, f"without a kill: {process.output[-800:]}")
            return self.outcome("kills", job.name, 0)
        took, whole = time.monotonic() - began, content(out, is_timed=job.is_timed)
        changes, work = int((self.folder / "changes.txt").read_text(encoding="utf-8")), self.units()
        struck, missed, again = 0, Counter[str](), 0
        while struck < kills and missed.total() < 2 * kills + 10:
            out, in_chain, code = self.place(job), 0, 0
            for _ in range(self.rng.randint(1, 4)):
                process = Process(job, out, self.folder, draw_strike(self.rng, changes, took))
                if not was_killed(code := process.wait()):
                    break
                held = content(out, is_timed=job.is_timed) if out.exists() else {}
                others = [path for path in out.parent.rglob("*") if path.is_file() and out not in path.parents]
                if not held and not others:
                    missed["before it began"] += 1
                elif held == whole and not others:
                    missed["after its end"] += 1
                else:
                    in_chain += 1
            if was_killed(code):
                process = Process(job, out, self.folder)
                code = process.wait()
            made = content(out, is_timed=job.is_timed)
            if code and not (made == whole and "exists already" in process.output):
                self.fault(job.name, f"ended with {code}: {process.output[-800:]}")
            left = sorted({path.name for path in out.parent.iterdir()} - _LEFT)
            if made != whole or left:
                different = [name for name in {**whole, **made} if whole.get(name) != made.get(name)]
                self.fault(job.name, f"differs in {different[:5]}, left {left}")
            done = self.units()
            if set(done) != set(work):
                self.fault(
                    job.name, f"other work: {len(set(done) - set(work))} new, {len(set(work) - set(done))} missing"
                )
            more = len(done) - len(work)
            if more > job.again * in_chain:
                self.fault(job.name, f"{more} of {len(work)} pieces of work done again after {in_chain} kills")
            struck, again = struck + in_chain, again + more
        redone = f", {again / struck:.1f} of {len(work)} pieces of work again a kill" if work and struck else ""
        of = f"a job of {took:.1f} s and {changes} changes"
        print(f"{job.name}: {struck} kills of {of}{redone}; not counted: {dict(missed)}", flush=True)
        return self.outcome("kills", job.name, struck, again, len(work))

    def fill_disks(self, job: Job) -> Outcome:
        """Run a job on disks that get full, then with space."""
        disk = self.folder / "disk"
        disk.mkdir(exist_ok=True)
        full, need, out = 0, 0, disk / "work" / "out"
        for size in (0.0, *_SIZES):
            limit = f"{max(8, int(need * size) >> 10)}k" if size else "4g"
            if subprocess.run(
                ["mount", "-t", "tmpfs", "-o", f"size={limit}", "tmpfs", str(disk)], check=False
            ).returncode:
                self.fault(job.name, "no disk could be mounted")
                break
            try:
                with contextlib.suppress(OSError):
                    out.parent.mkdir()
                if not size:
                    need, whole = self._measure(job, out)
                    continue
                process = Process(job, out, self.folder)
                code, printed = process.wait(), process.output
                if code == 0 and content(out, is_timed=job.is_timed) == whole:
                    print(f"{job.name}: {limit} were enough")
                    continue
                full += 1
                is_named = "disk is full" in printed or "GB free in" in printed
                if code != 2 or "Traceback" in printed or not is_named:
                    self.fault(f"{job.name}, disk of {limit}", f"{code}: {printed[-800:]}")
                subprocess.run(["mount", "-o", "remount,size=4g", str(disk)], check=True)
                process = Process(job, out, self.folder)
                if process.wait() or content(out, is_timed=job.is_timed) != whole:
                    self.fault(f"{job.name}, after a disk of {limit}", process.output[-800:])
            finally:
                subprocess.run(["umount", str(disk)], check=False)
        self.units()
        print(f"{job.name}: {full} full disks of a job that needs {need >> 10} kB", flush=True)
        return self.outcome("disks", job.name, full)

    def damage(self, name: str, files: int) -> Outcome:
        """Damage so many files of a kept folder."""
        count = damage(make_kept(name, self.folder), self.folder, files, self.rng, self.fault)
        return self.outcome("damage", name, count)

    def _measure(self, job: Job, out: Path) -> tuple[int, dict[str, object]]:
        """The most bytes that a job holds on its disk, and what it makes."""
        most, ended = 0, threading.Event()

        def watch() -> None:
            nonlocal most
            while not ended.wait(0.002):
                most = max(most, shutil.disk_usage(out.parent).used)

        watcher = threading.Thread(target=watch)
        process = Process(job, out, self.folder)
        watcher.start()
        try:
            if process.wait():
                self.fault(job.name, f"on a disk of its own: {process.output[-800:]}")
        finally:
            ended.set()
            watcher.join()
        return max(most, 1), content(out, is_timed=job.is_timed)

    def others_left(self) -> None:
        """Every process of a killed job must have ended by itself."""
        others = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.environ().get(MARK) and process.pid != os.getpid():
                    others.append(process)
        if left := psutil.wait_procs(others, timeout=15)[1]:
            self.fault("processes", f"{len(left)} are left: {left[:3]}")


def planned(suite: Suite, options: argparse.Namespace) -> Iterator[tuple[str, str, Callable[[], Outcome]]]:
    """Each part of the suite for each job: what it is called, and what does it."""
    parts, names = options.parts.split(","), options.jobs.split(",") if options.jobs else None
    chosen = [job for job in jobs(suite.folder) if names is None or job.name in names]
    shares = sum(job.share for job in chosen)
    for job in chosen:
        if "kills" in parts:
            yield "kills", job.name, partial(suite.kill, job, -(-options.kills * job.share // shares))
        if "disks" in parts and sys.platform == "linux" and os.geteuid() == 0:
            yield "disks", job.name, partial(suite.fill_disks, job)
    for name in KEPT if "damage" in parts and hasattr(os, "fork") else ():
        if names is None or name in names:
            yield "damage", name, partial(suite.damage, name, options.files)


def main() -> None:
    """Run the suite; the exit code is 1 if there was a fault."""
    parser = make_parser(__doc__)
    parser.add_argument("--kills", type=int, default=135, help="of all jobs together")
    parser.add_argument("--jobs", default="")
    parser.add_argument("--parts", default=",".join(_PARTS))
    parser.add_argument("--files", type=int, default=24, help="damaged files of each folder")
    parser.add_argument("--seed", type=int, default=17)
    parser.add_argument("--spawn", action="store_true", help="a new Python for each process, as on Windows")
    options = parse(parser)
    os.environ.update(SETTLED)
    fault_jobs.FORKS = fault_jobs.FORKS and not options.spawn
    import dsocr.training.folds  # noqa: F401 - slow imports, before processes are forked

    outcomes: list[Outcome] = []
    with tempfile.TemporaryDirectory() as name:
        suite = Suite(Path(name))
        os.environ["DSOCR_CACHE"] = str(suite.folder / "cache")
        draw_sources(suite.folder)
        with serving(suite.folder):
            for part, job, run in planned(suite, options):
                suite.rng = random.Random(f"{options.seed} {part} {job}")
                outcomes.append(run())
        suite.others_left()
    table = Table("job", *_PARTS, "again a kill", "faults")
    for job in dict.fromkeys(outcome.job for outcome in outcomes):
        parts = {outcome.part: outcome for outcome in outcomes if outcome.job == job}
        counts = [str(parts[part].count) if part in parts else "" for part in _PARTS]
        kills = parts.get("kills")
        again = f"{kills.again / kills.count:.1f} of {kills.units}" if kills and kills.count and kills.units else ""
        table.row(job, *counts, again, sum(len(part.faults) for part in parts.values()))
    record(options, table.rows)
    faults = [*suite.faults, *(fault for outcome in outcomes for fault in outcome.faults)]
    print(f"{len(faults)} faults")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
