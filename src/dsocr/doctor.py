"""Check this machine: packages, processor, GPUs, disk and bases. Needs no network and changes nothing."""

import os
import re
import shutil
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Literal

from dsocr import __version__
from dsocr.console import format_bytes

DISTRIBUTION = "dsocr-hw"
GET_TORCH = "https://pytorch.org/get-started/locally/"


@dataclass(frozen=True, slots=True)
class Fact:
    """The state of one component, and a `hint` on what to do unless it is `ok`.

    Nothing can be trained or read without a `required` component. A version out of range counts as missing.
    """

    name: str
    state: Literal["ok", "warning", "missing"]
    message: str
    hint: str | None = None
    required: bool = False

    @property
    def fatal(self) -> bool:
        """Whether dsocr cannot work until this is fixed."""
        return self.required and self.state == "missing"


def examine() -> list[Fact]:
    """Show what this machine has and lacks, with the disk of the working folder; a broken library is a fact too."""
    checks: dict[str, Callable[[], Sequence[Fact]]] = {
        "packages": packages,
        "CPU": processor,
        "GPU": accelerators,
        "disk": disk,
        "nano": embedded_bases,
    }
    facts: list[Fact] = []
    for name, check in checks.items():
        try:
            facts += check()
        except Exception as error:  # noqa: BLE001 - a broken installation can raise anything
            hint = "fix what is missing above, or install dsocr in a new environment"
            facts.append(Fact(name, "missing", f"{type(error).__name__}: {_first_line(error)}", hint, required=True))
    return facts


def packages() -> list[Fact]:
    """Check dsocr, Python and every required package against the ranges in the package's metadata."""
    try:
        installed = metadata.version(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        hint = "install dsocr again: python -m pip install -e ."
        return [Fact("dsocr", "warning", f"{__version__}, not installed, so its requirements are unknown", hint)]
    python = metadata.metadata(DISTRIBUTION)["Requires-Python"]
    running, hint = ".".join(map(str, sys.version_info[:3])), f"create a new environment with Python {python}"
    facts = [Fact("dsocr", "ok", installed), _compare("Python", running, f"python{python}", hint)]
    for requirement in metadata.requires(DISTRIBUTION) or []:
        if ";" in requirement:  # of an extra
            continue
        name = re.split("[^\\w.-]", requirement, maxsplit=1)[0]
        hint = f'python -m pip install "{requirement}"'
        if name == "torch":
            # From PyPI, pip replaces a build with CUDA by one without on Windows.
            hint = f"choose the build for your graphics card at {GET_TORCH}"
        try:
            version = metadata.version(name)
        except (metadata.PackageNotFoundError, KeyError):  # KeyError: a folder that pip left
            version = ""
        facts.append(_compare(name, version, requirement, hint))
    return facts


def _compare(name: str, version: str, requirement: str, hint: str) -> Fact:
    from transformers.utils.versions import require_version

    try:
        if version:
            require_version(requirement)
            return Fact(name, "ok", version, required=True)
    except ImportError:  # the version is out of range
        pass
    admitted = requirement[len(name) :] or "any"
    return Fact(name, "missing", f"{version or 'not installed'}; needs {admitted}", hint, required=True)


def processor() -> list[Fact]:
    """Report cores, memory, and the threads of training."""
    import psutil

    from dsocr.io.processes import free_threads

    memory, threads = psutil.virtual_memory(), free_threads()
    message = (
        f"{psutil.cpu_count()} cores, {format_bytes(memory.total)} of memory, {format_bytes(memory.available)} free; "
    )
    if threads is not None:
        message += f"other programs are busy, so training would compute in {threads} threads"
        return [Fact("CPU", "warning", message, "close other programs, or set training.threads")]
    chosen = os.environ.get("OMP_NUM_THREADS")
    return [Fact("CPU", "ok", message + f"training computes in {f'{chosen} threads' if chosen else 'all cores'}")]


def accelerators() -> list[Fact]:
    """Report each accelerator that torch can use, or why there is none, and the format of `precision: auto`."""
    import torch

    from dsocr.models.loading import choose_device, choose_dtype

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        facts = [_cuda(device) for device in range(torch.cuda.device_count() if torch.cuda.is_available() else 0)]
        device = choose_device()
    if torch.backends.mps.is_available():
        facts.append(Fact("MPS", "ok", "Apple GPU, which shares the machine's memory"))
    if not facts:
        message, hint = "none that torch can use", "check with nvidia-smi whether the driver works"
        if caught:
            message += f": {str(caught[0].message).partition(' (Triggered')[0]}"
        elif not (torch.version.cuda or torch.version.hip):
            message += ": torch is built without CUDA"
            hint = f"if there is a graphics card, get torch at {GET_TORCH}"
        facts.append(Fact("GPU", "warning", message, f"{hint}; small and nano need none, large bases do"))
    dtype = str(choose_dtype("auto", device)).removeprefix("torch.")
    return [*facts, Fact("precision", "ok", f"auto is {dtype} on {device.type}")]


def _cuda(device: int) -> Fact:
    import torch

    name = f"CUDA {device}"
    try:
        with torch.cuda.device(device):
            free, total = torch.cuda.mem_get_info()
            # By default torch also counts emulated bf16, as on a T4, where it is slower than fp32.
            bf16 = torch.cuda.is_bf16_supported(including_emulation=False)
    except RuntimeError as error:  # used exclusively by another process, out of memory, or failed
        return Fact(name, "warning", f"does not respond: {_first_line(error)}", "check it with nvidia-smi")
    summary = f"{torch.cuda.get_device_name(device)}, {format_bytes(total)}, {format_bytes(free)} free"
    if bf16:
        return Fact(name, "ok", f"{summary}, bf16")
    return Fact(name, "warning", f"{summary}, no native bf16", "set training.precision to fp16 or fp32")


def disk() -> list[Fact]:
    """Report the free disk space of the working folder."""
    free = shutil.disk_usage(folder := Path.cwd()).free
    hint = None if free >= 10e9 else "free some space: large bases take 6.7 GB, and datasets and runs need more"
    return [Fact("disk", "warning" if hint else "ok", f"{free / 1e9:.1f} GB free in {folder}", hint)]


def embedded_bases() -> list[Fact]:
    """Load the bases that ship with the package, which checks their files, torch and transformers together."""
    from dsocr.models import base_folder
    from dsocr.models.loading import load_base

    families = {name: load_base(name).family.name for name in base_folder.embedded_bases()}
    return [Fact(name, "ok", f"loads, family {family}", required=True) for name, family in families.items()]


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]
