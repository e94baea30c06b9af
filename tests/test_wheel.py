"""The package as users install it: built, installed where the checkout is not, and used. `make test-wheel` runs this.

Installing fetches the dependencies, so this is no part of `make test`.
"""

import os
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

from release import pack

pytestmark = [pytest.mark.wheel, pytest.mark.timeout(1800)]

ROOT = Path(__file__).parents[1]
MAX_WHEEL = 60_000_000
"""Bytes; PyPI takes 100 MB. The two bases and four sets of examples are inside."""


def run(*command: object, where: Path) -> str:
    """Run a command that knows nothing of this checkout; returns what it prints."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        list(map(str, command)), cwd=where, env=environment, capture_output=True, encoding="utf-8", check=False
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def build(source: Path, target: str, out: Path) -> Path:
    run(sys.executable, "-m", "hatchling", "build", "-t", target, "-d", out, where=source)
    (built,) = out.iterdir()
    return built


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(ROOT, "wheel", tmp_path_factory.mktemp("wheel"))


def names(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        return sorted(archive.namelist())


def test_a_wheel_of_the_sdist_has_the_same_files(wheel: Path, tmp_path: Path) -> None:
    with tarfile.open(build(ROOT, "sdist", tmp_path / "sdist")) as archive:
        archive.extractall(tmp_path, filter="data")
    (source,) = tmp_path.glob("dsocr_hw-*")
    assert names(build(source, "wheel", tmp_path / "again")) == names(wheel)
    assert wheel.stat().st_size < MAX_WHEEL


def test_the_wheel_trains_and_transcribes_where_no_checkout_is(wheel: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "env", with_pip=True)
    scripts = tmp_path / "env" / ("Scripts" if os.name == "nt" else "bin")
    pip = [scripts / "python", "-m", "pip", "install", "--disable-pip-version-check", "--quiet"]
    run(*pip, "--constraint", ROOT / "constraints.txt", f"{wheel}[train]", where=tmp_path)
    place = tmp_path / "elsewhere"
    place.mkdir()
    run(scripts / "dsocr", "doctor", where=place)
    code = "from dsocr.io.files import shipped_path; print(shipped_path('examples/copiste'))"
    shipped = Path(run(scripts / "python", "-c", code, where=place).strip())
    assert shipped.is_relative_to(tmp_path / "env")
    page = min((shipped / "jpg").glob("*.jpg"))
    changes = {"dataset": shipped.parent / "handwriting", "output": "run", "training.max_steps": 2}
    changes |= {"training.epochs": "null", "validation.max_samples": 4}
    options = [part for name, value in changes.items() for part in ("--set", f"{name}={value}")]
    run(scripts / "dsocr", "train", shipped.parents[1] / "configs" / "demo.yaml", *options, where=place)
    run(scripts / "dsocr", "transcribe", "run", page, "-o", "page.txt", where=place)
    assert len((place / "page.txt").read_text(encoding="utf-8").split()) > 20


def test_the_release_installs_and_starts_beside_its_files(wheel: Path, tmp_path: Path) -> None:
    place = tmp_path / "Архив Иванова"
    with zipfile.ZipFile(pack(wheel, tmp_path)) as archive:
        archive.extractall(place)
    (folder,) = place.iterdir()
    command = [folder / "Start.cmd"] if os.name == "nt" else ["sh", folder / "start.sh"]
    assert "workbench" in run(*command, "--help", where=tmp_path)
    assert (folder / ".venv-workbench").is_dir()
