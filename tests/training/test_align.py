"""Tests of aligning scans with texts: what is written, what is sure, and what becomes of it afterwards."""

import csv
import shutil
from pathlib import Path
from typing import Any

import pytest

import dsocr
from dsocr.document import Split
from dsocr.formats.alto import parse_alto
from dsocr.formats.xml import parse_xml
from dsocr.io import work
from dsocr.text import comparable
from dsocr.training.align import LINES
from tests.raising import raises_code

SAMPLE = Path("examples/copiste")
PAGES = ("imp_wikitexte_0052", "imp_wikitexte_0093")
NOTE = "Publié d'après le manuscrit original, tome II, page 318; voir aussi la lettre suivante."


@pytest.fixture(scope="module")
def scans(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two pages of real handwriting, whose ALTO files have the lines."""
    folder = tmp_path_factory.mktemp("scans")
    for name in PAGES:
        for kind, suffix in (("alto", ".xml"), ("jpg", ".jpg")):
            (folder / kind).mkdir(exist_ok=True)
            shutil.copy(SAMPLE / kind / f"{name}{suffix}", folder / kind)
    return folder


def true_lines(scans: Path, name: str) -> list[str]:
    return [comparable(line.text) for line in parse_alto(parse_xml(scans / "alto" / f"{name}.xml")).lines]


@pytest.fixture(scope="module")
def aligned(scans: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """One text for both pages, in the other order, with a note between them."""
    folder = tmp_path_factory.mktemp("aligned")
    texts = [" ".join(true_lines(scans, name)) for name in reversed(PAGES)]
    (folder / "edition.txt").write_text(f"{NOTE}\n{texts[0]}\n{NOTE}\n{texts[1]}\n", encoding="utf-8")
    return folder, dsocr.align(scans, folder / "edition.txt", folder / "out", rounds=1)


def test_sure_lines_have_exactly_their_text(aligned: tuple[Path, Any], scans: Path) -> None:
    folder, report = aligned
    dataset = dsocr.Dataset.open(folder / "out" / "dataset")
    truth = {text for name in PAGES for text in true_lines(scans, name)}
    samples = [sample for split in Split for sample in dataset.samples(split)]
    assert {sample.split for sample in samples} == {Split.TRAIN}
    assert len(samples) == report.sure >= 0.7 * report.lines
    assert sum(sample.text not in truth for sample in samples) <= 1
    assert report.pages == len(PAGES)
    assert report.missing == []


def test_every_line_is_listed_with_its_score_those_in_doubt_first(aligned: tuple[Path, Any]) -> None:
    folder, report = aligned
    with (folder / "out" / LINES).open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    assert len(rows) == report.lines
    scores = [float(row["score"]) for row in rows if row["text"]]
    assert scores == sorted(scores)
    assert sum(row["sure"] == "yes" for row in rows) == report.sure


def test_a_page_is_tested_on_when_its_lines_are_accepted(aligned: tuple[Path, Any], tmp_path: Path) -> None:
    folder, report = aligned
    pages = Path(shutil.copytree(folder / "out" / "pages", tmp_path / "pages"))
    for path in (pages / "page").glob("*.xml"):
        marked = path.read_text(encoding="utf-8")
        assert "alignment {text:" in marked
        accepted = marked.replace("alignment {text:sure;}", "").replace("alignment {text:doubt;}", "")
        path.write_text(accepted, encoding="utf-8")
    dataset = dsocr.prepare(pages, tmp_path / "checked", split="0.5/0/0.5")
    assert sum(1 for _ in dataset.samples(Split.TEST)) > 0
    assert sum(sum(1 for _ in dataset.samples(split)) for split in Split) == report.sure + report.doubt


def test_a_text_of_something_else_is_an_error_and_nothing_is_written(scans: Path, tmp_path: Path) -> None:
    (tmp_path / "other.txt").write_text(NOTE * 20, encoding="utf-8")
    with raises_code("alignment-empty"):
        dsocr.align(scans, tmp_path / "other.txt", tmp_path / "out", rounds=1)
    assert not (tmp_path / "out").exists()


def test_a_killed_job_goes_on_without_reading_again(
    scans: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dsocr.inference.reader import LocalReader
    from dsocr.training import align as module

    (tmp_path / "text.txt").write_text(" ".join(t for n in PAGES for t in true_lines(scans, n)), encoding="utf-8")

    def killed(*arguments: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(module, "_judge", killed)
        patch.setattr(work, "MIN_SECONDS_KEPT", 0)
        with pytest.raises(KeyboardInterrupt):
            dsocr.align(scans, tmp_path / "text.txt", tmp_path / "out", rounds=1)
    monkeypatch.setattr(LocalReader, "read_steps", killed)
    assert dsocr.align(scans, tmp_path / "text.txt", tmp_path / "out", rounds=1).sure > 0
