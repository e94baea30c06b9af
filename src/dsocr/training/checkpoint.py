"""Checkpoints: everything a training needs to go on as if it had never stopped, in safetensors and JSON.

A checkpoint is sealed: one that is there and verifies is whole. Knows nothing about the Trainer.
"""

import json
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from peft import PeftModel
from safetensors.torch import load_file, save
from torch import Tensor

from dsocr.errors import RunError
from dsocr.io.atomic import find_damage, remove_folder, write_folder
from dsocr.models.adapters import WEIGHTS, adapter_files, load_tensors
from dsocr.runs import CALIBRATION, to_json

TRAINER_STATE = "trainer_state.json"
_OPTIMIZER = "optimizer.safetensors"
_STATE = "state.json"
_RANDOM = "random.safetensors"


def checkpoint_path(folder: Path, step: int) -> Path:
    """Where the checkpoint of a step lies."""
    return folder / f"step-{step:07d}"


def best_path(folder: Path, step: int) -> Path:
    """Where the adapter of a step lies that read the validation split better than all before."""
    return folder / f"best-{step:07d}"


def step_of(place: Path) -> int:
    """The step that a path of `checkpoint_path` or `best_path` names."""
    return int(place.name.rpartition("-")[2])


def latest_checkpoint(folder: Path, say: Callable[[str], None]) -> Path | None:
    """The newest checkpoint that is as it was written, to go on from; None where there is none yet.

    Damaged ones that are newer are renamed to `damaged-*`, for people to look at, and `say` is told of each. Raises
    RunError where there are only damaged ones; those stay where they are.
    """
    faults: list[tuple[Path, str]] = []
    for place in sorted(folder.glob("step-*"), reverse=True):
        fault = find_damage(place)
        if fault is None:
            _put_aside(faults, f"going on from {place.name}", say)
            return place
        faults.append((place, fault))
    if faults:
        shown = "".join(f"\n  {place.name}: {fault}" for place, fault in faults)
        hint = "copy the files back from where they are whole, or start again with --overwrite"
        raise RunError(f"no checkpoint is whole{shown}", where=folder, hint=hint)
    return None


def save_checkpoint(
    place: Path,
    model: PeftModel,
    optimizer: torch.optim.Optimizer,
    schedule: Any,
    scaler: Any,
    trainer_state: str,
    unlogged: tuple[float, int] = (0.0, 0),
) -> None:
    """Write a whole checkpoint at `place`, replacing one that is there.

    `unlogged` is the sum of the losses that no log tells of yet, and the step of the last that does.
    """

    def files() -> Iterator[tuple[str, bytes]]:
        yield from adapter_files(model)
        tensors, settings = _taken_apart(optimizer.state_dict())
        yield _OPTIMIZER, save(tensors)
        yield _RANDOM, save(_random_tensors())
        state = {
            "optimizer": settings,
            "schedule": schedule.state_dict(),
            "scaler": None if scaler is None else scaler.state_dict(),
            "python": random.getstate(),
            "unlogged": unlogged,
        }
        yield _STATE, to_json(_plain(state)).encode()
        yield TRAINER_STATE, trainer_state.encode()

    write_folder(place, files())


def save_best(folder: Path, step: int, model: PeftModel, calibration: str) -> None:
    """Write the adapter of a step, and its calibration as JSON, as the best so far.

    Earlier ones stay, for the checkpoints that know of them.
    """
    write_folder(best_path(folder, step), [*adapter_files(model), (CALIBRATION, calibration.encode())])


def load_trainer_state(place: Path) -> dict[str, Any]:
    """What the Trainer wrote into a checkpoint about itself and its callbacks."""
    state: dict[str, Any] = json.loads((place / TRAINER_STATE).read_text(encoding="utf-8"))
    return state


def load_weights(place: Path, model: PeftModel) -> None:
    """Put a checkpoint's adapter into the model."""
    load_tensors(model, load_file(place / WEIGHTS), where=place / WEIGHTS)


