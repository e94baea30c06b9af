"""Small files that would take any amount of memory are named in an error and take less than a gigabyte."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.data.hostile_files import IMAGES, TEXTS, Make

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
    measured[name] = messages, status("VmHWM") - before, time.process_time() - began
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
QUICK = (
    *("PNG 390,000 x 10", "PNG 10 x 390,000", "TIFF of 12,000 frames", "GIF of 50,000 frames", "BMP of 900 megapixels"),
    *("XML of 6,000,000 elements", "JSON of 20,000,000 objects", "TSV of 20,000,000 rows"),
    *("a zip archive of entries that overlap", "Parquet with 1,000 texts of 50 MB"),
)


def test_some_hostile_files_are_named_and_take_little_memory(tmp_path: Path) -> None:
    check(tmp_path / "sources", {name: ALL[name] for name in QUICK})


@pytest.mark.slow
def test_all_hostile_files_are_named_and_take_little_memory(tmp_path: Path) -> None:
    assert len(ALL) >= 40
    check(tmp_path / "sources", ALL)
