"""A source of two pages, and a store that has imported it; both are made once and copied."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from dsocr.workbench.archive import Archive, open_archive
from dsocr.workbench.store import CorrectionStore
from tests.workbench.fakes import make_pages, opened


@pytest.fixture(scope="session")
def imported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the source, `box`, and the work folder of a workbench that has opened it."""
    folder = tmp_path_factory.mktemp("imported")
    with opened(make_pages(folder / "box"), folder / "work"):
        return folder


@pytest.fixture
def source(imported: Path, tmp_path: Path) -> Path:
    return shutil.copytree(imported / "box", tmp_path / "box")


@pytest.fixture
def empty_store(tmp_path: Path) -> Iterator[CorrectionStore]:
    store = CorrectionStore.open(tmp_path / "work" / "corrections.sqlite")
    yield store
    store.close()


@pytest.fixture
def store(imported: Path, tmp_path: Path) -> Iterator[CorrectionStore]:
    """The store with the pages of the source."""
    shutil.copytree(imported / "work", tmp_path / "work")
    store = CorrectionStore.open(tmp_path / "work" / "corrections.sqlite")
    yield store
    store.close()


@pytest.fixture
def archive(store: CorrectionStore, source: Path, tmp_path: Path) -> Iterator[Archive]:
    """The source, its pages in the store."""
    with open_archive(store, source, tmp_path / "work" / "unpacked") as archive:
        yield archive
