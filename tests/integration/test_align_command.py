"""From scans and a text to a dataset, by the commands: what nobody accepted trains, and nothing is measured on it."""

import re
from pathlib import Path

import dsocr
from tests.integration.calling import Call, Fail
from tests.training.aligning import PAGES, copy_pages, true_lines


def test_aligned_lines_train_only_until_somebody_accepts_them(tmp_path: Path, call: Call, fail: Fail) -> None:
    (tmp_path / "scans").mkdir()
    scans = copy_pages(tmp_path / "scans", lines=5)
    text = tmp_path / "text.txt"
    text.write_text("\n".join(line for name in PAGES for line in true_lines(scans, name)), encoding="utf-8")
    call("align", scans, text, "-o", tmp_path / "out", "--sure", "0.8")
    pages, nobody = tmp_path / "out" / "pages", tmp_path / "nobody"
    out, _ = call("prepare", pages, "-o", nobody, "--split", "0.5/0/0.5")
    assert "aligned texts were accepted by nobody" in out
    samples = dsocr.Dataset.open(nobody).samples("train")
    assert 5 <= len(samples) == len(dsocr.Dataset.open(nobody))
    assert all(sample.aligned is not None and sample.aligned >= 0.8 for sample in samples)
    assert fail("prepare", pages, "-o", tmp_path / "folds", "--folds", 3).code == "folds-conflict"
    assert fail("evaluate", nobody, "--folds").code == "folds-conflict"

    marked = pages / "page" / f"{PAGES[0]}.xml"
    accepted = re.sub(r"alignment \{text:(sure|doubt);\}", "", marked.read_text(encoding="utf-8"))
    marked.write_text(accepted, encoding="utf-8")  # as the workbench exports it
    call("prepare", pages, "-o", tmp_path / "mixed", "--split", "0.5/0/0.5")
    mixed = dsocr.Dataset.open(tmp_path / "mixed")
    tested = mixed.samples("test")
    assert {sample.page for sample in tested} == {PAGES[0]}
    assert {sample.aligned for sample in tested} == {None}
    assert all(sample.aligned is not None for sample in mixed.samples("train"))
