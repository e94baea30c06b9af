"""Datasets of the Hub: the files fetched from a repository, and errors. No network is used."""

import fnmatch
import os
import shutil
import sys
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath, PurePosixPath, PureWindowsPath
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

from dsocr.data.prepare import prepare
from dsocr.document import Split
from dsocr.io import hub as hub_datasets
from dsocr.io.hub import (
    CONVERTED,
    HubDataset,
    NotFetchedError,
    fetch_hub_files,
    fetch_model,
    list_dataset_files,
)
from tests.data.making import picture, png, write, write_parquet
from tests.raising import raises_code

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class FakeHub:
    """Repositories as folders, revision -> folder; requested files are copied into the layout of the Hub's cache."""

    def __init__(self, cache: Path, repositories: Mapping[str | None, Path]) -> None:
        self.cache = cache
        self.repositories = repositories
        self.reachable = True
        self.fetched: list[str] = []

    def names(self, revision: str | None) -> list[str]:
        if not self.reachable:
            raise NotFetchedError("no network")
        if revision not in self.repositories:
            raise NotFetchedError(f"no revision {revision}")
        folder = self.repositories[revision]
        return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())

    def list_files(self, name: str, revision: str | None) -> list[str]:
        assert name == "anna/letters"
        return self.names(revision)

    def fetch(
        self, name: str, revision: str | None, kind: str, patterns: Sequence[str], *, offline: bool = False
    ) -> tuple[Path, str]:
        assert (name, kind) == ("anna/letters", "dataset")
        snapshot = self.cache / (revision or "main").replace("/", "--") / COMMIT
        if offline:
            if not snapshot.exists():
                raise NotFetchedError("not in the cache")
            return snapshot, COMMIT
        for file in self.names(revision):
            if any(fnmatch.fnmatchcase(file, pattern) for pattern in patterns):
                self.fetched.append(file)
                (snapshot / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(self.repositories[revision] / file, snapshot / file)
        return snapshot, COMMIT


@pytest.fixture
def main(tmp_path: Path) -> Path:
    """The folder of the repository's newest revision."""
    folder = tmp_path / "hub" / "main"
    write(folder / "README.md", "---\nlicense: mit\n---")
    return folder


@pytest.fixture
def hub(tmp_path: Path, main: Path, monkeypatch: pytest.MonkeyPatch) -> FakeHub:
    fake = FakeHub(tmp_path / "cache", {None: main})
    monkeypatch.setattr(hub_datasets, "list_dataset_files", fake.list_files)
    monkeypatch.setattr(hub_datasets, "fetch_hub_files", fake.fetch)
    return fake


def shards(folder: Path, *names: str) -> None:
    for place, name in enumerate(names):
        rows = [{"image": {"bytes": png((place, row, 0)), "path": None}, "text": f"{name} {row}"} for row in range(2)]
        write_parquet(folder / name, rows)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        pytest.param("hf:anna/letters", HubDataset("anna/letters"), id="a repository"),
        pytest.param("hf://anna/letters", HubDataset("anna/letters"), id="as an address"),
        pytest.param("hf:anna/letters@v1.0", HubDataset("anna/letters", revision="v1.0"), id="a revision"),
        pytest.param(
            "hf:anna/letters@refs/convert/parquet", HubDataset("anna/letters", revision=CONVERTED), id="a branch"
        ),
        pytest.param("hf:anna/letters/data/ru", HubDataset("anna/letters", "data/ru"), id="a folder"),
        pytest.param("anna/letters", None, id="a folder here"),
        pytest.param("hf:letters", None, id="no owner"),
        pytest.param("hf:an na/letters", None, id="no id"),
    ],
)
@pytest.mark.parametrize("path", [PurePosixPath, PureWindowsPath])
def test_meanings_of_names(path: type[PurePath], source: str, expected: HubDataset | None) -> None:
    assert HubDataset.parse(path(source)) == expected


