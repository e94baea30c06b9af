"""What `dsocr doctor` finds, on machines made up with too old a package, no disk, an old card."""

import contextlib
import json
import shutil
import socket
import sys
from collections import namedtuple
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import pytest
import torch

from dsocr import __version__, doctor
from dsocr.doctor import Fact
from tests.integration.calling import call


def only(facts: list[Fact], name: str) -> Fact:
    """The one fact of a name."""
    (fact,) = (fact for fact in facts if fact.name == name)
    return fact


Ask = Callable[[str, str | None], list[Fact]]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Ask:
    """The facts about packages where dsocr asks for one requirement, and this version of it is installed, or none."""

    def packages(requirement: str, installed: str | None) -> list[Fact]:
        def version(name: str) -> str:
            if name == doctor.DISTRIBUTION:
                return __version__
            if installed is None:
                raise metadata.PackageNotFoundError(name)
            return installed

        monkeypatch.setattr(metadata, "requires", lambda name: [requirement])
        monkeypatch.setattr(metadata, "version", version)
        return doctor.packages()

    return packages


@pytest.mark.parametrize(
    ("requirement", "installed", "state", "found"),
    [
        pytest.param("peft<0.22,>=0.21", "0.21.2", "ok", "0.21.2", id="in range"),
        pytest.param("torch>=2.9", "2.13.0+cu128", "ok", "2.13.0+cu128", id="a build for CUDA counts as its version"),
        pytest.param("torch>=2.9", "2.10.0.dev1", "ok", "2.10.0.dev1", id="a nightly build of a later version"),
        pytest.param("torch>=2.9", "2.9.0rc1", "missing", "2.9.0rc1; needs >=2.9", id="not yet released"),
        pytest.param("peft<0.22,>=0.21", "0.22", "missing", "0.22; needs <0.22,>=0.21", id="too new"),
        pytest.param("peft<0.22,>=0.21", "0.9", "missing", "0.9; needs <0.22,>=0.21", id="too old"),
        pytest.param("numpy>=2.0", None, "missing", "not installed; needs >=2.0", id="not installed"),
        pytest.param("numpy", None, "missing", "not installed; needs any", id="not installed, any would do"),
        pytest.param("numpy>=2.0", "", "missing", "not installed; needs >=2.0", id="a folder left by pip"),
    ],
)
def test_a_package_is_checked_against_the_required_version(
    requirement: str, installed: str | None, state: str, found: str, asked: Ask
) -> None:
    *_, fact = asked(requirement, installed)
    assert (fact.state, fact.message) == (state, found)
    assert fact.fatal == (state == "missing")
    hint = "pytorch.org" if fact.name == "torch" else f'python -m pip install "{requirement}"'
    assert hint in (fact.hint or "") if fact.fatal else fact.hint is None


def test_requirements_of_extras_are_ignored(asked: Ask) -> None:
    assert [fact.name for fact in asked("pytest>=8; extra == 'dev'", None)] == ["dsocr", "python"]


def test_an_old_python_and_a_source_that_is_not_installed_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [fact for fact in doctor.packages() if fact.state != "ok"] == [], "this installation is whole"
    monkeypatch.setattr(sys, "version_info", (3, 10, 4, "final", 0))
    python = only(doctor.packages(), "python")
    assert ("3.10.4" in python.message, ">=3.11" in python.message, python.fatal) == (True, True, True)
    monkeypatch.setattr(doctor, "DISTRIBUTION", "dsocr-hw-of-nobody")
    (fact,) = doctor.packages()
    assert (fact.name, fact.state, fact.fatal) == ("dsocr", "warning", False)


Usage = namedtuple("Usage", "total used free")


@pytest.mark.parametrize(("free", "state"), [(9_990_000_000, "warning"), (10_000_000_000, "ok")])
def test_little_disk_is_a_warning(free: int, state: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(10**12, 10**12 - free, free))
    monkeypatch.chdir(tmp_path)
    (fact,) = doctor.disk()
    assert (fact.state, fact.message, fact.fatal) == (state, f"10.0 GB free in {tmp_path}", False)
    assert ("6.7 GB" in (fact.hint or "")) == (state == "warning")


def make_gpu(monkeypatch: pytest.MonkeyPatch, *, capability: tuple[int, int] = (8, 0)) -> None:
    """Let torch believe in one card; like a T4's, its bf16 is emulated below capability 8."""
    answers = {
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "device": lambda device: contextlib.nullcontext(),
        "mem_get_info": lambda: (12 * 2**30, 16 * 2**30),
        "get_device_name": lambda device: "Tesla X",
        "get_device_capability": lambda device: capability,
        "is_bf16_supported": lambda including_emulation=True: including_emulation or capability >= (8, 0),
    }
    for name, answer in answers.items():
        monkeypatch.setattr(torch.cuda, name, answer)


