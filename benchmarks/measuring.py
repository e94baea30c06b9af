"""What benchmarks measure beside time, and how they show and keep their results."""

import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

if TYPE_CHECKING:
    from dsocr.data.dataset import SplitCard
    from dsocr.document import Split

PROJECT = Path(__file__).resolve().parents[1]
COPISTE = Path(os.environ.get("DSOCR_REAL_DATA") or PROJECT / "examples" / "copiste")
"""The pages of Copiste d'un jour: those that ship, or the full-size export that DSOCR_REAL_DATA names."""


def require_copiste() -> None:
    """Exit unless the pages are there."""
    if not (COPISTE / "alto").is_dir():
        sys.exit(f"the copiste pages are not at {COPISTE}; set DSOCR_REAL_DATA")


def write_card(folder: Path, splits: "dict[Split, SplitCard]", fractions: "dict[Split, float]") -> None:
    """Write the card of a dataset that was made for a benchmark."""
    from dsocr import __version__
    from dsocr.data.dataset import Card

    Card(
        dsocr_version=__version__,
        created="2026-11-20T00:00:00+00:00",
        source="benchmark",
        source_format="jsonl",
        writer=None,
        page=None,
        split_by="writer",
        fractions=fractions,
        seed=17,
        text_policy={},
        splits=splits,
        crossing={},
        skipped={},
        unmatched={},
    ).write(folder)


def write_reading(run: Path, base: str = "nano") -> None:
    """Make a run folder that has all to read with but the weights."""
    from dsocr.runs import READING, ReadingSettings
    from dsocr.text import TextPolicy

    settings = ReadingSettings(base, None, "<image>\nFree OCR.", "wrap", TextPolicy(), {})
    (run / "adapter").mkdir(parents=True)
    (run / "adapter" / READING).write_text(settings.to_json(), encoding="utf-8")


def peak_resident() -> int | None:
    """The most bytes this process had in memory, files it maps included; None where the system does not tell."""
    try:
        import resource
    except ImportError:
        return None
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def anonymous() -> int | None:
    """The bytes in memory now that belong to no file; None where the system does not tell."""
    try:
        lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon:")), None)


def watch(command: Sequence[str]) -> tuple[str, dict[str, float]]:
    """What a command printed, and what it and all its children took.

    `seconds` on the clock, `cpu` seconds of processors, and the most bytes in memory, looked at five times a second:
    `uss` belongs to no other process, `rss` counts what is shared once for each.
    """
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    most = {"uss": 0.0, "rss": 0.0}
    used: dict[int, float] = {}
    while process.poll() is None:
        now = {"uss": 0.0, "rss": 0.0}
        for one in _tree(process.pid):
            try:
                memory, times = one.memory_full_info(), one.cpu_times()
            except psutil.Error:
                continue
            now["uss"] += memory.uss
            now["rss"] += memory.rss
            used[one.pid] = times.user + times.system
        most = {kind: max(most[kind], now[kind]) for kind in most}
        time.sleep(0.2)
    seconds = time.perf_counter() - start
    assert process.stdout is not None
    with process.stdout as stream:
        printed = stream.read()
    if process.returncode:
        sys.exit(f"it failed with {process.returncode}: {' '.join(command)}")
    return printed, {"seconds": seconds, "cpu": sum(used.values()), **most}


def _tree(pid: int) -> list[psutil.Process]:
    try:
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    except psutil.Error:
        return []


def versions() -> dict[str, str]:
    """The version of Python and of each package that matters; "none" for one that is not here."""
    found = {"python": platform.python_version()}
    for package in ("torch", "transformers", "peft", "safetensors"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "none"
    return found


def describe(facts: Mapping[str, object]) -> str:
    """Names and values on one line."""
    return ", ".join(f"{name} {value}" for name, value in facts.items())


def machine() -> dict[str, Any]:
    """The machine under the benchmark."""
    return {"processor": processor(), "cores": os.cpu_count(), "system": platform.platform()}


def processor() -> str:
    """The processor's name."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def gigabytes(size: int | None) -> str:
    """A number of bytes in GB of 10^9 for a table; "-" for one that is not known."""
    return "-" if size is None else f"{size / 1e9:.2f}"


def table_line(cells: Sequence[str], widths: Sequence[int]) -> str:
    """A line of a table: the first cell to the left, the others to the right of their columns; more cells follow on."""
    padded = [
        cell.rjust(width) if index else cell.ljust(width)
        for index, (cell, width) in enumerate(zip(cells, widths, strict=False))
    ]
    return "  ".join([*padded, *cells[len(widths) :]]).rstrip()


def append_json(
    file: Path | None, benchmark: str, options: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]
) -> None:
    """Add a line with the results, and what they were measured with, to a file of JSON lines."""
    if file is None:
        return
    record = {
        "benchmark": benchmark,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": _commit(),
        "versions": versions(),
        "machine": machine(),
        "options": options,
        "rows": rows,
    }
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a", encoding="utf-8", newline="\n") as stream:
        stream.write(json.dumps(record, ensure_ascii=False, default=str) + "\n")


def _commit() -> str | None:
    command = ["git", "describe", "--always", "--dirty"]
    try:
        return subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None
