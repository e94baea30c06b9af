"""What needs no network is answered before torch is loaded, which takes seconds."""

import json
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from dsocr.inference.generation import Generation
from dsocr.runs import ReadingSettings, RunFolder
from dsocr.text import TextPolicy

REFUSALS = [
    ("transcribe run scans -o there.txt", "DataError", "there.txt"),
    ("transcribe run scans -o new.xml", "output-ambiguous", "new.xml"),
    ("transcribe run scans -o new --segmenter other", "segmenter-unknown", None),
    ("transcribe run scans -o new.txt --engine other", "engine-address", None),
    ("transcribe run empty -o new.txt", "input-empty", "empty"),
    ("transcribe run there .txt -o new.txt", "input-missing", "there"),
    ("transcribe moved scans -o new.txt", "base-not-found", None),
    ("evaluate moved", "base-not-found", None),
    ("evaluate run --dataset empty", "not-a-dataset", "empty"),
    ("evaluate run --split validation --dataset tested", "split-missing", "tested"),
    ("evaluate moved --calibrate", "base-not-found", None),
    ("evaluate run --calibrate --dataset tested", "split-missing", "tested"),
    ("suggest run data -o there.txt", "output-is-file", "there.txt"),
    ("suggest run data -o queue", "DataError", "data"),
    ("suggest moved scans -o queue", "base-not-found", None),
    ("serve moved", "base-not-found", None),
    ("workbench scans --run moved --no-show", "base-not-found", None),
    ("export run --merged scans", "target-occupied", "scans"),
    ("export run --adapter run/adapter/inside", "target-overlaps-source", "run/adapter/inside"),
    ("export moved --merged new", "base-not-found", None),
    ("demo -o there.txt", "RunError", "there.txt"),
    ("demo -o scans", "RunError", "scans"),
    ("train config.yaml --set base=./gone/base", "base-not-found", None),
    ("train config.yaml --set input.resolution=gundam", "resolution-unknown", None),
    ("train config.yaml --set guard.dataset=empty", "not-a-dataset", "empty"),
    ("train config.yaml --dry-run --set input.prompt=read", "prompt-unknown", None),
    ("train config.yaml --dry-run --set dataset=nowhere", "not-a-dataset", "nowhere"),
    ("train config.yaml --dry-run --set base=./gone/base", "base-not-found", None),
    ("forecast config.yaml --set dataset=tested", "split-missing", "tested"),
]
"""Commands, the code of the error (its class where it has none) and its place."""


@pytest.fixture
def place(small_dataset: Path, tmp_path: Path) -> Path:
    """A folder with scans, datasets, and runs whose files are all there but the weights."""
    shutil.copytree(small_dataset, tmp_path / "data")
    shutil.copytree(small_dataset / "test", tmp_path / "tested" / "test")
    card = json.loads((small_dataset / "dataset.json").read_text(encoding="utf-8"))
    card["splits"] = {"test": card["splits"]["test"]}
    (tmp_path / "tested" / "dataset.json").write_text(json.dumps(card), encoding="utf-8")
    shutil.copytree(small_dataset.parent / "source", tmp_path / "scans")
    (tmp_path / "empty").mkdir()
    (tmp_path / "there.txt").touch()
    (tmp_path / "there .txt").touch()
    (tmp_path / "config.yaml").write_text("dataset: data\noutput: new\n", encoding="utf-8")
    make_run(tmp_path / "run")
    make_run(tmp_path / "moved", base="./gone/base")
    return tmp_path


def make_run(path: Path, *, dataset: str = "data", base: str = "nano") -> None:
    """A finished run whose files are all there but the weights."""
    run = RunFolder(path)
    run.adapter.mkdir(parents=True)
    run.config.write_text(f"dataset: {dataset}\noutput: {path.name}\nbase: {base}\n", encoding="utf-8")
    generation = Generation().as_dict()
    ReadingSettings(base, None, "<image>\nFree OCR.", "fold", TextPolicy(), generation).save(run.adapter)


