"""Measure DeepSeek-OCR at its full size on this machine: loading, LoRA steps, saving and loading an adapter, merging.

    python benchmarks/full_size.py [--export]
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
from pathlib import Path
from typing import Any

from random_checkpoint import SMALL, Numbers, base_folder, checkpoint_bytes, is_written
from runner import Table, gigabytes, make_parser, parse, record

SCOPES = ("decoder", "decoder+vision")


def main() -> None:
    """Run every phase; exit with 1 if a result is wrong."""
    parser = make_parser(__doc__)
    parser.add_argument("--folder", type=Path, help="where to write, and keep it for another call")
    parser.add_argument("--small", action="store_true", help="46 million weights, to try this out")
    parser.add_argument("--steps", type=int, default=10, help="LoRA steps with each scope")
    parser.add_argument("--export", action="store_true", help="also merge the adapter of decoder+vision into the base")
    parser.add_argument("--phase", help=argparse.SUPPRESS)
    options = parse(parser)
    numbers = SMALL if options.small else Numbers()
    if options.phase:
        from full_size_phases import run_phase

        print(json.dumps(run_phase(options.phase, options.folder, numbers, options.steps)))
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        require_space(folder, numbers, merged=options.export)
        table = Table("phase", "seconds", "peak GB", "own GB", "result")
        problems = []
        for phase in phases(export=options.export):
            for row in run_in_new_process(phase, folder, options):
                seconds = "-" if row["seconds"] is None else f"{row['seconds']:.2f}"
                memory = (gigabytes(row["peak_bytes"]), gigabytes(row["anonymous_bytes"]))
                table.row(row["what"], seconds, *memory, row["found"])
                problems += [f"{row['what']}: {problem}" for problem in row["problems"]]
    record(options, table.rows)
    sys.exit("\n".join(problems) or 0)


def phases(*, export: bool) -> list[str]:
    """Return the names of the phases in order."""
    trained = [f"{word} {scope}" for scope in SCOPES for word in ("train", "reload")]
    exported = [f"export {SCOPES[-1]}", f"merged {SCOPES[-1]}"] if export else []
    return ["write", "load", *trained, "keep features", *exported]


def require_space(folder: Path, numbers: Numbers, *, merged: bool) -> None:
    """Exit unless the folder is empty or holds this checkpoint, and has space."""
    folder.mkdir(parents=True, exist_ok=True)
    written = is_written(base_folder(folder), numbers)
    if any(folder.iterdir()) and not written:
        sys.exit(f"{folder} holds something other than a checkpoint of these numbers; name an empty folder.")
    copies = (not written) + (merged and not (folder / "merged").exists())
    needed, free = copies * checkpoint_bytes(numbers) + 500_000_000, shutil.disk_usage(folder).free
    if free < needed:
        sys.exit(f"{folder} has {gigabytes(free)} GB left of the {gigabytes(needed)} GB needed; use --folder.")


def run_in_new_process(phase: str, folder: Path, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Return the rows of a phase."""
    command = [sys.executable, "-W", "ignore::FutureWarning", __file__, "--phase", phase, "--folder", str(folder)]
    command += ["--steps", str(options.steps), *(["--small"] if options.small else [])]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(f"The phase {phase!r} ended with {done.returncode}; negative is a signal, -9 out of memory.")
    rows: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return rows


if __name__ == "__main__":
    main()
