"""The run folder: which folders are runs, and how its files are written and read."""

import errno
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from dsocr.errors import FilesWarning
from dsocr.io.work import write_folder, write_manifest
from dsocr.runs import (
    ReadingSettings,
    RunFolder,
    append_jsonl,
    cut_back,
    read_history,
    read_provenance,
    to_json,
)
from dsocr.text import TextPolicy
from tests.raising import raises_code

SETTINGS = ReadingSettings(
    base="nano",
    base_revision=None,
    prompt="<image>\nПрочти.",
    resolution="tiny",
    text_policy=TextPolicy(spaces="keep"),
    generation={"max_new_tokens": 64},
)


def test_only_a_finished_run_opens(tmp_path: Path) -> None:
    with raises_code("run-not-found", where="nowhere"):
        RunFolder.open(tmp_path / "nowhere")
    with raises_code("not-a-run"):
        RunFolder.open(tmp_path)
    run = RunFolder(tmp_path)
    run.config.touch()
    with raises_code("run-unfinished") as caught:
        RunFolder.open(tmp_path)
    assert caught.value.hint == f"run `dsocr train {(tmp_path / 'config.yaml').as_posix()}` again to resume"
    write_folder(run.adapter, [])
    assert RunFolder.open(tmp_path) == run


ADAPTER = {
    name: f"{{ {name} }}".encode()
    for name in ("adapter_config.json", "adapter_model.safetensors", "calibration.json", "language_model.json")
}


def without_entry(manifest: Path) -> None:
    content = json.loads(manifest.read_text("utf-8"))
    del content["files"]["adapter_model.safetensors"]
    manifest.write_text(json.dumps(content), encoding="utf-8")


def of_another_folder(manifest: Path) -> None:
    manifest.write_text(manifest.read_text("utf-8").replace("adapter_model", "../adapter_model"), encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        *(
            pytest.param(name, lambda path: path.write_bytes(path.read_bytes()[:-1] + b"|"), id=name)
            for name in ADAPTER
        ),
        pytest.param("calibration.json", Path.unlink, id="no calibration"),
        pytest.param("manifest.json", Path.unlink, id="no manifest"),
        pytest.param("manifest.json", lambda path: path.write_text('{"files": {}}'), id="a manifest of nothing"),
        pytest.param("manifest.json", without_entry, id="weights without an entry"),
        pytest.param("manifest.json", of_another_folder, id="an entry outside of the folder"),
    ],
)
def test_a_damaged_adapter_is_not_read(name: str, damage: Callable[[Path], None], tmp_path: Path) -> None:
    """Every file that decides what is read has a hash, which is checked whenever a run or an export is opened."""
    run = RunFolder(tmp_path / "run")
    write_folder(run.adapter, [*ADAPTER.items(), ("reading.json", SETTINGS.to_json().encode())])
    run.config.write_bytes(b"weights")
    assert RunFolder.to_read_with(run.path) == RunFolder.open(run.path) == run
    assert RunFolder.to_read_with(run.adapter).adapter == run.adapter
    damage(run.adapter / name)
    with raises_code("adapter-damaged", where="adapter"):
        RunFolder.open(run.path)
    if damage is not Path.unlink or name != "manifest.json":
        with raises_code("adapter-damaged", where="adapter"):
            RunFolder.to_read_with(run.adapter)


def test_an_adapter_without_a_manifest_and_edited_settings_are_mentioned(tmp_path: Path) -> None:
    SETTINGS.save(tmp_path)
    with pytest.warns(FilesWarning, match="manifest.json"):
        RunFolder.to_read_with(tmp_path)
    write_manifest(tmp_path)
    RunFolder.to_read_with(tmp_path)
    replace(SETTINGS, prompt="").save(tmp_path)
    with pytest.warns(FilesWarning, match="reading.json"):
        RunFolder.to_read_with(tmp_path)


