"""Neighbouring lines of a region in one picture: labels, and each line read back to its place, by two readers."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from lxml import etree
from PIL import Image

import dsocr
from dsocr.config import RunConfig
from dsocr.data.dataset import Dataset
from dsocr.document import Split
from dsocr.formats.page import parse_page
from tests.data.making import page_line, page_xml, write
from tests.models.chat_models import draw_text, small_processors, write_chat_model
from tests.training.running import set_up, train

BASES: dict[str, tuple[Callable[[Path], Any] | None, dict[str, Any]]] = {
    "nano": (None, {"training": {"learning_rate": 5e-3, "max_steps": 120}}),
    "qwen3_vl": (
        partial(write_chat_model, model_type="qwen3_vl"),
        {"training": {"learning_rate": 1e-2, "max_steps": 200}, "input": {"resolution": "pixels4096-16384"}},
    ),
}
TEXTS = ["раз", "два", "три", "пять", "семь"]
HEIGHT = 60


def write_page(folder: Path) -> None:
    """A page of one region with five lines, at most two shown together."""
    image, lines = Image.new("L", (200, HEIGHT * len(TEXTS)), 240), ""
    for place, text in enumerate(TEXTS):
        top = HEIGHT * place
        image.paste(draw_text(text, (180, HEIGHT)), (10, top))
        lines += page_line(text, points=f"10,{top} 190,{top} 190,{top + HEIGHT - 1} 10,{top + HEIGHT - 1}")
    image.save(folder / "p.png")
    around = f"0,0 199,0 199,{image.height - 1} 0,{image.height - 1}"
    region = f'<TextRegion id="r"><Coords points="{around}"/>{lines}</TextRegion>'
    write(folder / "p.xml", page_xml(region, size=image.size))


@pytest.mark.slow
@pytest.mark.parametrize("name", BASES)
def test_lines_shown_together_come_back_to_their_places(name: str, tmp_path: Path) -> None:
    write_base, changes = BASES[name]
    source = tmp_path / "source"
    source.mkdir()
    write_page(source)
    dataset = dsocr.prepare(source, tmp_path / "dataset", unit="region", lines_per_region=2, split="1/0/0").folder
    samples = list(Dataset.open(dataset).samples(Split.TRAIN))
    assert sorted(line for sample in samples for line in sample.text.split("\n")) == sorted(TEXTS)
    assert max(sample.text.count("\n") for sample in samples) == 1
    base = name if write_base is None else str(write_base(tmp_path / "base"))
    settings = {
        "base": base,
        "dataset": dataset,
        "output": tmp_path / "run",
        "adapter": {"target_modules": "decoder", "r": 32, "alpha": 64, "dropout": 0},
        "generation": {"max_new_tokens": 40, "no_repeat_ngram_size": 0},
        **changes,
    }
    quiet = {"batch_size": 4, "micro_batch_size": 4, "warmup_ratio": 0, "augmentation": 0, "lr_scheduler": "constant"}
    config = RunConfig.model_validate({**settings, "training": {**quiet, **changes["training"]}})
    with small_processors():
        setup = set_up(config, samples)
        encoded = [setup.samples[number] for number in range(len(samples))]
        texts = [sample.text for sample in samples]
        checks = setup.processor.family.check_inputs(setup.model, setup.processor, encoded, texts)
        assert {check.verdict for check in checks} == {"ok"}, checks
        run = train(config, preflight=False).run
        dsocr.transcribe(run.path, source, tmp_path / "out", format="page", replace=True)
    (written,) = (tmp_path / "out").rglob("*.xml")
    found, expected = (parse_page(etree.parse(path).getroot()) for path in (written, source / "p.xml"))
    assert [line.text for line in expected.lines] == TEXTS
    assert [(line.text, line.outline) for line in found.lines] == [(line.text, line.outline) for line in expected.lines]
