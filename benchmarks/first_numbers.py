"""Everything that a first publication needs of a base on a dataset: memory, speed, training, scores, and their card.

    python benchmarks/first_numbers.py --config configs/deepseek_ocr.yaml --dataset data/mine --output first_numbers
    python benchmarks/first_numbers.py --base nano --dataset examples/handwriting --output first_numbers

It makes a dry run with all checks, measures memory and speed at three sizes of the micro-batch, trains, scores base and
adapter on the test split, and writes `first_numbers/publish`: the adapter with its card, the table of scores with their
intervals, memory and speed, versions and hardware, the scorecard, the configuration and the training's log. The folder
can be published as it is. Run the same command again after an interruption: what is done is not done again, and the
training resumes with the same bits. Numbers of another machine or version start in another folder.
"""

import argparse
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from dsocr.config import load_run_config
from dsocr.io.work import write_file, write_manifest
from dsocr.models.family import recognize, trains_all_weights
from dsocr.runs import RunFolder
from measuring import machine, versions

SIZES = (1, 2, 4)
"""Micro-batches in multiples of the least that is measured; each is a process of its own, as its peak is."""


class Steps:
    """The steps of one publication, whose results are kept in a folder, one file each."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def once(self, name: str, make: Callable[[], Any]) -> Any:
        """Return the result of a step, made now unless an earlier call made it."""
        path = self.folder / f"{name}.json"
        if path.is_file():
            return json.loads(path.read_text(encoding="utf-8"))
        self.folder.mkdir(parents=True, exist_ok=True)
        print(f"{name} ...", flush=True)
        result = make()
        write_file(path, json.dumps(result, indent=2, ensure_ascii=False) + "\n")
        return result


def dsocr(*arguments: str, allowed: Sequence[int] = (0,)) -> str:
    """Run a command of dsocr and return what it prints; exit with its own error if it fails."""
    done = subprocess.run(
        [sys.executable, "-m", "dsocr", *arguments], stdout=subprocess.PIPE, text=True, encoding="utf-8", check=False
    )
    if done.returncode not in allowed:
        sys.exit(f"dsocr {' '.join(arguments)} ended with {done.returncode}")
    return done.stdout


def plan(options: Sequence[str], *, thorough: bool) -> dict[str, Any]:
    """Return the result of a dry run as JSON; a dry run that finds something ends with 1."""
    printed = dsocr("train", *options, "--dry-run", "--json", *([] if thorough else ["--no-preflight"]), allowed=(0, 1))
    result: dict[str, Any] = json.loads(printed)
    return result


def at_size(options: Sequence[str], size: int) -> dict[str, Any]:
    """Return what a dry run measures with micro-batches of this size, or that memory runs out."""
    settings = {"training.micro_batch_size": size, "training.batch_size": max(SIZES[-1], size)}
    result = plan([*options, *_set(settings)], thorough=False)
    measured = (result["plan"] or {}).get("measurement")
    return {"micro_batch_size": size, "measured": measured, "errors": result["errors"]}


def _set(settings: dict[str, Any]) -> list[str]:
    return [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]


def train(run: RunFolder, options: Sequence[str]) -> None:
    """Train, or resume, unless an earlier call trained to the end; the adapter appears as a whole at the end."""
    if not run.adapter.is_dir():
        print("training ...", flush=True)
        dsocr("train", *options, "--quiet")


def table_of_sizes(sizes: Sequence[dict[str, Any]]) -> str:
    """Return memory and speed as a table in Markdown."""
    lines = ["| micro-batch | peak memory | samples/s | seconds a step of it |", "| --- | --- | --- | --- |"]
    for size in sizes:
        measured = size["measured"]
        if measured is None:
            lines.append(f"| {size['micro_batch_size']} | not measured: {', '.join(size['errors']) or '?'} | | |")
            continue
        peak = "?" if measured["peak_bytes"] is None else f"{measured['peak_bytes'] / 2**30:.2f} GiB"
        speed, seconds = measured["samples_per_second"], measured["seconds_per_micro_batch"]
        lines.append(f"| {size['micro_batch_size']} | {peak} | {speed:.2f} | {seconds:.3f} |")
    return "\n".join(lines)


def report(facts: dict[str, Any], sizes: Sequence[dict[str, Any]], dry: dict[str, Any], command: str) -> str:
    """Return what the card says beside settings, scores and origin."""
    schedule, tokens = dry["plan"]["schedule"], dry["plan"]["tokens"]
    rows = [f"| {name} | {value} |" for name, value in facts.items()]
    lengths = ", ".join(f"{part} {tokens[part]['median']}" for part in ("vision", "text", "sequence"))
    failed = ", ".join(dry["errors"]) or "none"
    return "\n".join(
        [
            "## Memory and speed",
            "",
            table_of_sizes(sizes),
            "",
            f"Of training steps on the longest and on typical lines (median tokens: {lengths}).",
            "On a GPU the peak is what torch allocated, on a CPU that of the whole process. Speed on a machine with",
            "other work is too low.",
            "",
            "## Training",
            "",
            "{samples} samples, {epochs:.1f} epochs, {steps} steps at most;".format(**schedule),
            f"checks before it that failed: {failed}. `config.yaml` has every setting, `metrics.jsonl` every step.",
            "",
            "## Versions and hardware",
            "",
            "| | |\n| --- | --- |",
            *rows,
            "",
            "Made with",
            "",
            f"```sh\n{command}\n```",
            "",
        ]
    )


def publish(run: RunFolder, folder: Path, section: str, files: Sequence[Path]) -> None:
    """Write the folder to publish anew: the export with its card, then this section, and the files behind it."""
    config = load_run_config(run.config)
    base = run.adapter if (run.adapter / "config.json").is_file() else None
    whole = base is not None and trains_all_weights(recognize(base), config.adapter.target)
    shutil.rmtree(folder, ignore_errors=True)
    dsocr("export", str(run.path), "--output", str(folder), "--form", "merged" if whole else "peft", "--quiet")
    card = folder / "README.md"
    before, title, after = card.read_text(encoding="utf-8").partition("## Serving")
    card.write_text(f"{before}{section}\n{title}{after}", encoding="utf-8", newline="\n")
    for file in files:
        shutil.copyfile(file, folder / file.name)
    write_manifest(folder)


def main() -> None:
    """Take every step that is not done yet, and show the card."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", help="a base, without a --config or instead of that of the --config")
    parser.add_argument("--config", type=Path, help="a recipe, as in configs/")
    parser.add_argument("--dataset", required=True, help="a folder that `dsocr prepare` made, with a test split")
    parser.add_argument("--output", type=Path, default=Path("first_numbers"))
    parser.add_argument("--least", type=int, default=1, help="the least micro-batch; also twice and four times as many")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="as for `dsocr train`")
    arguments = parser.parse_args()
    output = arguments.output
    steps, run = Steps(output / "steps"), RunFolder(output / "run")
    settings = {"dataset": arguments.dataset, "output": run.path.as_posix()}
    settings |= {"base": arguments.base} if arguments.base else {}
    options = [str(arguments.config or arguments.dataset), *_set(settings)]
    options += [part for value in arguments.set for part in ("--set", value)]
    facts = {"machine": machine(), "versions": versions(), "options": options}
    made_with = steps.once("made_with", lambda: facts | {"begun": datetime.now(UTC).isoformat(timespec="seconds")})
    if {name: made_with[name] for name in facts} != json.loads(json.dumps(facts)):
        sys.exit(f"{output} has numbers of another machine, version or command: give another --output")

    dry = steps.once("dry_run", lambda: plan(options, thorough=True))
    if dry["errors"]:
        print(f"the dry run found: {', '.join(dry['errors'])}; see {steps.folder / 'dry_run.json'}", file=sys.stderr)
        sys.exit(1)
    least = arguments.least
    sizes = [steps.once(f"size_{least * n}", partial(at_size, options, least * n)) for n in SIZES]
    train(run, options)
    steps.once("scores", lambda: json.loads(dsocr("evaluate", str(run.path), "--json")))
    device = next((size["measured"]["device"] for size in sizes if size["measured"]), "?")
    shown = {"device": device, **made_with["machine"], **made_with["versions"], "begun": made_with["begun"]}
    command = f"python benchmarks/first_numbers.py {' '.join(_shown(arguments))}"
    section = report(shown, sizes, dry, command)
    files = [run.config, run.metrics, *(path for path in (run.scorecard,) if path.is_file())]
    publish(run, output / "publish", section, [*files, *sorted(steps.folder.glob("*.json"))])
    print((output / "publish" / "README.md").read_text(encoding="utf-8"))


def _shown(arguments: argparse.Namespace) -> list[str]:
    shown = [f"--config {arguments.config.as_posix()}"] if arguments.config else []
    shown += [f"--base {arguments.base}"] if arguments.base else []
    shown += ["--dataset DATASET", "--output OUTPUT", *(f"--set {value}" for value in arguments.set)]
    return shown + ([f"--least {arguments.least}"] if arguments.least != 1 else [])


if __name__ == "__main__":
    main()
