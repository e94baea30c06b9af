"""The command line: every command, its exit code, and the next command it suggests."""

import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from dsocr.cli import app
from dsocr.cli.app import GROUPS, RENAMED_COMMANDS
from tests.integration import calling

COMMANDS: dict[str, Any] = get_command(app).commands  # type: ignore[attr-defined]

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    """Runs `dsocr ARGUMENTS` in this process; gives its exit code, stdout and stderr."""

    return partial(calling.call, monkeypatch, capsys)


@pytest.fixture(scope="module")
def quick() -> list[str]:
    """Settings for a training of seconds."""
    settings = {
        "training.epochs": "null",
        "training.max_steps": 4,
        "training.batch_size": 4,
        "training.micro_batch_size": 4,
        "validation.every_steps": 2,
        "validation.max_samples": 2,
        "guard.lines": 4,
        "generation.max_new_tokens": 16,
    }
    return ["--no-preflight", *(word for key, value in settings.items() for word in ("--set", f"{key}={value}"))]


def test_from_scans_to_texts(call: Call, small_dataset: Path, quick: list[str], tmp_path: Path) -> None:
    """The README's way, on a small table."""
    data, run = tmp_path / "data", tmp_path / "run"
    code, out, _ = call("prepare", small_dataset.parent / "source", "-o", data)
    assert code == 0
    assert "train" in out
    assert f"next:    dsocr check {data}" in out

    code, out, _ = call("check", data)
    assert code == 0
    assert "next: dsocr train" in out

    config = tmp_path / "config.yaml"
    config.write_text(f"dataset: {data.as_posix()}\noutput: {run.as_posix()}\n", encoding="utf-8")
    code, out, err = call("train", config, *quick)
    assert code == 0, err
    assert f"next:    dsocr evaluate {run}" in out

    code, out, _ = call("evaluate", run)
    assert code == 0
    assert "CER" in out
    assert "known writers, new lines" in out
    assert re.search(rf"report: +{re.escape(str(run / 'report.html'))}", out)
    card = json.loads((run / "scorecard.json").read_text(encoding="utf-8"))
    assert card["base"]["lines"] == card["adapter"]["lines"] == 4
    assert card["adapter"]["cer"] >= 0

    code, out, err = call("evaluate", run, "--json", "--no-base", "--limit", 2, "--no-report")
    assert json.loads(out)["base"] is None
    assert f"note: removed {run / 'report.html'}, the page of an earlier evaluation" in err
    assert not (run / "report.html").exists()
    code, out, _ = call("report", run, "--json")
    assert json.loads(out) == {
        "report": str(run / "report.html"),
        "bytes": (run / "report.html").stat().st_size,
        "warnings": [],
    }
    code, out, _ = call("report", run, "--markdown", "-o", tmp_path / "report.md")
    assert out == f"report: {tmp_path / 'report.md'}\n"

    review = tmp_path / "review.txt"
    code, out, _ = call("transcribe", run, data / "test", "-o", tmp_path / "texts.txt", "--review", review)
    assert code == 0
    assert f"least certain lines first: {review}\nestimated CER: " in out, "training has fitted them"
    assert len((tmp_path / "texts.txt").read_text(encoding="utf-8").splitlines()) == 4


def test_quiet_prints_results_only(call: Call, small_dataset: Path, tmp_path: Path) -> None:
    code, out, err = call("prepare", small_dataset.parent / "source", "-o", tmp_path / "data", "--quiet")
    assert (code, err) == (0, "")
    assert out.splitlines() == [f"dataset: {tmp_path / 'data'}"]


def test_check_exits_with_1_on_errors_and_tells_them_to_programs(call: Call, small_dataset: Path) -> None:
    code, out, _ = call("check", small_dataset, "--max-text-tokens", 3, "--json")
    assert code == 1
    findings = json.loads(out)["findings"]
    assert findings[0]["severity"] == "error"
    assert findings[0]["where"].startswith("train/metadata.jsonl:")
    assert findings[0]["code"] == "long-text"
    assert len(findings[0]["examples"]) == findings[0]["count"]


def test_check_writes_a_page_and_a_table_of_every_place(call: Call, small_dataset: Path, tmp_path: Path) -> None:
    pages = ("--html", tmp_path / "page.html", "--csv", tmp_path / "findings.csv")
    code, out, _ = call("check", small_dataset, "--max-text-tokens", 3, *pages)
    assert code == 1
    assert f"page: {tmp_path / 'page.html'}" in out
    assert "    fix: Cut the image into lines" in out
    assert "long-text" in (tmp_path / "page.html").read_text(encoding="utf-8")
    assert (tmp_path / "findings.csv").read_text(encoding="utf-8").count("\nlong-text,") == 24


