"""`dsocr compare` as users type it."""

import json
import re
from pathlib import Path

import pytest

from tests.evaluation.making_runs import make_evaluated_run, misread, read_better
from tests.integration.calling import Call, Fail


@pytest.fixture(scope="module")
def run(small_dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("compared") / "run"
    return make_evaluated_run(folder, small_dataset, {"base": misread, "adapter": read_better}).path


def test_a_run_is_printed_as_answers_and_a_table(run: Path, call: Call) -> None:
    out, _ = call("compare", run)
    assert {"run", "base"} <= set(re.findall(r"\w+", out))
    assert json.loads(call("compare", run, "--json")[0])["differences"][0]["verdict"] == "too few"


def test_a_folder_is_written_and_only_replaced_when_asked(run: Path, tmp_path: Path, call: Call, fail: Fail) -> None:
    out = tmp_path / "found"
    call("compare", run, "-o", out)
    rows = [json.loads(line) for line in (out / "changes.jsonl").read_text(encoding="utf-8").splitlines()]
    assert {row["systems"]["second"] for row in rows} == {"run"}
    assert json.loads((out / "comparison.json").read_text(encoding="utf-8"))["about"]["split"] == "test"
    assert (out / "comparison.html").is_file()
    assert fail("compare", run, "-o", out).code == "output-exists"
    call("compare", run, "-o", out, "--overwrite")
    assert fail("compare", run, "-o", run, "--overwrite").code == "output-occupied"
