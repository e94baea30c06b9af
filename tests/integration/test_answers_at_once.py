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
    ("transcribe run scans -o there.txt", "there.txt: is there already"),
    ("transcribe run scans -o new.xml", "both PAGE and ALTO end in .xml"),
    ("transcribe run scans -o new --segmenter other", "unknown segmenter 'other'"),
    ("transcribe run scans -o new.txt --engine other", "--engine other: is no address"),
    ("transcribe run empty -o new.txt", "no image, PDF, PAGE or ALTO file is in it"),
    ("transcribe run there .txt -o new.txt", 'a path with spaces stands in quotes: "there .txt"'),
    ("transcribe moved scans -o new.txt", "no base model './gone/base'"),
    ("evaluate moved", "no base model './gone/base'"),
    ("evaluate run --dataset empty", "empty: not a dataset folder"),
    ("evaluate run --split validation --dataset tested", "has no validation split to score"),
    ("evaluate moved --calibrate", "no base model './gone/base'"),
    ("evaluate run --calibrate --dataset tested", "has no validation split to score"),
    ("suggest run data -o there.txt", "there.txt: a file of this name is in the way"),
    ("suggest run data -o queue", "no line waits for a transcription"),
    ("suggest moved scans -o queue", "no base model './gone/base'"),
    ("serve moved", "no base model './gone/base'"),
    ("workbench scans --run moved --no-show", "no base model './gone/base'"),
    ("export run --merged scans", "is not empty and not an earlier export"),
    ("export run --adapter run/adapter/inside", "which the export is made from"),
    ("export moved --merged new", "no base model './gone/base'"),
    ("demo -o there.txt", "there.txt: is a file, and a run needs a folder\n  hint: name another folder with -o"),
    ("demo -o scans", "scans: is not empty and not a run folder"),
    ("train config.yaml --set base=./gone/base", "no base model './gone/base'"),
    ("train config.yaml --set input.resolution=gundam", "this base has no resolution 'gundam'"),
    ("train config.yaml --set guard.dataset=empty", "empty: guard.dataset: not a dataset folder"),
    ("train config.yaml --dry-run --set input.prompt=read", "'read' is not the name of a prompt"),
    ("train config.yaml --dry-run --set dataset=nowhere", "nowhere: not a dataset folder: it is not there"),
    ("train config.yaml --dry-run --set base=./gone/base", "no base model './gone/base'"),
    ("forecast config.yaml --set dataset=tested", "has no validation split to score"),
]


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


def test_what_is_wrong_with_a_command_is_said_before_torch_is_loaded(place: Path) -> None:
    said = refused_without_torch([command for command, _ in REFUSALS], place)
    assert [sentence for _, sentence in REFUSALS if sentence not in said] == []
    assert said.count("error: ") == len(REFUSALS)


def test_a_dataset_is_checked_and_previewed_without_torch(place: Path) -> None:
    commands = ["check config.yaml --workers 1", "preview config.yaml --as-model -o sheet.html"]
    said = called(commands, place, code=0, unloaded={"torch"}).stdout
    assert "data: 0 errors" in said
    assert (place / "sheet.html").is_file()


def test_what_reads_by_a_server_and_what_shows_a_workbench_needs_no_torch() -> None:
    needed = "dsocr.inference.transcribe, dsocr.inference.remote, dsocr.workbench.archive, dsocr.workbench.background"
    script = f"import sys, {needed}; assert not {{'torch', 'transformers'}} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", script], check=True)


def test_what_is_not_there_is_told_without_waiting_for_torch(tmp_path: Path) -> None:
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
    assert refused_without_torch(commands, tmp_path).count("error: nowhere") == len(commands)
    assert not (tmp_path / "new").exists()


def test_a_finished_run_is_not_trained_again_and_torch_is_not_waited_for(tmp_path: Path) -> None:
    make_run(tmp_path / "run")
    assert "error: run: holds a finished run" in refused_without_torch(["train run/config.yaml"], tmp_path)


def test_the_demo_replaces_no_run_of_somebody_s_own(tmp_path: Path) -> None:
    make_run(tmp_path / "run")
    said = refused_without_torch(["demo -o run"], tmp_path)
    assert "error: run: holds a run other than the demo's" in said
    assert (tmp_path / "run" / "adapter").is_dir()


def test_a_port_that_is_taken_is_told_before_anything_is_loaded(tmp_path: Path) -> None:
    make_run(tmp_path / "run")
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        said = refused_without_torch([f"serve run --port {port}"], tmp_path)
    assert f"cannot listen on 127.0.0.1:{port}" in said


def refused_without_torch(commands: list[str], folder: Path) -> str:
    """What these commands say when they are given in the folder; each must exit with 2 and load nothing slow."""
    done = called(commands, folder, code=2, unloaded={"torch", "transformers", "nicegui", "fastapi"})
    assert done.stdout == ""
    return done.stderr


def called(commands: list[str], folder: Path, *, code: int, unloaded: set[str]) -> subprocess.CompletedProcess[str]:
    """What these commands print, called one after the other in a new process, in the folder.

    Each must exit with `code`, and load none of the packages `unloaded`.
    """
    script = f"""import sys
from dsocr.cli import main
for command in {commands}:
    sys.argv = ['dsocr', *command.split()]
    ended = 0
    try: main()
    except SystemExit as exit_: ended = exit_.code or 0
    assert ended == {code}, command
    assert not {unloaded} & set(sys.modules), command
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, encoding="utf-8", check=False, cwd=folder
    )
    assert done.returncode == 0, done.stderr
    return done
