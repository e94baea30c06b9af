"""A source of two pages, opened."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from dsocr.data.dataset import SourceReport
from dsocr.workbench.archive import Archive, import_pages, open_archive
from dsocr.workbench.store import CorrectionStore
from tests.workbench.fakes import make_pages


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return make_pages(tmp_path / "box")


@pytest.fixture
def empty_store(tmp_path: Path) -> Iterator[CorrectionStore]:
    store = CorrectionStore.open(tmp_path / "work" / "corrections.sqlite")
    yield store
    store.close()


@pytest.fixture
def archive(empty_store: CorrectionStore, source: Path, tmp_path: Path) -> Iterator[Archive]:
    """The source, its pages in the store."""
    with open_archive(empty_store, source, tmp_path / "work" / "unpacked") as archive:
        assert import_pages(empty_store, archive, SourceReport(strict=True)) == 2
        yield archive
