"""Checkpoints: everything a training needs to go on as if it had never stopped, in safetensors and JSON.

A checkpoint is written beside its place and renamed, so one that is there is whole. Knows nothing about the Trainer.
"""

import json
import random
import shutil
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import torch
from peft import PeftModel
from safetensors.torch import load_file, save_file
from torch import Tensor

from dsocr.errors import RunError
from dsocr.model.adapters import WEIGHTS, load_tensors, save_adapter
from dsocr.runs import to_json, write_atomically

TRAINER_STATE = "trainer_state.json"
_OPTIMIZER = "optimizer.safetensors"
_STATE = "state.json"
_RANDOM = "random.safetensors"


def checkpoint_path(folder: Path, step: int) -> Path:
    """Where the checkpoint of a step lies."""
    return folder / f"step-{step:07d}"


def latest_checkpoint(folder: Path) -> Path | None:
    """The checkpoint to go on from; None where there is none yet."""
    found = sorted(path for path in folder.glob("step-*") if (path / TRAINER_STATE).is_file())
    return found[-1] if found else None


def save_checkpoint(
    place: Path, model: PeftModel, optimizer: torch.optim.Optimizer, schedule: Any, scaler: Any, trainer_state: str
) -> None:
    """Write a whole checkpoint at `place`, replacing one that is there."""
    beside = place.with_name(f".{place.name}.{uuid4().hex[:8]}.tmp")
    beside.mkdir(parents=True)
    try:
        save_adapter(model, beside)
        tensors, settings = _taken_apart(optimizer.state_dict())
        save_file(tensors, beside / _OPTIMIZER)
        save_file(_random_tensors(), beside / _RANDOM)
        state = {
            "optimizer": settings,
            "schedule": schedule.state_dict(),
            "scaler": None if scaler is None else scaler.state_dict(),
            "python": random.getstate(),
        }
        write_atomically(beside / _STATE, to_json(_plain(state)))
        write_atomically(beside / TRAINER_STATE, trainer_state)
        if place.exists():
            shutil.rmtree(place)
        beside.rename(place)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


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


def rotate_checkpoints(folder: Path, keep: int) -> None:
    """Remove all but the newest `keep`, and what an interrupted save left behind."""
    for leftover in folder.glob(".step-*.tmp"):
        shutil.rmtree(leftover, ignore_errors=True)
    for old in sorted(folder.glob("step-*"))[:-keep]:
        shutil.rmtree(old, ignore_errors=True)


def _state(place: Path) -> dict[str, Any]:
    try:
        state: dict[str, Any] = json.loads((place / _STATE).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RunError(
            f"the checkpoint cannot be read: {error}", where=place, hint="remove it to use the one before"
        ) from error
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
