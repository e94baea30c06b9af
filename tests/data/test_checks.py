"""Every mistake planted in a dataset is found, at its place, with its severity."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from dsocr.data import check as checking
from dsocr.data.check import survey_dataset
from dsocr.data.check.findings import FIXES, Finding
from dsocr.data.dataset import Dataset
from dsocr.data.prepare import prepare
from dsocr.document import Split
from tests.data.making import SQUARE, picture, write, write_pages

TRAIN, TEST = "train/metadata.jsonl", "test/metadata.jsonl"


OF_ITS_SIZE = {"few-samples", "few-writers", "rare-characters", "unseen-in-train"}
"""What is true of any dataset of nine lines, and not what these tests are about; `test_balance.py` is."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three writers, one to a split, three lines each, no two images alike."""
    source = write_pages(tmp_path / "source", ["anna_1", "boris_1", "vera_1"])
    for place, name in enumerate(("anna_1", "boris_1", "vera_1")):
        marks = np.random.default_rng(place).random((25, 50)) < 0.25
        Image.fromarray(np.where(marks, 55, 255).astype(np.uint8)).resize((100, 50), Image.Resampling.NEAREST).save(
            source / f"{name}.png"
        )
        document = (source / f"{name}.xml").read_text(encoding="utf-8")
        for number in range(3):
            left, right = 30 * number + 5, 30 * number + 28
            document = document.replace(f'"{SQUARE}"', f'"{left},5 {right},5 {right},45 {left},45"', 1)
        write(source / f"{name}.xml", document)
    return prepare(source, tmp_path / "out", writer="(.+)_").dataset


def found(folder: Path, **options: object) -> dict[str, Finding]:
    findings = survey_dataset(Dataset.open(folder), **options).findings  # type: ignore[arg-type]
    assert len({finding.code for finding in findings}) == len(findings)
    return {finding.code: finding for finding in findings if finding.code not in OF_ITS_SIZE}


def edit(folder: Path, metadata: str, change: Callable[[list[dict[str, object]]], object]) -> None:
    rows = [json.loads(line) for line in (folder / metadata).read_text(encoding="utf-8").splitlines()]
    change(rows)
    write(folder / metadata, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


def set_card(folder: Path, **values: object) -> None:
    card = json.loads((folder / "dataset.json").read_text(encoding="utf-8"))
    write(folder / "dataset.json", json.dumps(card | values))


def test_a_fresh_dataset_has_no_findings(folder: Path) -> None:
    assert found(folder) == {}


@pytest.mark.parametrize("content", [None, b"", b"\x89PNG"], ids=["missing", "empty", "damaged"])
def test_an_unreadable_image_is_an_error(folder: Path, content: bytes | None) -> None:
    image = Dataset.open(folder).folder / "train" / "images"
    path = sorted(image.iterdir())[1]
    path.unlink() if content is None else path.write_bytes(content)
    finding = found(folder)["unreadable-image"]
    assert (finding.severity, finding.where, finding.count) == ("error", f"{TRAIN}:2", 1)
    assert path.name in finding.examples[0]


def test_an_empty_text_is_an_error(folder: Path) -> None:
    edit(folder, TEST, lambda rows: [row.update(text="\u200b ") for row in rows[1:]])
    finding = found(folder)["empty-text"]
    assert (finding.severity, finding.where, finding.count) == ("error", f"{TEST}:2", 2)


def test_a_text_beyond_the_budget_is_an_error(folder: Path) -> None:
    edit(folder, TEST, lambda rows: rows[2].update(text="д" * 50))
    finding = found(folder, count_tokens=len, max_text_tokens=49)["long-text"]
    assert (finding.severity, finding.where) == ("error", f"{TEST}:3")
    assert finding.examples == (f"{TEST}:3: 50 tokens",)
    assert "long-text" not in found(folder, count_tokens=len, max_text_tokens=50)


def test_unknown_characters_are_listed_and_counted(folder: Path) -> None:
    edit(folder, TRAIN, lambda rows: rows[0].update(text="ѣѣ\u00ad"))
    edit(folder, TEST, lambda rows: rows[0].update(text="ѣ"))
    unknown = {"unknown_characters": lambda text: "".join(letter for letter in text if letter in "ѣ\u00ad")}
    finding = found(folder, **unknown)["unknown-characters"]
    assert finding.severity == "warning"
    assert finding.message.endswith(": ѣ 3x, U+00AD 1x")
    assert (finding.count, finding.where) == (2, f"{TRAIN}:1")


@pytest.mark.parametrize(
    ("kind", "split_by", "severity"),
    [
        pytest.param("writer", "writer", "error", id="writers promised apart"),
        pytest.param("writer", "page", "note", id="writers where pages were split"),
        pytest.param("writer", "text", "note", id="writers where texts were split"),
        pytest.param("writer", "given", "note", id="writers in given splits"),
        pytest.param("page", "page", "error", id="pages promised apart"),
        pytest.param("page", "writer", "warning", id="a page by two writers"),
        pytest.param("page", "given", "warning", id="pages in given splits"),
        pytest.param("page", "text", "note", id="pages where texts were split"),
        pytest.param("text", "text", "error", id="texts promised apart"),
        pytest.param("text", "writer", "note", id="texts where writers were split"),
    ],
)
def test_what_stands_in_two_splits(folder: Path, kind: str, split_by: str, severity: str) -> None:
    set_card(folder, split_by=split_by)
    edit(folder, TRAIN, lambda rows: rows[1].update({kind: "один"}))
    edit(folder, TEST, lambda rows: rows[2].update({kind: "один"}))
    finding = found(folder)[f"{kind}-crosses"]
    assert (finding.severity, finding.count) == (severity, 1)
    assert finding.examples == (f"{TRAIN}:2: 'один' in train and test",)


def test_an_unknown_writer_weakens_a_split_by_writer(folder: Path) -> None:
    edit(folder, TEST, lambda rows: rows[0].update(writer=None))
    finding = found(folder)["no-writer"]
    assert (finding.severity, finding.where) == ("warning", f"{TEST}:1")


def image_of(folder: Path, metadata: str, row: int) -> Path:
    name: str = json.loads((folder / metadata).read_text(encoding="utf-8").splitlines()[row])["file_name"]
    return folder / metadata.partition("/")[0] / name


@pytest.mark.parametrize(
    ("metadata", "code", "severity"),
    [
        pytest.param(TRAIN, "duplicate-image", "warning", id="inside a split"),
        pytest.param(TEST, "image-crosses", "error", id="across splits"),
    ],
)
def test_the_same_image_twice(folder: Path, metadata: str, code: str, severity: str) -> None:
    image_of(folder, metadata, 2).write_bytes(image_of(folder, TRAIN, 0).read_bytes())
    finding = found(folder)[code]
    assert (finding.severity, finding.examples) == (severity, (f"{metadata}:3: same as {TRAIN}:1",))


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda folder: edit(folder, TEST, lambda rows: rows[0].update(text="иначе")), id="a text"),
        pytest.param(lambda folder: edit(folder, TEST, lambda rows: rows.pop()), id="a row"),
        pytest.param(lambda folder: picture(image_of(folder, TEST, 0), colour="pink"), id="an image"),
        pytest.param(lambda folder: image_of(folder, TEST, 0).unlink(), id="an image gone"),
    ],
)
def test_a_change_after_the_card_is_noticed(folder: Path, change: Callable[[Path], object]) -> None:
    change(folder)
    finding = found(folder)["hash-differs"]
    assert (finding.severity, finding.where, finding.count) == ("warning", TEST, 1)


