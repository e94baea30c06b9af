"""Wrong uses: each has a code, a place and a hint, and none waits for torch, which takes seconds to load."""

import json
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dsocr.io.work import write_manifest
from dsocr.models.generation import Generation
from dsocr.runs import ReadingSettings, RunFolder
from dsocr.server import listen
from dsocr.text import TextPolicy
from tests.data.making import picture, write
from tests.integration.calling import Call, Fail
from tests.raising import raises_code
from tests.workbench.fakes import make_pages

ERRORS = [
    ("check data --html scans", "option-invalid", None),
    ("check data -o new", "option-invalid", None),
    ("check lines/a.png", "not-a-dataset", "lines/a.png"),
    ("check data --fix", "option-missing", None),
    ("check data --csv nowhere/a.csv", "option-invalid", None),
    ("compare nowhere", "input-missing", "nowhere"),
    ("demo -o there.txt", "output-occupied", "there.txt"),
    ("demo -o scans", "output-occupied", "scans"),
    ("evaluate moved", "base-not-found", None),
    ("evaluate run/adapter", "dataset-missing", "run/adapter"),
    ("evaluate empty", "not-a-run", "empty"),
    ("evaluate moved --calibrate", "base-not-found", None),
    ("evaluate lost", "not-a-dataset", "nowhere"),
    ("evaluate run --calibrate --dataset tested", "split-missing", "tested"),
    ("evaluate run --split validation --dataset tested", "split-missing", "tested"),
    ("evaluate nowhere", "run-not-found", "nowhere"),
    ("evaluate run --dataset empty", "not-a-dataset", "empty"),
    ("export begun -o new --form merged", "run-unfinished", "begun"),
    ("export run -o run/adapter/inside", "output-overlaps-source", "run/adapter/inside"),
    ("export moved -o new --form merged", "base-not-found", None),
    ("export run -o scans --form merged", "output-occupied", "scans"),
    ("forecast config.yaml --set dataset=tested", "split-missing", "tested"),
    ("forecast nowhere.yaml", "input-missing", "nowhere.yaml"),
    ("prepare scans -o new --folds 2", "too-few-groups", None),
    ("prepare scans -o new --text-policy no.yaml", "input-missing", "no.yaml"),
    ("prepare scans -o new --column text", "option-invalid", None),
    ("prepare scans -o new --encoding cp9", "encoding-unknown", None),
    ("prepare scans -o new --fixed no.txt", "file-unreadable", "no.txt"),
    ("prepare scans -o scans", "output-overlaps-source", "scans"),
    ("prepare scans -o new --text-policy struck=erase", "config-invalid", "the text policy"),
    ("prepare nowhere -o new", "input-missing", "nowhere"),
    ("prepare scans -o new --split-by font", "unit-unknown", None),
    ("prepare lines -o new", "no-format-found", "lines"),
    ("prepare scans -o new --like scans", "not-a-dataset", "scans"),
    ("prepare lines/a.png -o new", "source-is-image", "lines/a.png"),
    ("preview nowhere.yaml", "input-missing", "nowhere.yaml"),
    ("preview data -o x.gif", "sheet-format", "x.gif"),
    ("preview data -o nowhere/x.html", "output-folder-missing", "nowhere"),
    ("preview data --set training.augmentation=wild", "config-invalid", "the configuration"),
    ("preview nowhere", "not-a-dataset", "nowhere"),
    ("serve run nowhere", "run-not-found", "nowhere"),
    ("serve moved", "base-not-found", None),
    ("serve nowhere", "run-not-found", "nowhere"),
    ("serve run --port PORT", "port-unavailable", None),
    ("align nowhere texts.txt -o new", "input-missing", "nowhere"),
    ("align scans nowhere.txt -o new", "input-missing", "nowhere.txt"),
    ("align scans nowhere.txt -o there.txt", "output-occupied", "there.txt"),
    ("train nowhere.yaml", "input-missing", "nowhere.yaml"),
    ("train run", "config-unreadable", "run"),
    ("train config.yaml --set input.resolution=gundam", "resolution-unknown", None),
    ("train config.yaml --dry-run --set input.prompt=read", "prompt-unknown", None),
    ("train lost/config.yaml --set output=new", "not-a-dataset", "nowhere"),
    ("train config.yaml --set base=./gone/base", "base-not-found", None),
    ("train run/config.yaml", "output-exists", "run"),
    ("transcribe run scans -o there.txt", "output-exists", "there.txt"),
    ("transcribe run scans -o new.txt --engine other", "engine-address", None),
    ("transcribe run scans -o new.xml", "output-ambiguous", "new.xml"),
    ("transcribe run scans -o new --segmenter other", "segmenter-unknown", None),
    ("transcribe run nowhere -o new.jsonl", "input-missing", "nowhere"),
    ("transcribe nowhere scans -o new.jsonl", "run-not-found", "nowhere"),
    ("transcribe run empty -o new.txt", "input-empty", "empty"),
    ("transcribe moved scans -o new.txt", "base-not-found", None),
    ("transcribe run there .txt -o new.txt", "input-missing", "there"),
    ("workbench scans --run moved --no-show", "base-not-found", None),
    ("workbench nowhere", "input-missing", "nowhere"),
    ("workbench . --run nowhere", "run-not-found", "nowhere"),
    ("workbench . --config nowhere", "input-missing", "nowhere"),
    ("check nowhere", "not-a-dataset", "nowhere"),
    ("export run -o new --scale 2", "option-invalid", None),
    ("prepare scans -o data", "output-exists", "data"),
    ("push run name", "repo-invalid", None),
    ("serve run --host 0.0.0.0", "token-missing", None),
    ("train config.yaml --set dataset=nowhere", "not-a-dataset", "nowhere"),
    ("train config.yaml --dry-run --set base=./gone", "base-not-found", None),
]
"""Commands, the code of the error and its place."""
CALLS = {
    "check nowhere": "dsocr.check('nowhere')",
    "check data --fix": "dsocr.check('data', fix=True)",
    "check data --html scans": "dsocr.check('data', html='scans')",
    "compare nowhere": "dsocr.compare('nowhere')",
    "evaluate nowhere": "dsocr.evaluate('nowhere')",
    "export run -o scans --form merged": "dsocr.export('run', 'scans', form='merged')",
    "export run -o new --scale 2": "dsocr.export('run', 'new', scale=2)",
    "push run name": "dsocr.push('run', 'name')",
    "forecast nowhere.yaml": "dsocr.forecast('nowhere.yaml')",
    "prepare scans -o new --encoding cp9": "dsocr.prepare('scans', 'new', encoding='cp9')",
    "prepare scans -o data": "dsocr.prepare('scans', 'data')",
    "serve run --host 0.0.0.0": "dsocr.serve('run', host='0.0.0.0')",
    "train run/config.yaml": "dsocr.train('run/config.yaml')",
    "train config.yaml --set dataset=nowhere": "dsocr.train('config.yaml', dataset='nowhere')",
    "train config.yaml --dry-run --set base=./gone": "dsocr.dry_run('config.yaml', base='./gone')",
    "transcribe run scans -o there.txt": "dsocr.transcribe('run', 'scans', 'there.txt')",
    "workbench nowhere": "dsocr.open_workbench('nowhere')",
}
"""The same mistakes in Python."""
SAY_IT_ALL = {
    "config-invalid",
    "file-unreadable",
    "input-missing",
    "segmenter-unknown",
    "too-few-groups",
}
"""Errors that may come without a hint."""


