"""Write the graphs of the shipped networks beside their weights: `python tools/write_graphs.py`.

Weights were rounded to float16 before; a graph keeps them so, in half the space, and computes in float32.
"""

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from dsocr.layout.detector_network import write_detector_graph
from dsocr.models.ctc_network import write_line_graph
from dsocr.models.graph import GRAPH, Graph
from dsocr.runs import SHIPPED_BASES, SHIPPED_DETECTOR


def halve(path: Path) -> None:
    """Keep the numbers of a graph as float16, each converted when the graph is opened."""
    model = onnx.load(path)
    graph = model.graph
    for tensor in graph.initializer:
        if tensor.data_type != TensorProto.FLOAT:
            continue
        values = numpy_helper.to_array(tensor)
        halves = values.astype(np.float16)
        if not np.allclose(halves, values, rtol=1e-6, atol=0):  # made by the export, not a weight
            continue
        name = tensor.name
        tensor.CopyFrom(numpy_helper.from_array(halves, f"{name}_half"))
        graph.node.insert(0, helper.make_node("Cast", [tensor.name], [name], to=TensorProto.FLOAT))
    onnx.checker.check_model(model)
    onnx.save(model, path)


if __name__ == "__main__":
    for folder, write in ((SHIPPED_BASES / "small", write_line_graph), (SHIPPED_DETECTOR, write_detector_graph)):
        write(folder)
        halve(folder / GRAPH)
        Graph(folder)
        print(folder / GRAPH, (folder / GRAPH).stat().st_size)
