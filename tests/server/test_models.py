"""Several adapters on one base in memory: each reads as it does when loaded alone."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from PIL import Image

from dsocr.errors import ModelError
from dsocr.inference.reader import LocalReader
from dsocr.io.work import write_manifest
from dsocr.models.adapters import attach_adapter
from dsocr.models.generation import Generation
from dsocr.models.loading import load_base
from dsocr.runs import ReadingSettings, RunFolder
from dsocr.server.engine import ServedModels
from dsocr.text import TextPolicy
from tests.conftest import draw_line
from tests.making_models import save_adapter

GENERATION = Generation(max_new_tokens=4, batch_size=2).as_dict()
SETTINGS = ReadingSettings("nano", None, "<image>\nFree OCR.", "wrap", TextPolicy(), GENERATION)

Adapter = Callable[..., Path]


@pytest.fixture(scope="module")
def adapter(tmp_path_factory: pytest.TempPathFactory) -> Adapter:
    """Makes an adapter folder whose weights, drawn from a seed, change what nano reads."""
    root = tmp_path_factory.mktemp("adapters")

    def make(name: str, seed: int, settings: ReadingSettings = SETTINGS, scope: str = "decoder", rank: int = 2) -> Path:
        folder = root / name / "adapter"
        folder.mkdir(parents=True)
        network = load_base("nano").network
        model = attach_adapter(network, base="nano", revision=None, target_modules=scope, r=rank, alpha=4)
        generator = torch.Generator().manual_seed(seed)
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.data.copy_(torch.randn(parameter.shape, generator=generator) * 0.4)
        save_adapter(model, folder)
        settings.save(folder)
        write_manifest(folder)
        return folder

    return make


@pytest.fixture
def image(tmp_path: Path) -> Image.Image:
    draw_line(tmp_path / "line.png", "Привет, мир")
    return Image.open(tmp_path / "line.png").copy()


def alone(folder: Path, image: Image.Image) -> str:
    """The text an adapter reads when loaded alone."""
    (prediction,) = LocalReader.of_run(RunFolder(folder)).read([("line", image)])
    return prediction.text


def test_each_adapter_reads_as_it_does_alone(adapter: Adapter, image: Image.Image) -> None:
    folders = {"one": adapter("one", 1, rank=4), "vision": adapter("v", 3, scope="decoder+vision")}
    served = ServedModels(folders)
    assert served.names == ["one", "vision"]
    expected = {name: alone(folder, image) for name, folder in folders.items()}
    assert expected["one"] != expected["vision"]
    for name in ("vision", "one", "vision"):
        (prediction,) = served.read(name, [("line", image)])
        assert prediction.text == expected[name]


def test_adapters_that_do_not_fit_the_first_are_refused(adapter: Adapter) -> None:
    first = adapter("first", 4)
    other = adapter("other", 5, replace(SETTINGS, base="another"))
    experts = adapter("experts", 6, scope="decoder+experts")
    damaged, misfit = adapter("damaged", 7), adapter("misfit", 8, rank=4)
    weights = (first / "adapter_model.safetensors").read_bytes()
    (damaged / "adapter_model.safetensors").write_bytes(weights[:100])
    (misfit / "adapter_model.safetensors").write_bytes(weights)
    for folder in (other, experts, damaged, misfit):
        with pytest.raises(ModelError):
            ServedModels({"first": first, folder.parent.name: folder})


def test_an_adapter_has_the_name_of_its_run(tmp_path: Path) -> None:
    run = tmp_path / "мои письма 2"
    assert RunFolder(run).name == RunFolder(run / "adapter").name == "мои письма 2"