@pytest.fixture(scope="module")
def place(small_dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with scans, datasets, and runs whose files are all there but the weights."""
    tmp_path = tmp_path_factory.mktemp("place")
    shutil.copytree(small_dataset, tmp_path / "data")
    shutil.copytree(small_dataset / "test", tmp_path / "tested" / "test")
    card = json.loads((small_dataset / "dataset.json").read_text(encoding="utf-8"))
    card["splits"] = {"test": card["splits"]["test"]}
    write(tmp_path / "tested" / "dataset.json", json.dumps(card))
    shutil.copytree(small_dataset.parent / "source", tmp_path / "scans")
    (tmp_path / "empty").mkdir()
    write(tmp_path / "begun" / "config.yaml", "")
    for name in ("there.txt", "there .txt"):
        (tmp_path / name).touch()
    write(tmp_path / "config.yaml", "base: nano\ndataset: data\noutput: new\n")
    picture(tmp_path / "lines" / "a.png")
    write(tmp_path / "lines" / "letters.tsv", "scan\twords\na.png\tмир\n")
    for name, base, dataset in (("run", "nano", "data"), ("moved", "./gone/base", "data"), ("lost", "nano", "nowhere")):
        run = RunFolder(tmp_path / name)
        run.adapter.mkdir(parents=True)
        write(run.config, f"dataset: {dataset}\noutput: {name}\nbase: {base}\n")
        settings = ReadingSettings(base, None, "<image>\nFree OCR.", "wrap", TextPolicy(), Generation().as_dict())
        settings.save(run.adapter)
        write_manifest(run.adapter)
    return tmp_path


@pytest.fixture(scope="module")
def taken() -> Iterator[int]:
    """A port at which another program listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


SLOW = {"torch", "transformers", "nicegui", "fastapi"}


@pytest.fixture(scope="module")
def printed(taken: int, place: Path) -> list[list[str]]:
    """The lines that a new Python prints of mistakes, by commands and by calls, and of work without torch."""
    script = f"""import json, sys
import dsocr
from dsocr.cli.app import invoke
from dsocr.errors import DsocrError
for command, *_ in {ERRORS}:
    errors = []
    for act in (lambda: invoke(command.replace('PORT', '{taken}').split()), lambda: eval({CALLS}.get(command, '0'))):
        try: act()
        except DsocrError as error: errors.append([error.code, error.where, f'{{error}} {{error.hint or ""}}'])
    assert not {SLOW} & set(sys.modules), command
    print(json.dumps([command, *errors]))
print('END')
import dsocr.inference.transcribe, dsocr.inference.engines, dsocr.workbench.archive, dsocr.workbench.session
for command in ['check config.yaml --workers 1', 'preview config.yaml --as-model -o sheet.html']:
    assert not invoke(command.split())
assert 'torch' not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, encoding="utf-8", check=False, cwd=place)
    assert done.returncode == 0, done.stderr
    return [part.splitlines() for part in done.stdout.split("END\n")]


def test_every_mistake_is_found_before_anything_slow_is_loaded(printed: list[list[str]], place: Path) -> None:
    found = [json.loads(line) for line in printed[0] if line.startswith("[")]
    assert [(command, code, where) for command, (code, where, _), *_ in found] == ERRORS
    assert {code for _, (code, _, text), *_ in found if text.endswith(" ")} == SAY_IT_ALL
    assert not [name for name in ("new", "new.txt", "new.jsonl", "queue", "out", "x.gif") if (place / name).exists()]


def test_a_mistake_has_the_same_code_through_both_doors(printed: list[list[str]]) -> None:
    found = [json.loads(line) for line in printed[0] if line.startswith("[")]
    doors = {command: errors for command, *errors in found if command in CALLS}
    assert doors.keys() == CALLS.keys()
    for command, ((code, *_), (code_of_call, _, text)) in doors.items():
        assert code == code_of_call, command
        assert not re.search(r"(?<![\w-])--[a-z]", text), "a caller in Python has no options"


def test_what_needs_no_network_loads_no_torch(printed: list[list[str]], place: Path) -> None:
    """Checking, previewing, reading by a server, and opening a workbench."""
    assert any("data: nothing prevents training" in line for line in printed[1])
    assert (place / "sheet.html").is_file()


@pytest.mark.parametrize("host", ["127.0.0.1", "a..b"])
def test_an_address_that_cannot_be_used_is_named(host: str, taken: int) -> None:
    with raises_code("port-unavailable") as caught:
        listen(host, taken)
    assert host in caught.value.message


def test_a_workbench_says_that_its_port_is_taken_before_it_reads_a_page(taken: int, tmp_path: Path, call: Call) -> None:
    _, err = call("workbench", make_pages(tmp_path / "box"), "--port", taken, "--no-show", code=2)
    assert f"cannot listen on 127.0.0.1:{taken}: " in err
    assert err.count("127.0.0.1") == 1
    assert not (tmp_path / "box.workbench").exists()


def test_a_workbench_does_not_take_the_folder_of_a_file_for_the_file(tmp_path: Path, fail: Fail) -> None:
    page = make_pages(tmp_path / "box") / "page" / "scan-1.xml"
    with socket.create_server(("127.0.0.1", 0)) as listener:
        free = listener.getsockname()[1]
    error = fail("workbench", page, "--port", free, "--no-show", "--work", tmp_path / "work")
    assert "single file" in error.message


@pytest.mark.parametrize("library", ["cyclopts", "numpy"])
def test_ctrl_c_while_libraries_load_is_no_traceback(library: str) -> None:
    script = f"""import builtins, sys
real = builtins.__import__

def interrupted(name, *arguments):
    if name.partition(".")[0] == "{library}":
        raise KeyboardInterrupt
    return real(name, *arguments)

builtins.__import__ = interrupted
sys.argv = ["dsocr", "check", "nowhere"]
from dsocr.cli import main
main()"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, encoding="utf-8")
    assert (done.returncode, "Traceback" in done.stderr) == (130, False), done.stderr
