"""Shared by the benchmarks: arguments, timing in turns, tables, bootstrap intervals, and results as JSON lines."""

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

import numpy as np
import psutil
from numpy.typing import ArrayLike, NDArray

PROJECT = Path(__file__).resolve().parents[1]
COPISTE = Path(os.environ.get("DSOCR_REAL_DATA") or PROJECT / "examples" / "copiste")
"""The pages of Copiste d'un jour: the shipped ones, or the full-size export that DSOCR_REAL_DATA names."""
DRAWS = 2000
"""Bootstrap samples."""

Item = TypeVar("Item")


# Arguments and results


def make_parser(description: str) -> argparse.ArgumentParser:
    """Return a parser with the options of every benchmark."""
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=description, formatter_class=formatter)
    parser.add_argument("--json", type=Path, help="append the results to this JSON Lines file")
    return parser


def parse(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """Parse the command line, and print the machine and the versions."""
    options = parser.parse_args()
    print(describe({**machine(), **versions()}), flush=True)
    return options


class Table:
    """A Markdown table that is printed row by row."""

    def __init__(self, *heads: str) -> None:
        self.heads, self.rows = heads, list[dict[str, str]]()
        print(f"\n| {' | '.join(heads)} |\n|---|{'---:|' * (len(heads) - 1)}", flush=True)

    def row(self, *cells: object) -> None:
        """Print a row; missing cells at its end are empty."""
        texts = [*map(str, cells), *[""] * (len(self.heads) - len(cells))]
        self.rows.append(dict(zip(self.heads, texts, strict=True)))
        print(f"| {' | '.join(texts)} |", flush=True)


def record(options: argparse.Namespace, rows: Sequence[Mapping[str, Any]]) -> None:
    """Append the results and their conditions to the file that `--json` names."""
    if options.json is None:
        return
    result = {
        "benchmark": Path(sys.argv[0]).stem,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": _commit(),
        "versions": versions(),
        "machine": machine(),
        "options": vars(options),
        "rows": rows,
    }
    options.json.parent.mkdir(parents=True, exist_ok=True)
    with options.json.open("a", encoding="utf-8", newline="\n") as stream:
        stream.write(json.dumps(result, ensure_ascii=False, default=str) + "\n")


def _commit() -> str | None:
    command = ["git", "describe", "--always", "--dirty"]
    try:
        return subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that matter."""
    found = {"python": platform.python_version()}
    for package in ("torch", "transformers", "peft"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "none"
    return found


def machine() -> dict[str, Any]:
    """Return the processor, its cores and the system."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    processor = names[0] if names else platform.processor() or platform.machine()
    return {"processor": processor, "cores": os.cpu_count(), "system": platform.platform()}


def describe(facts: Mapping[str, object]) -> str:
    """Return names and values on one line."""
    return ", ".join(f"{name} {value}" for name, value in facts.items())


def gigabytes(size: int | None) -> str:
    """Return bytes in GB of 10^9; "-" if unknown."""
    return "-" if size is None else f"{size / 1e9:.2f}"


def require_copiste() -> None:
    """Exit unless the pages are there."""
    if not (COPISTE / "alto").is_dir():
        sys.exit(f"The copiste pages are not at {COPISTE}; set DSOCR_REAL_DATA.")


# Time and memory


@dataclass
class Times:
    """Clock and processor seconds of repeated work."""

    clock: list[float] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)

    @contextmanager
    def measure(self, units: int = 1) -> Iterator[None]:
        """Time the block; seconds are divided by its units of work."""
        start, used = time.perf_counter(), time.process_time()
        yield
        self.clock.append((time.perf_counter() - start) / units)
        self.processor.append((time.process_time() - used) / units)

    def ratios(self, reference: "Times") -> tuple[str, str]:
        """Return how many times faster than the reference, by the clock and by processor time: medians over pairs."""
        pairs = ((reference.clock, self.clock), (reference.processor, self.processor))
        clock, processor = (median(a / b for a, b in zip(first, own, strict=False)) for first, own in pairs)
        return f"{clock:.2f}", f"{processor:.2f}"


def in_turns(items: Sequence[Item], rounds: int) -> Iterator[tuple[int, Item]]:
    """Yield each item in every round, starting with another each time, so that other load affects all alike."""
    for number in range(rounds):
        turn = number % len(items)
        yield from ((number, item) for item in (*items[turn:], *items[:turn]))


def peak_resident() -> int | None:
    """Return the peak resident memory of this process, mapped files included; None where it is unknown."""
    try:
        import resource
    except ImportError:
        return None
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def anonymous() -> int | None:
    """Return the memory of this process that belongs to no file; None where it is unknown."""
    try:
        lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon:")), None)


def watch(command: Sequence[str]) -> dict[str, float]:
    """Run a command, and return the seconds and the peak memory of it and its children.

    `seconds` on the clock, `cpu` seconds of processors, and peaks in bytes, sampled five times a second: `uss` is
    memory of no other process, `rss` counts shared memory once for each process.
    """
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    most = {"uss": 0.0, "rss": 0.0}
    used: dict[int, float] = {}
    while process.poll() is None:
        now = {"uss": 0.0, "rss": 0.0}
        for member in _tree(process.pid):
            try:
                memory, times = member.memory_full_info(), member.cpu_times()
            except psutil.Error:
                continue
            now["uss"] += memory.uss
            now["rss"] += memory.rss
            used[member.pid] = times.user + times.system
        most = {kind: max(most[kind], now[kind]) for kind in most}
        time.sleep(0.2)
    if process.returncode:
        sys.exit(f"Failed with {process.returncode}: {' '.join(command)}")
    return {"seconds": time.perf_counter() - start, "cpu": sum(used.values()), **most}


def _tree(pid: int) -> list[psutil.Process]:
    try:
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    except psutil.Error:
        return []


# Intervals


def bootstrap(clusters: int, statistic: Callable[[NDArray[np.intp]], float]) -> tuple[float, float]:
    """Return the 95 % interval of a statistic of cluster indices, drawn with replacement."""
    rng = np.random.default_rng(1)
    drawn = [statistic(rng.integers(0, clusters, clusters)) for _ in range(DRAWS)]
    low, high = np.percentile(drawn, (2.5, 97.5))
    return float(low), float(high)


def pooled_share(counts: ArrayLike) -> str:
    """Return the pooled share of `(clusters, 2)` counts, hits and totals, with its interval over clusters."""
    table = np.asarray(counts, dtype=float)
    low, high = bootstrap(len(table), lambda drawn: float(table[drawn, 0].sum() / table[drawn, 1].sum()))
    return f"{table[:, 0].sum() / table[:, 1].sum():.1%} ({low:.1%} to {high:.1%}), n = {table[:, 1].sum():.0f}"