def test_check_fixes_into_a_new_dataset_and_checks_that(call: Call, small_dataset: Path, tmp_path: Path) -> None:
    data, new = tmp_path / "data", tmp_path / "new"
    shutil.copytree(small_dataset, data)
    metadata = data / "test" / "metadata.jsonl"
    metadata.write_text(metadata.read_text(encoding="utf-8").replace("ё", "е\u0308"), encoding="utf-8")
    code, out, _ = call("check", data, "--workers", 1)
    assert "[decomposed-characters]" in out
    code, out, err = call("check", data, "--fix", "-o", new, "--html", tmp_path / "page.html")
    assert code == 0, err
    assert "fixed in test: 1 [decomposed-characters]" in out
    assert f"dataset: {new}" in out
    assert f"{new}: 0 errors" in out
    assert "hash-differs" not in out
    assert "Check of new" in (tmp_path / "page.html").read_text(encoding="utf-8")
    code, out, _ = call("check", new, "--fix", "-o", tmp_path / "newer")
    assert "nothing to fix" in out


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        pytest.param(["--fix"], "--fix needs a folder for the new dataset", id="no folder"),
        pytest.param(["-o", "new"], "--output goes with --fix", id="no fix"),
    ],
)
def test_check_refuses_half_of_a_wish(call: Call, small_dataset: Path, options: list[str], sentence: str) -> None:
    code, _, err = call("check", small_dataset, *options)
    assert code == 2
    assert sentence in err


def test_check_says_at_once_that_a_page_has_no_folder(call: Call, small_dataset: Path, tmp_path: Path) -> None:
    code, _, err = call("check", small_dataset, "--html", tmp_path / "nowhere" / "page.html")
    assert code == 2
    assert "--html: no folder" in err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        pytest.param(["train", "nowhere.yaml"], "error: nowhere.yaml: no such file", id="missing config"),
        pytest.param(["evaluate", "nowhere"], "error: nowhere: no such run folder", id="missing run"),
        pytest.param(["check", "nowhere"], "error: nowhere: not a dataset folder", id="missing dataset"),
        pytest.param(["prepare", "nowhere", "-o", "out"], "error: ", id="missing source"),
        pytest.param(["prepare", ".", "-o", "out", "--split-by", "font"], "cannot split by 'font'", id="bad unit"),
        pytest.param(["prepare", ".", "-o", "out", "--column", "text"], "role=NAME", id="bad column"),
    ],
)
def test_a_mistake_is_a_sentence_and_exit_code_2(
    arguments: list[str], sentence: str, call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, _, err = call(*arguments)
    assert code == 2
    assert sentence in err
    assert "Traceback" not in err


def test_a_bug_keeps_its_traceback(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*arguments: object, **options: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("dsocr.config.load_config", broken)
    with pytest.raises(ZeroDivisionError):
        call("train", "any.yaml")


def test_unknown_words_exit_with_2(call: Call) -> None:
    code, _, err = call("tarin", "x.yaml")
    assert code == 2
    assert "tarin" in err


def test_help_needs_no_torch(tmp_path: Path) -> None:
    script = "import sys; sys.argv = ['dsocr', '--help']\nfrom dsocr.cli import app\n"
    script += "try: app()\nexcept SystemExit: pass\n"
    script += "assert not {'torch', 'transformers', 'pydantic', 'numpy'} & set(sys.modules), 'slow imports'"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "transcribe" in done.stdout


def test_cyrillic_is_printed_under_a_c_locale(small_dataset: Path, tmp_path: Path) -> None:
    """As on a console that is not UTF-8: the words must come through, in UTF-8."""
    environment = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PATH": ""}
    command = [sys.executable, "-m", "dsocr", "check", str(tmp_path / "письма")]
    done = subprocess.run(command, capture_output=True, env=environment, check=False)
    assert done.returncode == 2, done.stderr.decode()
    assert "not a dataset folder" in done.stderr.decode("utf-8")


def test_commands_are_listed_by_group_each_on_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = CliRunner().invoke(app, ["--help"]).output.splitlines()
    headings = [line.removesuffix(":") for line in lines if line.removesuffix(":") in GROUPS]
    assert headings == list(GROUPS)
    listed = [line.split()[0] for line in lines if line.startswith("  ") and line.split()[0] in COMMANDS]
    assert sorted(listed) == sorted(COMMANDS)
    assert len(COMMANDS) <= 18


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_is_explained_and_the_examples_parse(name: str) -> None:
    command = COMMANDS[name]
    for parameter in command.params:
        assert parameter.help, parameter.name
        assert parameter.help.endswith((".", "?")), parameter.name
    examples = command.epilog.splitlines()
    assert len(examples) == 2
    for example in examples:
        program, first, *words = shlex.split(example)
        assert (program, first) == ("dsocr", name)
        command.make_context(name, words)


@pytest.mark.parametrize("name", RENAMED_COMMANDS)
def test_a_command_of_an_earlier_version_names_its_successor(name: str, call: Call) -> None:
    code, out, err = call(name, "x")
    assert (code, out) == (2, "")
    assert RENAMED_COMMANDS[name] in err
    assert RENAMED_COMMANDS[name].split()[1] in COMMANDS
