"""Check this machine: packages, processor, GPUs, disk and bases. Needs no network and changes nothing."""

import os
import shutil
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from dsocr import __version__

if TYPE_CHECKING:
    from dsocr.models.family import PublishedBase

DISTRIBUTION = "dsocr-hw"
"""The name of the distribution."""
MIN_FREE_DISK = 10e9
"""Bytes: 6.7 GB for a large base, and room for datasets and runs."""
GET_TORCH = "https://pytorch.org/get-started/locally/"

State = Literal["ok", "warning", "missing"]


@dataclass(frozen=True, slots=True)
class Fact:
    """What was found about one component; `hint` says what to do if the state is not `ok`.

    Without a `required` component nothing can be trained or read. A version out of range counts as missing.
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
    folder = Path.cwd()
    return [
        *_attempt("packages", packages),
        *_attempt("CPU", processor),
        *_attempt("GPU", accelerators),
        *_attempt("precision", precision),
        *_attempt("disk", lambda: disk(folder)),
        *_attempt("nano", embedded_base),
        *_attempt("bases", cached_bases, required=False),
    ]


def _attempt(name: str, check: Callable[[], Sequence[Fact]], *, required: bool = True) -> Sequence[Fact]:
    try:
        return check()
    except Exception as error:  # noqa: BLE001 - a broken installation can raise anything, and reporting it is the task here
        message = str(error).strip().partition("\n")[0]
        hint = getattr(error, "hint", None) or "fix what is missing above, or install dsocr in a new environment"
        return [Fact(name, "missing", f"{type(error).__name__}: {message}", hint, required)]


def packages() -> list[Fact]:
    """Check dsocr, Python and every required package against the ranges in the package's metadata."""
    again = "install dsocr again: python -m pip install --editable ."
    try:
        installed = metadata.version(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return [Fact("dsocr", "warning", f"{__version__}, not installed, so its requirements are unknown", again)]
    package = Fact("dsocr", "ok", __version__, required=True)
    if installed != __version__:
        message = f"{__version__}, but installed as {installed}; the ranges below may be out of date"
        package = Fact("dsocr", "warning", message, again, required=True)
    return [package, _python(), *map(_package, _requirements())]


def _python() -> Fact:
    required = metadata.metadata(DISTRIBUTION)["Requires-Python"]
    running = Version(".".join(map(str, sys.version_info[:3])))
    return _compare("Python", running, SpecifierSet(required), f"create a new environment with Python {required}")


def _requirements() -> Iterator[Requirement]:
    for line in metadata.requires(DISTRIBUTION) or []:
        requirement = Requirement(line)
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            yield requirement


def _package(requirement: Requirement) -> Fact:
    hint = f'python -m pip install "{requirement}"'
    if requirement.name == "torch":
        # From PyPI, pip replaces a build with CUDA by one without on Windows.
        hint = f"choose the build for your graphics card at {GET_TORCH}"
    try:
        version = Version(metadata.version(requirement.name) or "")
    except metadata.PackageNotFoundError:
        return Fact(
            requirement.name, "missing", f"not installed; needs {requirement.specifier or 'any'}", hint, required=True
        )
    except (InvalidVersion, KeyError):
        return Fact(requirement.name, "missing", "incompletely removed: it has no version", hint, required=True)
    return _compare(requirement.name, version, requirement.specifier, hint)


def _compare(name: str, version: Version, admitted: SpecifierSet, hint: str) -> Fact:
    if admitted.contains(version, prereleases=True):
        return Fact(name, "ok", str(version), required=True)
    lower = [bound for bound in admitted if bound.operator.startswith(">")]
    fault = "new" if all(bound.contains(version, prereleases=True) for bound in lower) else "old"
    return Fact(name, "missing", f"{version} is too {fault}: needs {admitted}", hint, required=True)


def processor() -> list[Fact]:
    """Report cores and memory."""
    import psutil

    from dsocr.io.processes import free_threads

    memory = psutil.virtual_memory()
    message = f"{psutil.cpu_count()} cores, {_gib(memory.total)} of memory, {_gib(memory.available)} free"
    threads, load = free_threads(), psutil.getloadavg()[0]
    if chosen := os.environ.get("OMP_NUM_THREADS"):
        return [Fact("CPU", "ok", f"{message}; OMP_NUM_THREADS is {chosen}, the threads that training computes in")]
    if threads is None:
        return [Fact("CPU", "ok", f"{message}; load {load:.1f}, so training computes in all cores (training.threads)")]
    message += f"; load {load:.0f}, so training would compute in {threads} of them"
    return [Fact("CPU", "warning", message, "close other programs, or set training.threads")]


def accelerators() -> list[Fact]:
    """Report each accelerator that torch can use, or why there is none."""
    import torch

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        devices = range(torch.cuda.device_count() if torch.cuda.is_available() else 0)
    facts = [_cuda(device) for device in devices]
    if torch.backends.mps.is_available():
        facts.append(Fact("MPS", "ok", "Apple GPU, which shares the machine's memory"))
    if facts:
        return facts
    message, hint = "none that torch can use", "check with nvidia-smi whether the driver works"
    if caught:
        message += f": {str(caught[0].message).partition(' (Triggered')[0]}"
    elif not (torch.version.cuda or torch.version.hip):
        message, hint = (
            f"{message}: torch is built without CUDA",
            f"if there is a graphics card, get torch at {GET_TORCH}",
        )
    return [Fact("GPU", "warning", message, f"{hint}; small and nano need none, large bases do")]


def _cuda(device: int) -> Fact:
    import torch

    name = f"CUDA {device}"
    try:
        with torch.cuda.device(device):
            free, total = torch.cuda.mem_get_info()
            # By default torch also counts emulated bf16, as on a T4, where it is slower than fp32.
            bf16 = torch.cuda.is_bf16_supported(including_emulation=False)
    except RuntimeError as error:  # used exclusively by another process, out of memory, or failed
        message = str(error).strip().partition("\n")[0]
        return Fact(name, "warning", f"does not respond: {message}", "check it with nvidia-smi")
    capability = "compute capability {}.{}".format(*torch.cuda.get_device_capability(device))
    summary = f"{torch.cuda.get_device_name(device)}, {_gib(total)}, {_gib(free)} free, {capability}"
    if bf16:
        return Fact(name, "ok", f"{summary}, bf16")
    return Fact(name, "warning", f"{summary}, no native bf16", "set training.precision to fp16 or fp32")


def precision() -> list[Fact]:
    """Report what `training.precision: auto` means here."""
    import torch

    from dsocr.models.loading import choose_device, choose_dtype

    names = {torch.bfloat16: "bf16", torch.float16: "fp16", torch.float32: "fp32"}
    device = choose_device()
    usual, whole = (names[choose_dtype("auto", device, whole=whole)] for whole in (False, True))
    more = "" if whole == usual else f", {whole} for line recognisers"
    return [Fact("precision", "ok", f"auto is {usual} on {device.type}{more}")]


def disk(folder: Path) -> list[Fact]:
    """Report the free disk space of a folder."""
    free = shutil.disk_usage(folder).free
    message = f"{free / 1e9:.1f} GB free in {folder}"
    if free >= MIN_FREE_DISK:
        return [Fact("disk", "ok", message)]
    hint = "free some space: large bases take 6.7 GB, and datasets and runs need more"
    return [Fact("disk", "warning", message, hint)]


def embedded_base() -> list[Fact]:
    """Load the bases that ship with the package, which checks their files, torch and transformers together."""
    from dsocr.models.base_folder import embedded_bases
    from dsocr.models.loading import load_base

    facts = []
    for name in embedded_bases():
        base = load_base(name)
        millions = base.network.num_parameters() / 1e6
        message = f"the embedded base loads, {millions:.1f} million parameters, family {base.family.name}"
        facts.append(Fact(name, "ok", message, required=True))
    return facts


def cached_bases(cache: Path | None = None) -> list[Fact]:
    """Report the published bases of all families, and which of them a Hub cache holds, the user's by default."""
    from huggingface_hub import CacheNotFound, scan_cache_dir

    from dsocr.models.families import PUBLISHED_BASES

    try:
        repositories = scan_cache_dir(cache).repos
    except CacheNotFound:
        repositories = frozenset()
    snapshots = {
        repository.repo_id: [revision.snapshot_path for revision in repository.revisions]
        for repository in repositories
        if repository.repo_type == "model"
    }
    published = [base for base in PUBLISHED_BASES if "/" in base.name]
    facts = [_cached(base, snapshots[base.name]) for base in published if base.name in snapshots]
    absent = [base.name for base in published if base.name not in snapshots]
    if absent:
        message = (
            f"{len(absent)} published bases are not in the Hugging Face cache, and need not be: {', '.join(absent)}"
        )
        facts.append(Fact("bases", "ok", message, "to have one before it is needed: hf download NAME"))
    return facts


def _cached(base: "PublishedBase", snapshots: Sequence[Path]) -> Fact:
    name, about = base.name, f"{base.size}, licence {base.licence}, {base.tested}"
    faults = {snapshot.name[:7]: _fault(snapshot) for snapshot in sorted(snapshots)}
    if complete := [revision for revision, fault in faults.items() if fault is None]:
        return Fact(name, "ok", f"in the Hugging Face cache, revision {', '.join(complete)}; {about}")
    for revision, fault in faults.items():
        message = f"incomplete in the Hugging Face cache, {revision}: {fault}"
        return Fact(name, "warning", message, f"resume the download: hf download {name}")
    return Fact(name, "warning", f"empty in the Hugging Face cache; {about}", f"download it again: hf download {name}")


def _fault(snapshot: Path) -> str | None:
    """Return what is missing from an interrupted download, judged by names and headers of files."""
    from dsocr.errors import ModelError
    from dsocr.models.base_folder import tensor_shapes

    try:
        tensor_shapes(snapshot)
    except ModelError as error:
        return error.message
    missing = [file for file in ("config.json", "tokenizer.json") if not (snapshot / file).is_file()]
    return f"{' and '.join(missing)} missing" if missing else None


def _gib(size: int) -> str:
    """Format memory in the units it is sold in."""
    return f"{size / 2**30:.1f} GiB"
