"""What a checkpoint folder holds, read from the heads of its safetensors files: names, shapes, types, no weights."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from safetensors import SafetensorError, safe_open

from dsocr.errors import ModelError

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"

Shapes = Mapping[str, tuple[int, ...]]
"""The shape of each tensor, by name."""

_PICKLES = ("*.bin", "*.pt", "*.pth", "*.pkl", "*.ckpt")


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files of a checkpoint, those its index names or the single one.

    Raises ModelError where there are none, where one that the index names is missing, or lies outside the folder.
    """
    if (folder / INDEX).is_file():
        return [folder / name for name in _indexed(folder / INDEX)]
    if (folder / SINGLE).is_file():
        return [folder / SINGLE]
    if any(next(folder.glob(pattern), None) for pattern in _PICKLES):
        raise ModelError(
            "its weights are pickles, which can run code and are not read",
            where=folder,
            hint="use the checkpoint's safetensors files",
        )
    raise ModelError(f"has no weights: neither {SINGLE} nor {INDEX}", where=folder, hint="was it downloaded whole?")


def tensor_shapes(folder: Path) -> dict[str, tuple[int, ...]]:
    """Every tensor of the checkpoint in a folder. Raises ModelError for a file that is cut off or no safetensors."""
    return {name: shape for file in weight_files(folder) for name, shape, _ in heads_in(file)}


def tensor_types(folder: Path) -> dict[str, str]:
    """The number format of every tensor of the checkpoint, as safetensors calls it: `BF16`, `F32`, `I64`, ..."""
    return {name: kind for file in weight_files(folder) for name, _, kind in heads_in(file)}


def _indexed(index: Path) -> list[str]:
    try:
        names = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelError("is not an index of weights", where=index, hint="download the checkpoint again") from error
    for name in names:
        if not isinstance(name, str) or Path(name).name != name or not name.endswith(".safetensors"):
            raise ModelError(f"names {name!r}, which is not a safetensors file beside it", where=index)
        if not (index.parent / name).is_file():
            raise ModelError(f"names {name}, which is missing", where=index, hint="was it downloaded whole?")
    return names


def heads_in(file: Path) -> Iterator[tuple[str, tuple[int, ...], str]]:
    """Name, shape and number format of each tensor in a file. Raises ModelError where it is cut off."""
    try:
        with safe_open(file, framework="numpy") as tensors:
            for name in tensors.keys():  # noqa: SIM118  (not a mapping)
                head = tensors.get_slice(name)
                yield name, tuple(head.get_shape()), head.get_dtype()
    except SafetensorError as error:
        raise ModelError(
            f"is not a whole safetensors file ({error})", where=file, hint="was it downloaded whole?"
        ) from error
