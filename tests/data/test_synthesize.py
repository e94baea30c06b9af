"""Datasets that tools draw in fonts, which are Pillow's own under several names."""

from pathlib import Path

import numpy as np
import pytest
from PIL import ImageFont

from dsocr.data.check import check_dataset
from dsocr.data.dataset import Dataset
from dsocr.document import Sample, Split
from dsocr.images import read_bytes
from hands.hand_fonts import load_file
from synthesize import LONGEST, draw_line, synthesize
from tests.data.making import write
from tests.raising import raises_code

WORDS = ["amber", "birch", "cedar", "dune", "elm", "fern", "grove", "heath", "ivy", "juniper"]


@pytest.fixture(scope="module")
def fonts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four families, one of them in two files."""
    folder = tmp_path_factory.mktemp("fonts")
    for number, family in enumerate(("Aileron", "Bileron", "Cileron", "Dileron", "Dileron")):
        data = ImageFont.load_default(20).path.getvalue()  # type: ignore[union-attr]
        for encoding in ("ascii", "utf-16-be"):
            data = data.replace("Aileron".encode(encoding), family.encode(encoding))
        (folder / f"{number}.otf").write_bytes(data)
    return folder


def samples(dataset: Dataset) -> list[Sample]:
    return [sample for split in Split for sample in dataset.samples(split)]


def test_fonts_and_texts_are_in_one_split_only(fonts: Path, tmp_path: Path) -> None:
    lines = [f"{first} and {second}" for first in WORDS for second in WORDS[7:]]
    text = write(tmp_path / "lines.txt", "\n".join([*lines, "приятель", " ".join(WORDS * 4)]))
    dataset = synthesize(fonts, text, tmp_path / "out", count=10, augmentation="none", split="0.6/0.2/0.2")
    assert {split: part.samples for split, part in dataset.card.splits.items()} == {
        "train": 6,
        "validation": 2,
        "test": 2,
    }
    assert dataset.card.crossing == {"writers": 0, "documents": 0, "pages": 0, "texts": 0}
    assert check_dataset(dataset).of("error") == []
    assert all(len(sample.text) <= LONGEST for sample in samples(dataset))
    assert "приятель" not in {sample.text for sample in samples(dataset)}, "no font has its letters"


def test_few_texts_are_repeated_in_other_styles(fonts: Path, tmp_path: Path) -> None:
    short = write(tmp_path / "three.txt", "one line\nanother line\na third line\n")
    drawn = samples(synthesize(fonts, short, tmp_path / "out", count=6, split="1/0/0"))
    assert len({read_bytes(sample.image) for sample in drawn}) == len(drawn) == 6
    assert len({sample.text for sample in drawn}) == 3


def test_a_split_that_no_font_can_draw(fonts: Path, tmp_path: Path) -> None:
    with raises_code("fonts-unusable"):
        synthesize(fonts, write(tmp_path / "t.txt", "мир\nдом\nлес"), tmp_path / "out")


def test_no_letter_is_cut_off(fonts: Path) -> None:
    """The ink of a line reaches nearly from edge to edge and touches neither."""
    face = load_file("Aileron", fonts / "0.otf")
    for seed in range(8):
        image = draw_line("HIllllIH", face, "none", np.random.default_rng(seed)).convert("L")
        grey = np.asarray(image, dtype=float)
        columns = np.flatnonzero(grey.min(axis=0) < np.median(grey) - 25)
        assert columns[-1] - columns[0] > 0.5 * image.width
