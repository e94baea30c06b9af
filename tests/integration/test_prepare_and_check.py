"""`dsocr prepare` with every choice of splits and texts, and `dsocr check` of what it made."""

import json
from pathlib import Path

import pytest

from tests.data.making import pair, write
from tests.integration.calling import call, fail

Texts = pytest.CaptureFixture[str]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Six writers of two lines each, one of them in cp1251, one with struck-out text."""
    for number, writer in enumerate("abcdef"):
        for line in (1, 2):
            pair(tmp_path / "s", f"{writer}_{line}", f"текст {writer} {line}", colour=(number, line, 0))
    write(tmp_path / "s/a_1.txt", "дом >стол< стоит")
    write(tmp_path / "s/b_1.txt", "Съешь ещё этих булок", encoding="cp1251")
    return tmp_path / "s"


def test_the_refusal_of_an_encoding_says_the_option_that_reads_it(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Texts
) -> None:
    code, out, _ = call(monkeypatch, capsys, "prepare", source, "-o", tmp_path / "out", "--writer", "(.)_")
    assert code == 0
    assert "skipped, source cannot be read: 1" in out
    assert "it looks like cp1251, which --encoding cp1251 reads" in out


def test_every_choice_together_and_the_report(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Texts
) -> None:
    data, policy = tmp_path / "out", write(tmp_path / "archive.yaml", "struck: drop-line\n")
    names = write(tmp_path / "published.txt", "a\ttrain\n")
    options: list[object] = ["--writer", "(.)_", "--split-by", "writer+text", "--split", "0.6/0.2/0.2", "--no-stratify"]
    options += ["--encoding", "cp1251", "--text-policy", policy, "--struck", "strip", "--fixed", names]
    code, out, err = call(monkeypatch, capsys, "prepare", source, "-o", data, *options)
    assert code == 0, err
    assert "text policy, texts changed by struck: 1, e.g. a_1.txt: 'дом >стол< стоит' -> 'дом стоит'" in out
    card = json.loads((data / "dataset.json").read_text(encoding="utf-8"))
    assert (card["split_by"], card["stratified"], card["fixed"]["names"]) == ("writer+text", False, 1)
    assert card["text_policy"]["struck"] == "strip"

    code, out, _ = call(monkeypatch, capsys, "check", data)
    assert code == 0
    assert "to quote:\nThe 12 samples of out were split by writer and text (seed 17): " in out
    code, out, _ = call(monkeypatch, capsys, "check", data, "--json")
    assert json.loads(out)["splits"]["crossing"]["writers"]["count"] == 0
    code, out, _ = call(monkeypatch, capsys, "check", data, "--markdown", tmp_path / "splits.md")
    assert (tmp_path / "splits.md").read_text(encoding="utf-8").startswith("# The splits of out\n\nThe 12 samples")

    options[options.index("--fixed") :] = ["--like", data]
    code, out, err = call(monkeypatch, capsys, "prepare", source, "-o", tmp_path / "again", *options)
    assert code == 0, err
    assert json.loads((tmp_path / "again" / "dataset.json").read_text(encoding="utf-8"))["like"] == "out"


def test_folds_are_made_and_reported(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Texts
) -> None:
    call(monkeypatch, capsys, "prepare", source, "-o", tmp_path / "out", "--writer", "(.)_", "--folds", 3)
    code, out, _ = call(monkeypatch, capsys, "check", tmp_path / "out", "--fold", 2, "--json")
    assert code == 0
    splits = json.loads(out)["splits"]
    assert (splits["folds"], splits["fold"]) == (3, 2)


def test_a_configuration_is_checked_by_the_fold_it_names(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Texts
) -> None:
    data = tmp_path / "out"
    call(monkeypatch, capsys, "prepare", source, "-o", data, "--writer", "(.)_", "--folds", 3)
    config = write(tmp_path / "run.yaml", f"dataset: {data.as_posix()}\noutput: {tmp_path.as_posix()}/run\nfold: 3\n")
    _, out, _ = call(monkeypatch, capsys, "check", config, "--json")
    assert not {finding["code"] for finding in json.loads(out)["findings"]} & {"writer-crosses", "hash-differs"}
    write(config, config.read_text(encoding="utf-8").replace("fold: 3", "fold: 4"))
    assert fail(monkeypatch, "check", config).code == "bad-fold"


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        pytest.param(["check", "nowhere"], "not-a-dataset", id="no dataset"),
        pytest.param(["prepare", "s", "-o", "o", "--struck", "erase"], "config-invalid", id="policy"),
        pytest.param(["prepare", "s", "-o", "o", "--text-policy", "no.yaml"], "config-missing", id="policy file"),
        pytest.param(["prepare", "s", "-o", "o", "--encoding", "cp9"], "unknown-encoding", id="encoding"),
        pytest.param(["prepare", "s", "-o", "o", "--folds", 2], "too-few-folds", id="folds"),
        pytest.param(["prepare", "s", "-o", "o", "--fixed", "no.txt"], "file-unreadable", id="list"),
        pytest.param(["prepare", "s", "-o", "o", "--like", "s"], "not-a-dataset", id="earlier dataset"),
    ],
)
def test_a_mistake_is_an_error_and_writes_nothing(
    arguments: list[object], code: str, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert fail(monkeypatch, *arguments).code == code
    assert not (tmp_path / "o").exists()
