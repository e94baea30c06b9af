"""Weights written as safetensors: one file, or several with an index; knows nothing about what they are."""

import json
from collections.abc import Iterable
from pathlib import Path

from safetensors.torch import save_file
from torch import Tensor

from dsocr.model.weights import INDEX, SINGLE

SHARD_BYTES = 2_000_000_000
"""The most a file holds; while it is written, as much is in memory again."""


def write_shards(folder: Path, tensors: Iterable[tuple[str, Tensor]], *, shard_bytes: int = SHARD_BYTES) -> None:
    """Write the tensors, in their order, into an existing folder."""
    files: list[Path] = []
    names_by_file: list[list[str]] = []
    shard: dict[str, Tensor] = {}
    size = total = 0

    def close() -> None:
        file = folder / f"shard-{len(files)}"
        save_file(shard, file, metadata={"format": "pt"})
        files.append(file)
        names_by_file.append(list(shard))
        shard.clear()

    for name, tensor in tensors:
        if shard and size + tensor.nbytes > shard_bytes:
            close()
            size = 0
        shard[name] = tensor.contiguous()
        size += tensor.nbytes
        total += tensor.nbytes
    close()
    if len(files) == 1:
        files[0].rename(folder / SINGLE)
        return
    weight_map: dict[str, str] = {}
    for number, (file, names) in enumerate(zip(files, names_by_file, strict=True), start=1):
        final = f"model-{number:05}-of-{len(files):05}.safetensors"
        file.rename(folder / final)
        weight_map |= dict.fromkeys(names, final)
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (folder / INDEX).write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8", newline="\n")