def test_parquet_files_become_a_dataset_with_the_commit_in_its_card(tmp_path: Path, main: Path, hub: FakeHub) -> None:
    shards(main, "data/train-00000-of-00001.parquet", "data/test-00000-of-00001.parquet")
    picture(main / "images" / "a.png")
    write(main / "letters.py", "raise SystemExit")
    card = prepare(Path("hf:anna/letters"), tmp_path / "out").card
    assert (card.source, card.source_format, card.split_by) == (f"hf:anna/letters@{COMMIT}", "parquet", "given")
    assert {split: part.samples for split, part in card.splits.items()} == {Split.TRAIN: 2, Split.TEST: 2}
    assert hub.fetched == ["data/test-00000-of-00001.parquet", "data/train-00000-of-00001.parquet"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cache", "hub", "out"]


@pytest.mark.parametrize("image", ["train/a.JPG", "train/images.zip"], ids=["beside its table", "in an archive"])
def test_images_and_tables_are_fetched_without_code(tmp_path: Path, main: Path, hub: FakeHub, image: str) -> None:
    picture(main / "train" / "a.JPG")
    write(main / "train" / "metadata.csv", "file_name,text\na.JPG,да\n")
    write(main / "letters.py", "raise SystemExit")
    if image.endswith(".zip"):
        with zipfile.ZipFile(main / image, "w") as file:
            file.write(main / "train" / "a.JPG", "a.JPG")
        (main / "train" / "a.JPG").unlink()
    card = prepare(Path("hf:anna/letters"), tmp_path / "out", split="1/0/0").card
    assert (card.source_format, card.splits[Split.TRAIN].samples) == ("table", 1)
    assert hub.fetched == [image, "train/metadata.csv"]


@pytest.mark.parametrize(
    ("name", "part"),
    [
        pytest.param("default/train/0000.parquet", "", id="all of it"),
        pytest.param("default/partial-train/0000.parquet", " (partial)", id="a part"),
    ],
)
def test_the_hubs_conversion_is_used_and_noted(tmp_path: Path, main: Path, hub: FakeHub, name: str, part: str) -> None:
    write(main / "letters.py", "raise SystemExit")
    shards(tmp_path / "hub" / "converted", name)
    hub.repositories = {None: main, CONVERTED: tmp_path / "hub" / "converted"}
    card = prepare(Path("hf:anna/letters"), tmp_path / "out", split="1/0/0").card
    assert card.splits[Split.TRAIN].samples == 2
    assert card.notes[0].endswith(f"{CONVERTED}{part}")


@pytest.mark.parametrize(
    ("source", "files", "code"),
    [
        pytest.param("hf:anna/letters", ["letters.py"], "hub-dataset-unreadable", id="a script"),
        pytest.param("hf:anna/letters", ["letters.tar.gz"], "hub-dataset-unreadable", id="something else"),
        pytest.param("hf:anna/letters/de", ["ru/train.parquet"], "hub-dataset-not-found", id="no such folder"),
    ],
)
def test_a_repository_with_nothing_to_read_is_an_error(
    tmp_path: Path, main: Path, hub: FakeHub, source: str, files: list[str], code: str
) -> None:
    for file in files:
        write(main / file, "")
    with raises_code(code):
        prepare(Path(source), tmp_path / "out")
    assert hub.fetched == []
    assert not (tmp_path / "out").exists()


def test_without_a_network_the_cache_is_read_and_its_links_followed(tmp_path: Path, main: Path, hub: FakeHub) -> None:
    picture(main / "train" / "a.png")
    write(main / "train" / "metadata.csv", "file_name,text\na.png,да\n")
    first = prepare(Path("hf:anna/letters"), tmp_path / "first", split="1/0/0").card
    if os.name != "nt":  # There links need a right that most accounts lack.
        blobs = hub.cache / "blobs"
        blobs.mkdir()
        for place, path in enumerate(sorted((hub.cache / "main").rglob("*.*"))):
            path.rename(blobs / str(place))
            path.symlink_to(blobs / str(place))
    hub.reachable = False
    second = prepare(Path("hf:anna/letters"), tmp_path / "second", split="1/0/0").card
    assert (second.source, second.splits) == (first.source, first.splits)


def test_without_a_network_and_a_cache_the_error_names_the_download(tmp_path: Path, hub: FakeHub) -> None:
    hub.reachable = False
    with raises_code("hub-dataset-not-found") as error:
        prepare(Path("hf:anna/letters@v1"), tmp_path / "out")
    assert "hf download anna/letters --revision v1 --repo-type dataset" in (error.value.hint or "")


def test_a_name_that_could_be_the_hubs_is_not_looked_up(tmp_path: Path, hub: FakeHub) -> None:
    with raises_code("input-missing") as error:
        prepare(Path("anna/letters"), tmp_path / "out")
    assert "hf:anna/letters" in (error.value.hint or "")
    assert hub.fetched == []


def test_a_newer_commit_leaves_every_text_in_its_split(
    tmp_path: Path, main: Path, hub: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    shards(main, "data/a.parquet", "data/b.parquet", "data/c.parquet")
    first = prepare(Path("hf:anna/letters"), tmp_path / "out").card
    shards(main, "data/a.parquet", "data/b.parquet", "data/c.parquet", "data/d.parquet")
    monkeypatch.setattr(sys.modules[__name__], "COMMIT", "f" * 40)
    second = prepare(Path("hf:anna/letters"), tmp_path / "out", overwrite=True).card
    assert first.source != second.source
    assert second.like == "out"


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


def test_files_are_listed_and_fetched_at_a_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, object] = {}

    def download(name: str, **options: object) -> str:
        asked.update(options, name=name)
        return str(tmp_path / "snapshots" / "c0ffee")

    siblings = [SimpleNamespace(rfilename=name) for name in ("README.md", "data/train.parquet")]
    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", lambda *_, **__: SimpleNamespace(siblings=siblings))
    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    assert list_dataset_files("a/b", None) == ["README.md", "data/train.parquet"]
    assert fetch_hub_files("a/b", "main", "dataset", ("*.parquet",)) == (tmp_path / "snapshots" / "c0ffee", "c0ffee")
    assert (asked["repo_type"], asked["allow_patterns"]) == ("dataset", ["*.parquet"])


def test_a_model_is_fetched_with_its_chat_template_and_without_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def download(name: str, *, allow_patterns: list[str], **options: object) -> str:
        files = ["chat_template.jinja", "tokenizer.json", "merges.txt", "model-00001-of-00002.safetensors"]
        files += ["modeling.py", "pytorch_model.bin"]
        fetched.extend(name for name in files if any(fnmatch.fnmatch(name, pattern) for pattern in allow_patterns))
        return str(tmp_path / "snapshots" / "c0ffee")

    fetched: list[str] = []
    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    fetch_model("a/b", None)
    assert fetched == ["chat_template.jinja", "tokenizer.json", "merges.txt", "model-00001-of-00002.safetensors"]
