"""The command line: every command, its help, its exit codes, and the next command it suggests."""

import json
import os
import re
import shlex
import subprocess
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import dsocr
from dsocr import Dataset
from dsocr.cli.app import app, limit_spinning
from dsocr.cli.commands import COMMANDS, GROUPS
from dsocr.errors import Interrupted
from dsocr.formats import SOURCE_FORMATS
from dsocr.io.work import work_path
from dsocr.runs import RunFolder
from tests.conftest import draw_line
from tests.integration.calling import Call, Fail, arguments_of


def test_from_scans_to_texts(
    call: Call, small_dataset: Path, quick: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The README's way, on a small table, in a folder with a space in its name."""
    monkeypatch.setattr("dsocr.training.preflight.OVERFIT_SAMPLES", 2)
    data, run = tmp_path / "мои данные", tmp_path / "run"
    out, _ = call("prepare", small_dataset.parent / "source", "-o", data)
    assert f'next:    dsocr check "{data}"\n' in out

    out, _ = call("check", data)
    assert "next: dsocr train" in out

    config = tmp_path / "config.yaml"
    config.write_text(f"dataset: {data.as_posix()}\noutput: {run.as_posix()}\n", encoding="utf-8")
    out, _ = call("train", config, *quick)
    assert out.count("step 2: validation CER") == 1
    assert f"next:    dsocr evaluate {run}" in out
    assert "preflight: ok, overfit:" in RunFolder(run).log.read_text("utf-8")

    out, _ = call("evaluate", run, "--limit", 2)
    assert re.search(rf"report: +{re.escape(str(run / 'report.html'))}", out)
    card = json.loads((run / "scorecard.json").read_text(encoding="utf-8"))
    assert card["base"]["lines"] == card["adapter"]["lines"] == 2

    out, err = call("evaluate", run, "--json", "--no-base", "--limit", 1, "--no-report")
    assert json.loads(out)["base"] is None
    assert str(run / "report.html") in err
    assert not (run / "report.html").exists()
    assert dsocr.report(run, output=tmp_path / "report.html").path.is_file()

    review = tmp_path / "review.txt"
    out, _ = call("transcribe", run, data / "test", "-o", tmp_path / "texts.txt", "--review", review)
    assert f": {review}\nestimated CER: " in out, "training has fitted them"
    assert len((tmp_path / "texts.txt").read_text(encoding="utf-8").splitlines()) == 4


def test_a_base_offers_to_learn_from_what_it_read(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command that `transcribe` ends with names the scans, and is one that `train` takes."""
    monkeypatch.setattr("dsocr.inference.transcribe._TEACHING", 2)
    scans = tmp_path / "my scans"
    scans.mkdir()
    for number, text in enumerate(("line one", "line two")):
        draw_line(scans / f"{number}.png", text)
    out, _ = call("transcribe", "small", scans, "--images", "line", "-o", tmp_path / "texts.jsonl")
    (command,) = (line.removeprefix("next:").strip() for line in out.splitlines() if line.startswith("next:"))
    words = shlex.split(command)
    assert words[:4] == ["dsocr", "train", "--unlabelled", str(scans)]
    monkeypatch.chdir(tmp_path)
    call(*words[1:], "--dry-run")


def test_quiet_prints_results_only(call: Call, small_dataset: Path, tmp_path: Path) -> None:
    printed = call("prepare", small_dataset.parent / "source", "-o", tmp_path / "data", "--quiet")
    assert printed == (f"dataset: {tmp_path / 'data'}\n", "")


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        pytest.param("train nowhere.yaml", ["error: nowhere.yaml: no such file\n  hint: "], id="an error of ours"),
        pytest.param("tarin x.yaml", ["tarin", "did you mean train?"], id="no such command"),
        pytest.param("prepare scans -o out --folders 3", ["--folders", "did you mean --folds?"], id="no such option"),
        pytest.param("prepare мои сканы -o out", ["сканы\n", "in quotes"], id="a word too many"),
        pytest.param("train a.yaml training.epochs=3", ["put --set before"], id="a setting without --set"),
        pytest.param("transcribe -o x", ["RUN", "dsocr transcribe --help"], id="argument"),
        pytest.param("prepare scans", ["--output"], id="option"),
        pytest.param("evaluate run --split train2", ["train2", "did you mean", "train"], id="choice"),
        pytest.param("export run -o a --scale 1.5", ["--scale", "1.5", "<= 1"], id="scale"),
        pytest.param("audit d --folds x", ["--folds", '"x"'], id="no number"),
        pytest.param("serve run --port 99999", ["--port", "99999", "<= 65535"], id="too large"),
        pytest.param("forecast c --more 0", ["--more", ">= 1"], id="too small"),
        pytest.param("train a.yaml --dry-run --overwrite", ["--overwrite does not go with --dry-run"], id="switch"),
    ],
)
def test_a_mistake_is_a_sentence_and_exit_code_2(arguments: str, parts: list[str], call: Call) -> None:
    out, err = call(*arguments.split(), code=2)
    assert out == ""
    assert err.startswith("error: ")
    assert [part for part in parts if part not in err] == []
    assert "Traceback" not in err
    assert "Input should" not in err


def test_a_bug_keeps_its_traceback(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*arguments: object, **options: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("dsocr.job.load_config", broken)
    with pytest.raises(ZeroDivisionError):
        call("train", "any.yaml")


def test_commands_are_listed_by_group_each_on_one_line(call: Call) -> None:
    out = call("--help")[0]
    assert [name for name in re.findall(r"╭─ (\w+)", out) if name in GROUPS] == list(GROUPS)
    assert [name for name in re.findall(r"│ (\w+)  ", out) if name in COMMANDS] == list(COMMANDS)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("prepare scans -o d --line-end-hyphens join", "did you mean --text-policy line_end_hyphens=...?"),
        ("train d --learning-rate 1e-4", "did you mean --set training.learning_rate=...?"),
        ("train d --lr 1e-4", "did you mean --set training.learning_rate=...?"),
        ("train d --base nano", "did you mean --set base=...?"),
        ("train d --nonsense 1", "`dsocr train --help` explains the options"),
        ("compare d --struck strip", "`dsocr compare --help` explains the options"),
    ],
)
def test_a_setting_written_as_an_option_is_named(fail: Fail, written: str, meant: str) -> None:
    error = fail(*written.split())
    assert (error.code, error.hint) == ("option-invalid", meant)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_is_explained_and_the_examples_parse(name: str) -> None:
    for argument in arguments_of(name):
        assert (argument.parameter.help or "").endswith((".", "?")), argument.name
    for example in COMMANDS[name].examples:
        program, *words = shlex.split(example)
        assert (program, words[0]) == ("dsocr", name)
        app.meta.parse_args(words)


def test_every_format_is_listed_with_a_command_that_parses(call: Call) -> None:
    out, _ = call("prepare", "--formats")
    for format_ in SOURCE_FORMATS.values():
        assert f"{format_.name:<14}{format_.title}\n{'':<14}dsocr prepare {format_.example}\n" in out
        app.parse_args(["prepare", *shlex.split(format_.example)])


def test_cyrillic_is_printed_under_a_c_locale(tmp_path: Path) -> None:
    """As on a console that is not UTF-8: the words must come through, in UTF-8."""
    config = tmp_path / "config.yaml"
    config.write_text("dataset: письма\noutput: run\n", encoding="utf-8")
    environment = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PATH": ""}
    done = subprocess.run([sys.executable, "-m", "dsocr", "check", config], stderr=subprocess.PIPE, env=environment)
    assert (done.returncode, "error: письма: not a dataset folder" in done.stderr.decode("utf-8")) == (2, True)


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        pytest.param({}, "2000", id="by itself"),
        pytest.param({"GOMP_SPINCOUNT": "7"}, "7", id="the user said how often"),
        pytest.param({"OMP_WAIT_POLICY": "active"}, None, id="the user said how"),
    ],
)
def test_threads_wait_as_the_user_says_else_briefly(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], expected: str | None
) -> None:
    monkeypatch.setattr(os, "environ", {**environment})
    limit_spinning()
    assert os.environ.get("GOMP_SPINCOUNT") == expected


@pytest.mark.parametrize("name", COMMANDS)
def test_ctrl_c_ends_every_command_with_what_is_kept_and_how_to_resume(
    name: str, call: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def interrupt(*arguments: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("dsocr.cli.app.pkgutil.resolve_name", lambda name: interrupt)
    command = COMMANDS[name]
    _, *words = shlex.split(command.examples[0])
    for state in (command.kept, command.journal) if command.journal else (command.kept,):
        out, err = call(*words, code=130)
        assert out == ""
        assert err.startswith(f"interrupted: {state}")
        assert "the same command" in err
        assert err.count("\n") == 1
        if "-o" in words:
            work_path(Path(words[words.index("-o") + 1])).mkdir(parents=True, exist_ok=True)


@pytest.mark.parametrize(
    ("environment", "resume"),
    [
        pytest.param({}, "dsocr train runs/demo/config.yaml", id="one process"),
        pytest.param(
            {"RANK": "0", "WORLD_SIZE": "2"},
            "torchrun --nproc-per-node 2 -m dsocr train runs/demo/config.yaml",
            id="the first of two",
        ),
        pytest.param({"RANK": "1", "WORLD_SIZE": "2"}, None, id="the second of two"),
    ],
)
def test_a_signal_during_a_training_names_its_checkpoint(
    environment: dict[str, str], resume: str | None, call: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def train(*arguments: Any, **options: Any) -> None:
        raise Interrupted(15, 20, "dsocr train runs/demo/config.yaml")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("dsocr.training.recipe.run_job", train)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("LC_ALL", "ru_RU.UTF-8")  # where the demo prepares nothing before it trains
    _, err = call("demo", code=143)
    lines = [] if resume is None else ["interrupted; a checkpoint of step 20 is written", f"resume:  {resume}"]
    assert err.splitlines() == lines


def test_an_audit_ended_by_a_signal_is_resumed_by_itself(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    def audit(*arguments: Any, **options: Any) -> None:
        raise Interrupted(15, 20, "dsocr train data-audit/fold-3/config.yaml")

    monkeypatch.setattr("dsocr.audit", audit)
    _, err = call("audit", "data", code=143)
    assert "dsocr train" not in err, "it would train one fold and find nothing"


@pytest.mark.parametrize(
    ("language", "commands"),
    [("ru_RU", "train evaluate compare prepare transcribe"), ("fr", "prepare train evaluate compare transcribe")],
)
def test_the_demo_begins_with_the_language_of_the_system_and_prints_little(
    language: str, commands: str, call: Call, small_dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[str] = []
    scores = [SimpleNamespace(prediction=text, reference="мир") for text in ("мпр", "мир")]
    lines = [SimpleNamespace(scores=scores, last=scores[-1])]
    difference = SimpleNamespace(summary="better", harmed=["worse on new writers"], improved=lines)
    results = {"prepare": Dataset.open(small_dataset), "compare": SimpleNamespace(differences=[difference])}

    def record(name: str, *arguments: Any, **options: Any) -> object:
        called.append(name)
        return results.get(name)

    for name in commands.split():
        monkeypatch.setitem(dsocr.__dict__, name, partial(record, name))
    monkeypatch.setenv("LC_ALL", language)
    out, _ = call("demo", "-o", tmp_path / "demo")
    assert " ".join(called) == commands
    assert out.count("\n") <= 60
    order = ("worse on new writers", "мпр", "мир", "report.html", ".pdf", "dsocr workbench")
    assert sorted(order, key=out.index) == [*order]
