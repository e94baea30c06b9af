"""Networks as ONNX graphs, which ONNX Runtime computes on a CPU without torch.

A graph lies beside the weights that it was exported from and has their hash, so that a graph of other weights is never
taken for theirs. It sees one image at a time: no image is read otherwise in other company.
"""

import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dsocr.errors import ModelError
from dsocr.io.processes import available_cores
from dsocr.io.work import hash_file
from dsocr.models.base_folder import SINGLE

GRAPH = "model.onnx"
WEIGHTS_HASH = "weights_sha256"
"""The entry of a graph's metadata with the hash of the file of weights that it computes."""


def count_threads() -> int:
    """Return how many threads compute: OMP_NUM_THREADS, as torch has it, or the cores this process may use."""
    return int(os.environ.get("OMP_NUM_THREADS") or available_cores())


class Graph:
    """A network without torch: called with an image `(3, H, W)`, float32, it answers with its output for it.

    Threads may call it at once; each call computes on the `threads` that it was opened with.
    """

    device, dtype = "cpu", "float32"

    def __init__(self, folder: Path, *, threads: int = 1) -> None:
        """Open the graph in a folder. Raises ModelError if it is damaged, or made from other weights."""
        os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # else it reports to its makers, from 1.29 on Linux too
        import onnxruntime

        onnxruntime.disable_telemetry_events()  # Windows has no variable for it
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.log_severity_level = threads, 3
        options.enable_cpu_mem_arena = False  # kept for every width that was ever seen
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # beside threads that search
        path = folder / GRAPH
        hint = f"update onnxruntime, or delete {GRAPH}, which `dsocr export` writes anew"
        try:
            self._session = onnxruntime.InferenceSession(path.read_bytes(), options, ["CPUExecutionProvider"])
        except Exception as error:  # its classes have no common base of their own
            message = f"ONNX Runtime {onnxruntime.__version__} cannot open the graph: {error}"
            raise ModelError(message, code="weights-damaged", where=path, hint=hint) from error
        metadata: Mapping[str, str] = self._session.get_modelmeta().custom_metadata_map
        if metadata.get(WEIGHTS_HASH) != hash_file(folder / SINGLE):
            message = f"Graph was not made from the weights beside it ({SINGLE})"
            raise ModelError(message, code="checkpoint-mismatch", where=path, hint=hint)
        self._name = self._session.get_inputs()[0].name

    def __call__(self, image: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the output for an image `(3, H, W)`, without the dimension of a batch."""
        (output,) = self._session.run(None, {self._name: image[None]})
        result: NDArray[np.float32] = output[0]
        return result
