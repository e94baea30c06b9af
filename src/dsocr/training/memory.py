"""How much memory a training takes, by part, and how much a device has.

Weights, adapter, gradients and moments are counted, and exact. The rest is an estimate:

- activations: what the layers keep for the backward pass (`activations.py` has the formulas), and the images;
- logits: samples_per_forward x longest transcription x vocabulary x 12 bytes. Three copies in float32 are there when
  the backward pass begins: the log-probabilities, and the gradients of the loss by them and by the logits;
- passing: what is there for a moment only, beyond all this, while the most expensive layer is computed.

Not counted are what the device's driver and the libraries take, and the slack of an allocator: training nano on a CPU,
with 4 and 16 samples at once, the process grew by 1.6 to 2.9 times the sum, of which 0.1 GiB were libraries.
"""

from dataclasses import asdict, dataclass
from pathlib import Path

import psutil
import torch
from peft import PeftModel

from dsocr.model.architectures import UNUSED_TENSORS
from dsocr.model.weights import tensor_shapes
from dsocr.training.activations import Batch, Computing, estimate_activations

_LOGIT = 3 * 4
"""Bytes for each logit."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes of each part at the most expensive moment."""

    weights: int
    adapter: int
    gradients: int
    moments: int
    activations: int
    logits: int
    passing: int

    @property
    def total(self) -> int:
        """All of it."""
        return sum(asdict(self).values())


@dataclass(frozen=True, slots=True)
class Room:
    """The memory of a device in bytes, and what is free of it now."""

    device: str
    total: int
    free: int


def weight_bytes(folder: Path, dtype: torch.dtype) -> int:
    """The weights of the checkpoint in a folder, loaded as `dtype`; no more than the heads of its files is read."""
    shapes = tensor_shapes(folder)
    numbers = sum(torch.Size(shape).numel() for name, shape in shapes.items() if name not in UNUSED_TENSORS)
    return numbers * dtype.itemsize


def estimate_memory(model: PeftModel, weights: int, batch: Batch, computing: Computing) -> Memory:
    """What training `model` takes with AdamW; `weights` are its base's, and its tensors may be on the meta device."""
    numbers = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    text = model.config.text_config
    learnt = batch.tokens if batch.learnt is None else batch.learnt
    logits = batch.samples * learnt * text.vocab_size * _LOGIT
    activations = estimate_activations(model, batch, computing, at_the_end=logits)
    return Memory(
        weights=weights,
        adapter=4 * numbers,
        gradients=4 * numbers,
        moments=8 * numbers,
        activations=activations.held,
        logits=logits,
        passing=activations.peak - activations.held - logits,
    )


def find_room(device: torch.device) -> Room:
    """What a device has: a graphics card its own memory, a CPU and Apple's graphics the machine's."""
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        return Room(torch.cuda.get_device_name(device), total, free)
    memory = psutil.virtual_memory()
    return Room("CPU" if device.type == "cpu" else "Apple's graphics", memory.total, memory.available)


def used_memory(device: torch.device) -> int:
    """Bytes in use: the most torch had allocated on a graphics card so far; elsewhere what the process holds now."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return int(psutil.Process().memory_info().rss)


def spoken_bytes(size: int) -> str:
    """Memory as people say it, e.g. `14.6 GiB`."""
    return f"{size / 2**30:.1f} GiB" if size >= 2**30 else f"{size / 2**20:.1f} MiB"
