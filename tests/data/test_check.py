"""`check` finds every mistake at its place and with its severity, and lists all of it."""

import csv
import errno
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from dsocr.data import check as check_package
from dsocr.data.check import Findings, check_dataset
from dsocr.data.check.findings import REMEDIES, SEVERITIES, Finding
from dsocr.data.check.image_checks import read_samples
from dsocr.data.dataset import Dataset
from dsocr.data.prepare import prepare
from dsocr.io import processes
from tests.data.making import SQUARE, picture, write, write_pages
from tests.raising import raises_code

TRAIN, TEST = "train/metadata.jsonl", "test/metadata.jsonl"


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three writers, one to a split, three lines each, no two images alike."""
    source = write_pages(tmp_path_factory.mktemp("clean") / "source", ["anna_1", "boris_1", "vera_1"])
    for place, name in enumerate(("anna_1", "boris_1", "vera_1")):
        marks = np.random.default_rng(place).random((25, 50)) < 0.25
        Image.fromarray(np.where(marks, 55, 255).astype(np.uint8)).resize((100, 50), Image.Resampling.NEAREST).save(
            source / f"{name}.png"
        )
        document = (source / f"{name}.xml").read_text(encoding="utf-8")
        for number in range(3):
            left, right = 30 * number + 5, 30 * number + 28
            document = document.replace('"10 25 60 25"', f'"{left} 35 {right} 35"', 1)
            document = document.replace(f'"{SQUARE}"', f'"{left},5 {right},5 {right},45 {left},45"', 1)
        write(source / f"{name}.xml", document)
    return prepare(source, source.with_name("out"), writer="(.+)_").folder


@pytest.fixture
def folder(clean: Path, tmp_path: Path) -> Path:
    return shutil.copytree(clean, tmp_path / "out")


def found(folder: Path) -> dict[str, Finding]:
    return {finding.code: finding for finding in check_dataset(Dataset.open(folder))}


def edit(folder: Path, metadata: str, change: Callable[[list[dict[str, object]]], object]) -> None:
    rows = [json.loads(line) for line in (folder / metadata).read_text(encoding="utf-8").splitlines()]
    change(rows)
    write(folder / metadata, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


def image_of(folder: Path, metadata: str, row: int) -> Path:
    name: str = json.loads((folder / metadata).read_text(encoding="utf-8").splitlines()[row])["file_name"]
    return folder / metadata.partition("/")[0] / name


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda folder: edit(folder, TEST, lambda rows: rows[0].update(text="иначе")), id="a text"),
        pytest.param(lambda folder: edit(folder, TEST, lambda rows: rows.append(rows[0])), id="a row more"),
        pytest.param(lambda folder: picture(image_of(folder, TEST, 0), colour="pink"), id="an image"),
        pytest.param(lambda folder: image_of(folder, TEST, 0).unlink(), id="an image gone"),
    ],
)
def test_change_after_the_card_was_written(folder: Path, change: Callable[[Path], object]) -> None:
    change(folder)
    finding = found(folder)["hash-differs"]
    assert (finding.severity, finding.where, finding.count) == ("warning", TEST, 1)
    assert finding.examples[0].sample == ""


def test_samples_that_the_metadata_lost_are_an_error(folder: Path) -> None:
    edit(folder, TEST, lambda rows: rows.pop())
    findings = found(folder)
    assert (findings["metadata-short"].severity, findings["metadata-short"].where) == ("error", TEST)
    assert "hash-differs" not in findings


@pytest.mark.slow
def test_two_processes_find_the_same_as_one(small_dataset: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dsocr.data.check.image_checks._BATCH", 3)
    monkeypatch.setattr(processes, "START_AFTER", 0.0)
    dataset = Dataset.open(small_dataset)
    alone = list(read_samples(dataset, 1))
    assert len(alone) == 24
    assert all(item.sample.geometry == {} for item in alone)
    assert list(read_samples(dataset, 2)) == alone


@pytest.fixture(scope="module")
def many_findings(clean: Path, tmp_path_factory: pytest.TempPathFactory) -> Findings:
    """An error, a note, and a warning at more places than anybody would print."""
    folder = shutil.copytree(clean, tmp_path_factory.mktemp("many") / "out")
    copies = [{"text": f"пять\u00a0кг {number}"} for number in range(60)]
    edit(folder, TRAIN, lambda rows: rows.extend([{**rows[0], **copy} for copy in copies]))
    edit(folder, TEST, lambda rows: rows[0].update(text=""))
    return check_dataset(Dataset.open(folder), workers=1)


def test_json_and_csv_list_every_place(many_findings: Findings, tmp_path: Path) -> None:
    findings = {finding["code"]: finding for finding in json.loads(many_findings.to_json(tmp_path / "findings.json"))}
    assert json.loads((tmp_path / "findings.json").read_text(encoding="utf-8")) == list(findings.values())
    invisible = findings["invisible-characters"]
    assert (invisible["count"], len(invisible["examples"]), invisible["by_split"]) == (60, 60, {"train": 60})
    assert invisible["examples"][-1]["where"] == f"{TRAIN}:63"
    many_findings.to_csv(tmp_path / "findings.csv")
    with (tmp_path / "findings.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == sum(finding["count"] for finding in findings.values())
    assert sum(row["code"] == "invisible-characters" for row in rows) == 60


def test_printed_findings_show_the_first_places(many_findings: Findings) -> None:
    printed = str(many_findings)
    assert all(f"[{finding.code}]" in printed and finding.remedy in printed for finding in many_findings)
    assert f"{TRAIN}:63" not in printed


def test_file_that_cannot_be_written(many_findings: Findings, tmp_path: Path) -> None:
    for write_file in (many_findings.to_json, many_findings.to_csv):
        with raises_code("write-failed", str(Path("nowhere", "findings"))):
            write_file(tmp_path / "nowhere" / "findings")


def test_a_full_disk_leaves_no_half_a_file(
    many_findings: Findings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    many_findings.to_csv(tmp_path / "findings.csv")
    before = (tmp_path / "findings.csv").read_bytes()
    monkeypatch.setattr("os.fsync", fail)
    with raises_code("disk-full", "findings.csv"):
        many_findings.to_json(tmp_path / "findings.csv")
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [before]


def test_every_code_has_a_remedy_and_a_row_in_the_guide() -> None:
    modules = Path(check_package.__file__).parent.glob("*.py")
    source = "\n".join([module.read_text(encoding="utf-8") for module in modules])
    codes = set(re.findall(r'"([a-z-]+)",\s+"(?:error|warning|note)"', source)) - {*SEVERITIES}
    assert len(codes) > 15
    assert codes <= REMEDIES.keys()
    guide = (Path(__file__).parents[2] / "docs" / "guide" / "check.md").read_text(encoding="utf-8")
    rows = [line.split("|")[1] for line in guide.splitlines() if line.startswith("| `")]
    assert {code for row in rows for code in re.findall(r"`([a-z][a-z-]+)`", row)} == set(REMEDIES)
