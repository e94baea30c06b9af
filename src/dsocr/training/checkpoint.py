"""Checkpoints: everything a run needs to resume bit-identically, in safetensors and JSON.

A checkpoint is a folder `step-NNNNNNN` with the trained weights, `state.json`, `state.safetensors` and a manifest with
a hash of every file. It is written beside its place, forced to the disk and renamed, so a folder that verifies is
complete. Knows nothing about the Trainer: a state is nested dicts and lists with tensors in them.
"""

import json
import random
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load, save
from torch import Tensor

from dsocr.console import current_reporter
from dsocr.errors import RunError, option
from dsocr.io.encodings import read_object
from dsocr.io.files import rename
from dsocr.io.work import find_damage, remove_folder, write_folder
from dsocr.models.adapters import trained_files
from dsocr.runs import RunFolder

FORMAT = 2
"""Version of the layout; version 1 was written by the Hugging Face Trainer."""
_STATE = "state.json"
_TENSORS = "state.safetensors"
_TENSOR_KEY = "__tensor__"


def checkpoint_path(folder: Path, step: int) -> Path:
    """Return the folder of the checkpoint of a step."""
    return folder / f"step-{step:07d}"


def best_path(folder: Path, step: int) -> Path:
    """Return the folder of the adapter of a step with the best validation so far."""
    return folder / f"best-{step:07d}"


def step_of(path: Path) -> int:
    """Return the step in a name of `checkpoint_path` or `best_path`."""
    return int(path.name.rpartition("-")[2])


def save_checkpoint(path: Path, state: Mapping[str, Any], weights: Iterable[tuple[str, bytes]]) -> None:
    """Write a checkpoint: the files of the trained weights by name, and the state of everything else.

    The state holds dicts, lists, numbers, texts and tensors. Raises RunError if the disk is full or not writable; an
    earlier checkpoint at `path` then stays as it was.
    """

    def files() -> Iterator[tuple[str, bytes]]:
        yield from weights
        tensors: dict[str, Tensor] = {}

        def refer(value: Any) -> Any:
            if not isinstance(value, Tensor):
                return value.item()  # a number of NumPy
            name = str(len(tensors))
            tensors[name] = value.detach().cpu().contiguous().clone()
            return {_TENSOR_KEY: name}

        plain = json.dumps({"format": FORMAT, **state}, indent=2, allow_nan=False, default=refer)
        yield _TENSORS, save(tensors)
        yield _STATE, plain.encode()

    write_folder(path, files())


def load_checkpoint(path: Path) -> dict[str, Any]:
    """Load the state that `save_checkpoint` wrote; keys of dicts are strings, tuples have become lists."""
    tensors = load((path / _TENSORS).read_bytes())  # a mapped file could not be deleted on Windows
    return read_state(path, lambda value: tensors[value[_TENSOR_KEY]] if _TENSOR_KEY in value else value)


def read_state(path: Path, insert: Callable[[dict[str, Any]], Any] | None = None) -> dict[str, Any]:
    """Read a checkpoint's state; `insert` puts tensors in place of references. Raises RunError for another format."""
    state: dict[str, Any] = json.loads((path / _STATE).read_text(encoding="utf-8"), object_hook=insert)
    if state.get("format") != FORMAT:
        raise RunError(
            f"Unsupported checkpoint format {state.get('format', 1)} (this release reads {FORMAT})",
            code="checkpoint-format",
            where=path,
            hint=f"resume with the release that began the run, or start again with {option('overwrite')}",
        )
    return state


