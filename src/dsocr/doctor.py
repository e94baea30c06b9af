"""Check this machine: packages, processor, GPUs, disk and bases. Needs no network and changes nothing."""

import os
import shutil
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Literal

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from dsocr import __version__

DISTRIBUTION = "dsocr-hw"
GET_TORCH = "https://pytorch.org/get-started/locally/"

State = Literal["ok", "warning", "missing"]


@dataclass(frozen=True, slots=True)
class Fact:
    """The state of one component, and a `hint` on what to do unless it is `ok`.

    Nothing can be trained or read without a `required` component. A version out of range counts as missing.
    """

    name: str
    state: State
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
        "bases": cached_bases,
    }
    facts: list[Fact] = []
    for name, check in checks.items():
        try:
            facts += check()
        except Exception as error:  # noqa: BLE001 - a broken installation can raise anything
            message = f"{type(error).__name__}: {_first_line(error)}"
            hint = getattr(error, "hint", None) or "fix what is missing above, or install dsocr in a new environment"
            facts.append(Fact(name, "missing", message, hint, required=name != "bases"))
    return facts


def packages() -> list[Fact]:
    """Check dsocr, Python and every required package against the ranges in the package's metadata."""
    again = "install dsocr again: python -m pip install --editable ."
    try:
        installed = metadata.version(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return [Fact("dsocr", "warning", f"{__version__}, not installed, so its requirements are unknown", again)]
    facts = [Fact("dsocr", "ok", __version__, required=True)]
    if installed != __version__:
        facts = [Fact("dsocr", "warning", f"{__version__}, but installed as {installed}", again, required=True)]
    python = metadata.metadata(DISTRIBUTION)["Requires-Python"]
    running, hint = ".".join(map(str, sys.version_info[:3])), f"create a new environment with Python {python}"
    facts.append(_compare("Python", running, SpecifierSet(python), hint))
    for requirement in map(Requirement, metadata.requires(DISTRIBUTION) or []):
        if requirement.marker and not requirement.marker.evaluate({"extra": ""}):
            continue
        hint = f'python -m pip install "{requirement}"'
        if requirement.name == "torch":
            # From PyPI, pip replaces a build with CUDA by one without on Windows.
            hint = f"choose the build for your graphics card at {GET_TORCH}"
        try:
            version = metadata.version(requirement.name)
        except (metadata.PackageNotFoundError, KeyError):  # KeyError: a folder that pip left
            version = ""
        facts.append(_compare(requirement.name, version, requirement.specifier, hint))
    return facts


def _compare(name: str, version: str, admitted: SpecifierSet, hint: str) -> Fact:
    if version and admitted.contains(version, prereleases=True):
        return Fact(name, "ok", version, required=True)
    lower = [bound for bound in admitted if bound.operator.startswith(">")]
    fault = "new" if version and all(bound.contains(version, prereleases=True) for bound in lower) else "old"
    message = f"{version} is too {fault}: needs {admitted}" if version else f"not installed; needs {admitted or 'any'}"
    return Fact(name, "missing", message, hint, required=True)


def processor() -> list[Fact]:
    """Report cores, memory, and the threads of training."""
    import psutil

    from dsocr.io.processes import free_threads

    memory = psutil.virtual_memory()
    message = f"{psutil.cpu_count()} cores, {_gib(memory.total)} of memory, {_gib(memory.available)} free"
    threads, load = free_threads(), psutil.getloadavg()[0]
    if threads is not None:
        message += f"; load {load:.0f}, so training would compute in {threads} of them"
        return [Fact("CPU", "warning", message, "close other programs, or set training.threads")]
    if chosen := os.environ.get("OMP_NUM_THREADS"):
        return [Fact("CPU", "ok", f"{message}; training computes in {chosen} threads (OMP_NUM_THREADS)")]
    return [Fact("CPU", "ok", f"{message}; load {load:.1f}, so training computes in all cores (training.threads)")]


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
    usual, whole = (str(choose_dtype("auto", device, whole=whole)) for whole in (False, True))
    message = f"auto is {usual} on {device.type}" + (f", {whole} for line recognisers" if whole != usual else "")
    return [*facts, Fact("precision", "ok", message.replace("torch.", ""))]


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
    capability = "compute capability {}.{}".format(*torch.cuda.get_device_capability(device))
    summary = f"{torch.cuda.get_device_name(device)}, {_gib(total)}, {_gib(free)} free, {capability}"
    if bf16:
        return Fact(name, "ok", f"{summary}, bf16")
    return Fact(name, "warning", f"{summary}, no native bf16", "set training.precision to fp16 or fp32")


def disk() -> list[Fact]:
    """Report the free disk space of the working folder."""
    free = shutil.disk_usage(folder := Path.cwd()).free
    message = f"{free / 1e9:.1f} GB free in {folder}"
    if free >= 10e9:
        return [Fact("disk", "ok", message)]
    hint = "free some space: large bases take 6.7 GB, and datasets and runs need more"
    return [Fact("disk", "warning", message, hint)]


def embedded_bases() -> list[Fact]:
    """Load the bases that ship with the package, which checks their files, torch and transformers together."""
    from dsocr.models import base_folder
    from dsocr.models.loading import load_base

    facts = []
    for name in base_folder.embedded_bases():
        base = load_base(name)
        millions = base.network.num_parameters() / 1e6
        message = f"the embedded base loads, {millions:.1f} million parameters, family {base.family.name}"
        facts.append(Fact(name, "ok", message, required=True))
    return facts


def cached_bases(cache: Path | None = None) -> list[Fact]:
    """Report the published bases that a Hub cache holds, the user's by default, and those that it lacks."""
    from huggingface_hub import CacheNotFound, scan_cache_dir

    from dsocr.models.loading import PUBLISHED_BASES

    try:
        cached = {
            entry.repo_id for entry in scan_cache_dir(cache).repos if entry.repo_type == "model" and entry.nb_files
        }
    except CacheNotFound:
        cached = set()
    published = [base for base in PUBLISHED_BASES if "/" in base.name]
    facts = [
        Fact(base.name, "ok", f"in the Hugging Face cache; {base.size}, licence {base.licence}, {base.tested}")
        for base in published
        if base.name in cached
    ]
    if absent := [base.name for base in published if base.name not in cached]:
        message = f"not in the Hugging Face cache, and need not be: {', '.join(absent)}"
        facts.append(Fact("bases", "ok", message, "to have one before it is needed: hf download NAME"))
    return facts


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


def _gib(size: int) -> str:
    return f"{size / 2**30:.1f} GiB"
