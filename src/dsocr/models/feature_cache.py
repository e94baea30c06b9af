"""What frozen vision towers say of an image, computed once and kept on disk.

An entry is one safetensors file named by a hash of everything it depends on, so it is never stale: what made the image
(told by the caller), and, here, the frozen weights, their number format and kind of device, the resolution, the code
that prepares pixels and the libraries it calls. Knows nothing about datasets.
Shapes: `n` image slots, `D` width of the decoder.
"""

import hashlib
import json
import os
import sys
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib import resources
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from uuid import uuid4

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save_file
from torch import Tensor

from dsocr.errors import DataError
from dsocr.models.batch import collate
from dsocr.models.deepseek_images import Grid
from dsocr.models.deepseek_ocr import Encoded, Encoder

if TYPE_CHECKING:
    from transformers import PreTrainedModel


_CODE = (
    "models/batch.py",
    "models/deepseek_ocr.py",
    "models/deepseek_images.py",
    "models/feature_cache.py",
)
_PACKAGES = ("numpy", "Pillow", "torch", "transformers")
_SUFFIX = ".safetensors"
_ELSEWHERE = "set DSOCR_CACHE to a folder with room, or training.feature_cache=false"


@dataclass(frozen=True, slots=True)
class Features:
    """Of one image: `tokens` (n, D), one for each image slot, and the grid of its tiles."""

    tokens: Tensor
    grid: Grid


class Store(Protocol):
    """Where features are, by key."""

    def get(self, key: str) -> Features | None:
        """An entry; None where there is none."""

    def put(self, key: str, features: Features) -> None:
        """Keep an entry."""

    def claim(self, keys: Iterable[str]) -> set[str]:
        """Those of the keys that have an entry; they count as wanted just now."""

    def make_room(self, size: int, keep: Iterable[str]) -> None:
        """Let so many bytes fit, at the cost of entries that are not in `keep`."""


class MemoryStore:
    """Entries that are gone with this process, for trials."""

    def __init__(self) -> None:
        self._entries: dict[str, Features] = {}

    def get(self, key: str) -> Features | None:
        """An entry; None where there is none."""
        return self._entries.get(key)

    def put(self, key: str, features: Features) -> None:
        """Keep an entry."""
        self._entries[key] = features

    def claim(self, keys: Iterable[str]) -> set[str]:
        """Those of the keys that have an entry."""
        return self._entries.keys() & set(keys)

    def make_room(self, size: int, keep: Iterable[str]) -> None:
        """There is room."""


class FeatureStore:
    """Entries in a folder that takes at most `limit` bytes: what was wanted longest ago makes room."""

    def __init__(self, folder: Path, limit: int) -> None:
        self._folder = folder
        self._limit = limit
        self._proved: set[str] = set()

    def get(self, key: str) -> Features | None:
        """An entry; None where there is none, or a damaged one, which is removed."""
        path = self._path(key)
        try:
            # Not mapped into memory: all of it is wanted, and a mapped file that is cut off kills the process.
            data = path.read_bytes()
            about, tokens = _head(data), load(data)["tokens"]
            if key not in self._proved:
                if about["crc32"] != _checksum(tokens):
                    raise ValueError
                self._proved.add(key)
            return Features(tokens, (int(about["columns"]), int(about["rows"])))
        except FileNotFoundError:
            return None
        except (SafetensorError, OSError, ValueError, KeyError, TypeError):
            _remove(path)
            return None

    def put(self, key: str, features: Features) -> None:
        """Keep an entry: written beside its place and renamed, so one that is there is whole."""
        path = self._path(key)
        beside = path.with_name(f"{uuid4().hex}.tmp")
        columns, rows = features.grid
        about = {"columns": str(columns), "rows": str(rows), "crc32": _checksum(features.tokens)}
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            save_file({"tokens": features.tokens.contiguous()}, beside, metadata=about)
            beside.replace(path)
        except (OSError, SafetensorError) as error:
            raise DataError(f"cannot be written: {error}", where=path, hint=_ELSEWHERE) from error
        finally:
            _remove(beside)

    def claim(self, keys: Iterable[str]) -> set[str]:
        """Those of the keys that have an entry; they count as wanted just now."""
        found = set()
        for key in keys:
            try:
                os.utime(self._path(key))
            except OSError:
                continue
            found.add(key)
        return found

    def make_room(self, size: int, keep: Iterable[str]) -> None:
        """Remove the entries that were wanted longest ago until so many bytes fit; those in `keep` stay."""
        spared = set(keep)
        entries = [(path, path.stat()) for path in self._folder.glob(f"??/*{_SUFFIX}")]
        taken = sum(found.st_size for _, found in entries)
        for path, found in sorted(entries, key=lambda entry: entry[1].st_mtime_ns):
            if taken + size <= self._limit:
                return
            if path.stem not in spared and _remove(path):
                taken -= found.st_size

    def _path(self, key: str) -> Path:
        return self._folder / key[:2] / f"{key}{_SUFFIX}"