def latest_checkpoint(folder: Path) -> Path | None:
    """Return the newest intact checkpoint whose best adapter is intact too; None if there are no checkpoints.

    Damaged ones that are newer are reported and renamed to `damaged-*`. If no best adapter is intact, it is the newest
    intact checkpoint. Raises RunError if all are damaged, and leaves them in place.
    """
    faults: dict[Path, str] = {}
    chosen: Path | None = None
    for path in sorted(folder.glob("step-*"), reverse=True):
        missing = (f"{name} is missing" for name in (_STATE, _TENSORS) if not (path / name).is_file())
        if fault := find_damage(path) or next(missing, None):
            faults[path] = fault
            continue
        best = _best_of(path)
        if best is None or not (fault := find_damage(best)):
            chosen = path
            break
        chosen = chosen or path  # unless an older one has an intact best adapter
        faults[path] = f"its best adapter, {best.name}: {fault}"
    if chosen is None and faults:
        shown = "".join(f"\n  {path.name}: {fault}" for path, fault in faults.items())
        hint = f"restore the files from a backup, or start again with {option('overwrite')}"
        raise RunError(f"no checkpoint is intact{shown}", code="no-intact-checkpoint", where=folder, hint=hint)
    for damaged, fault in faults.items():
        if chosen is None or damaged <= chosen:
            break
        aside = damaged.with_name(f"damaged-{damaged.name}")
        shutil.rmtree(aside, ignore_errors=True)
        rename(damaged, aside)
        current_reporter().complain(
            f"checkpoint {damaged.name} is damaged ({fault}); it was renamed to {aside.name}, and training"
            f" resumes from {chosen.name}"
        )
    return chosen


def rotate_checkpoints(folder: Path, keep: int) -> None:
    """Remove all checkpoints but the newest `keep`, and the best adapters that none of those refers to."""
    checkpoints = sorted(folder.glob("step-*"))
    for old in checkpoints[:-keep]:
        remove_folder(old)
    referenced = {_best_of(path) for path in checkpoints[-keep:]}
    for best in folder.glob("best-*"):
        if best not in referenced:
            remove_folder(best)


def save_best(folder: Path, step: int, model: Any, texts: Mapping[str, str]) -> None:
    """Write the weights of a step as the best so far, and texts by the names of their files; earlier ones stay."""
    files = [(name, text.encode()) for name, text in texts.items()]
    write_folder(best_path(folder, step), [*trained_files(model), *files])


def require_best(run: RunFolder, step: int) -> Path:
    """Return the folder of the best weights, those of a step. Raises RunError if they are damaged."""
    best = best_path(run.checkpoints, step)
    if fault := find_damage(best):
        hint = f"with `{run.resume_command}` the weights of the last checkpoint take their place"
        raise RunError(f"the best weights are damaged: {fault}", code="best-adapter-damaged", where=best, hint=hint)
    return best


def rng_state() -> dict[str, Any]:
    """Return the state of the global random number generators of Python, NumPy and torch, CUDA's if it is in use."""
    _, keys, position, has_gauss, gauss = np.random.get_state()
    state: dict[str, Any] = {
        "python": random.getstate(),
        "numpy": [torch.from_numpy(np.asarray(keys).astype(np.int64)), int(position), int(has_gauss), float(gauss)],
        "torch": torch.get_rng_state(),
    }
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        state["cuda"] = torch.cuda.get_rng_state()
    return state


def set_rng_state(state: Mapping[str, Any]) -> None:
    """Restore what `rng_state` returned."""
    version, numbers, python_gauss = state["python"]
    random.setstate((version, tuple(numbers), python_gauss))
    keys, position, has_gauss, gauss = state["numpy"]
    np.random.set_state(("MT19937", keys.numpy().astype(np.uint32), position, has_gauss, gauss))
    torch.set_rng_state(state["torch"])
    if "cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["cuda"])


@contextmanager
def preserved_random() -> Iterator[None]:
    """Restore the random numbers of Python, NumPy and torch after the block."""
    state = rng_state()
    try:
        yield
    finally:
        set_rng_state(state)


def _best_of(checkpoint: Path) -> Path | None:
    """The best adapter that a checkpoint refers to; None if it has none or is damaged."""
    states = read_object(checkpoint / _STATE).get("callbacks", {}).values()
    steps = [state["best_step"] for state in states if state.get("best_step") is not None]
    return best_path(checkpoint.parent, int(steps[0])) if steps else None
