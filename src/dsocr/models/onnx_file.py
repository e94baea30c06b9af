"""Read the weights of an ONNX file without the package onnx."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dsocr.errors import ModelError


def read_onnx(file: Path) -> tuple[dict[str, NDArray[Any]], dict[str, str]]:
    """Read the float32 initializers and the metadata of an ONNX file, which is a protobuf message `ModelProto`."""
    tensors: dict[str, NDArray[Any]] = {}
    metadata: dict[str, str] = {}
    try:
        for field, value in _read_protobuf(memoryview(file.read_bytes())):
            if field == 14:  # metadata_props: key, value
                entry = dict(_read_protobuf(value))
                metadata[bytes(entry[1]).decode()] = bytes(entry[2]).decode()
            elif field == 7:  # graph
                for part, initializer in _read_protobuf(value):
                    if part != 5:
                        continue
                    fields = list(_read_protobuf(initializer))
                    content = dict(fields)
                    if content.get(2) == 1 and 9 in content:  # data_type float32, raw_data
                        shape = [item for number, item in fields if number == 1]  # dims
                        tensors[bytes(content[8]).decode()] = np.frombuffer(content[9], "<f4").reshape(shape)
    except (ValueError, IndexError, KeyError, TypeError) as error:
        raise ModelError(f"File cannot be read as ONNX: {error}", code="onnx-unreadable", where=file) from None
    return tensors, metadata


def _read_protobuf(data: memoryview) -> Iterator[tuple[int, Any]]:
    """Yield the number and the value of each field of a protobuf message: an int or the field's bytes."""
    position = 0

    def read_varint() -> int:
        nonlocal position
        value = shift = 0
        while True:
            byte = data[position]
            position += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while position < len(data):
        number, wire_type = divmod(read_varint(), 8)
        if wire_type == 0:
            yield number, read_varint()
            continue
        size = {1: 8, 2: 0, 5: 4}.get(wire_type)
        if size is None:
            raise ValueError(f"wire type {wire_type}")
        size = size or read_varint()
        yield number, data[position : position + size]
        position += size
