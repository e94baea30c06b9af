"""Damages each file of what is kept, and uses it: an error with a code that names the file, or the right result.

Files are flipped at a bit, cut in half, emptied, deleted, and, where they are JSON, edited by hand: a value becomes one
of another type. Edited files may change the result; nothing else may, but for the only copy of the best weights of a
training, whose loss must be announced by name. Nothing may be a traceback.
"""

import contextlib
import copy
import importlib
import json
import os
import random
import shutil
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fault_jobs import Process, Strike, content, jobs, sets
from fault_jobs import invoke as invoke_command

_WRONG: tuple[Any, ...] = (None, 3, "x", [], {"a": 3}, [3], True, -1.5, "")
_JSON = {".json", ".jsonl"}
_CODE = "CODE "

Damage = Callable[[Path, random.Random], None]


@dataclass(frozen=True, slots=True)
class Kept:
    """A folder that a command left, how it is used, and which files of it are damaged.

    `is_exact` if an intact use and one without a message must agree; otherwise only tracebacks are faults.
    """

    name: str
    folder: Path
    use: Callable[[Path, Path], None]
    files: str
    is_exact: bool
    is_timed: bool


def flip(path: Path, rng: random.Random) -> None:
    """Change a bit."""
    raw = bytearray(path.read_bytes())
    raw[rng.randrange(len(raw))] ^= 1 << rng.randrange(8)
    path.write_bytes(raw)


def cut(path: Path, rng: random.Random) -> None:
    """Lose the second half."""
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def empty(path: Path, rng: random.Random) -> None:
    """Lose everything."""
    path.write_bytes(b"")


def delete(path: Path, rng: random.Random) -> None:
    """Delete."""
    path.unlink()


def edit(path: Path, rng: random.Random) -> None:
    """Put a value of another type somewhere into JSON."""
    text = path.read_text(encoding="utf-8")
    rows = text.splitlines() if path.suffix == ".jsonl" else [text]
    place = rng.randrange(len(rows))
    value = json.loads(rows[place])
    spots = list(_spots(value))
    owner, key = rng.choice(spots) if spots else (None, None)
    wrong = copy.deepcopy(rng.choice(_WRONG))
    if owner is None:
        value = wrong
    else:
        owner[key] = wrong
    rows[place] = json.dumps(value, ensure_ascii=False)
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")


def _spots(value: Any) -> Iterator[tuple[Any, Any]]:
    """Each place in a value of JSON."""
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield value, key
        yield from _spots(value[key])


def damage(kept: Kept, folder: Path, most: int, rng: random.Random, fault: Callable[[str, str], None]) -> int:
    """Damage so many files of a folder that is kept; return how often one was damaged and used."""
    outcomes = Counter[str]()
    out, log, intact = folder / "used", folder / "log.txt", folder / "intact"
    shutil.rmtree(intact, ignore_errors=True)
    shutil.copytree(kept.folder, intact, symlinks=True)
    code, printed = _use(kept, out, log)
    if code:
        fault(kept.name, f"intact: {printed[-800:]}")
        return 0
    _import_as(log.with_suffix(".modules"))
    whole = content(out, is_timed=kept.is_timed)
    for path, name, change in _cases(kept, intact, most, rng):
        shutil.rmtree(kept.folder)  # some files name their own place
        shutil.copytree(intact, kept.folder, symlinks=True)
        with contextlib.suppress(IndexError, ValueError):  # an empty file has no bit to flip
            change(kept.folder / path, rng)
        code, printed = _use(kept, out, log)
        where = f"{kept.name}, {path} {name}"
        if code not in {0, 2} or "Traceback" in printed:
            fault(where, f"{code}: {printed[-1500:]}")
            outcomes["tracebacks"] += 1
        elif code == 2:
            names = {path.name, path.parent.name, kept.folder.name}
            if (printed.startswith(_CODE) or "error: " in printed) and any(name in printed for name in names if name):
                outcomes["errors"] += 1
            else:
                fault(where, f"error without a code or a name: {printed[-800:]}")
        elif kept.is_exact and name != "edited" and content(out, is_timed=kept.is_timed) != whole:
            if kept.name == "checkpoints" and path.parent.name.startswith("best-") and _is_announced(path, printed):
                outcomes["announced"] += 1
                continue
            now = content(out, is_timed=kept.is_timed)
            different = [file for file in {**whole, **now} if whole.get(file) != now.get(file)]
            fault(where, f"no error, and another result: {different[:3]}")
        else:
            outcomes["the same" if kept.is_exact else "no traceback"] += 1
    print(f"{kept.name}: {dict(outcomes)}", flush=True)
    return outcomes.total()


def _is_announced(path: Path, printed: str) -> bool:
    """Whether a line that was printed says that the folder of a file is damaged."""
    return f"{path.parent.name}, is damaged" in " ".join(printed.split())  # a terminal wraps lines


def _cases(kept: Kept, intact: Path, most: int, rng: random.Random) -> Iterator[tuple[Path, str, Damage]]:
    files = sorted(path.relative_to(intact) for path in intact.rglob(kept.files) if path.is_file())
    files = [path for path in files if "tensorboard" not in path.parts and not path.name.startswith(".lock")]
    if kept.name == "audit":  # only readers use the rest of a finished run
        files = [path for path in files if path.name != "metrics.jsonl" and "model" not in path.parts]
    chosen = sorted(rng.sample(files, min(most, len(files))))
    for path in chosen:
        for change, name in ((flip, "flipped"), (cut, "cut"), (empty, "emptied"), (delete, "deleted")):
            yield path, name, change
        if path.suffix in _JSON:
            for _ in range(6):
                yield path, "edited", edit


