"""A small dataset and a small run that many tests share; both are made from scratch, offline, in seconds."""

import copy
import gc
import hashlib
import json
import math
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest
from PIL import Image, ImageDraw, ImageFont

import dsocr.html
from dsocr.config import GenerationSection, RunConfig
from dsocr.data.prepare import prepare
from dsocr.models.base_folder import embedded_bases
from dsocr.models.ctc import LineRecognizer
from dsocr.models.deepseek_ocr import DeepseekOcr

if TYPE_CHECKING:
    from dsocr.models.loading import BaseModel
    from dsocr.runs import RunFolder

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ |= {"TRANSFORMERS_VERBOSITY": "error", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}  # as the command line sets them
# Tests run side by side, so one thread each, also in the processes that they start. Read when torch is imported.
for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"
# Modules are compiled once, also where an environment turns that off: half a second for a process that a test starts,
# six for one that runs tests, whose asserts pytest rewrites.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
# The same examples every time, half of the usual number, and no deadline on a busy machine.
hypothesis.settings.register_profile("project", derandomize=True, deadline=None, max_examples=50)
hypothesis.settings.load_profile("project")

PATIENCE = 300
"""Seconds to wait for another process, generous for busy machines; a test may take 600."""

TEXTS = ["Привет, мир", "ёжик 25", "Bonjour", "щука и Эхо", "съезд № 7", "the end", "фраза!", "1905 г."]


DRAW = dsocr.html.Plot._draw


def pytest_configure() -> None:
    """Collect no garbage while tests are imported and collected: millions of objects live, and next to none dies."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Collect garbage again, which the tests make; more rarely than usual, since they are short."""
    gc.set_threshold(10_000, 10, 10)
    gc.enable()


@pytest.fixture(scope="module", autouse=True)
def _frozen_objects() -> None:
    """Exclude what earlier modules imported and built from garbage collections, which took a third of a second each."""
    gc.collect()
    gc.freeze()


def draw_line(path: Path, text: str) -> None:
    """Draw a line image with the text in Pillow's own font."""
    image = Image.new("L", (26 * len(text) + 20, 60), 240)
    ImageDraw.Draw(image).text((10, 8), text, fill=30, font=ImageFont.load_default(36))
    image.save(path)


@pytest.fixture(scope="session", autouse=True)
def _unsynced_files() -> Iterator[None]:
    """Do not wait for the disk, which takes milliseconds a file; test_work.py shows that files are synced."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.fsync", lambda descriptor: None)
        yield


@pytest.fixture(scope="session", autouse=True)
def _work_done_here() -> Iterator[None]:
    """Start no worker processes after a second of work, which a busy machine makes of little; tests of them do."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dsocr.io.processes.START_AFTER", math.inf)
        yield


