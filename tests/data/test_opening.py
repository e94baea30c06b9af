"""Sources are opened in one way: links, missing files, hostile files and budgets."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from dsocr.data.dataset import SourceReport
from dsocr.data.prepare import prepare
from dsocr.data.sources import open_source
from dsocr.document import Page, Skipped, Split
from dsocr.errors import DataError
from dsocr.formats import SOURCE_FORMATS
from dsocr.formats.alto import read_alto
from dsocr.inference.inputs import find_pages
from dsocr.io.budget import Budget
from dsocr.io.files import list_files
from dsocr.workbench.archive import import_pages, open_archive
from dsocr.workbench.store import open_store
from tests.data.hostile_files import IMAGES, TEXTS, Make
from tests.data.making import pair, picture, write, write_pages
from tests.formats.making_sources import SOURCES
from tests.raising import raises_code

needs_links = pytest.mark.skipif(os.name == "nt", reason="links need a right that most accounts lack")


def linked_out(path: Path, outside: Path) -> None:
    """Move a file out of its source, with a link to it in its place."""
    outside.parent.mkdir(parents=True, exist_ok=True)
    path.rename(outside)
    path.symlink_to(outside)


@needs_links
@pytest.mark.parametrize("name", [name for name in SOURCES if name in SOURCE_FORMATS])
def test_no_format_reads_a_text_through_a_link_out_of_the_source(name: str, tmp_path: Path) -> None:
    SOURCES[name](tmp_path / "s")
    for number, path in enumerate(list_files(tmp_path / "s")):
        if path.suffix.lower() not in {".png", ".pdf"}:
            linked_out(path, tmp_path / "outside" / str(number))
    try:
        pages = [item for item in SOURCE_FORMATS[name].read(tmp_path / "s", {}) if isinstance(item, Page)]
    except DataError:
        pages = []
    assert [line.text for page in pages for line in page.lines] == []


@pytest.fixture
def linked(tmp_path: Path) -> Path:
    """A source with two links out of it, one of them to a folder, one link inside it, and an image without a suffix."""
    for name in ("a", "b"):
        pair(tmp_path / "s", name, "да", colour=(name == "a" and "white") or "red")
    linked_out(write(tmp_path / "s" / "b.txt", "passwd"), tmp_path / "passwd")
    picture(tmp_path / "others" / "c.png")
    (tmp_path / "s" / "others").symlink_to(tmp_path / "others")
    (tmp_path / "s" / "a2.png").symlink_to("a.png")
    picture(tmp_path / "s" / "page1", format="JPEG")
    Image.new("L", (9, 9)).save(tmp_path / "s" / "d.pnm")
    return tmp_path / "s"


REPORTED = ["b.txt", "d.pnm", "others", "page1"]


@needs_links
def test_prepare_says_what_it_passes_over(linked: Path, tmp_path: Path) -> None:
    dataset = prepare(linked, tmp_path / "out", split="1/0/0")
    assert "passwd" not in (tmp_path / "out" / "train" / "metadata.jsonl").read_text(encoding="utf-8")
    assert dataset.card.splits[Split.TRAIN].samples == 1
    assert {item.where for item in dataset.report.skipped} >= set(REPORTED)


@needs_links
def test_transcribe_says_what_it_passes_over(linked: Path, tmp_path: Path) -> None:
    with find_pages([linked], tmp_path / "unpacked") as pages:
        assert sorted(page.id for page in pages.pages) == ["a.png", "a2.png", "b.png"]
        assert sorted(message.partition(":")[0] for message in pages.failed) == REPORTED


@needs_links
def test_the_workbench_says_what_it_passes_over(linked: Path, tmp_path: Path) -> None:
    report = SourceReport(strict=False)
    with (
        open_store(tmp_path / "work" / "corrections.sqlite") as store,
        open_archive(store, linked, tmp_path / "work" / "unpacked") as archive,
    ):
        import_pages(store, archive, report)
    assert {item.where for item in report.skipped} >= set(REPORTED)


@pytest.mark.parametrize("door", ["prepare", "transcribe", "open"])
def test_a_source_that_is_missing_has_one_code(door: str, tmp_path: Path) -> None:
    doors: dict[str, Callable[[Path, Path], object]] = {
        "prepare": prepare,
        "transcribe": lambda source, folder: find_pages([source], folder).__enter__(),
        "open": lambda source, folder: open_source(source, folder).__enter__(),
    }
    with raises_code("input-missing", str(tmp_path / "no")):
        doors[door](tmp_path / "no", tmp_path / "out")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes")
@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero")], ids=["pipe", "device"])
def test_what_is_not_a_regular_file_is_never_read(make: Callable[[Path], None], tmp_path: Path) -> None:
    make(tmp_path / "a.txt")
    with raises_code("file-special", "a.txt"):
        Budget().read(tmp_path / "a.txt")


def test_the_size_of_a_file_is_known_before_it_is_read(tmp_path: Path) -> None:
    with (tmp_path / "a.txt").open("wb") as file:
        file.truncate(2**40)
    with raises_code("too-large", "a.txt"):
        Budget().read(tmp_path / "a.txt")


def test_a_budget_is_spent_by_all_that_share_it() -> None:
    budget = Budget(size=1000, elements=10)
    budget.take(size=600)
    budget.take(size=400, elements=10)
    with raises_code("too-large"):
        budget.take(size=1)
    with raises_code("too-large"):
        budget.take(elements=1)


def test_skipped_items_of_a_source_have_places(tmp_path: Path) -> None:
    picture(tmp_path / "s" / "a.psd", format="PNG")
    pair(tmp_path / "s", "b", "да")
    write(tmp_path / "s" / "NOTES", "no image")
    with open_source(tmp_path / "s", tmp_path / "unpacked") as opened:
        assert [item.where for item in opened.items if isinstance(item, Skipped)] == ["a.psd"]


@pytest.mark.parametrize("folder", ["export", "jpg"])
def test_a_folder_of_xml_files_finds_the_images_above_or_beside_it(tmp_path: Path, folder: str) -> None:
    export = write_pages(tmp_path / "export", ["1", "2", "3"])
    picture(export / "other.png")
    (export / "alto").mkdir()
    for number in "123":
        (export / f"{number}.xml").rename(export / "alto" / f"{number}.xml")
        if folder == "jpg":
            (export / "jpg").mkdir(exist_ok=True)
            (export / f"{number}.png").rename(export / "jpg" / f"{number}.png")
    with open_source(export / "alto", tmp_path / "unpacked") as opened:
        pages = list(read_alto(opened.path))
        assert [item.image.name for item in pages if isinstance(item, Page)] == ["1.png", "2.png", "3.png"]
        assert not list(opened.path.rglob("other.png")), "nothing but what the files describe"
    dataset = prepare(export / "alto", tmp_path / "out", split="1/0/0")
    assert len(list(dataset)) == 9
    assert any(f"folder {folder} beside or above" in note for note in dataset.card.notes)


pytestmark = pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs a peak that can be reset")
CEILING = 1000
"""Megabytes over what the process had before."""
SECONDS = 60
"""Of processor time for a file; the slowest takes a tenth of it."""
MEASURE = """
import json, resource, sys, time
from pathlib import Path
from dsocr.data.prepare import prepare
from dsocr.document import Line
from dsocr.errors import DsocrError
from dsocr.inference.inputs import PagePreparer, find_pages

