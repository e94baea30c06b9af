"""What worker processes see of a dataset is what one process sees, in the same order."""

from pathlib import Path

import pytest

from dsocr.data import check as reading
from dsocr.data.check import read_samples
from dsocr.data.dataset import Dataset
from dsocr.io import processes


def test_two_processes_see_what_one_sees(small_dataset: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "_BATCH", 3)
    monkeypatch.setattr(processes, "PATIENCE", 0.0)
    dataset = Dataset.open(small_dataset)
    alone = list(read_samples(dataset, 1))
    assert len(alone) == 24
    assert list(read_samples(dataset, 2)) == alone


def test_geometry_is_left_behind(small_dataset: Path) -> None:
    assert all(item.sample.geometry == {} for item, _ in read_samples(Dataset.open(small_dataset), 1))