def load_optimizer(place: Path, optimizer: torch.optim.Optimizer, schedule: Any, scaler: Any) -> None:
    """Put a checkpoint's optimizer, learning-rate schedule and gradient scale back."""
    state = _state(place)
    optimizer.load_state_dict(_put_together(load_file(place / _OPTIMIZER), state["optimizer"]))
    schedule.load_state_dict(state["schedule"])
    if scaler is not None and state["scaler"] is not None:
        scaler.load_state_dict(state["scaler"])


def load_random_state(place: Path) -> None:
    """Put the random number generators back to where they stood."""
    version, numbers, gauss = _state(place)["python"]
    random.setstate((version, tuple(numbers), gauss))
    tensors = load_file(place / _RANDOM)
    torch.set_rng_state(tensors["torch"])
    position, has_gauss = (int(value) for value in tensors["numpy_position"])
    keys = tensors["numpy_keys"].numpy().astype(np.uint32)
    np.random.set_state(("MT19937", keys, position, has_gauss, float(tensors["numpy_gauss"])))
    if "cuda" in tensors and torch.cuda.is_available():
        torch.cuda.set_rng_state(tensors["cuda"])


def unlogged_loss(place: Path) -> tuple[float, int]:
    """The sum of the losses that no log told of when a checkpoint was written, and the step of the last that did."""
    loss, step = _state(place)["unlogged"]
    return loss, step


def rotate_checkpoints(folder: Path, keep: int) -> None:
    """Remove all checkpoints but the newest `keep`, and the best adapters that none of those knows of."""
    places = sorted(folder.glob("step-*"))
    for old in places[:-keep]:
        remove_folder(old)
    known = {step for place in places[-keep:] if (step := _best_step(place)) is not None}
    for best in folder.glob("best-*"):
        if step_of(best) not in known:
            remove_folder(best)


def remove_leftovers(folder: Path) -> None:
    """Remove what an interrupted save left behind."""
    for leftover in folder.glob(".*.tmp"):
        shutil.rmtree(leftover, ignore_errors=True)


def _best_step(place: Path) -> int | None:
    """The best step that a checkpoint knows of; None where it knows none, or is damaged and knows nothing any more."""
    try:
        validation = load_trainer_state(place)["stateful_callbacks"].get("Validation")
        return int(validation["attributes"]["best_step"]) if validation else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _put_aside(faults: list[tuple[Path, str]], then: str, say: Callable[[str], None]) -> None:
    for place, fault in faults:
        aside = place.with_name(f"damaged-{place.name}")
        shutil.rmtree(aside, ignore_errors=True)
        place.rename(aside)
        say(f"the checkpoint {place.name} is damaged ({fault}) and now lies in {aside.name}: {then}")


def _state(place: Path) -> dict[str, Any]:
    state: dict[str, Any] = json.loads((place / _STATE).read_text(encoding="utf-8"))
    return state


def _random_tensors() -> dict[str, Tensor]:
    _, keys, position, has_gauss, gauss = np.random.get_state()
    tensors = {
        "torch": torch.get_rng_state(),
        "numpy_keys": torch.from_numpy(np.asarray(keys).astype(np.int64)),
        "numpy_position": torch.tensor([int(position), int(has_gauss)]),
        "numpy_gauss": torch.tensor(float(gauss), dtype=torch.float64),
    }
    if torch.cuda.is_available():
        tensors["cuda"] = torch.cuda.get_rng_state()
    return tensors


def _taken_apart(state: dict[str, Any]) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """An optimizer's state as named tensors (`parameter.name`) and the plain settings of its groups."""
    tensors = {
        f"{parameter}.{name}": torch.as_tensor(value).contiguous()
        for parameter, values in state["state"].items()
        for name, value in values.items()
    }
    return tensors, {"param_groups": state["param_groups"]}


def _put_together(tensors: dict[str, Tensor], settings: dict[str, Any]) -> dict[str, Any]:
    state: dict[int, dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        parameter, name = key.split(".", 1)
        state.setdefault(int(parameter), {})[name] = tensor
    return {"state": state, "param_groups": settings["param_groups"]}


def _plain(value: Any) -> Any:
    """The value in JSON's types."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value.item() if isinstance(value, Tensor | np.generic) else value
