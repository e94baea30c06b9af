"""`audit` from a dataset to its page, table and list."""

import csv
import json
from pathlib import Path
from typing import Any

import dsocr
from dsocr.data.dataset import Dataset
from dsocr.evaluation.report.audit_page import ALL, PAGE, TABLE


def test_an_audit_ranks_every_line_once(small_dataset: Path, tmp_path: Path) -> None:
    work = tmp_path / "work"
    quick: dict[str, Any] = {
        "base": "nano",
        "max_steps": 1,
        "batch_size": 4,
        "micro_batch_size": 4,
        "max_new_tokens": 8,
    }
    found = dsocr.audit(small_dataset, output=work, lines=5, **quick, adapter={"target_modules": "decoder"})
    ids = {sample.id for sample in Dataset.open(small_dataset)}
    rows = [json.loads(line) for line in (work / ALL).read_text(encoding="utf-8").splitlines()]
    assert {row["id"] for row in rows} == ids
    assert [row["rank"] for row in rows] == list(range(1, len(ids) + 1))
    assert [row["score"] for row in rows] == sorted((row["score"] for row in rows), reverse=True)
    with (work / TABLE).open(encoding="utf-8", newline="") as file:
        table = list(csv.DictReader(file))
    assert [row["id"] for row in table] == [row["id"] for row in rows[:5]]
    assert {row["correction"] for row in table} == {""}
    assert (work / PAGE).read_text(encoding="utf-8").count("<img") == 5
    assert found.count is None, "24 lines are too few"
    assert (work / "fold-3" / "adapter").is_dir()
