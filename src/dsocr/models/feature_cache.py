"""The features of frozen vision towers, computed once per image and kept on disk.

An entry is a safetensors file named by a hash of everything it depends on, so it never becomes stale: how the image was
made (given by the caller), the frozen weights, their number format and kind of device, the resolution, the code that
prepares pixels, and the libraries it calls. Shapes: `n` image slots, `D` width of the decoder.
"""

import hashlib
import json
import os
import time
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib import resources
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from dsocr.errors import DataError
from dsocr.io.files import cache_path
from dsocr.io.work import write_file

if TYPE_CHECKING:
    from transformers import PreTrainedModel


_CODE = ("models/batch.py", "models/feature_cache.py")
_PACKAGES = ("numpy", "Pillow", "torch", "transformers")
_SUFFIX = ".safetensors"
_ABANDONED_SECONDS = 3600
"""Age of a file that a killed process left half written."""
_HINT = "set DSOCR_CACHE to a folder with room, or training.feature_cache=false"


@dataclass(frozen=True, slots=True)
class Features:
    """The features of one image: `tokens` (n, D), one for each position it takes, and the grid of its tiles."""

    tokens: Tensor
    grid: tuple[int, int] = (1, 1)


class FeatureProcessor(Protocol):
    """What the cache asks of the processor of a family with `caches_features`."""

    @property
    def feature_key(self) -> str:
        """Everything of the processor that an image's features depend on."""

    @property
    def feature_code(self) -> Sequence[str]:
        """The source files that prepare pixels, relative to the package."""

    def is_encoder(self, name: str) -> bool:
        """Whether features depend on a tensor of the native network."""

    def feature_width(self, network: Any) -> int:
        """Return the numbers in the features of one position."""

    def encoder_features(self, network: Any, samples: Sequence[Any], dtype: torch.dtype) -> list[Features]:
        """Return the features of each sample from pixels of this number format; the network is in evaluation mode."""

    def encode_features(self, features: Features, text: str) -> Any:
        """Encode a sample whose features have been computed."""


class Store(Protocol):
    """Features by key."""

    def get(self, key: str) -> Features | None:
        """Return an entry, None if there is none."""

    def put(self, key: str, features: Features) -> None:
        """Store an entry."""

    def claim(self, keys: Iterable[str]) -> set[str]:
        """Return which of the keys have an entry, and count those entries as used just now."""

    def make_room(self, size: int, keep: Iterable[str]) -> None:
        """Remove old entries, except those in `keep`, until `size` bytes fit."""


class MemoryStore(dict[str, Features]):
    """Entries of this process only, for trials."""

    def put(self, key: str, features: Features) -> None:
        """Store an entry."""
        self[key] = features

    def claim(self, keys: Iterable[str]) -> set[str]:
        """Return which of the keys have an entry."""
        return self.keys() & set(keys)

    def make_room(self, size: int, keep: Iterable[str]) -> None:
        """Do nothing: memory is not limited here."""


class FeatureStore:
    """Entries in a folder of at most `limit` bytes; the least recently used are removed first."""

    def __init__(self, folder: Path, limit: int) -> None:
        self._folder = folder
        self._limit = limit
        self._verified: set[str] = set()

    def get(self, key: str) -> Features | None:
        """Return an entry; None if there is none, or a damaged one, which is removed."""
        path = self._path(key)
        try:
            # Not mapped into memory: all of it is needed, and a mapped file that is truncated kills the process.
            data = path.read_bytes()
            metadata, tokens = _metadata(data), load(data)["tokens"]
            if key not in self._verified:
                if metadata["crc32"] != _checksum(tokens):
                    raise ValueError
                self._verified.add(key)
            return Features(tokens, (int(metadata["columns"]), int(metadata["rows"])))
        except FileNotFoundError:
            return None
        except (SafetensorError, OSError, ValueError, KeyError, TypeError):
            _remove(path)
            return None

    def put(self, key: str, features: Features) -> None:
        """Store an entry, which is complete or absent. Raises DataError if that fails."""
        path = self._path(key)
        columns, rows = features.grid
        metadata = {"columns": str(columns), "rows": str(rows), "crc32": _checksum(features.tokens)}
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            # Not flushed to disk: a checksum tells what a power cut damaged, and it can be computed again.
            write_file(path, save({"tokens": features.tokens.contiguous()}, metadata), flushed=False)
        except OSError as error:
            raise DataError(
                f"Cannot write features: {error}", code="cache-not-writable", where=path, hint=_HINT
            ) from error

    def claim(self, keys: Iterable[str]) -> set[str]:
        """Return which of the keys have an entry, and count those entries as used just now."""
        found = set()
        for key in keys:
            try:
                os.utime(self._path(key))
            except OSError:
                continue
            found.add(key)
        return found

    def make_room(self, size: int, keep: Iterable[str]) -> None:
        """Remove the least recently used entries, except those in `keep`, until `size` bytes fit."""
        protected = set(keep)
        for path in self._folder.glob("??/.*.tmp"):
            with suppress(OSError):
                if time.time() - path.stat().st_mtime > _ABANDONED_SECONDS:
                    _remove(path)
        entries = []
        for path in self._folder.glob(f"??/*{_SUFFIX}"):
            with suppress(OSError):  # removed by another process meanwhile
                entries.append((path, path.stat()))
        taken = sum(found.st_size for _, found in entries)
        for path, found in sorted(entries, key=lambda entry: entry[1].st_mtime_ns):
            if taken + size <= self._limit:
                return
            if path.stem not in protected and _remove(path):
                taken -= found.st_size

    def _path(self, key: str) -> Path:
        return self._folder / key[:2] / f"{key}{_SUFFIX}"