def test_reading_settings_travel_with_the_adapter(tmp_path: Path) -> None:
    marks = TextPolicy(struck="strip", struck_marks=(("{", "}"),), unclear_marks=("[...]",))
    for settings in (SETTINGS, replace(SETTINGS, text_policy=marks)):
        settings.save(tmp_path)
        assert ReadingSettings.load(tmp_path) == settings
    assert "Прочти" in (tmp_path / "reading.json").read_text(encoding="utf-8"), "a person can read the file"


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        pytest.param({"promt": "x"}, "promt: unknown key; did you mean 'prompt'?", id="a key"),
        pytest.param({"text_policy": {"spacez": "keep"}}, "did you mean 'spaces'?", id="a key in the policy"),
        pytest.param({"text_policy": {"unicode": "NFD"}}, "must be 'NFC' or 'keep', not 'NFD'", id="a policy"),
        pytest.param({"prompt": None}, "prompt: must be a valid string, not null", id="wrong kind"),
        pytest.param({"generation": {"num_beams": [4]}}, "generation.num_beams: must be", id="beams"),
        pytest.param({"generation": {"beamz": 4}}, "generation.beamz: unknown key", id="a setting"),
        pytest.param(None, "No such file", id="no file"),
        pytest.param(b"{}", "base: is missing", id="missing keys"),
        pytest.param(b"[]", "must", id="a list"),
        pytest.param(b'{"base": "na', "is not JSON", id="cut off"),
        pytest.param(b"\xff", "is not JSON", id="no text"),
    ],
)
def test_reading_settings_are_strict(tmp_path: Path, change: dict[str, object] | bytes | None, problem: str) -> None:
    if isinstance(change, dict):
        change = to_json({**json.loads(SETTINGS.to_json()), **change}).encode()
    if change is not None:
        (tmp_path / "reading.json").write_bytes(change)
    with raises_code("reading-invalid", where="reading.json") as caught:
        ReadingSettings.load(tmp_path)
    assert problem in caught.value.message


@pytest.mark.parametrize("row", [b"\xff", b'{"kind": "train", "step": "no number"}', b"[]"])
def test_metrics_that_are_damaged_name_the_line(tmp_path: Path, row: bytes) -> None:
    run = RunFolder(tmp_path)
    run.metrics.write_bytes(row + b'\n{"kind": "train", "step": 2}\n')
    with raises_code("metrics-invalid", where="metrics.jsonl:1"):
        read_history(run.path)


def test_a_row_is_appended_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "metrics.jsonl"
    append_jsonl(path, {"step": 1, "loss": 2.5})
    append_jsonl(path, {"step": 2, "loss": float("nan")})

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="full"):
        append_jsonl(path, {"step": 3})
    assert path.read_text(encoding="utf-8") == '{"step": 1, "loss": 2.5}\n{"step": 2, "loss": null}\n'


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        pytest.param('{"step": 1}\n{"step": 2}\n', '{"step": 1}\n{"step": 2}\n', id="nothing is later"),
        pytest.param('{"step": 3}\n{"step": 2}\n', '{"step": 2}\n', id="a later step"),
        pytest.param('{"step": 1}\n{"st', '{"step": 1}\n', id="a torn last line"),
        pytest.param('{"step": 1}\n{"step": 2}', '{"step": 1}\n', id="a last line without its end"),
        pytest.param('{"step": 1}\n\0\0\0\0', '{"step": 1}\n', id="zeros after the power went off"),
        pytest.param('{"note": "é"}\n{"step": 9}\n', '{"note": "é"}\n', id="a row of no step"),
    ],
)
def test_rows_are_cut_back_to_a_step(tmp_path: Path, text: str, kept: str) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text(text, encoding="utf-8", newline="")
    assert cut_back(path, 2) == (not text.endswith("\n"))
    assert path.read_text(encoding="utf-8") == kept


@pytest.mark.parametrize(
    "content",
    [
        pytest.param("", id="empty"),
        pytest.param("[]", id="a list"),
        pytest.param('{"begun_at": 3}', id="a number for a date"),
        pytest.param('{"dataset": ["train"]}', id="a list for hashes"),
        pytest.param('{"started_from": [{"run": "a"}]}', id="an ancestor without its base"),
    ],
)
def test_a_damaged_provenance_is_named(content: str, tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    assert read_provenance(run) == {}
    run.provenance.write_text(content, encoding="utf-8")
    with raises_code("provenance-unreadable", where="provenance.json"):
        read_provenance(run)