def read_lines(content, where):
    return [Line("", where)]

def transcribe(source, folder):
    with find_pages([source], folder / "unpacked") as found:
        tried = map(PagePreparer("line", read_lines).try_prepare, found.pages)
        return [*found.failed, *(f"{page.id}: {result}" for page, result in tried if isinstance(result, str))]

def prepare_(source, folder):
    try:
        report = prepare(source, folder / "out", split="1/0/0").report
    except DsocrError as error:
        return [str(error)]
    return [f"{item.where}: {item.message}" for item in report.skipped]

def status(name):
    return int(Path("/proc/self/status").read_text(encoding="utf-8").split(name + ":")[1].split()[0]) / 1024

measured = {}
for name in sys.argv[2:]:
    source = Path(sys.argv[1], name)
    Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")  # forget the peak
    before, began = status("VmRSS"), time.process_time()
    messages = []
    for door in (prepare_, transcribe):
        try:
            messages.append(door(source, source.with_name(name + "-" + door.__name__)))
        except DsocrError as error:
            messages.append([str(error)])
    processes = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024  # the largest that ended, so far
    measured[name] = messages, max(status("VmHWM") - before, processes), time.process_time() - began
print(json.dumps(measured))
"""


def measure(folder: Path, made: dict[str, Make]) -> dict[str, tuple[list[list[str]], float, float]]:
    """What each door says of each source, megabytes over the start, and seconds of processor time."""
    for number, make in enumerate(made.values()):
        (folder / str(number)).mkdir(parents=True)
        make(folder / str(number))
    command = [sys.executable, "-c", MEASURE, str(folder), *map(str, range(len(made)))]
    done = subprocess.run(command, capture_output=True, encoding="utf-8")
    assert done.returncode == 0, done.stderr
    shutil.rmtree(folder)
    return dict(zip(made, json.loads(done.stdout).values(), strict=True))


def check(folder: Path, made: dict[str, Make]) -> None:
    measured = measure(folder, made)
    failures = {}
    for name, (messages, peak, seconds) in measured.items():
        is_named = any("bomb" in message for door in messages for message in door)
        if not is_named or peak > CEILING or seconds > SECONDS:
            failures[name] = f"{peak:.0f} MB, {seconds:.0f} s, {messages!r:.300}"
    assert failures == {}


ALL = IMAGES | TEXTS


@pytest.mark.parametrize(
    "name",
    [
        *("PNG 390,000 x 10", "TIFF of 12,000 frames", "BMP of 900 megapixels", "XML of 6,000,000 elements"),
        *("a zip archive of entries that overlap", "Parquet with 1,000 texts of 50 MB"),
    ],
)
def test_a_hostile_file_is_named(name: str, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    ALL[name](source)
    try:
        named = [item.where for item in prepare(source, tmp_path / "out", split="1/0/0").report.skipped]
    except DataError as error:
        named = [str(error)]
    assert any("bomb" in place for place in named)


@pytest.mark.slow
def test_all_hostile_files_are_named_and_take_little_memory(tmp_path: Path) -> None:
    assert len(ALL) >= 40
    check(tmp_path / "sources", ALL)
