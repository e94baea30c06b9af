"""Weights in several files: none over the limit, all of them in the index."""

import json
from pathlib import Path

import torch

from dsocr.models.base_folder import INDEX, SINGLE, tensor_shapes, weight_files
from dsocr.models.export import write_shards


def test_weights_that_fit_are_one_file(tmp_path: Path) -> None:
    write_shards(tmp_path, [("a", torch.zeros(3)), ("b", torch.zeros(2, 2))])
    assert [path.name for path in tmp_path.iterdir()] == [SINGLE]
    assert tensor_shapes(tmp_path) == {"a": (3,), "b": (2, 2)}


def test_more_are_several_files_with_an_index(tmp_path: Path) -> None:
    wide = torch.arange(40.0).reshape(8, 5)  # 20 bytes a row
    tensors = {f"row {number}": wide[number] for number in range(8)} | {"columns": wide.T[:3]}
    write_shards(tmp_path, tensors.items(), shard_bytes=50)
    files = weight_files(tmp_path)
    assert [file.name for file in files] == [f"model-{number:05}-of-00005.safetensors" for number in range(1, 6)]
    assert {path.name for path in tmp_path.iterdir()} == {INDEX, *(file.name for file in files)}
    assert tensor_shapes(tmp_path) == {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    index = json.loads((tmp_path / INDEX).read_text(encoding="utf-8"))
    assert index["metadata"]["total_size"] == 8 * 20 + 96
    assert index["weight_map"].keys() == tensors.keys()
