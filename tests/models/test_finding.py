"""Finding a base locally; the Hub is asked only for a base that its cache lacks."""

from pathlib import Path

import pytest

from dsocr.io import hub
from dsocr.io.hub import NotFetchedError
from dsocr.models.base_folder import find_base, find_base_metadata
from tests.raising import raises_code

Patch = pytest.MonkeyPatch


def keep(patch: Patch, folder: Path) -> list[bool]:
    """Has the Hub's library find this folder for everything; whether it was to stay offline, of each question."""
    asked = []

    def fetched(*_: object, offline: bool = False) -> tuple[Path, str]:
        asked.append(offline)
        if offline and not folder.is_dir():
            raise NotFetchedError("not in the cache")
        return folder, "0123abc"

    patch.setattr(hub, "fetch_hub_files", fetched)
    return asked


def test_a_base_that_the_cache_holds_is_not_asked_for(tmp_path: Path, monkeypatch: Patch) -> None:
    (tmp_path / "config.json").touch()
    asked = keep(monkeypatch, tmp_path)
    assert find_base_metadata("owner/name") == tmp_path
    assert asked == [True]


@pytest.mark.parametrize("held", ["nothing", "files without a config.json"])
def test_one_that_it_does_not_hold_is(held: str, tmp_path: Path, monkeypatch: Patch) -> None:
    folder = tmp_path if held != "nothing" else tmp_path / "to come"
    asked = keep(monkeypatch, folder)
    assert find_base_metadata("owner/name") == folder
    assert asked == [True, False]


def test_a_folder_and_the_embedded_base_need_no_hub(tmp_path: Path, monkeypatch: Patch) -> None:
    (tmp_path / "owner" / "name").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    asked = keep(monkeypatch, tmp_path)
    assert find_base_metadata("owner/name") == Path("owner/name")
    assert find_base_metadata("nano") == find_base("nano")[0]
    assert asked == []


@pytest.mark.parametrize("path", ["./gone", "../gone", "models/deep/gone", "gone"])
def test_a_missing_path_is_an_error_without_asking_the_hub(path: str, tmp_path: Path, monkeypatch: Patch) -> None:
    asked = keep(monkeypatch, tmp_path)
    with raises_code("base-not-found"):
        find_base_metadata(path)
    assert asked == []
