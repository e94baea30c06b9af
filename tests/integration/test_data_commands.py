"""`dsocr prepare`, `check`, `preview` and `convert` as users type them."""

import json
import re
import shutil
from pathlib import Path

import pytest

from tests.data.making import pair, write
from tests.integration.calling import Call, Fail


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Six writers of two lines each, one of them in cp1251, one with struck-out text."""
    for number, writer in enumerate("abcdef"):
        for line in (1, 2):
            pair(tmp_path / "s", f"{writer}_{line}", f"текст {writer} {line}", colour=(number, line, 0))
    write(tmp_path / "s/a_1.txt", "дом >стол< стоит")
    write(tmp_path / "s/b_1.txt", "Съешь ещё этих булок", encoding="cp1251")
    return tmp_path / "s"


def test_every_choice_together_and_the_report(source: Path, tmp_path: Path, call: Call) -> None:
    data, policy = tmp_path / "out", write(tmp_path / "archive.yaml", "struck: drop-line\n")
    names = write(tmp_path / "published.txt", "a\ttrain\n")
    options: list[object] = ["--writer", "(.)_", "--split-by", "writer+text", "--split", "0.6/0.2/0.2", "--no-stratify"]
    options += ["--encoding", "cp1251", "--text-policy", policy, "--text-policy", "struck=strip", "--fixed", names]
    out, _ = call("prepare", source, "-o", data, *options)
    assert "a_1.txt: 'дом >стол< стоит' -> 'дом стоит'" in out
    card = json.loads((data / "dataset.json").read_text(encoding="utf-8"))
    assert (card["split_by"], card["stratified"], card["fixed"]["names"]) == ("writer+text", False, 1)
    assert card["text_policy"]["struck"] == "strip"

    assert json.loads(call("check", data, "--json")[0])["crossing"]["writers"] == [0, []]

    options[options.index("--fixed") :] = ["--like", data]
    call("prepare", source, "-o", tmp_path / "again", *options)
    assert json.loads((tmp_path / "again" / "dataset.json").read_text(encoding="utf-8"))["like"] == "out"


def test_the_fold_to_check_is_given_or_named_by_the_configuration(
    source: Path, tmp_path: Path, call: Call, fail: Fail
) -> None:
    data = tmp_path / "out"
    call("prepare", source, "-o", data, "--writer", "(.)_", "--folds", 3)
    assert json.loads(call("check", data, "--set", "fold=2", "--json")[0])["fold"] == 2
    config = write(tmp_path / "run.yaml", f"dataset: {data.as_posix()}\noutput: run\nfold: 3\n")
    found = json.loads(call("check", config, "--json")[0])
    assert found["fold"] == 3
    out, _ = call("check", config, "--set", "fold=1", "--set", "training.max_text_tokens=3", "--json", code=1)
    assert json.loads(out)["fold"] == 1, "options win over the configuration"
    assert not {finding["code"] for finding in found["findings"]} & {"writer-crosses", "hash-differs"}
    write(config, config.read_text(encoding="utf-8").replace("fold: 3", "fold: 4"))
    assert fail("check", config).code == "bad-fold"


def test_check_exits_with_1_on_errors_and_lists_every_place(call: Call, small_dataset: Path, tmp_path: Path) -> None:
    pages = ("--html", tmp_path / "page.html", "--csv", tmp_path / "findings.csv")
    out, _ = call("check", small_dataset, "--set", "training.max_text_tokens=3", *pages, code=1)
    assert f"page: {tmp_path / 'page.html'}" in out
    assert "    fix: " in out
    assert "long-text" in (tmp_path / "page.html").read_text(encoding="utf-8")
    assert (tmp_path / "findings.csv").read_text(encoding="utf-8").count("\nlong-text,") == 24
    out, _ = call("check", small_dataset, "--set", "training.max_text_tokens=3", "--json", code=1)
    finding = json.loads(out)["findings"][0]
    assert (finding["severity"], finding["code"]) == ("error", "long-text")
    assert finding["where"].startswith("train/metadata.jsonl:")
    assert len(finding["examples"]) == finding["count"]


def test_check_fixes_into_a_new_dataset_and_checks_that(call: Call, small_dataset: Path, tmp_path: Path) -> None:
    data, new = tmp_path / "data", tmp_path / "new"
    shutil.copytree(small_dataset, data)
    metadata = data / "test" / "metadata.jsonl"
    metadata.write_text(metadata.read_text(encoding="utf-8").replace("ё", "е\u0308"), encoding="utf-8")
    assert "[decomposed-characters]" in call("check", data, "--workers", 1)[0]
    out, _ = call("check", data, "--fix", "-o", new)
    assert "test: 1 [decomposed-characters]" in out
    assert f"{new}: nothing prevents training" in out
    assert "hash-differs" not in out
    call("check", new, "--fix", "-o", tmp_path / "newer")
    assert not (tmp_path / "newer").exists(), "there is nothing to fix"


def test_nothing_learns_or_scores_on_a_dataset_that_lost_samples(
    call: Call, fail: Fail, small_dataset: Path, tmp_path: Path
) -> None:
    data, new = tmp_path / "data", tmp_path / "new"
    shutil.copytree(small_dataset, data)
    for metadata in data.glob("*/metadata.jsonl"):
        rows = metadata.read_bytes().splitlines(keepends=True)
        metadata.write_bytes(b"".join(rows[: len(rows) // 2]))
    config = write(tmp_path / "c.yaml", f"dataset: {data.as_posix()}\noutput: {(tmp_path / 'run').as_posix()}\n")
    # `train` checks the dataset first, and its error lists the findings.
    error = fail("train", config, "--no-preflight")
    assert error.code == "dataset-has-errors"
    assert "train/metadata.jsonl" in str(error)
    for command in (
        ("forecast", config),
        ("evaluate", "nano", "--dataset", data, "-o", tmp_path / "scores"),
        ("convert", data, "-o", tmp_path / "lines.tsv", "--to", "tsv"),
    ):
        assert fail(*command).code == "metadata-short", command
    call("check", data, code=1)
    call("check", data, "--fix", "-o", new)
    call("check", new)


def test_a_dataset_and_a_configuration_show_the_same(call: Call, small_dataset: Path, tmp_path: Path) -> None:
    text = f"dataset: {small_dataset.as_posix()}\noutput: {tmp_path.as_posix()}\ntraining: {{augmentation: light}}\n"
    written, sheet = [], tmp_path / "sheet.html"
    for source in (small_dataset, write(tmp_path / "c.yaml", text)):
        out, _ = call("preview", source, "-o", sheet, "--samples", 2, "--epochs", 2)
        assert {"2", "light", "17"} <= set(re.findall(r"\w+", out))
        assert f"page: {sheet}" in out
        written.append(sheet.read_bytes())
    assert written[0] == written[1]


def test_preview_shows_what_the_model_sees(call: Call, small_dataset: Path, tmp_path: Path) -> None:
    sheet = tmp_path / "s.html"
    out, _ = call("preview", small_dataset, "-o", sheet, "--samples", 1, "--epochs", 1, "--as-model")
    assert "x1.4" in out
    heights = re.findall(r'<img [^>]*height="(\d+)"', sheet.read_text(encoding="utf-8"))
    assert [0 < int(height) < 2 * 48 for height in heights] == [True, True], "lines at the height that the base sees"


def test_a_conversion_counts_what_it_wrote_and_is_not_replaced_unasked(
    call: Call, source: Path, small_dataset: Path, tmp_path: Path
) -> None:
    out, _ = call("convert", source, "-o", tmp_path / "table", "--to", "tsv", "--writer", "(.)_")
    assert "11 images, 11 lines" in out
    assert f"written: {tmp_path / 'table'}" in out
    assert "--overwrite" in call("convert", source, "-o", tmp_path / "table", "--to", "tsv", code=2)[1]