@pytest.mark.parametrize(
    ("capability", "bf16"),
    [((8, 0), "bf16"), ((7, 5), "no bf16: adapters are trained in fp16")],
    ids=["of its own", "emulated, which does not count"],
)
def test_a_card_is_reported_with_its_memory(
    capability: tuple[int, int], bf16: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_gpu(monkeypatch, capability=capability)
    card, precision = doctor.accelerators()
    assert (card.name, card.state, card.message) == ("CUDA 0", "ok", f"Tesla X, 16.0 GiB, 12.0 GiB free, {bf16}")
    auto = "bfloat16" if capability >= (8, 0) else "float16"
    assert precision == Fact("precision", "ok", f"auto is {auto} on cuda")


def test_a_card_that_does_not_answer_hides_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> tuple[int, int]:
        raise RuntimeError("CUDA error: all devices are busy\nCompile with TORCH_USE_CUDA_DSA")

    make_gpu(monkeypatch)
    monkeypatch.setattr(torch.cuda, "mem_get_info", broken)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    cuda, mps, _ = doctor.accelerators()
    assert cuda.state == "warning"
    assert cuda.message.endswith("CUDA error: all devices are busy")
    assert (mps.name, mps.state) == ("MPS", "ok")


def old_driver() -> bool:
    import warnings

    warnings.warn("The NVIDIA driver on your system is too old (Triggered internally at x.cpp)", stacklevel=1)
    return False


@pytest.mark.parametrize(
    ("available", "build", "found", "hint"),
    [
        pytest.param(lambda: False, None, "torch is built without CUDA", "pytorch.org", id="torch for the CPU"),
        pytest.param(lambda: False, "12.8", "none that torch can use", "nvidia-smi", id="no card, or no driver"),
        pytest.param(old_driver, "12.8", "driver on your system is too old", "nvidia-smi", id="torch says why"),
    ],
)
def test_no_card_is_a_warning_with_its_reason(
    available: Callable[[], bool], build: str | None, found: str, hint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", available)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    monkeypatch.setattr(torch.version, "cuda", build)
    monkeypatch.setattr(torch.version, "hip", None)
    fact = only(doctor.accelerators(), "GPU")
    assert (fact.state, fact.fatal) == ("warning", False)
    assert fact.message.endswith(found)
    assert hint in (fact.hint or "")


def test_this_machine_is_ready_and_the_network_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object) -> None:
        raise AssertionError(f"asked the network: {arguments}")

    monkeypatch.setattr(socket.socket, "connect", fail)
    monkeypatch.setattr(socket, "getaddrinfo", fail)
    facts = doctor.examine()
    assert [fact for fact in facts if fact.fatal] == []
    assert only(facts, "nano").state == "ok"
    assert {"CPU", "precision", "disk", "small"} <= {fact.name for fact in facts}


def test_broken_libraries_are_facts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dsocr.models.loading", None)  # importing it raises ImportError
    facts = doctor.examine()
    assert {fact.name for fact in facts if fact.fatal} == {"accelerators", "bases"}
    assert only(facts, "accelerators").message.startswith("ModuleNotFoundError: ")
    assert only(facts, "disk").name == "disk"


READY = [Fact("torch", "ok", "2.13.0", required=True), Fact("письма", "missing", "nowhere", "[look] there")]
BROKEN = [*READY, Fact("peft", "missing", "0.9 is too old", "python -m pip install peft", required=True)]


@pytest.mark.parametrize(("facts", "code"), [(READY, 0), (BROKEN, 1)], ids=["ready", "something required is missing"])
def test_the_command_prints_a_table_or_json(
    facts: list[Fact], code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("dsocr.examine", lambda: facts)
    out, _ = call(monkeypatch, capsys, "doctor", code=code)
    *table, last = out.splitlines()
    assert table[:5] == [
        "name    state    found",
        "torch   ok       2.13.0",
        "письма  missing  nowhere",
        "                 hint: [look] there",
        "peft    missing  0.9 is too old" if code else "ready",
    ]
    assert last == ("not ready: peft" if code else "next: dsocr demo, or dsocr prepare YOUR_SCANS -o data/yours")
    found = json.loads(call(monkeypatch, capsys, "doctor", "--json", code=code)[0])
    assert found["ready"] == (code == 0)
    assert [Fact(**fact) for fact in found["facts"]] == facts
