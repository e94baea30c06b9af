"""What has been cut is not cut again: after an interruption, and when a dataset is prepared anew."""

import errno
import hashlib
import json
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dsocr.data.dataset import Dataset
from dsocr.data.prepare import prepare
from dsocr.io import processes, work
from dsocr.io.work import Journal
from tests.data.making import picture, write, write_pages
from tests.raising import raises_code

PAGES = [f"w{number}_{side}" for number in range(4) for side in (1, 2)]


@pytest.fixture(scope="module", autouse=True)
def _same_time() -> Iterator[None]:
    """Everything is worth keeping, and every card bears the same date."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SOURCE_DATE_EPOCH", "1700000000")
        patch.setattr(work, "MIN_SECONDS_KEPT", 0)
        yield


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_pages(tmp_path_factory.mktemp("pages") / "source", PAGES, lines=1)


@pytest.fixture(scope="module")
def whole(pages: Path) -> Path:
    """The dataset of the pages, made without an interruption."""
    return made(pages, pages.with_name("whole")).folder


def made(source: Path, out: Path, **options: object) -> Dataset:
    return prepare(source, out, writer="(w.)_", split="0.5/0.25/0.25", **options)  # type: ignore[arg-type]


def content(folder: Path) -> dict[str, str]:
    """Every file below a folder with its hash."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}


def pictures(dataset: Path) -> dict[str, str]:
    """The hash of every image of a dataset, in whatever split it lies."""
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in dataset.glob("*/images/*")}


def interrupt(source: Path, out: Path, after: int, **options: object) -> None:
    def stop(done: int, total: int) -> None:
        if done == after:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        made(source, out, progress=stop, **options)


def test_an_interrupted_prepare_resumes(pages: Path, whole: Path, tmp_path: Path) -> None:
    interrupt(pages, tmp_path / "out", after=5)
    assert not (tmp_path / "out").exists()
    report = made(pages, tmp_path / "out")
    assert (report.report.pages, report.report.reused) == (8, 5)
    assert content(tmp_path / "out") == content(whole)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_file_that_was_damaged_meanwhile_is_cut_again(pages: Path, whole: Path, tmp_path: Path) -> None:
    interrupt(pages, tmp_path / "out", after=8)
    cut = sorted((tmp_path / ".out.work" / "parts").rglob("*.png"))
    cut[0].write_bytes(cut[0].read_bytes()[:-1])
    cut[-1].unlink()
    assert made(pages, tmp_path / "out").report.reused == 6
    assert content(tmp_path / "out") == content(whole)


def test_only_changed_images_are_cropped_again(pages: Path, whole: Path, tmp_path: Path) -> None:
    pages, _ = shutil.copytree(pages, tmp_path / "source"), shutil.copytree(whole, tmp_path / "out")
    picture(pages / "w1_2.png", colour="pink")
    write_pages(pages, ["w4_1"], lines=1)
    picture(pages / "w4_1.png", colour="plum")
    text = (pages / "w2_1.xml").read_text(encoding="utf-8")
    write(pages / "w2_1.xml", text.replace('CONTENT="', 'CONTENT="ё', 1))
    report = made(pages, tmp_path / "out", overwrite=True)
    assert (report.report.pages, report.report.reused) == (9, 7), "another text needs no other picture"
    made(pages, tmp_path / "afresh")
    assert pictures(tmp_path / "out") == pictures(tmp_path / "afresh")


def test_an_earlier_dataset_with_changed_files_is_not_reused(pages: Path, whole: Path, tmp_path: Path) -> None:
    out = shutil.copytree(whole, tmp_path / "out")
    picture(next(out.rglob("*.png")), colour="green")
    after = made(pages, out, overwrite=True)
    assert after.report.reused == 7
    assert after.card.splits == Dataset.open(whole).card.splits


def test_crops_outside_of_the_earlier_dataset_are_not_reused(pages: Path, whole: Path, tmp_path: Path) -> None:
    shutil.copytree(whole, tmp_path / "out")
    before, sources = pictures(tmp_path / "out"), tmp_path / "out/sources.jsonl"
    secret = picture(tmp_path / "secret.png", colour="green")
    rows = [json.loads(row) for row in sources.read_text("utf-8").splitlines()]
    rows[0]["cut"]["lines"][0] = ["../secret.png", hashlib.sha256(secret.read_bytes()).hexdigest()]
    write(sources, "".join(json.dumps(row) + "\n" for row in rows))
    assert made(pages, tmp_path / "out", overwrite=True).report.reused == 7
    assert pictures(tmp_path / "out") == before


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param("", id="emptied"),
        pytest.param("not JSON\n", id="not JSON"),
        pytest.param('{"key": "a", "cut": 3}\n[]\n', id="of another kind"),
    ],
)
def test_damaged_knowledge_of_sources_costs_time_only(pages: Path, whole: Path, tmp_path: Path, damage: str) -> None:
    out = shutil.copytree(whole, tmp_path / "out")
    write(out / "sources.jsonl", damage)
    assert made(pages, out, overwrite=True).report.reused == 0
    assert content(out) == content(whole) | {"dataset.json": content(out)["dataset.json"]}


