"""The embedded base `small`: complete, licensed, and able to read."""

import dsocr
from dsocr.data.dataset import Dataset
from dsocr.document import Split
from dsocr.images import open_image
from dsocr.io.files import shipped_path


def test_it_reads_russian_letters_it_never_saw() -> None:
    samples = Dataset.open(shipped_path("examples/handwriting")).samples(Split.TEST)[::15]
    reader = dsocr.load("small")
    texts = [reader.read(open_image(sample.image)).text for sample in samples]
    assert dsocr.cer([sample.text for sample in samples], texts) < 0.08
