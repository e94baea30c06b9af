"""Wrong uses as users make them: each is one sentence and a hint, never a traceback."""

import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dsocr.cli import main
from tests.data.making import picture, write
from tests.integration.calling import call, fail
from tests.workbench.fakes import make_pages

Texts = pytest.CaptureFixture[str]


@pytest.fixture
def taken() -> Iterator[int]:
    """A port at which another program listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


def refusal(monkeypatch: pytest.MonkeyPatch, capsys: Texts, *arguments: object) -> str:
    monkeypatch.setattr(sys, "argv", ["dsocr", *map(str, arguments)])
    with pytest.raises(SystemExit) as caught:
        main()
    said = capsys.readouterr().err
    assert caught.value.code == 2
    assert "Traceback" not in said
    assert "hint: " in said
    return said


@pytest.mark.parametrize(
    ("arguments", "code", "where"),
    [
        pytest.param("evaluate nowhere", "run-not-found", "nowhere", id="a run that is not there"),
        pytest.param("evaluate .", "not-a-run", ".", id="a folder that is no run"),
        pytest.param("evaluate lines/a.png", "run-not-found", "lines/a.png", id="a file as run"),
        pytest.param("evaluate run/adapter", "not-a-run", "run/adapter", id="an adapter as run"),
        pytest.param("report nowhere --curves", "run-not-found", "nowhere", id="a run to draw"),
        pytest.param("report nowhere", "run-not-found", "nowhere", id="its report"),
        pytest.param("report lines", "not-a-run", "lines", id="scans as run"),
        pytest.param("report run -o run.pdf", "report-suffix", "run.pdf", id="a report of another kind"),
        pytest.param("compare nowhere", "no-such-file", "nowhere", id="predictions that are not there"),
        pytest.param("compare a=nowhere", "no-such-file", "nowhere", id="named ones"),
        pytest.param("serve nowhere", "run-not-found", "nowhere", id="a run to serve"),
        pytest.param(
            "transcribe run in -o out --engine ray --workers 2", "option-invalid", None, id="processes of a cluster"
        ),
        pytest.param("prepare lines -o out", "no-format-found", "lines", id="other columns"),
        pytest.param("prepare lines/a.png -o out", "source-is-image", "lines/a.png", id="an image as source"),
        pytest.param("prepare pictures -o out", "no-format-found", "pictures", id="images without texts"),
        pytest.param("check lines", "not-a-dataset", "lines", id="scans as dataset"),
        pytest.param("check lines/a.png", "not-a-dataset", "lines/a.png", id="a file as dataset"),
        pytest.param("check nowhere", "not-a-dataset", "nowhere", id="no dataset"),
        pytest.param("check data --html lines", "option-invalid", None, id="a folder as page"),
        pytest.param("train lines", "config-unreadable", "lines", id="a folder as configuration"),
        pytest.param("train run", "config-unreadable", "run", id="a run as configuration"),
    ],
)
def test_a_wrong_use_has_a_code_a_place_and_a_hint(
    arguments: str, code: str, where: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    picture(tmp_path / "lines" / "a.png")
    picture(tmp_path / "pictures" / "a.png")
    write(tmp_path / "data" / "dataset.json", "{}")
    write(tmp_path / "run" / "config.yaml", "dataset: data\noutput: run\n")
    write(tmp_path / "run" / "adapter" / "reading.json", "{}")
    write(tmp_path / "lines" / "letters.tsv", "scan\twords\na.png\tмир\n")
    monkeypatch.chdir(tmp_path)
    error = fail(monkeypatch, *arguments.split())
    assert (error.code, error.where and Path(error.where).as_posix()) == (code, where)
    assert error.hint


def test_the_next_command_can_be_typed_where_a_path_has_spaces(
    small_dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Texts
) -> None:
    out = tmp_path / "мои данные"
    _, said, _ = call(monkeypatch, capsys, "prepare", small_dataset.parent / "source", "-o", out)
    assert f'next:    dsocr check "{out}"\n' in said


def test_a_word_too_many_says_how_it_happens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Texts) -> None:
    picture(tmp_path / "мои сканы" / "a.png")
    monkeypatch.chdir(tmp_path)
    code, _, said = call(monkeypatch, capsys, "prepare", "мои", "сканы", "-o", "out")
    assert (code, "(сканы): put a path with spaces in quotes" in said) == (2, True)
    code, _, said = call(monkeypatch, capsys, "train", "mine.yaml", "training.epochs=3")
    assert (code, "(training.epochs=3): put --set before a setting" in said) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param(["transcribe", "run"], "Missing argument 'inputs'. Images, PDF, ALTO", id="argument"),
        pytest.param(["prepare", "scans"], "Missing option '--output' / '-o'. Folder to write.", id="option"),
    ],
)
def test_what_is_missing_is_described(
    arguments: list[str], said: str, monkeypatch: pytest.MonkeyPatch, capsys: Texts
) -> None:
    code, _, err = call(monkeypatch, capsys, *arguments)
    assert (code, said in " ".join(err.split())) == (2, True)


@pytest.mark.parametrize("command", ["prepare", "convert"])
def test_what_was_made_before_names_the_option_that_replaces_it(
    command: str, small_dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Texts
) -> None:
    source, to = small_dataset.parent / "source", ["--to", "tsv"] if command == "convert" else []
    assert call(monkeypatch, capsys, command, source, "-o", tmp_path / "made", *to)[0] == 0
    said = refusal(monkeypatch, capsys, command, source, "-o", tmp_path / "made", *to)
    assert "--overwrite" in said


def test_a_workbench_says_that_its_port_is_taken_before_it_reads_a_page(
    taken: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Texts
) -> None:
    pages = make_pages(tmp_path / "box")
    said = refusal(monkeypatch, capsys, "workbench", pages, "--port", taken, "--no-show")
    assert f"cannot listen on 127.0.0.1:{taken}: " in said
    assert said.count("127.0.0.1") == 1
    assert not (tmp_path / "box.workbench").exists()


def test_a_workbench_does_not_take_the_folder_of_a_file_for_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Texts
) -> None:
    page = make_pages(tmp_path / "box") / "page" / "scan-1.xml"
    with socket.create_server(("127.0.0.1", 0)) as listener:
        free = listener.getsockname()[1]
    said = refusal(monkeypatch, capsys, "workbench", page, "--port", free, "--no-show", "--work", tmp_path / "work")
    assert "single file" in said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param("evaluate run --split train2", "'train2' is not one of 'train', 'validation', 'test'", id="split"),
        pytest.param("compare a --missing x", "'x' is not one of 'error', 'empty'", id="choice"),
        pytest.param("check d --max-text-tokens x", "must be a valid integer, not 'x'", id="no number"),
        pytest.param("serve run --port 99999", "must be less than or equal to 65535, not '99999'", id="too large"),
        pytest.param("forecast c --more 1.5", "must be a valid integer, not '1.5'", id="one of several"),
    ],
)
def test_a_value_that_an_option_cannot_have_is_refused_in_our_words(
    arguments: str, said: str, monkeypatch: pytest.MonkeyPatch, capsys: Texts
) -> None:
    code, _, err = call(monkeypatch, capsys, *arguments.split())
    assert code == 2
    assert said in err
    assert "Value error" not in err
    assert "Input should" not in err