def test_a_damaged_journal_is_begun_anew(pages: Path, tmp_path: Path) -> None:
    interrupt(pages, tmp_path / "out", after=4)
    journal = tmp_path / ".out.work" / "journal.sqlite"
    journal.write_bytes(b"SQLite format 3\0" + b"\xff" * 4000)
    assert made(pages, tmp_path / "out").report.reused == 0


@pytest.mark.parametrize("moment", ["before the new one came", "after it came", "when only the rest had to go"])
def test_a_kill_while_datasets_change_places_loses_nothing(
    pages: Path, whole: Path, tmp_path: Path, moment: str
) -> None:
    out, folder = shutil.copytree(whole, tmp_path / "out"), tmp_path / ".out.work"
    folder.mkdir()
    (folder / "written").touch()
    if moment == "before the new one came":
        out.rename(folder / "former")
        (folder / "draft").mkdir()
    elif moment == "after it came":
        shutil.copytree(whole, folder / "former")
    with raises_code("output-exists"):
        made(pages, out)
    assert content(out) == content(whole)
    made(pages, out, overwrite=True)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_dataset_that_another_process_makes_is_left_alone(pages: Path, whole: Path, tmp_path: Path) -> None:
    out, folder = tmp_path / "out", tmp_path / ".out.work"
    folder.mkdir()
    other = Journal(folder / "journal.sqlite")
    with raises_code("output-busy"):
        made(pages, out)
    shutil.copytree(whole, out)
    with raises_code("output-exists"):
        made(pages, out)
    assert folder.exists()
    other.close()
    made(pages, out, overwrite=True)


def test_an_early_interruption_leaves_no_work_folder(
    pages: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work, "MIN_SECONDS_KEPT", 60)
    interrupt(pages, tmp_path / "out", after=5)
    assert list(tmp_path.iterdir()) == []


def test_a_line_and_an_image_of_the_same_name_stay_apart(tmp_path: Path) -> None:
    for name in ("a", "a_0001"):
        picture(tmp_path / f"s/{name}.png")
    write(tmp_path / "s/t.tsv", "image\ttext\tbbox\na.png\tline\t10,10 61,31\na_0001.png\twhole\t\n")
    dataset = prepare(tmp_path / "s", tmp_path / "out", split="1/0/0")
    assert {sample.text: Path(sample.id).name for sample in dataset} == {"line": "a_0001.png", "whole": "a_0001-2.png"}


def test_workers_make_the_same_bytes(pages: Path, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "START_AFTER", 0.0)
    assert content(made(pages, tmp_path / "out", workers=2).folder) == content(whole)


KILLED = """
import os, sys
from dsocr.data.dataset import SplitWriter
from dsocr.data import prepare as module
module.COMMIT_SECONDS = 0  # as if each page took long
calls = iter(range(99))
SplitWriter.add = lambda *_: os._exit(9) if next(calls) == 4 else None
module.prepare(*sys.argv[1:], writer="(w.)_", split="0.5/0.25/0.25")
"""


def test_a_prepare_killed_while_it_writes_ends_the_same(pages: Path, whole: Path, tmp_path: Path) -> None:
    """benchmarks/faults.py kills at random moments."""
    out = tmp_path / "out"
    assert subprocess.run([sys.executable, "-c", KILLED, str(pages), str(out)], check=False).returncode == 9
    assert not out.exists()
    assert made(pages, out).report.reused == 8
    assert content(out) == content(whole)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        pytest.param(OSError(errno.ENOSPC, "No space left on device"), "disk-full", id="full, in a worker"),
        pytest.param(OSError(errno.EROFS, "Read-only file system"), "write-failed", id="read-only"),
        pytest.param(sqlite3.OperationalError("database or disk is full"), "disk-full", id="full, in the journal"),
    ],
)
def test_a_disk_that_cannot_be_written_is_an_error_and_loses_nothing(
    pages: Path, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, code: str
) -> None:
    get, calls = Journal.get, iter(range(8))

    def failing(journal: Journal, key: str) -> object:
        if next(calls) == 5:
            raise error
        return get(journal, key)

    with monkeypatch.context() as patch:
        patch.setattr(Journal, "get", failing)
        with raises_code(code):
            made(pages, tmp_path / "out")
    assert made(pages, tmp_path / "out").report.reused >= 3
    assert content(tmp_path / "out") == content(whole)
