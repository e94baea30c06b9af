"""The embedded base `small`: complete, licensed, and able to read."""

import dsocr
from dsocr.data.dataset import Dataset
from dsocr.document import Split
from dsocr.images import open_image
from dsocr.io.files import shipped_path
from dsocr.models.base_folder import embedded_bases


def test_it_is_small_and_names_its_sources() -> None:
    folder = embedded_bases()["small"]
    assert sum(file.stat().st_size for file in folder.iterdir()) < 18_000_000
    card = (folder / "README.md").read_text(encoding="utf-8")
    for word in ("Apache-2.0", "CC-BY 4.0", "OFL", "HTR-United/lectaurep-repertoires", "Limits"):
        assert word in card


def test_it_reads_russian_letters_it_never_saw() -> None:
    samples = Dataset.open(shipped_path("examples/handwriting")).samples(Split.TEST)[::15]
    reader = dsocr.load("small")
    texts = [reader.read(open_image(sample.image)).text for sample in samples]
    assert dsocr.cer([sample.text for sample in samples], texts) < 0.08
