"""The Hub's library, behind two functions that fail with one line."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import huggingface_hub
import pytest
from huggingface_hub.errors import (  # type: ignore[attr-defined]
    GatedRepoError,
    HFValidationError,
    HTTPError,
    LocalEntryNotFoundError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from dsocr.io.hub import NotFetchedError, fetch_hub_files, is_hub_id, list_dataset_files

RESPONSE: Any = SimpleNamespace(headers={}, request=None)
REFUSED = "401 Client Error. (Request ID: Root=1)"

FAILURES = [
    pytest.param(GatedRepoError(REFUSED, response=RESPONSE), "access is restricted", id="terms"),
    pytest.param(RepositoryNotFoundError(REFUSED, response=RESPONSE), "no such repository", id="name"),
    pytest.param(RevisionNotFoundError(REFUSED, response=RESPONSE), "the repository has no such", id="revision"),
    pytest.param(LocalEntryNotFoundError("not found\nsee the docs"), "not found", id="not in the cache"),
    pytest.param(OfflineModeIsEnabled("offline"), "offline", id="offline"),
    pytest.param(HFValidationError("no such id"), "no such id", id="an id that cannot be"),
    pytest.param(HTTPError("refused"), "refused", id="no server"),
    pytest.param(ConnectionError(), "ConnectionError", id="an error without words"),
]


@pytest.mark.parametrize(("failure", "line"), FAILURES)
def test_every_failure_is_one_line(failure: Exception, line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise failure

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fail)
    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", fail)
    with pytest.raises(NotFetchedError, match=f"^{line}[^\\n]*$"):
        fetch_hub_files("a/b", None, "model", ["*.json"])
    with pytest.raises(NotFetchedError, match=f"^{line}[^\\n]*$"):
        list_dataset_files("a/b", None)


def test_the_files_of_a_repository_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    siblings = [SimpleNamespace(rfilename=name) for name in ("README.md", "data/train.parquet")]
    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", lambda *_, **__: SimpleNamespace(siblings=siblings))
    assert list_dataset_files("a/b", None) == ["README.md", "data/train.parquet"]


def test_the_commit_is_the_name_of_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, object] = {}

    def download(name: str, **options: object) -> str:
        asked.update(options, name=name)
        return str(tmp_path / "snapshots" / "c0ffee")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    assert fetch_hub_files("a/b", "main", "dataset", ("*.parquet",)) == (tmp_path / "snapshots" / "c0ffee", "c0ffee")
    assert asked["repo_type"] == "dataset"
    assert asked["allow_patterns"] == ["*.parquet"]


@pytest.mark.parametrize(
    ("name", "is_id"), [("owner/name", True), ("a-b/c_d.e", True), ("name", False), ("a/b/c", False), ("../x y", False)]
)
def test_what_the_hub_could_have(name: str, is_id: bool) -> None:
    assert is_hub_id(name) is is_id
