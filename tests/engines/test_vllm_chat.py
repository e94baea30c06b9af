"""vLLM on a CPU reads exports of chat models as dsocr does: the same prompt and log-probabilities; see test_vllm.py."""

from pathlib import Path

import pytest

import dsocr
from dsocr.inference.reader import LocalReader
from dsocr.models.image_text_to_text import ImageTextToText
from dsocr.runs import RunFolder
from tests.engines.test_vllm import NEAR, PYTHON, ask, compare, serve
from tests.making_models import make_run
from tests.models.chat_models import draw_text, write_chat_model

pytestmark = [pytest.mark.engines, pytest.mark.timeout(3600)]

MODELS = {"qwen3_vl": 32}
"""The sides of their image tokens in pixels."""
PROMPT = "Read this."


@pytest.fixture(scope="module", params=MODELS)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with a random adapter on a random base, its exports, and images."""
    if not PYTHON:
        pytest.skip("vLLM is not installed: make engines")
    folder = tmp_path_factory.mktemp("engines") / str(request.param)
    base = write_chat_model(folder / "base", request.param, head_std=0.3)
    run = make_run(folder / "run", str(base), "decoder", prompt=PROMPT)
    dsocr.export(run.path, folder / "merged", form="merged")
    dsocr.export(run.path, folder / "lora", form="vllm")
    side = MODELS[request.param]
    # The first two fit image tokens, so that nobody resizes them; the third is resized.
    for name, size in {"a": (8 * side, 2 * side), "b": (5 * side, 3 * side), "c": (301, 47)}.items():
        draw_text(f"Привет {name}", size).save(folder / f"{name}.png")
    return folder


@pytest.mark.parametrize("form", ["adapter", "merged"])
def test_vllm_reads_an_export_of_a_chat_model_as_dsocr_does(form: str, folder: Path) -> None:
    model, options = folder / "merged", ["--served-model-name", "mine"]
    if form == "adapter":
        model, options = folder / "base", ["--enable-lora", "--max-lora-rank", "8"]
        options += ["--lora-modules", f"mine={folder / 'lora'}"]
    serving = ImageTextToText(folder.name).serving
    assert serving is not None
    reader = LocalReader.of_run(RunFolder(folder / "run"), precision="fp32")
    firsts = []
    with serve(model, *serving.options_at("default"), *options) as address:
        for name, near in (("a", NEAR), ("b", NEAR), ("c", 0.1)):
            image = folder / f"{name}.png"
            largest, first = compare(reader, image, ask(address, "mine", image, PROMPT))
            print(folder.name, form, name, f"largest difference {largest:.1e}")  # noqa: T201
            assert largest < near, name
            firsts.append(first)
    assert (firsts[0] - firsts[1]).abs().max() > 50 * NEAR, "the image must matter"