def _use(kept: Kept, out: Path, log: Path) -> tuple[int, str]:
    """Use what is kept in a forked process: its exit code, 2 for an error of ours, and what it printed."""
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    pid = os.fork()
    if not pid:
        from dsocr.errors import DsocrError

        with log.open("wb") as stream:
            os.dup2(stream.fileno(), 1)
            os.dup2(stream.fileno(), 2)
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
        os.environ["DSOCR_CACHE"] = str(out.parent / "cache")
        code = 1
        try:
            kept.use(kept.folder, out)
            code = 0
        except DsocrError as error:
            log.write_text(f"{_CODE}{error.code} {error.where}: {error}\n", encoding="utf-8")
            code = 2 if error.code else 1
        except SystemExit as ended:  # of a command that has printed its error
            code = ended.code if isinstance(ended.code, int) else 1
        except BaseException:  # noqa: BLE001 - a forked process must not go on as its parent
            traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
        log.with_suffix(".modules").write_text("\n".join(list(sys.modules)), encoding="utf-8")
        os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return code, log.read_text(encoding="utf-8", errors="replace")


def _import_as(modules: Path) -> None:
    """Import what an intact use imported, which takes most of its time, before further processes are forked."""
    for name in modules.read_text(encoding="utf-8").splitlines():
        if name not in sys.modules:
            with contextlib.suppress(Exception):  # made up by a library
                importlib.import_module(name)


def invoke(*arguments: object) -> None:
    """Run a command so that its errors pass through."""
    from dsocr.cli.app import invoke as invoke_words

    if code := invoke_words([*map(str, arguments)]):
        raise SystemExit(code)


KEPT = {
    "dataset": "*",
    "weights of a run": "model/*",
    "scores of a run": "*.json*",
    "origin of a run": "*.json*",
    "checkpoints": "*",
    "prepare": "*",
    "transcribe": "*",
    "align": "*",
    "audit": "*.json*",
    "workbench": "*.sqlite*",
    "fetch": "*",
    "unlabelled": "*",
    "unlabelled-alone": "*",
}
"""What is kept, with the files that are damaged; the last ones are the outputs of jobs, which are run again."""
_INTERRUPTED = {"prepare", "transcribe", "align", "fetch", "unlabelled", "unlabelled-alone"}
"""Jobs that were killed near their end, and resume."""
_NEAR_END = 0.8
"""Of the changes of files that a job makes."""


def make_kept(name: str, folder: Path) -> Kept:
    """Make what is damaged anew, of the sources of the jobs, in the same place for all."""
    place, every = folder / "kept", {job.name: job for job in jobs(folder)}
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    os.environ["DSOCR_CACHE"] = str(place / "cache")
    pages, made = folder / "pages", place / "made"
    short: dict[str, Any] = {"training.batch_size": 4, "training.micro_batch_size": 4, "training.max_steps": 3}
    short |= {"validation.every_steps": 1, "validation.max_samples": 2, "checkpoints.every_steps": 1}
    steps = ("--no-preflight", "-q", "--set", "base=small")

    def again(kept: Path, out: Path) -> None:
        target = kept
        if name in _INTERRUPTED:
            target = kept / "out"
            os.environ["DSOCR_CACHE"] = str(kept / "cache")  # that of the job that was killed
        every[name].run(target)
        shutil.copytree(target, out, dirs_exist_ok=True)

    def resume(kept: Path, out: Path) -> None:
        import dsocr

        dsocr.train(kept / "config.yaml", output=kept, preflight=False)
        shutil.copytree(kept / "model", out / "model")

    def read(kept: Path, out: Path) -> None:
        invoke("transcribe", kept, pages, "-o", out / "texts", "--replace", "--format", "text", "-q")

    def train(kept: Path, out: Path) -> None:
        invoke("train", kept, *steps, *sets({**short, "training.max_steps": 1, "output": out / "run"}))
        shutil.copytree(out / "run" / "model", out / "model")
        shutil.rmtree(out / "run")

    def judge(kept: Path, out: Path) -> None:
        import dsocr

        dsocr.report(kept, output=out / "report.html")
        invoke("compare", kept, "--base", "-o", out / "compare.html", "-q")
        invoke("evaluate", kept, "--limit", "1", "-q")

    def share(kept: Path, out: Path) -> None:
        invoke("export", kept, "-o", out / "export", "-q")

    uses = {"dataset": train, "weights of a run": read, "scores of a run": judge, "origin of a run": share}
    if name == "dataset":
        shutil.copytree(folder / "lines", made)
    elif name in uses:
        shutil.copytree(folder / "reader", made)
        invoke_command("evaluate", made, "-q")
    elif name == "checkpoints":
        invoke_command("train", folder / "lines", *steps, *sets({**short, "output": made}))
        shutil.rmtree(made / "model")  # as if it had been killed before its end
    elif name in _INTERRUPTED:
        Process(every[name], place / "whole" / "out", folder).wait()
        changes = int((folder / "changes.txt").read_text(encoding="utf-8"))
        Process(every[name], made / "out", folder, Strike(int(_NEAR_END * changes))).wait()
    else:
        every[name].run(made)
    use = uses.get(name, resume if name == "checkpoints" else again)
    is_exact = name not in {"scores of a run", "origin of a run"}
    return Kept(name, made, use, KEPT[name], is_exact=is_exact, is_timed=name != "weights of a run")
