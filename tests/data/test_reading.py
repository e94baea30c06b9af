"""What worker processes see of a dataset is what one process sees, in the same order."""

import os
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import pytest

from dsocr.data.checking import reading
from dsocr.data.checking.reading import read_samples, sensible_workers
from dsocr.data.dataset import Dataset
from dsocr.errors import DataError


def test_two_processes_see_what_one_sees(small_dataset: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "_BATCH", 3)
    dataset = Dataset.open(small_dataset)
    alone = list(read_samples(dataset, 1))
    assert len(alone) == 24
    assert list(read_samples(dataset, 2)) == alone


def test_geometry_is_left_behind(small_dataset: Path) -> None:
    assert all(item.sample.geometry == {} for item, _ in read_samples(Dataset.open(small_dataset), 1))


def test_a_process_that_dies_is_a_sentence(small_dataset: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Dying:
        def __init__(self, *arguments: Any, **options: Any) -> None: ...
        def __enter__(self) -> "Dying":
            return self

        def __exit__(self, *error: object) -> None: ...
        def submit(self, *arguments: Any) -> "Dying":
            return self

        def result(self) -> None:
            raise BrokenProcessPool("killed")

        def shutdown(self, **options: Any) -> None: ...

    monkeypatch.setattr(reading, "ProcessPoolExecutor", Dying)
    with pytest.raises(DataError, match=r"train/metadata.jsonl:1: a process that looked at images has died") as error:
        list(read_samples(Dataset.open(small_dataset), 2))
    assert "--workers 1" in str(error.value.hint)


def test_small_datasets_start_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    assert [sensible_workers(samples) for samples in (0, 1314, 6000, 100_000)] == [1, 1, 3, 8]
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert sensible_workers(100_000) == 1
