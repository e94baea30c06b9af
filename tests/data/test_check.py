"""`check` finds every mistake at its place and with its severity, and lists all of it."""

import csv
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from dsocr.data import check as check_package
from dsocr.data.check import Findings, check_dataset
from dsocr.data.check.findings import REMEDIES, Finding
from dsocr.data.check.image_checks import read_samples
from dsocr.data.dataset import Dataset
from dsocr.data.prepare import prepare
from dsocr.io import processes
from tests.data.check_samples import processor
from tests.data.making import SQUARE, picture, write, write_pages
from tests.raising import raises_code

TRAIN, TEST = "train/metadata.jsonl", "test/metadata.jsonl"


SIZE_CODES = {"few-samples", "few-writers", "rare-characters", "unseen-in-train"}
"""True of any dataset of nine lines; tested in `test_checks.py`."""


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


def found(folder: Path, **options: object) -> dict[str, Finding]:
    findings = check_dataset(Dataset.open(folder), **options)  # type: ignore[arg-type]
    assert len({finding.code for finding in findings}) == len(findings)
    return {finding.code: finding for finding in findings if finding.code not in SIZE_CODES}


def edit(folder: Path, metadata: str, change: Callable[[list[dict[str, object]]], object]) -> None:
    rows = [json.loads(line) for line in (folder / metadata).read_text(encoding="utf-8").splitlines()]
    change(rows)
    write(folder / metadata, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


def image_of(folder: Path, metadata: str, row: int) -> Path:
    name: str = json.loads((folder / metadata).read_text(encoding="utf-8").splitlines()[row])["file_name"]
    return folder / metadata.partition("/")[0] / name


def test_texts_may_be_as_long_as_max_text_tokens(folder: Path) -> None:
    edit(folder, TEST, lambda rows: rows[0].update(text="д" * 50))
    assert "long-text" in found(folder, processor=processor(), max_text_tokens=49)
    assert "long-text" not in found(folder, processor=processor(), max_text_tokens=50)


def test_unknown_characters_are_counted(folder: Path) -> None:
    edit(folder, TRAIN, lambda rows: rows[0].update(text="ѣѣ\u00ad"))
    edit(folder, TEST, lambda rows: rows[0].update(text="ѣ"))
    finding = found(folder, processor=processor("ѣ\u00ad"))["unknown-characters"]
    assert finding.message.endswith(": ѣ 3x, U+00AD 1x")
    assert (finding.severity, finding.count, finding.where) == ("warning", 2, f"{TRAIN}:1")


@pytest.mark.parametrize(
    ("kind", "split_by", "severity"),
    [
        pytest.param("writer", "writer", "error", id="promised"),
        pytest.param("writer", "page", "note", id="writers if split by page"),
        pytest.param("writer", "given", "note", id="writers in given splits"),
        pytest.param("page", "page", "error", id="pages promised"),
        pytest.param("page", "writer", "warning", id="a page by two writers"),
        pytest.param("page", "given", "warning", id="pages in given splits"),
        pytest.param("page", "text", "note", id="pages if split by text"),
        pytest.param("text", "text", "error", id="texts promised"),
        pytest.param("text", "writer", "note", id="texts if split by writer"),
    ],
)
def test_in_several_splits(folder: Path, kind: str, split_by: str, severity: str) -> None:
    card = json.loads((folder / "dataset.json").read_text(encoding="utf-8"))
    write(folder / "dataset.json", json.dumps(card | {"split_by": split_by}))
    edit(folder, TRAIN, lambda rows: rows[1].update({kind: "один"}))
    edit(folder, TEST, lambda rows: rows[2].update({kind: "один"}))
    finding = found(folder)[f"{kind}-crosses"]
    assert (finding.severity, finding.count, finding.where) == (severity, 1, f"{TRAIN}:2")


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


@pytest.mark.parametrize(
    ("factor", "amount"),
    [(1.4, None), (0.7, None), (2.25, "2.2 times too tall"), (0.5, "2.0 times too wide")],
)
def test_distorted_letters(folder: Path, factor: float, amount: str | None) -> None:
    finding = found(folder, processor=processor(distortion=lambda width, height: factor)).get("distorted-image")
    assert (finding and (finding.severity, finding.where, finding.count)) == (
        ("warning", f"{TRAIN}:1", 9) if amount else None
    )
    assert finding is None or str(amount) in finding.message


def test_script_that_costs_many_tokens_is_reported_once(folder: Path) -> None:
    finding = found(folder, processor=processor(count_tokens=lambda text: 2 * len(text)))["many-tokens"]
    assert (finding.severity, finding.count) == ("note", 1)
    assert "2.0 tokens per character" in finding.message
    assert "many-tokens" not in found(folder, processor=processor())


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
    for write_file in (many_findings.to_json, many_findings.to_csv, many_findings.to_html):
        with raises_code("write-failed") as caught:
            write_file(tmp_path / "nowhere" / "findings")
        assert caught.value.where == str(tmp_path / "nowhere" / "findings")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_disk_leaves_no_half_a_file(
    many_findings: Findings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "findings.csv"
    opened, write = Path.open, many_findings.to_csv

    def open_full(path: Path, mode: str = "r", *arguments: Any, **options: Any) -> Any:
        """Open a file that takes no more than nothing."""
        file = opened(path, mode, *arguments, **options)
        if "w" in mode and path.parent == tmp_path:
            file.close()
            return opened(Path("/dev/full"), mode, *arguments, **options)
        return file

    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", open_full)
        with raises_code("disk-full", place.name):
            write(place)
    assert list(tmp_path.iterdir()) == []
    write(place)
    before = place.read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", open_full)
        with raises_code("disk-full", place.name):
            write(place)
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [before]


def test_every_code_has_a_remedy_and_a_row_in_the_guide() -> None:
    modules = Path(check_package.__file__).parent.glob("*.py")
    source = "\n".join([module.read_text(encoding="utf-8") for module in modules])
    codes = set(re.findall(r'Problem\("([a-z-]+)"', source))
    assert len(codes) > 15
    assert codes <= REMEDIES.keys()
    guide = (Path(__file__).parents[2] / "docs" / "guide" / "check.md").read_text(encoding="utf-8")
    rows = [line.split("|")[1] for line in guide.splitlines() if line.startswith("| `")]
    assert {code for row in rows for code in re.findall(r"`([a-z][a-z-]+)`", row)} == set(REMEDIES)