def test_errors_come_first(folder: Path) -> None:
    edit(folder, TRAIN, lambda rows: rows[0].update(writer=None))
    edit(folder, TEST, lambda rows: rows[0].update(text=""))
    severities = [finding.severity for finding in survey_dataset(Dataset.open(folder)).findings]
    assert set(severities) == {"error", "warning", "note"}
    assert severities == sorted(severities, key=["error", "warning", "note"].index)


def test_progress_is_told(folder: Path) -> None:
    told: list[tuple[int, int]] = []
    found(folder, progress=lambda done, total: told.append((done, total)))
    assert told[-1] == (9, 9)


@pytest.mark.parametrize(
    ("factor", "told"),
    [(1.4, None), (0.7, None), (2.25, "2.2 times too tall"), (0.5, "2.0 times too wide")],
)
def test_letters_shown_out_of_shape_are_told(folder: Path, factor: float, told: str | None) -> None:
    findings = found(folder, distortion=lambda width, height: factor)
    if told is None:
        assert findings == {}
        return
    finding = findings["distorted-image"]
    assert (finding.severity, finding.where, finding.count) == ("warning", f"{TRAIN}:1", 9)
    assert told in finding.message
    assert "resolution base" in finding.message


def test_every_finding_says_what_to_do_and_whose_it_is(folder: Path) -> None:
    edit(folder, TRAIN, lambda rows: rows[0].update(writer=None))
    edit(folder, TEST, lambda rows: rows[0].update(text=""))
    findings = found(folder)
    assert all(finding.fix.endswith(".") for finding in findings.values())
    assert findings["no-writer"].samples == (Dataset.open(folder).samples(Split.TRAIN)[0].id,)
    assert findings["hash-differs"].samples == ("", "")


def test_every_code_in_the_checks_has_a_fix() -> None:
    modules = Path(checking.__file__).parent.glob("*.py")
    source = "\n".join([module.read_text(encoding="utf-8") for module in modules])
    codes = set(re.findall(r'findings\.add(?:_place)?\("([a-z-]+)"', source))
    assert len(codes) > 15
    assert codes <= FIXES.keys()


def test_the_guide_tells_of_every_code_and_of_no_other() -> None:
    guide = (Path(__file__).parents[2] / "docs" / "guide" / "checking.md").read_text(encoding="utf-8")
    rows = [line.split("|")[1] for line in guide.splitlines() if line.startswith("| `")]
    assert {code for row in rows for code in re.findall(r"`([a-z-]+)`", row)} == set(FIXES)


def test_a_text_that_costs_many_tokens_is_told(folder: Path) -> None:
    edit(folder, TEST, lambda rows: rows[1].update(text="ქართული"))
    finding = found(folder, count_tokens=lambda text: len(text.encode()))["many-tokens"]
    assert (finding.severity, finding.count, finding.where) == ("note", 1, f"{TEST}:2")
    assert "21 tokens for 7 characters" in finding.examples[0]


def test_a_script_that_costs_many_tokens_is_told_once(folder: Path) -> None:
    finding = found(folder, count_tokens=lambda text: 2 * len(text))["many-tokens"]
    assert (finding.severity, finding.count) == ("note", 1)
    assert "needs 2.0 tokens for a character" in finding.message
    assert "many-tokens" not in found(folder, count_tokens=len)
