"""Graphs compute what torch computes, for lines of any width, and are never taken for those of other weights."""

import os
import shutil
import subprocess
import sys
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from dsocr.inference.reader import LocalReader
from dsocr.io.files import shipped_path
from dsocr.models import loading
from dsocr.models.canvas import cut_to_writing
from dsocr.models.ctc_network import write_line_graph
from dsocr.models.graph import GRAPH, Graph
from dsocr.models.graph_export import graph_of
from dsocr.models.loading import Base, load_base, open_graph
from dsocr.runs import SHIPPED_BASES, SHIPPED_DETECTOR, RunFolder
from tests.models.test_ctc_network import V5, write_ctc
from tests.models.test_kraken import write_kraken
from tests.raising import raises_code


@pytest.fixture(autouse=True)
def _processor_without_bf16(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a processor with bf16 torch reads, and graphs are not opened beside it."""
    monkeypatch.setattr(torch.cpu, "get_capabilities", dict, raising=False)


def lines_of(widths: list[int]) -> list[Image.Image]:
    rng = np.random.default_rng(3)
    return [Image.fromarray(rng.integers(0, 255, (40, width, 3), dtype=np.uint8), "RGB") for width in widths]


def write_graph_of(folder: Path) -> Path:
    files = [(file.name, file.read_bytes()) for file in folder.iterdir()]
    name, content = graph_of(files, write_line_graph)
    (folder / name).write_bytes(content)
    return folder


def require_equal_logits(folder: Path) -> None:
    """Check that a graph computes what torch computes, whatever the width, and the same alone and in company."""
    base = load_base(str(folder))
    family: Any = base.family
    opened, processor = open_graph(base.folder), base.processor(None, "")
    assert opened is not None
    samples = [*map(processor.encode, lines_of([30, 77, 211, 400, 401, 402, 403]))]
    expected = family.map_logits(np.copy, base.network, processor, samples)
    together = family.map_logits(np.copy, opened, processor, samples)
    for sample, line, logits in zip(samples, expected, together, strict=True):
        assert np.abs(logits - line).max() < 1e-4 * np.abs(line).max()
        (alone,) = family.map_logits(np.copy, opened, processor, [sample])
        assert np.array_equal(alone, logits)


@pytest.mark.parametrize("kind", ["v6 small", *(pytest.param(kind, marks=pytest.mark.slow) for kind in V5)])
def test_a_graph_computes_what_torch_computes(kind: str, tmp_path: Path) -> None:
    require_equal_logits(write_graph_of(write_ctc(tmp_path / "base", kind=kind)))


@pytest.mark.slow
def test_krakens_lines_end_at_any_column(tmp_path: Path) -> None:
    base = load_base(str(write_kraken(tmp_path / "narrow.safetensors", "tiny", 64, divisor=4)))
    require_equal_logits(write_graph_of(Path(shutil.copytree(base.folder, tmp_path / "base"))))


def test_the_shipped_graphs_are_of_the_shipped_weights() -> None:
    require_equal_logits(SHIPPED_BASES / "small")
    assert open_graph(SHIPPED_DETECTOR) is not None


@pytest.fixture
def small(tmp_path: Path) -> Path:
    return Path(shutil.copytree(SHIPPED_BASES / "small", tmp_path / "small"))


def test_a_graph_of_other_weights_is_not_used(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (small / "model.safetensors").write_bytes(b"others")
    with raises_code("checkpoint-mismatch"):
        Graph(small)
    with pytest.warns(UserWarning, match="torch reads instead"):
        assert open_graph(small) is None
    monkeypatch.setattr(loading, "find_spec", lambda name: None)
    with raises_code("checkpoint-mismatch"):
        open_graph(small)


def test_a_damaged_graph(small: Path) -> None:
    (small / GRAPH).write_bytes((small / GRAPH).read_bytes()[:1000])
    with raises_code("weights-damaged"):
        Graph(small)


def test_nothing_about_a_reading_is_reported_to_anybody(tmp_path: Path) -> None:
    program = "from pathlib import Path; import sys; from dsocr.models.graph import Graph; Graph(Path(sys.argv[1]))"
    silenced = {"CI", "ORT_DISABLE_TELEMETRY", "ORT_RUNNING_UNIT_TESTS", "TF_BUILD", "GITHUB_ACTIONS", "XDG_CACHE_HOME"}
    environment = {name: value for name, value in os.environ.items() if name not in silenced}
    command = [sys.executable, "-c", program, str(RunFolder.to_read_with(Path("small")).adapter)]
    subprocess.run(command, env={**environment, "HOME": str(tmp_path)}, check=True)
    assert list(tmp_path.rglob("*")) == [], "ONNX Runtime keeps an identifier of the machine and what it is to send"


def test_where_torch_is_faster_it_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = SHIPPED_BASES / "small"
    with monkeypatch.context() as patch:
        patch.setattr(loading, "_is_torch_faster", lambda: True)
        assert open_graph(folder) is None
    assert isinstance(LocalReader.of_run(RunFolder(folder)).network, Graph)
    assert not isinstance(LocalReader.of_run(RunFolder(folder), use_torch=True).network, Graph)
    monkeypatch.delitem(sys.modules, "torch")
    assert not loading._is_torch_faster()


def test_the_program_of_the_guide_reads_a_line_as_the_graph_does(tmp_path: Path) -> None:
    guide = (Path(__file__).parents[2] / "docs" / "guide" / "serve.md").read_text(encoding="utf-8")
    program = guide.partition("A line recogniser without dsocr")[2].partition("```python\n")[2].partition("```")[0]
    assert len([row for row in program.splitlines() if row]) <= 30
    (tmp_path / "read.py").write_text(program, encoding="utf-8")
    line = tmp_path / "line.png"
    image: Image.Image = Image.open(shipped_path("examples/handwriting") / "test" / "images" / "boris-20-03.jpg")
    while (cut := cut_to_writing(image)) is not image:
        image = cut
    cut.save(line)
    processor: Any = Base.find("small").processor(None, "")
    family: Any = processor.family
    (logits,) = family.map_logits(np.copy, open_graph(SHIPPED_BASES / "small"), processor, [processor.encode(cut)])
    classes = [label for label, _ in groupby(logits.argmax(-1).tolist()) if label]
    command = [sys.executable, str(tmp_path / "read.py"), str(SHIPPED_BASES / "small"), str(line)]
    printed = subprocess.run(
        command, capture_output=True, encoding="utf-8", check=True, env={**os.environ, "PYTHONUTF8": "1"}
    )
    assert printed.stdout == "".join(processor.characters[label - 1] for label in classes) + "\n"
