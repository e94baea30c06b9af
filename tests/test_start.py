"""Start.cmd, start.sh and the archive that brings them to people without a terminal."""

import os
import re
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest

from release import pack

ROOT = Path(__file__).parents[1]
CMD = (ROOT / "Start.cmd").read_bytes().decode("utf-8")


def test_start_cmd_has_its_labels_and_quotes_its_paths() -> None:
    assert CMD.count("\n") == CMD.count("\r\n")
    assert CMD.partition("\r\n:announce")[0].isascii()
    labels = re.findall(r"^:(\w+)", CMD, re.MULTILINE)
    assert len(labels) == len(set(labels))
    assert {*re.findall(r"(?:goto |call :)(\w+)", CMD)} == {*labels}
    code = [line for line in CMD.splitlines() if not line.startswith(("rem ", "echo ", "for "))]
    bare = [re.sub(r'"[^"]*"', "", line) for line in code]
    assert [line for line in bare if re.search(r"\\|~|\.\w|%(PACKAGE|MARKER)%", line.replace("echo.", ""))] == []
    assert "activate" not in CMD.lower()


def test_start_cmd_keeps_the_window_open_on_each_failure() -> None:
    text = CMD.replace("\r\n", "\n")
    assert text.count("exit /b 1") == text.count("pause\nexit /b 1") == 4
    runs = re.findall(r'^(?:"\.venv|%PYTHON%|%\*|fc ).*\n(.*)', text, re.MULTILINE)
    assert [following for following in runs if "%ERRORLEVEL%" not in following] == []
    assert len(runs) == 6


PYTHON = """#!/bin/sh
echo "${0##*/} $*" >>"$LOG"
case "$*" in
*version_info*) exit "$OLD" ;;
"-m venv "*) mkdir -p .venv-workbench/bin && cp "$0" .venv-workbench/bin/python ;;
"-m pip "*) exit "$PIP" ;;
esac
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An unpacked release with a wheel of nothing, in a place with blanks and Cyrillic letters."""
    unpacked = tmp_path / "Архив Иванова"
    unpacked.mkdir()
    for name in ("start.sh", "constraints.txt"):
        shutil.copy(ROOT / name, unpacked)
    (unpacked / "dsocr_hw-1.0-py3-none-any.whl").write_bytes(b"wheel")
    return unpacked


def start(folder: Path, pythons: dict[str, int], pip: int = 0) -> tuple[int, list[str]]:
    """Run start.sh with Pythons that are too old (1) or not (0); returns its exit status and what they were asked."""
    tools, log = folder.parent / "bin", folder.parent / "log"
    shutil.rmtree(tools, ignore_errors=True)
    tools.mkdir()
    for name in ("sh", "dirname", "cksum", "cat", "mkdir", "cp"):
        (tools / name).symlink_to(str(shutil.which(name)))
    for name, old in pythons.items():
        (tools / name).write_text(PYTHON.replace("$OLD", str(old)), encoding="utf-8")
        (tools / name).chmod(0o755)
    log.write_text("", encoding="utf-8")
    environment = {"PATH": str(tools), "LOG": str(log), "PIP": str(pip)}
    done = subprocess.run(
        [folder / "start.sh"], cwd="/", env=environment, stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    asked = [line for line in log.read_text(encoding="utf-8").splitlines() if " -c " not in line]
    return done.returncode, asked


VENV = "-m venv --clear .venv-workbench"
INSTALL = "python -m pip install --disable-pip-version-check --constraint constraints.txt"
WHEEL = f"{INSTALL} dsocr_hw-1.0-py3-none-any.whl[workbench,documents,heic]"
WORKBENCH = "python -m dsocr workbench"


@pytest.mark.skipif(os.name == "nt", reason="Windows has Start.cmd")
class TestStartSh:
    @pytest.mark.parametrize("pythons", [{}, {"python3": 1, "python": 1}])
    def test_nothing_is_made_without_a_new_python(self, folder: Path, pythons: dict[str, int]) -> None:
        assert start(folder, pythons) == (1, [])

    def test_the_first_new_python_installs_once(self, folder: Path) -> None:
        assert start(folder, {"python3": 1, "python": 0}) == (0, [f"python {VENV}", WHEEL, WORKBENCH])
        assert start(folder, {}) == (0, [WORKBENCH])

    def test_a_failed_installation_is_made_good(self, folder: Path) -> None:
        assert start(folder, {"python3": 0}, pip=1) == (1, [f"python3 {VENV}", WHEEL])
        assert start(folder, {"python3": 0}) == (0, [f"python3 {VENV}", WHEEL, WORKBENCH])

    @pytest.mark.parametrize("name", ["constraints.txt", "dsocr_hw-1.0-py3-none-any.whl"])
    def test_changed_files_are_installed(self, folder: Path, name: str) -> None:
        start(folder, {"python3": 0})
        (folder / name).write_bytes(b"other")
        assert start(folder, {"python3": 0})[1] == [f"python3 {VENV}", WHEEL, WORKBENCH]

    def test_a_clone_installs_itself(self, folder: Path) -> None:
        (folder / "pyproject.toml").touch()
        assert start(folder, {"python3": 0})[1][1] == f"{INSTALL} --editable .[workbench,documents,heic]"

    def test_an_archive_that_was_not_unpacked_whole_is_refused(self, folder: Path) -> None:
        (folder / "dsocr_hw-1.0-py3-none-any.whl").unlink()
        assert start(folder, {"python3": 0}) == (1, [])


def test_the_release_has_what_a_start_needs(tmp_path: Path) -> None:
    wheel = tmp_path / "dsocr_hw-1.0-py3-none-any.whl"
    wheel.write_bytes(b"wheel")
    path = pack(wheel, tmp_path)
    before = path.read_bytes()
    assert pack(wheel, tmp_path).read_bytes() == before
    with zipfile.ZipFile(path) as archive:
        modes = {Path(entry.filename): entry.external_attr >> 16 for entry in archive.infolist()}
        texts = [archive.read(name) for name in archive.namelist() if "ME" in name or "ПРО" in name]
    assert {name.parent for name in modes} == {Path("dsocr-hw-1.0")}
    assert {name.name for name in modes} == {
        "LICENSE", "READ-ME-FIRST.txt", "Start.cmd", "constraints.txt", wheel.name, "start.sh", "ПРОЧТИТЕ.txt"
    }  # fmt: skip
    assert {name.name for name, mode in modes.items() if mode & 0o111} == {"start.sh"}
    for text in texts:
        assert text.startswith(b"\xef\xbb\xbf")
        assert text.count(b"\n") == text.count(b"\r\n") <= 30
