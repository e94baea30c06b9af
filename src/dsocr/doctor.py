"""Check this machine: packages, processor, GPUs, disk and bases. Needs no network and changes nothing."""

import shutil
import sys
import warnings
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from dsocr import __version__
from dsocr.console import format_bytes
from dsocr.errors import TRAIN

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
    facts: list[Fact] = []
    for check in (packages, processor, accelerators, disk, bases):
        try:
            facts += check()
        except Exception as error:  # noqa: BLE001 - a broken installation can raise anything
            hint = "fix what is missing above, or install dsocr in a new environment"
            message = f"{type(error).__name__}: {_first_line(error)}"
            facts.append(Fact(check.__name__, "missing", message, hint, required=True))
    return facts


def packages() -> list[Fact]:
    """Check dsocr, Python and every required package against the ranges in the package's metadata.

    Those of the extra `train` are required where torch is.
    """
    from packaging.requirements import Requirement  # which onnxruntime needs too

    try:
        about = metadata.metadata(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        hint = "install dsocr again: python -m pip install -e ."
        return [Fact("dsocr", "warning", f"{__version__}, not installed, so its requirements are unknown", hint)]
    facts = [Fact("dsocr", "ok", about["Version"])]
    hints = {
        "python": "create a new environment with such a Python",
        # From PyPI, pip replaces a build with CUDA by one without on Windows.
        "torch": f"choose the build for your graphics card at {GET_TORCH}",
    }
    running = ".".join(map(str, sys.version_info[:3]))
    for text in [f"python{about['Requires-Python']}", *(metadata.requires(DISTRIBUTION) or [])]:
        requirement, version = Requirement(text), ""
        if requirement.marker and not (_trains() and requirement.marker.evaluate({"extra": TRAIN})):
            continue
        name = requirement.name
        with suppress(metadata.PackageNotFoundError, KeyError):  # KeyError: a folder that pip left
            version = running if name == "python" else metadata.version(name)
        if version and requirement.specifier.contains(version, prereleases=True):
            facts.append(Fact(name, "ok", version, required=True))
        else:
            message = f"{version or 'not installed'}; needs {requirement.specifier or 'any'}"
            hint = hints.get(name, f'python -m pip install "{text}"')
            facts.append(Fact(name, "missing", message, hint, required=True))
    return facts


def processor() -> list[Fact]:
    """Report cores and memory."""
    import psutil

    memory = psutil.virtual_memory()
    sizes = f"{format_bytes(memory.total)} of memory, {format_bytes(memory.available)} free"
    return [Fact("CPU", "ok", f"{psutil.cpu_count()} cores, {sizes}")]


def accelerators() -> list[Fact]:
    """Report each accelerator that torch can use, or why there is none, and the format of `precision: auto`."""
    if not _trains():
        hint = f'pip install "{DISTRIBUTION}[{TRAIN}]"'
        return [Fact("torch", "ok", "not installed: reads, compares and corrects, does not train", hint)]
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
            bf16 = torch.cuda.is_bf16_supported(including_emulation=False)
    except RuntimeError as error:  # used exclusively by another process, out of memory, or failed
        return Fact(name, "warning", f"does not respond: {_first_line(error)}", "check it with nvidia-smi")
    summary = f"{torch.cuda.get_device_name(device)}, {format_bytes(total)}, {format_bytes(free)} free"
    return Fact(name, "ok", f"{summary}, {'bf16' if bf16 else 'no bf16: adapters are trained in fp16'}")


def disk() -> list[Fact]:
    """Report the free disk space of the working folder."""
    free = shutil.disk_usage(folder := Path.cwd()).free
    hint = None if free >= 10e9 else "free some space: large bases take 6.7 GB, and datasets and runs need more"
    return [Fact("disk", "warning" if hint else "ok", f"{free / 1e9:.1f} GB free in {folder}", hint)]


def bases() -> list[Fact]:
    """Load the bases that ship with the package, which checks their files and what computes them together."""
    from dsocr.io.hub import find_cached_model
    from dsocr.io.kraken import KRAKENS_BASE, KRAKENS_FILES
    from dsocr.models import base_folder
    from dsocr.models.loading import load_base, open_graph
    from dsocr.runs import SHIPPED_BASES

    if not _trains():
        open_graph(SHIPPED_BASES / "small")
        return [Fact("small", "ok", "opens in ONNX Runtime", required=True)]
    families = {name: load_base(name).family.name for name in base_folder.embedded_bases()}
    facts = [Fact(name, "ok", f"loads, family {family}", required=True) for name, family in families.items()]
    is_here = find_cached_model(KRAKENS_BASE, None) is not None
    return [*facts, Fact("kraken", "ok", f"{KRAKENS_BASE} is here" if is_here else f"not downloaded; {KRAKENS_FILES}")]


def _trains() -> bool:
    return find_spec("torch") is not None


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]
