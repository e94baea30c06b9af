"""A base is a reader: every command that takes a run takes a base by name, folder or Hub id, or says what to do."""

import json
import shutil
from pathlib import Path

import pytest
from huggingface_hub import constants

import dsocr
from dsocr.evaluation.scorecard import Scorecard
from dsocr.evaluation.scores import load_lines
from dsocr.runs import SHIPPED_BASES, ReadingSettings, RunFolder
from dsocr.server.engine import ServedModels
from dsocr.workbench.background import find_training_config
from tests.inference.reading_pages import fake_run
from tests.integration.calling import Call, Fail
from tests.raising import raises_code

COMMIT = "0123456789abcdef0123456789abcdef01234567"


SLOW = ("small", "nano", "a folder with a space")
"""Another network, or the same one at another place."""


@pytest.fixture(params=["a Hub id", *(pytest.param(name, marks=pytest.mark.slow, id=name) for name in SLOW)])
def base(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """What a user gives for a base."""
    monkeypatch.chdir(tmp_path)
    shipped = SHIPPED_BASES / "nano"
    match request.param:
        case "a folder with a space":
            return Path(shutil.copytree(shipped, tmp_path / "my model")).as_posix()
        case "a Hub id":
            monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
            repository = tmp_path / "hub" / "models--owner--tiny"
            shutil.copytree(shipped, repository / "snapshots" / COMMIT)
            (repository / "refs").mkdir()
            (repository / "refs" / "main").write_text(COMMIT, encoding="utf-8")
            return "owner/tiny"
    return str(request.param)


def test_every_command_that_reads_takes_a_base(
    base: str, call: Call, small_dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = tmp_path / "images"
    images.mkdir()
    for name in ("test-0.png", "test-1.png"):
        shutil.copy(small_dataset.parent / "source" / name, images)

    call("evaluate", base, "--dataset", small_dataset, "--limit", 2)
    name = Path(base).name
    results = RunFolder(Path("runs") / f"{name}-dataset")
    assert set(load_lines(results.lines)) == {"base"}
    assert results.report.is_file()
    card = Scorecard.load(results.scorecard)
    assert (card.adapter, {*card.by_writer_status}, card.split) == (None, {"new"}, "test"), "no writer is known"
    call("evaluate", base, "--dataset", small_dataset, "--limit", 2, "-o", "second", "--no-report")
    out, _ = call("compare", results.path, "second", "--json")
    assert {system["name"] for system in json.loads(out)["systems"]} == {results.path.name, "second"}

    call("transcribe", base, images, "-o", "texts.jsonl")
    read = [json.loads(line)["text"] for line in Path("texts.jsonl").read_text("utf-8").splitlines()]
    assert len(read) == 2
    folder = RunFolder.to_read_with(Path(base)).adapter
    assert ServedModels({name: folder}).names == [name]
    assert dsocr.load(base).read(images / "test-0.png").text == read[0]
    config = find_training_config(Path(base), None)
    assert config is not None
    assert config.base == base


def test_what_needs_a_training_says_so(base: str, fail: Fail) -> None:
    error = fail("export", base, "-o", "out")
    assert error.code == ("run-not-found" if base == "owner/tiny" else "run-is-base")
    assert str(error.where) == base
    assert fail("evaluate", base).code == "dataset-missing"
    assert fail("evaluate", base, "--dataset", "data", "--calibrate").code == "option-invalid"


def test_scores_of_a_base_replace_only_scores_of_it(small_dataset: Path, tmp_path: Path, fail: Fail) -> None:
    run = fake_run(tmp_path / "run").path
    error = fail("evaluate", "small", "--dataset", small_dataset, "-o", run)
    assert error.code == "output-occupied"
    assert fail("evaluate", run, "-o", "out").code == "option-invalid"


def test_the_settings_of_a_base_from_the_hub_name_it(base: str) -> None:
    settings = ReadingSettings.load(RunFolder.to_read_with(Path(base)).adapter)
    named = {"owner/tiny": ("owner/tiny", COMMIT)}.get(base)
    assert (settings.base, settings.base_revision) == (named or (base, None))


@pytest.mark.parametrize("place", ["runs/none", "trained/none"])
def test_a_missing_run_is_not_looked_for_on_the_hub(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    fake_run(tmp_path / "trained" / "other")
    with raises_code("run-not-found", where=place):
        dsocr.load(place)
