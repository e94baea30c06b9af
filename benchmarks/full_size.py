"""What DeepSeek-OCR costs on this machine at its full size: loading, LoRA steps, an adapter saved and loaded, merging.

    python benchmarks/full_size.py
    python benchmarks/full_size.py --small

Weights are random, so nothing is downloaded; times and memory are those of the published checkpoint. It writes 6.7 GB,
with --export twice as much. Each phase runs in a process of its own, so that its peak is its own. Files that have just
been written are mostly still in memory, so loading is timed without the disk. "own" is memory of no file.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from measuring import append_json, describe, gigabytes, machine, table_line, versions
from random_checkpoint import SMALL, Numbers, base_folder, checkpoint_bytes, is_written

SCOPES = ("decoder", "decoder+vision")
WIDTHS = (30, 8, 8, 9)


def main() -> None:
    """Runs every phase, prints a line for each thing measured, and exits with 1 where a result is wrong."""
    options = _parser().parse_args()
    numbers = _numbers(options)
    if options.phase:
        from full_size_phases import run_phase

        print(json.dumps(run_phase(options.phase, options.folder, numbers, options.steps)))
        return
    if options.folder is not None:
        rows = _measure(options.folder, numbers, options)
    else:
        with tempfile.TemporaryDirectory() as folder:
            rows = _measure(Path(folder), numbers, options)
    append_json(options.json, "full_size", {"numbers": asdict(numbers), "steps": options.steps}, rows)
    problems = [f"{row['what']}: {problem}" for row in rows for problem in row["problems"]]
    if problems:
        sys.exit("\n".join(["something is wrong", *problems]))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, help="where to write, and keep it for another call")
    parser.add_argument("--small", action="store_true", help="46 million weights, to try this out")
    parser.add_argument("--layers", type=int, help="layers of the decoder, at least 2")
    parser.add_argument("--vocabulary", type=int, help="tokens, at least 1000")
    parser.add_argument("--steps", type=int, default=10, help="LoRA steps with each scope")
    parser.add_argument("--export", action="store_true", help="also merge the adapter of decoder+vision into the base")
    parser.add_argument("--json", type=Path, help="a file to add a line of results to")
    parser.add_argument("--phase", help=argparse.SUPPRESS)
    return parser


def _numbers(options: argparse.Namespace) -> Numbers:
    chosen = {name: value for name in ("layers", "vocabulary") if (value := getattr(options, name)) is not None}
    if chosen.get("layers", 2) < 2 or chosen.get("vocabulary", 1000) < 1000:
        sys.exit("the network needs at least 2 layers and 1000 tokens")
    return replace(SMALL if options.small else Numbers(), **chosen)


def _measure(folder: Path, numbers: Numbers, options: argparse.Namespace) -> list[dict[str, Any]]:
    _require_space(folder, numbers, merged=options.export)
    print(describe({**versions(), **machine()}))
    print(table_line(["", "seconds", "peak GB", "own GB"], WIDTHS))
    phases = ["write", "load"]
    for scope in SCOPES:
        phases += [f"train {scope}", f"reload {scope}"]
    phases += ["keep features"]
    phases += [f"export {SCOPES[-1]}", f"merged {SCOPES[-1]}"] if options.export else []
    rows = []
    for phase in phases:
        for row in _in_new_process(phase, folder, options):
            rows.append({"phase": phase, **row})
            print(_line(row), flush=True)
    return rows


def _require_space(folder: Path, numbers: Numbers, *, merged: bool) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    written = is_written(base_folder(folder), numbers)
    if any(folder.iterdir()) and not written:
        sys.exit(f"{folder} holds something else than a checkpoint of these numbers; name another folder, or empty it")
    copies = (not written) + (merged and not (folder / "merged").exists())
    needed, free = copies * checkpoint_bytes(numbers) + 500_000_000, shutil.disk_usage(folder).free
    if free < needed:
        sys.exit(f"{folder} has {gigabytes(free)} GB left, and {gigabytes(needed)} GB are needed; use --folder")


def _in_new_process(phase: str, folder: Path, options: argparse.Namespace) -> list[dict[str, Any]]:
    command = [
        sys.executable,
        "-W",
        "ignore::FutureWarning",
        __file__,
        "--phase",
        phase,
        "--folder",
        str(folder),
        "--steps",
        str(options.steps),
    ]
    command += ["--small"] if options.small else []
    for name in ("layers", "vocabulary"):
        value = getattr(options, name)
        command += [] if value is None else [f"--{name}", str(value)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(
            f"the phase {phase!r} failed with exit status {done.returncode}; negative is a signal, -9 out of memory"
        )
    rows: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return rows


def _line(row: Mapping[str, Any]) -> str:
    seconds = "-" if row["seconds"] is None else f"{row['seconds']:.2f}"
    cells = [row["what"], seconds, gigabytes(row["peak_bytes"]), gigabytes(row["anonymous_bytes"]), row["found"]]
    return "\n".join([table_line(cells, WIDTHS), *(f"  WRONG: {problem}" for problem in row["problems"])])


if __name__ == "__main__":
    main()