class FeatureCache:
    """The features of images for one base at one resolution, from the store or computed by its vision towers.

    `autocast` is the number format in which training computes, None if the towers compute in their own. `salt` is what
    else the images depend on. `weights_hash` is called when a key is first needed, because it hashes gigabytes; caches
    of one network share it.
    """

    def __init__(
        self,
        store: Store,
        model: Any,
        processor: FeatureProcessor,
        *,
        autocast: torch.dtype | None,
        salt: str = "",
        weights_hash: Callable[[], str] | None = None,
    ) -> None:
        self._store = store
        self._network: PreTrainedModel = model.get_base_model() if hasattr(model, "get_base_model") else model
        self._processor = processor
        self._autocast = autocast
        self.weights_hash = weights_hash or cache(partial(fingerprint, self._network, processor))
        code = code_hash(*_CODE, *processor.feature_code)
        self._salt = "\n".join([processor.feature_key, str(autocast), code, _package_versions(), salt])

    def key(self, image_key: str) -> str:
        """Return the name of an image's entry; `image_key` identifies the image and its augmentation."""
        return hashlib.sha256(f"{self.weights_hash()}\n{self._salt}\n{image_key}".encode()).hexdigest()

    def entry_bytes(self, vision_tokens: int) -> int:
        """Return the bytes that the entry of an image of so many vision tokens takes on disk, with its header."""
        dtype = self._autocast or self._network.dtype
        return vision_tokens * self._processor.feature_width(self._network) * dtype.itemsize + 512

    def fill(self, samples: Mapping[str, Any]) -> dict[str, Features]:
        """Compute the features of samples in one batch and store them by key. Raises DataError if that fails."""
        computed = vision_features(self._network, self._processor, list(samples.values()), self._autocast)
        filled = dict(zip(samples, computed, strict=True))
        for key, features in filled.items():
            self._store.put(key, features)
        return filled

    def claim(self, keys: Iterable[str]) -> set[str]:
        """Return which of the keys have an entry already."""
        return self._store.claim(keys)

    def make_room(self, size: int, keep: Iterable[str]) -> None:
        """Remove old entries, except those in `keep`, until `size` bytes fit."""
        self._store.make_room(size, keep)

    def get(self, key: str) -> Features | None:
        """Return an entry, None if there is none."""
        return self._store.get(key)


@torch.no_grad()
def vision_features(
    network: "PreTrainedModel",
    processor: FeatureProcessor,
    samples: Sequence[Any],
    autocast: torch.dtype | None,
) -> list[Features]:
    """Return the features of each sample on the CPU, as the decoder takes them."""
    dtype = torch.float32 if autocast else network.dtype
    training = network.training
    network.eval()
    with torch.autocast(network.device.type, autocast, enabled=autocast is not None):
        features = processor.encoder_features(network, samples, dtype)
    network.train(training)
    return [replace(one, tokens=one.tokens.to("cpu", copy=True)) for one in features]


def fingerprint(network: "PreTrainedModel", processor: FeatureProcessor) -> str:
    """Hash everything in a network that features depend on: tensors by name, attention, and kind of device."""
    digest = hashlib.sha256(f"{network.device.type} {network.config._attn_implementation}\n".encode())
    for name, tensor in sorted(network.state_dict().items()):
        if ".lora_" in name or not processor.is_encoder(name):
            continue
        name = name.replace(".base_layer.", ".")  # of layers with an adapter
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}\n".encode())
        digest.update(tensor.detach().contiguous().cpu().view(-1).view(torch.uint8).numpy())
    return digest.hexdigest()


def code_hash(*places: str) -> str:
    """Hash source files of this package, given relative to its folder; a folder stands for the files in it."""
    digest = hashlib.sha256()
    for place in places:
        top = resources.files("dsocr") / place
        files = sorted(top.iterdir(), key=lambda file: file.name) if top.is_dir() else [top]
        for file in files:
            if file.name.endswith(".py"):
                digest.update(file.name.encode() + b"\n" + file.read_bytes())
    return digest.hexdigest()


def cache_folder() -> Path:
    """Return the folder of features in the user's cache."""
    return cache_path("vision")


def _package_versions() -> str:
    return " ".join(f"{name} {version(name)}" for name in _PACKAGES)


def _metadata(data: bytes) -> dict[str, str]:
    """Return the metadata of a safetensors file in memory, which its library returns for files only."""
    size = int.from_bytes(data[:8], "little")
    metadata: dict[str, str] = json.loads(data[8 : 8 + size])["__metadata__"]
    return metadata


def _checksum(tokens: Tensor) -> str:
    return str(zlib.crc32(tokens.contiguous().view(-1).view(torch.uint8).numpy().data))


def _remove(path: Path) -> bool:
    """Remove a file; False if that fails, as on Windows while another process has it open."""
    with suppress(OSError):
        path.unlink(missing_ok=True)
        return True
    return False
