"""What a training changes, as files: an adapter, or all weights of a network, whichever the family trains."""

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel
from safetensors.torch import load_file
from torch import Tensor

from dsocr.errors import ModelError
from dsocr.models.adapters import CONFIG, WEIGHTS, adapter_files, load_tensors
from dsocr.models.base_folder import INDEX, SINGLE
from dsocr.models.family import family_of


def trained_files(model: Any) -> list[tuple[str, bytes]]:
    """Return the names and contents of the files of an adapter, or of the whole network."""
    return list(adapter_files(model) if isinstance(model, PeftModel) else family_of(model).network_files(model))


def restore_trained(model: Any, folder: Path) -> None:
    """Load what `trained_files` returned into a model of the same shape. Raises ModelError for other tensors."""
    if isinstance(model, PeftModel):
        load_tensors(model, load_file(folder / WEIGHTS), where=folder / WEIGHTS)
        return
    saved = family_of(model).load_network(folder, device="cpu", dtype=torch.float32).state_dict()
    own: dict[str, Tensor] = model.state_dict()
    if {name: tensor.shape for name, tensor in own.items()} != {name: t.shape for name, t in saved.items()}:
        raise ModelError("Weights do not match the network", code="checkpoint-mismatch", where=folder)
    for name, tensor in own.items():
        tensor.copy_(saved[name])


def is_whole_network(folder: Path) -> bool:
    """Whether a folder of weights holds a whole network, which needs no base."""
    return ((folder / SINGLE).is_file() or (folder / INDEX).is_file()) and not (folder / CONFIG).is_file()


def weights_file(folder: Path) -> Path:
    """Return the file with the tensors in a folder of weights, or that which names the files."""
    whole = SINGLE if (folder / SINGLE).is_file() else INDEX
    return folder / (whole if is_whole_network(folder) else WEIGHTS)


def without_adapter(model: Any) -> AbstractContextManager[Any]:
    """Return a context in which the base is used without its adapter, if the model has one."""
    return model.disable_adapter() if isinstance(model, PeftModel) else nullcontext()
