"""Jobs that are broken off, shared out, or run out of disk."""

import errno
import multiprocessing
import os
import signal
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

import pytest
from PIL import Image

from dsocr.errors import DsocrError
from dsocr.inference.confidence import Prediction
from dsocr.inference.inputs import find_pages
from dsocr.inference.pages import group_pages
from dsocr.io import work
from dsocr.runs import RunFolder
from tests.inference.reading_pages import Fails, Hashes, draw_job, draw_page, files, transcribe
from tests.raising import raises_code

PAGES = 13


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunFolder:
    return draw_job(tmp_path, monkeypatch, PAGES)


@pytest.mark.parametrize("after", [0, 16])
def test_an_interrupted_job_resumes_and_writes_the_same_files(after: int, run: RunFolder, tmp_path: Path) -> None:
    whole, formats = Hashes(), ["alto", "jsonl"]
    calm = transcribe(run, [tmp_path / "in"], tmp_path / "calm", format=formats, reader=whole)
    falling, rest = Fails(after, KeyboardInterrupt()), Hashes()
    with pytest.raises(KeyboardInterrupt):
        transcribe(run, [tmp_path / "in"], tmp_path / "out", format=formats, reader=falling)
    assert not (tmp_path / "out").exists()
    report = transcribe(run, [tmp_path / "in"], tmp_path / "out", format=formats, reader=rest)
    assert files(tmp_path / "out") == files(tmp_path / "calm")
    assert report.failed == calm.failed
    assert len(report.failed) == 1
    # Of what was in hand when it fell at most four pages are read again, and nothing is left out.
    read = Counter([*falling.read_ids, *rest.read_ids])
    assert set(read) == set(whole.read_ids)
    assert len({name.split("#")[0] for name, times in read.items() if times > 1}) <= 4
    broken = {"p05.png"} if after < 9 else set()
    assert report.resumed == PAGES - len({name.split("#")[0] for name in rest.read_ids} | broken)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["calm", "in", "out", "run"]


class Killed(Hashes):
    """Reads like Hashes until its process is killed in the third group of pages."""

    def read(self, images: Iterable[tuple[str, Image.Image]]) -> Iterator[Prediction]:
        for prediction in super().read(images):
            if len(self.read_ids) > 9:
                os.kill(os.getpid(), signal.SIGKILL)
            yield prediction


@pytest.mark.skipif(os.name == "nt", reason="Windows cannot fork")
def test_a_killed_job_keeps_the_groups_that_it_had_read(run: RunFolder, tmp_path: Path) -> None:
    transcribe(run, [tmp_path / "in"], tmp_path / "calm.jsonl", reader=Hashes())
    job = partial(transcribe, run, [tmp_path / "in"], tmp_path / "out.jsonl")
    process = multiprocessing.get_context("fork").Process(target=job, kwargs={"reader": Killed()})
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    rest = Hashes()
    assert job(reader=rest).resumed == 5
    assert not [name for name in rest.read_ids if name < "p05"]
    assert (tmp_path / "out.jsonl").read_bytes() == (tmp_path / "calm.jsonl").read_bytes()


def test_finished_output_is_moved_into_place_after_an_interruption(
    run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    transcribe(run, [tmp_path / "in"], tmp_path / "out.txt", reader=Hashes())
    first = (tmp_path / "out.txt").read_bytes()

    def struck(draft: Path, out: Path, former: Path) -> None:
        out.rename(former)
        raise KeyboardInterrupt

    monkeypatch.setattr(work, "replace_path", struck)
    with pytest.raises(KeyboardInterrupt):
        transcribe(run, [tmp_path / "in"], tmp_path / "out.txt", overwrite=True, reader=Hashes())
    assert not (tmp_path / "out.txt").exists()
    monkeypatch.undo()
    with raises_code("output-exists"):
        transcribe(run, [tmp_path / "in"], tmp_path / "out.txt", reader=Hashes())
    assert (tmp_path / "out.txt").read_bytes() == first


def test_a_different_job_does_not_reuse_the_journal(run: RunFolder, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        transcribe(run, [tmp_path / "in"], tmp_path / "out.txt", reader=Fails(20, KeyboardInterrupt()))
    report = transcribe(run, [tmp_path / "in"], tmp_path / "out.txt", unit="page", reader=Hashes())
    assert report.resumed == 0


def test_pages_that_changed_meanwhile_are_read_again_in_their_group(run: RunFolder, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        transcribe(run, [tmp_path / "in"], tmp_path / "out.txt", reader=Fails(20, KeyboardInterrupt()))
    for number in (5, 6):
        draw_page(tmp_path / "in" / f"p{number:02d}.png", lines=2)
    seen: list[tuple[int, int]] = []
    out = tmp_path / "out.txt"
    report = transcribe(run, [tmp_path / "in"], out, reader=Hashes(), progress=lambda *now: seen.append(now))
    assert (report.failed, report.images) == ([], PAGES)
    assert seen == [(7, 13), (9, 13), (13, 13)]


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(OSError(errno.ENOSPC, "No space left on device"), id="while a file is written"),
        pytest.param(sqlite3.OperationalError("database or disk is full"), id="while the journal is"),
    ],
)
def test_a_full_disk_is_a_sentence_and_loses_nothing_that_was_read(
    error: Exception, run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise error

    with monkeypatch.context() as patched:
        patched.setattr("dsocr.inference.transcribe.Target.write", full)
        with pytest.raises(DsocrError, match="full"):
            transcribe(run, [tmp_path / "in"], tmp_path / "out.txt", reader=Hashes())
    # The run has no weights: to load them would fail.
    assert transcribe(run, [tmp_path / "in"], tmp_path / "out.txt").resumed == PAGES


def test_the_first_page_is_recorded_alone_and_the_others_in_groups(run: RunFolder, tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    transcribe(run, [tmp_path / "in"], tmp_path / "o.txt", reader=Hashes(), progress=lambda *now: seen.append(now))
    assert seen == [(1, 13), (5, 13), (9, 13), (13, 13)]


def test_a_large_page_is_opened_while_no_other_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(6):
        draw_page(tmp_path / "in" / f"p{number}.png")
    with Image.open(tmp_path / "in" / "p3.png") as page:
        page.resize((page.width + 1, page.height)).save(tmp_path / "in" / "p3.png")
        monkeypatch.setattr("dsocr.inference.inputs._LARGE", page.width * page.height)
    with find_pages([tmp_path / "in"], tmp_path / "unpacked", shows="page") as found:
        groups = [[page.name for page in group] for group in group_pages(found.pages)]
    assert groups == [["p0"], ["p1", "p2"], ["p3"], ["p4", "p5"]]