class VisionCache:
    """The features of images for one base at one resolution, from the store, or else from its vision towers.

    `autocast` is the number format in which training computes, None where the towers compute in their own. `about` is
    what else the images depend on. `frozen` tells the fingerprint of the weights when a key is asked for: gigabytes are
    hashed for it, so caches of one network share it.
    """

    def __init__(
        self,
        store: Store,
        model: Any,
        encoder: Encoder,
        *,
        autocast: torch.dtype | None,
        about: str = "",
        frozen: Callable[[], str] | None = None,
    ) -> None:
        self._store = store
        self._network: PreTrainedModel = model.get_base_model() if hasattr(model, "get_base_model") else model
        self._encoder = encoder
        self._autocast = autocast
        self.frozen = frozen or cache(partial(fingerprint, self._network))
        self._about = "\n".join([repr(encoder.resolution), str(autocast), _code(), about])

    def key(self, made_of: str) -> str:
        """The name of the entry of an image, which `made_of` tells from every other."""
        return hashlib.sha256(f"{self.frozen()}\n{self._about}\n{made_of}".encode()).hexdigest()

    def entry_bytes(self, grid: Grid) -> int:
        """What the entry of an image takes on disk, its head included."""
        text = self._network.config.text_config
        dtype = self._autocast or self._network.dtype
        return self._encoder.resolution.slots(grid) * int(text.hidden_size) * dtype.itemsize + 512

    def fill(self, samples: Mapping[str, Encoded]) -> dict[str, Features]:
        """Compute the features of samples in one batch and keep them by key.

        Raises DataError where they cannot be written.
        """
        computed = vision_features(self._network, list(samples.values()), self._encoder.pad_id, self._autocast)
        filled = {
            key: Features(tokens, sample.views.grid)
            for (key, sample), tokens in zip(samples.items(), computed, strict=True)
        }
        for key, features in filled.items():
            self._store.put(key, features)
        return filled

    def claim(self, keys: Iterable[str]) -> set[str]:
        """Those of the keys that need not be filled any more."""
        return self._store.claim(keys)

    def make_room(self, size: int, keep: Iterable[str]) -> None:
        """Let so many bytes fit, at the cost of entries that are not in `keep`."""
        self._store.make_room(size, keep)

    def get(self, key: str) -> Features | None:
        """An entry; None where it is not there, or not any more."""
        return self._store.get(key)


@torch.no_grad()
def vision_features(
    network: "PreTrainedModel", samples: Sequence[Encoded], pad_id: int, autocast: torch.dtype | None
) -> list[Tensor]:
    """What the vision towers say of each sample, (n, D) on the CPU: what the decoder gets in its image slots."""
    device = network.device
    dtype = torch.float32 if autocast else network.dtype
    batch = collate(samples, pad_id, padding="right", device=device, dtype=dtype)
    names = ("pixel_values", "pixel_values_local", "num_local_patches", "patches_grid")
    images = {name: batch[name] for name in names if name in batch}
    training = network.training
    network.eval()
    with torch.autocast(device.type, autocast, enabled=autocast is not None):
        seen = network.get_image_features(**images, return_dict=True).pooler_output
    network.train(training)
    return [tokens.to("cpu", copy=True) for tokens in seen]


def fingerprint(network: "PreTrainedModel") -> str:
    """A hash of all that features depend on in the network: names, shapes, types, values, and kind of device."""
    found = hashlib.sha256(f"{network.device.type} {network.config._attn_implementation}\n".encode())
    for name, tensor in sorted(network.state_dict().items()):
        behind = name.startswith("lm_head") or ".language_model." in name
        if behind or ".lora_" in name:
            continue
        name = name.replace(".base_layer.", ".")  # whatever has an adapter
        found.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}\n".encode())
        found.update(tensor.detach().contiguous().cpu().view(-1).view(torch.uint8).numpy())
    return found.hexdigest()


def code_hash(*places: str) -> str:
    """A hash of source files of this package, named from its folder; a folder stands for the files in it."""
    found = hashlib.sha256()
    for place in places:
        top = resources.files("dsocr") / place
        files = sorted(top.iterdir(), key=lambda file: file.name) if top.is_dir() else [top]
        for file in files:
            if file.name.endswith(".py"):
                found.update(file.name.encode() + b"\n" + file.read_bytes())
    return found.hexdigest()


def cache_folder() -> Path:
    """Where features are kept: `DSOCR_CACHE`, else where this system keeps what can be made again."""
    if told := os.environ.get("DSOCR_CACHE"):
        return Path(told) / "vision"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local")) / "dsocr" / "vision"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dsocr" / "vision"


def _code() -> str:
    packages = " ".join(f"{name} {version(name)}" for name in _PACKAGES)
    return f"{code_hash(*_CODE)} {packages}"


def _head(data: bytes) -> dict[str, str]:
    """What safetensors calls the metadata of a file; its reader gives it for files only, not for bytes."""
    size = int.from_bytes(data[:8], "little")
    about: dict[str, str] = json.loads(data[8 : 8 + size])["__metadata__"]
    return about


def _checksum(tokens: Tensor) -> str:
    return str(zlib.crc32(tokens.contiguous().view(-1).view(torch.uint8).numpy().data))


def _remove(path: Path) -> bool:
    """True where the file is gone; one that another process has open stays on Windows."""
    try:
        path.unlink(missing_ok=True)
    except OSError:
        return False
    return True
