"""What an installation without extras does: each command in a process that finds none of their packages."""

import json
import os
import re
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from dsocr.io.files import shipped_path

HIDING = Path(__file__).parent / "without_torch"
COPISTE = shipped_path("examples/copiste")
PHOTO = COPISTE / "jpg" / "wikitexte_0183_2.jpg"


def environment() -> dict[str, str]:
    path = os.pathsep.join([str(HIDING), os.environ.get("PYTHONPATH", "")])
    return {**os.environ, "PYTHONPATH": path, "PYTHONUTF8": "1"}


def dsocr(*words: object, code: int = 0) -> tuple[str, str]:
    """Run a command; returns what it prints, and its messages."""
    command = [sys.executable, "-m", "dsocr", *map(str, words)]
    done = subprocess.run(command, env=environment(), capture_output=True, encoding="utf-8", check=False)
    assert done.returncode == code, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout, done.stderr


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("light") / "data"
    dsocr("prepare", COPISTE, "-o", folder)
    return folder


def test_a_photo_is_read(tmp_path: Path) -> None:
    printed, _ = dsocr("read", PHOTO)
    dsocr("transcribe", PHOTO, "-o", tmp_path / "texts.txt")
    lines = (tmp_path / "texts.txt").read_text(encoding="utf-8").strip().split("\n")
    assert len(lines) > 5
    assert printed.split("\n")[: len(lines)] == lines


def test_a_dataset_is_prepared_checked_converted_and_scored(dataset: Path, tmp_path: Path) -> None:
    assert "nothing prevents training" in "".join(dsocr("check", dataset, "--html", tmp_path / "check.html"))
    dsocr("convert", dataset, "-o", tmp_path / "pages", "--to", "page")
    assert list((tmp_path / "pages").rglob("*.xml"))
    dsocr("evaluate", "small", "--dataset", dataset, "--limit", 3, "-o", tmp_path / "scores")
    scored = f"one={tmp_path / 'scores'}", f"two={tmp_path / 'scores'}"
    dsocr("compare", *scored, "-o", tmp_path / "page.html")
    assert (tmp_path / "page.html").stat().st_size > 1000
    assert "not installed: reads" in "".join(dsocr("doctor"))


@pytest.mark.parametrize(
    ("words", "use"),
    [
        pytest.param(["train", "{data}"], "training", id="train"),
        pytest.param(["train", "{data}", "--dry-run"], "training", id="dry run"),
        pytest.param(["evaluate", "{data}", "--folds"], "training", id="folds"),
        pytest.param(["evaluate", "nano", "--dataset", "{data}", "-o", "{out}"], "a model without a graph", id="nano"),
        pytest.param(["convert", "{data}", "-o", "{out}", "--to", "parquet"], "Parquet", id="parquet"),
    ],
)
def test_what_needs_an_extra_names_what_to_type(words: list[str], use: str, dataset: Path, tmp_path: Path) -> None:
    _, message = dsocr(*(word.format(data=dataset, out=tmp_path / "out") for word in words), code=2)
    extra = "parquet" if use == "Parquet" else "train"
    assert f"{use} needs" in message
    assert f'pip install "dsocr-hw[{extra}]"' in message


@pytest.mark.parametrize("words", [("read",), ("transcribe", "-o", "-")], ids="-".join)
def test_reading_loads_no_package_of_an_extra(words: tuple[str, ...]) -> None:
    """Nor does it where all are installed: each takes time before the first line."""
    command = [sys.executable, "-X", "importtime", "-m", "dsocr", words[0], str(PHOTO), *words[1:]]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", check=True)
    loaded = {line.rpartition("|")[2].strip().partition(".")[0] for line in done.stderr.splitlines()}
    assert {"onnxruntime", "numpy"} <= loaded
    hidden = (HIDING / "sitecustomize.py").read_text(encoding="utf-8")
    assert not loaded & set(re.findall(r'"(\w+)"', hidden))


@contextmanager
def serving(*words: object) -> Iterator[str]:
    """Run a command that serves, and yield its address once it accepts connections."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "dsocr", *map(str, words), "--port", str(port)]
    hidden = {name: value for name, value in environment().items() if name != "PYTEST_CURRENT_TEST"}
    with subprocess.Popen(command, env=hidden, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            for _ in range(1200):
                assert process.poll() is None
                with suppress(OSError):
                    socket.create_connection(("127.0.0.1", port), timeout=1).close()
                    break
                time.sleep(0.1)
            yield f"http://127.0.0.1:{port}/"
        finally:
            process.kill()


def test_images_are_served() -> None:
    with serving("serve", "small") as address:
        request = urllib.request.Request(address + "v1/transcriptions", PHOTO.read_bytes())
        with urllib.request.urlopen(request, timeout=60) as answer:
            assert json.load(answer)


def test_pages_are_corrected_in_the_workbench(tmp_path: Path) -> None:
    (tmp_path / "scans").mkdir()
    (tmp_path / "scans" / PHOTO.name).write_bytes(PHOTO.read_bytes())
    words = "workbench", tmp_path / "scans", "--run", "small", "--work", tmp_path / "work", "--no-show"
    with serving(*words) as address, urllib.request.urlopen(address, timeout=60) as answer:
        assert PHOTO.stem in answer.read().decode("utf-8")