@pytest.fixture(scope="session", autouse=True)
def _unrendered_plots() -> Iterator[None]:
    """Paint plots and render none, most of what a report or scores take; `rendered_plots` is for tests that look."""

    def write_outline(figure: Any, file: Any, **options: Any) -> None:
        file.write(b'<svg viewBox="0 0 1 1"></svg>')

    def paint(*arguments: Any, **options: Any) -> bytes:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("matplotlib.figure.Figure.savefig", write_outline)
            return DRAW(*arguments, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dsocr.html.Plot._draw", paint)
        yield


@contextmanager
def rendering() -> Iterator[None]:
    """Render plots as they are without the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dsocr.html.Plot._draw", DRAW)
        yield


@pytest.fixture
def rendered_plots() -> Iterator[None]:
    """Render plots as they are without the tests."""
    with rendering():
        yield


@pytest.fixture(scope="session", autouse=True)
def _no_graphs() -> Iterator[None]:
    """Finish training without a graph, whose export takes ten seconds; test_graph.py and a slow test write them."""
    from dsocr.layout.detector_network import LineDetector
    from dsocr.models.ctc import LineRecognizer

    with pytest.MonkeyPatch.context() as patch:
        for kind in (LineRecognizer, LineDetector):
            patch.setattr(kind, "graph_files", lambda kind, files: [])
        yield


@pytest.fixture(scope="session")
def _pages_detected_once() -> Iterator[None]:
    """Look for text with the shipped detector once on a page, which takes a second on a busy machine."""
    from dsocr.layout import text_detector

    detect, known = text_detector.detect_text, dict[Any, Any]()

    def detect_or_recall(page: Image.Image, detector: Any = None, side: int = text_detector.SIDE) -> Any:
        if detector is not None:
            return detect(page, detector, side)
        key = (page.mode, page.size, side, hashlib.sha256(page.tobytes()).digest())
        if key not in known:
            known[key] = detect(page, None, side)
        return known[key].copy()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_detector, "detect_text", detect_or_recall)
        yield


@pytest.fixture(scope="session")
def copied_bases() -> set[Path]:
    """The folders whose networks `_networks_copied` copies: what ships, and what does not change while tests run."""
    return {*embedded_bases().values()}


@pytest.fixture(scope="session", autouse=True)
def _networks_copied(copied_bases: set[Path]) -> Iterator[None]:
    """Load a network once and copy it from then on, in a fifth of the time."""
    loaded: dict[str, Any] = {}

    def copying(load: Callable[..., Any]) -> Callable[..., Any]:
        def load_or_copy(family: Any, folder: Path, **options: Any) -> Any:
            if folder not in copied_bases:
                return load(family, folder, **options)
            key = repr((folder, sorted(options.items(), key=str)))
            if key not in loaded:
                loaded[key] = load(family, folder, **options)
            return copy.deepcopy(loaded[key])

        return load_or_copy

    from tests.models.toy_family import ToyFamily  # imports transformers, which worker processes must not

    with pytest.MonkeyPatch.context() as patch:
        for family in (DeepseekOcr, LineRecognizer, ToyFamily):
            patch.setattr(family, "load_network", copying(family.load_network))
        yield


@pytest.fixture(scope="session")
def small_dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset folder: 16 lines in train, 4 in validation, 4 in test, by three writers."""
    folder = tmp_path_factory.mktemp("small")
    source = folder / "source"
    source.mkdir()
    rows = []
    for split, count in (("train", 16), ("validation", 4), ("test", 4)):
        for index in range(count):
            name = f"{split}-{index}.png"
            text = f"{TEXTS[index % len(TEXTS)]} {split[:3]}{index}"
            draw_line(source / name, text)
            writer = ["anna", "boris"][index % 2] if split != "test" or index < 2 else "new"
            rows.append({"file_name": name, "text": text, "split": split, "writer": writer})
    table = source / "lines.jsonl"
    table.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return prepare(source, folder / "dataset").folder


def eight_steps(dataset: Path, run: Path, base: str = "nano") -> RunConfig:
    """Eight quick steps of four lines, with an adapter of the decoder only."""
    return RunConfig.model_validate(
        {
            "base": base,
            "dataset": dataset,
            "output": run,
            "adapter": {"target_modules": "decoder", "r": 4, "alpha": 8},
            "training": {
                "max_steps": 8,
                "batch_size": 4,
                "micro_batch_size": 2,
                "learning_rate": 2e-3,
            },
            "validation": {"every_steps": 4, "max_samples": 2},
            "checkpoints": {"every_steps": 4},
            "generation": {"max_new_tokens": 24},
        }
    )


@pytest.fixture(scope="session")
def shallow(tmp_path_factory: pytest.TempPathFactory, copied_bases: set[Path]) -> str:
    """A base with nano's letters and few of its layers, which trains in two thirds of the time and cannot read."""
    from tests.making_models import write_shallow

    folder = write_shallow(tmp_path_factory.mktemp("shallow") / "base")
    copied_bases.add(folder)
    return str(folder)


@pytest.fixture
def nano_config(small_dataset: Path, tmp_path: Path) -> RunConfig:
    """The settings of `small_run`: for tests that go on from it, or need a base that can read."""
    return eight_steps(small_dataset, tmp_path / "run")


@pytest.fixture
def small_config(small_dataset: Path, shallow: str, tmp_path: Path) -> RunConfig:
    """Eight quick steps on the small dataset, of a base that cannot read."""
    config = eight_steps(small_dataset, tmp_path / "run", shallow)
    return config.model_copy(update={"generation": GenerationSection(max_new_tokens=6)})


@pytest.fixture(scope="session")
def toy(tmp_path_factory: pytest.TempPathFactory, copied_bases: set[Path]) -> str:
    """A base of one layer, with dropout, trained whole in no time."""
    from tests.models.toy_family import write_base

    copied_bases.add(folder := write_base(tmp_path_factory.mktemp("toy") / "base", dropout=0.2))
    return str(folder)


@pytest.fixture
def toy_config(small_dataset: Path, toy: str, tmp_path: Path) -> RunConfig:
    """Eight steps on the small dataset for whatever happens around a network."""
    return eight_steps(small_dataset, tmp_path / "run", toy)


@pytest.fixture(scope="session")
def small_run(small_dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> "RunFolder":
    """A finished run of eight steps; tests must not change it."""
    from tests.training.running import train

    return train(eight_steps(small_dataset, tmp_path_factory.mktemp("trained") / "run")).run


@pytest.fixture(scope="session")
def shallow_base(shallow: str) -> "BaseModel":
    """The base that cannot read; tests must not change its weights."""
    from dsocr.models.loading import load_base

    return load_base(shallow)


@pytest.fixture(scope="session")
def nano() -> "BaseModel":
    """The embedded base; tests must not change its weights."""
    from dsocr.models.loading import load_base

    return load_base("nano")