def test_wrong_commands_fail_before_torch_is_loaded(place: Path) -> None:
    found = refused_without_torch([command for command, *_ in REFUSALS], place)
    for (command, kind, where), error in zip(REFUSALS, found, strict=True):
        assert kind in (error["code"], error["type"]), (command, error)
        assert error["where"] == where, command


def test_a_dataset_is_checked_and_previewed_without_torch(place: Path) -> None:
    commands = ["check config.yaml --workers 1", "preview config.yaml --as-model -o sheet.html"]
    said = called(commands, place, unloaded={"torch"})
    assert "data: 0 errors" in said
    assert (place / "sheet.html").is_file()


def test_what_reads_by_a_server_and_what_shows_a_workbench_needs_no_torch() -> None:
    needed = "dsocr.inference.transcribe, dsocr.inference.remote, dsocr.workbench.archive, dsocr.workbench.background"
    script = f"import sys, {needed}; assert not {{'torch', 'transformers'}} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", script], check=True)


def test_missing_files_are_reported_without_importing_torch(tmp_path: Path) -> None:
    make_run(tmp_path / "run", dataset="nowhere")
    (tmp_path / "config.yaml").write_text("dataset: nowhere\noutput: new\n", encoding="utf-8")
    commands = [
        "train nowhere.yaml",
        "train config.yaml",
        "train nowhere.yaml --dry-run",
        "train config.yaml --dry-run",
        "forecast nowhere.yaml",
        "forecast config.yaml",
        "evaluate nowhere",
        "evaluate run",
        "evaluate run --dataset nowhere",
        "evaluate nowhere --calibrate",
        "evaluate run --calibrate --dataset nowhere",
        "export nowhere --merged out",
        "transcribe nowhere scans -o out.jsonl",
        "transcribe run nowhere -o out.jsonl",
        "suggest nowhere scans -o out",
        "suggest run nowhere -o out",
        "workbench nowhere",
        "workbench . --run nowhere",
        "workbench . --config nowhere",
        "serve nowhere",
        "serve run nowhere",
    ]
    assert {error["where"] for error in refused_without_torch(commands, tmp_path)} == {"nowhere", "nowhere.yaml"}
    assert not (tmp_path / "new").exists()


def test_a_finished_run_is_not_trained_again_and_torch_is_not_waited_for(tmp_path: Path) -> None:
    make_run(tmp_path / "run")
    (error,) = refused_without_torch(["train run/config.yaml"], tmp_path)
    assert (error["type"], error["where"]) == ("RunError", "run")


def test_the_demo_replaces_no_run_of_somebody_s_own(tmp_path: Path) -> None:
    make_run(tmp_path / "run")
    (error,) = refused_without_torch(["demo -o run"], tmp_path)
    assert error["code"] == "run-other"
    assert (tmp_path / "run" / "adapter").is_dir()


def test_a_port_that_is_taken_is_reported_before_anything_is_loaded(tmp_path: Path) -> None:
    make_run(tmp_path / "run")
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        (error,) = refused_without_torch([f"serve run --port {port}"], tmp_path)
    assert error["code"] == "port-unavailable"


def refused_without_torch(commands: list[str], folder: Path) -> list[dict[str, str]]:
    """Code, type and place of the error of each command, given in the folder; none may load anything slow."""
    out = called(commands, folder, fails=True, unloaded={"torch", "transformers", "nicegui", "fastapi"})
    return [json.loads(line) for line in out.splitlines()]


def called(commands: list[str], folder: Path, *, unloaded: set[str], fails: bool = False) -> str:
    """What these commands print, called one after the other in a new process, in the folder.

    Each must succeed, or fail with an error of ours, which is printed as JSON; none may load a package of `unloaded`.
    """
    script = f"""import json, sys
from dsocr.cli import app
from dsocr.errors import DsocrError
for command in {commands}:
    sys.argv = ['dsocr', *command.split()]
    ended = None
    try: app()
    except SystemExit as exit_: ended = exit_.code
    except DsocrError as error:
        ended = 'error'
        print(json.dumps({{'code': error.code, 'type': type(error).__name__, 'where': error.where}}))
    assert (ended == 'error' if {fails} else not ended), (command, ended)
    assert not {unloaded} & set(sys.modules), command
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, encoding="utf-8", check=False, cwd=folder
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
