"""Where a base lies: in the package, a folder, or the Hub's cache.

Needs no torch, so that of a base that is nowhere can be told at once.
"""

import json
from collections.abc import Iterator, Mapping
from importlib import resources
from pathlib import Path

from safetensors import SafetensorError, safe_open

from dsocr.errors import ModelError
from dsocr.io.hub import cached, fetch, is_hub_id
from dsocr.runs import READING, ReadingSettings

EMBEDDED = "nano"
"""The name of the base that ships with the package."""


def find_base(name: str, revision: str | None = None) -> tuple[Path, str | None]:
    """The folder of a base, and its commit if it is one of the Hub. Raises ModelError where it is nowhere."""
    if name == EMBEDDED:
        return Path(str(resources.files("dsocr") / "models" / "bases" / EMBEDDED)), None
    if Path(name).is_dir():
        return Path(name), None
    if is_hub_id(name):
        return fetch(name, revision)
    raise ModelError(
        f"no base model {name!r}: neither {EMBEDDED!r}, nor a folder here, nor a Hub id",
        hint="a Hub id reads owner/name, for example deepseek-ai/DeepSeek-OCR",
    )


def base_at_hand(name: str, revision: str | None = None) -> Path:
    """The folder of a base, which may lack weights still; the Hub is asked only for one that its cache does not hold.

    Enough to know what base it is. Raises ModelError where it is nowhere.
    """
    on_hub = name != EMBEDDED and not Path(name).is_dir() and is_hub_id(name)
    kept = cached(name, revision) if on_hub else None
    return kept or find_base(name, revision)[0]


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


def demand_readable(adapter: Path) -> ReadingSettings:
    """The settings to read with. Raises RunError where they are damaged, ModelError where their base is nowhere."""
    settings = ReadingSettings.load(adapter)
    try:
        base_at_hand(settings.base, settings.base_revision)
    except ModelError as error:
        hint = f"{error.hint}; where the base lies in another folder, name it as `base` in {adapter / READING}"
        raise ModelError(error.message, where=error.where, hint=hint) from error
    return settings
