"""Publishing a run and a dataset on a Hub that is only a folder here, and reading them back from it."""

import json
from pathlib import Path, PureWindowsPath
from types import SimpleNamespace
from typing import Any

import huggingface_hub
import pytest
from huggingface_hub import CommitOperationAdd, DatasetCard, ModelCard

import dsocr
from dsocr.evaluation.scorecard import make_scorecard
from dsocr.publish import spellings
from dsocr.runs import RunFolder
from tests.conftest import draw_line
from tests.evaluation.making_runs import scored
from tests.integration.calling import Call
from tests.making_models import make_run
from tests.raising import raises_code


class Hub:
    """Stands in for the Hub: each repository is a folder, named as a commit is."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.requests: list[tuple[str, str, bool]] = []

    def folder(self, repo: str, kind: str) -> Path:
        return self.root / kind / repo.replace("/", "--") / "c0ffee"

    def files(self, repo: str, kind: str) -> dict[str, bytes]:
        root = self.folder(repo, kind)
        return {path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()}

    def create_repo(self, repo_id: str, *, repo_type: str, private: bool, exist_ok: bool) -> None:
        self.requests.append((repo_id, repo_type, private))
        self.folder(repo_id, repo_type).mkdir(parents=True, exist_ok=exist_ok)

    def create_commit(
        self, repo_id: str, operations: list[CommitOperationAdd], *, commit_message: str, repo_type: str
    ) -> None:
        for one in operations:
            path = self.folder(repo_id, repo_type) / one.path_in_repo
            path.parent.mkdir(parents=True, exist_ok=True)
            with one.as_file() as file:
                path.write_bytes(file.read())

    def dataset_info(self, name: str, revision: str | None = None) -> Any:
        return SimpleNamespace(siblings=[SimpleNamespace(rfilename=name) for name in self.files(name, "dataset")])

    def download(self, name: str, *, repo_type: str, **options: Any) -> str:
        folder = self.folder(name, repo_type)
        if not folder.is_dir():
            raise OSError("no such repository")
        return str(folder)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hub:
    one = Hub(tmp_path / "hub")
    monkeypatch.setattr(huggingface_hub, "HfApi", lambda: one)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", one.download)
    return one


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    """A finished run with a scorecard."""
    run, lines = make_run(tmp_path / "run", "nano"), scored(("йод", "йод"))
    make_scorecard("test", {"base": lines, "adapter": lines}).save(run.scorecard)
    return run


def test_a_run_is_published_with_its_card_and_read_back(hub: Hub, run: RunFolder, tmp_path: Path) -> None:
    planned = dsocr.push(run.path, "me/letters", dry_run=True)
    assert (planned.is_sent, planned.license, hub.requests) == (False, None, [])
    done = dsocr.push(run.path, "me/letters", license="apache-2.0", private=True, yes=True)
    files = hub.files("me/letters", "model")
    assert set(files) == set(done.files) == set(planned.files)
    assert {name: len(content) for name, content in files.items()} == done.files
    assert set(files) - {"calibration.json"} == {
        "README.md",
        "adapter_config.json",
        "adapter_model.safetensors",
        "manifest.json",
        "provenance.json",
        "reading.json",
    }
    assert (done.url, hub.requests) == ("https://huggingface.co/me/letters", [("me/letters", "model", True)])
    assert str(tmp_path).encode() not in b"".join(files.values())

    card: Any = ModelCard(files["README.md"].decode())
    assert (card.data.license, card.data.library_name, card.data.base_model) == ("apache-2.0", "peft", None)
    assert "lines of the test split" in card.text
    assert "apache-2.0" in card.text

    image = tmp_path / "line.png"
    draw_line(image, "Привет")
    assert dsocr.load("me/letters").read(image).text == dsocr.load(run.path).read(image).text


def test_nothing_is_sent_without_a_licence_and_a_yes(hub: Hub, run: RunFolder) -> None:
    with raises_code("license-missing"):
        dsocr.push(run.path, "me/letters", yes=True)
    with raises_code("not-confirmed"):
        dsocr.push(run.path, "me/letters", license="mit")
    with raises_code("license-missing"):
        dsocr.push(run.path, "me/letters", license="CC BY 4.0", yes=True)
    for name in ("letters", "a/b/c", "https://huggingface.co/a/b"):
        with raises_code("repo-invalid"):
            dsocr.push(run.path, name, license="mit", yes=True)
    assert (hub.requests, hub.root.exists()) == ([], False)


def test_folders_of_windows_are_found_however_they_are_written() -> None:
    folder = PureWindowsPath(r"C:\Users\Анна")
    for text in (f"source: {folder}", json.dumps({"source": str(folder / "a")}, ensure_ascii=False), "C:/Users/Анна/a"):
        assert any(spelling in text for spelling in spellings(folder))


def test_what_names_this_machine_is_not_sent(hub: Hub, run: RunFolder) -> None:
    provenance = json.loads(run.provenance.read_text(encoding="utf-8"))
    run.provenance.write_text(json.dumps({**provenance, "dataset_source": str(Path.cwd() / "mine")}), encoding="utf-8")
    with raises_code("path-published"):
        dsocr.push(run.path, "me/letters", license="mit", yes=True)
    assert hub.requests == []


def test_a_refusal_of_the_hub_is_an_error(hub: Hub, run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(*arguments: Any, **options: Any) -> None:
        raise OSError("403 Forbidden")

    monkeypatch.setattr(hub, "create_repo", refuses)
    with raises_code("hub-refused"):
        dsocr.push(run.path, "me/letters", license="mit", yes=True)


def test_a_dataset_is_published_with_a_card_and_read_back(hub: Hub, small_dataset: Path, tmp_path: Path) -> None:
    done = dsocr.push(small_dataset, "me/data", license="cc-by-4.0", yes=True)
    files = hub.files("me/data", "dataset")
    images = {name for name in files if name.endswith(".png")}
    assert len(images) == 24
    assert set(files) - images == {
        *("README.md", "dataset.json"),
        *(f"{split}/metadata.jsonl" for split in ("train", "validation", "test")),
    }
    assert str(tmp_path).encode() not in b"".join(content for name, content in files.items() if name not in images)
    card: Any = DatasetCard(files["README.md"].decode())
    assert (card.data.license, card.data.pretty_name) == ("cc-by-4.0", "data")
    assert done.notes == []

    again = dsocr.prepare("hf:me/data", tmp_path / "again")
    original = dsocr.Dataset.open(small_dataset)
    assert sorted(one.text for one in again) == sorted(one.text for one in original)
    assert {one.split for one in again} == {one.split for one in original}


def test_the_command_lists_asks_and_sends(hub: Hub, run: RunFolder, small_dataset: Path, call: Call) -> None:
    push = ("push", run.path, "me/letters")
    assert "adapter_model.safetensors" in call(*push, "--dry-run")[0]
    assert "--yes" in call(*push, "--license", "mit", code=2)[1]
    assert hub.requests == []
    assert call(*push, "--license", "mit", "--yes", "--quiet")[0] == "published: https://huggingface.co/me/letters\n"
    assert "train/metadata.jsonl" in call("push", small_dataset, "me/data", "--dry-run")[0]
