"""The features of frozen vision towers, computed once per image before a training and kept on disk.

An entry is a safetensors file named by a hash of everything it depends on, so it never becomes stale: how the image was
made (given by the caller), the frozen weights, their number format and kind of device, the resolution, the code that
prepares pixels, and the libraries it calls. Shapes: `n` image slots, `D` width of the decoder.
"""

import functools
import hashlib
import json
import logging
import os
import shutil
import time
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from importlib import resources
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from dsocr.config import RunConfig
from dsocr.console import Reporter
from dsocr.data.augment import changes
from dsocr.errors import ConfigError, DataError
from dsocr.io.files import cache_path
from dsocr.io.work import write_file
from dsocr.job import steps_per_epoch, total_steps
from dsocr.models.adapters import vision_parameters
from dsocr.models.family import Encoded
from dsocr.models.token_inputs import Features, TokenProcessor
from dsocr.training.distributed import Distributed
from dsocr.training.samples import EncodedSamples, Setup, measure_lengths

if TYPE_CHECKING:
    from transformers import PreTrainedModel


_CODE = ("models/batch.py", "training/feature_cache.py")
_PACKAGES = ("numpy", "Pillow", "torch", "transformers")
_SUFFIX = ".safetensors"
_ABANDONED_SECONDS = 3600
"""Age of a file that a killed process left half written."""
_HINT = "set DSOCR_CACHE to a folder with room, or training.feature_cache=false"
_PREPARING_CODE = ("images.py", "data/augment.py")
"""Sources besides the model's own on which the pixels of a training image depend."""
_WORTH_CACHING = 256
"""Training samples below which `feature_cache: auto` does not cache."""

_LOG, _SILENT = logging.getLogger(__name__), Reporter()


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
        claimed = set()
        for key in keys:
            with suppress(OSError):
                os.utime(self._path(key))
                claimed.add(key)
        return claimed

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
        taken = sum(status.st_size for _, status in entries)
        for path, status in sorted(entries, key=lambda entry: entry[1].st_mtime_ns):
            if taken + size <= self._limit:
                return
            if path.stem not in protected and _remove(path):
                taken -= status.st_size

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
        store: FeatureStore,
        model: Any,
        processor: TokenProcessor,
        *,
        autocast: torch.dtype | None,
        salt: str = "",
        weights_hash: Callable[[], str] | None = None,
    ) -> None:
        self.store = store
        self._network: PreTrainedModel = model.get_base_model() if hasattr(model, "get_base_model") else model
        self._processor = processor
        self._autocast = autocast
        self.weights_hash = weights_hash or functools.cache(partial(fingerprint, self._network, processor))
        code = code_hash(*_CODE, *processor.feature_code)
        packages = " ".join(f"{name} {version(name)}" for name in _PACKAGES)
        self._salt = "\n".join([processor.feature_key, str(autocast), code, packages, salt])

    def key(self, image_key: str) -> str:
        """Return the name of an image's entry; `image_key` identifies the image and its augmentation."""
        return hashlib.sha256(f"{self.weights_hash()}\n{self._salt}\n{image_key}".encode()).hexdigest()

    def entry_bytes(self, vision_tokens: int) -> int:
        """Return the bytes that the entry of an image of so many vision tokens takes on disk, with its header."""
        dtype = self._autocast or self._network.dtype
        return vision_tokens * self._processor.feature_width(self._network) * dtype.itemsize + 512

    def load(self, image_key: str, encode: Callable[[], Encoded]) -> Features:
        """Return the features of an image; those that the cache lost are computed from the encoded sample."""
        key = self.key(image_key)
        return self.store.get(key) or self.fill({key: encode()})[key]

    def fill(self, samples: Mapping[str, Any]) -> dict[str, Features]:
        """Compute the features of samples in one batch and store them by key. Raises DataError if that fails."""
        computed = vision_features(self._network, self._processor, list(samples.values()), self._autocast)
        filled = dict(zip(samples, computed, strict=True))
        for key, features in filled.items():
            self.store.put(key, features)
        return filled


@torch.no_grad()
def vision_features(
    network: "PreTrainedModel",
    processor: TokenProcessor,
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
    return [replace(image, tokens=image.tokens.to("cpu", copy=True)) for image in features]


def fingerprint(network: "PreTrainedModel", processor: TokenProcessor) -> str:
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


# Before a training


Part = tuple[EncodedSamples, FeatureCache, int]
"""Samples, their cache, and the number of views of each image in it."""


def cache_features(
    config: RunConfig,
    setup: Setup,
    validation: EncodedSamples | None,
    *,
    log: logging.Logger = _LOG,
    reporter: Reporter = _SILENT,
    dist: Distributed | None = None,
) -> bool:
    """Compute the image features of frozen vision towers once and keep them on disk; False if that is not to be.

    Both sets of samples then take features from the cache. Of several ranks each computes a share. Raises ConfigError
    if the cache is required and cannot be used.
    """
    if not _wants_cache(config, setup):
        return False
    dist = dist or Distributed()
    limit = int(config.training.feature_cache_gb * 1e9)
    store, salt = FeatureStore(cache_folder(), limit), code_hash(*_PREPARING_CODE)
    processor: Any = setup.processor  # of a family that caches features
    autocast = None if setup.dtype is torch.float32 else setup.dtype
    ours = FeatureCache(store, setup.model, processor, autocast=autocast, salt=salt)
    views = config.training.feature_cache_views if changes(config.training.augmentation) else 1
    parts: list[Part] = [(setup.samples, ours, views)]
    if validation is not None:
        # Validation computes in the number format of the weights, as transcription does.
        theirs = FeatureCache(store, setup.model, processor, autocast=None, salt=salt, weights_hash=ours.weights_hash)
        parts.append((validation, theirs, 1))
    size = sum(map(_bytes_needed, parts))
    # Decided once, before anything is written: the free space changes.
    problem = dist.broadcast(partial(_why_too_large, size, limit))
    if problem and config.training.feature_cache == "auto":
        log.info("no feature cache: %s", problem)
        return False
    if problem:
        hint = "raise training.feature_cache_gb, lower training.feature_cache_views, or set DSOCR_CACHE"
        raise ConfigError(f"training.feature_cache: {problem}", code="feature-cache-too-large", hint=hint)
    for samples, cache, views in parts:
        samples.use_features(cache.load, views)
    images_per_batch = max(8, config.training.micro_batch_size)
    _fill_cache(parts, size, images_per_batch, log, reporter, dist)
    return True


def _wants_cache(config: RunConfig, setup: Setup) -> bool:
    setting = config.training.feature_cache
    if setting is False:
        return False
    if not setup.processor.family.caches_features:
        if setting is True:
            message = (
                f"training.feature_cache: models of the family {setup.processor.family.name} have no features to cache"
            )
            raise ConfigError(message, code="feature-cache-unsupported", hint="leave it at auto")
        return False
    adapted, _ = vision_parameters(setup.model)
    if setting is True and adapted:
        message = "training.feature_cache: the adapter trains vision layers, so features cannot be cached"
        hint = "set adapter.target_modules to decoder, or leave this at auto"
        raise ConfigError(message, code="feature-cache-not-frozen", hint=hint)
    if setting is True:
        return True
    # A few views instead of ever new ones change what is trained on, so that must be asked for.
    augmented = changes(config.training.augmentation)
    count = len(setup.samples)
    epochs = total_steps(config, count) / steps_per_epoch(config, count)
    return not adapted and not augmented and epochs > 1 and count >= _WORTH_CACHING


def _bytes_needed(part: Part) -> int:
    samples, cache, views = part
    lengths = measure_lengths(samples.samples, samples.processor)
    return views * sum(cache.entry_bytes(length.vision) for length in lengths)


def _why_too_large(size: int, limit: int) -> str:
    """Return why features of this size cannot be cached; empty if they can."""
    if size > limit:
        return f"{size / 1e9:.2f} GB are needed and {limit / 1e9:.2f} GB allowed"
    folder = cache_folder()
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    return f"{size / 1e9:.2f} GB are needed and {free / 1e9:.2f} GB free in {folder}" if size > free else ""


def _fill_cache(
    parts: Sequence[Part],
    size: int,
    images_per_batch: int,
    log: logging.Logger,
    reporter: Reporter,
    dist: Distributed,
) -> None:
    """Compute the features that are not in the cache, each rank its share."""
    places: list[dict[str, tuple[int, int]]] = []  # index and view by key
    with reporter.progress("looking up cached features", "images") as show:
        for samples, cache, _ in parts:
            places.append({})
            for index in range(len(samples)):
                show(index + 1, len(samples))
                places[-1] |= {cache.key(key): (index, view) for view, key in enumerate(samples.image_keys(index))}
    keys = [key for entries in places for key in entries]
    store = parts[0][1].store
    cached = store.claim(keys)
    dist.barrier()  # no rank writes before all have looked, or two would compute the same features
    if dist.is_main:
        store.make_room(round(size * (1 - len(cached) / len(keys))), keys)
    counts = len(cached), len(keys)
    log.info("feature cache: %d of %d views are in %s, %.0f MB in all", *counts, cache_folder(), size / 1e6)
    missing = [[entry for entry in entries.items() if entry[0] not in cached] for entries in places]
    done, total = 0, sum(map(len, missing))
    with reporter.progress("computing image features", "images") as show:
        for (samples, cache, _), entries in zip(parts, missing, strict=True):
            ours = dist.shard(entries)
            for start in range(0, len(ours), images_per_batch):
                batch = ours[start : start + images_per_batch]
                cache.fill({key: samples.encode_view(*place) for key, place in batch})
                done += len(batch) * dist.world_size
                show(min(done, total), total)
            samples.forget()
    dist.barrier()
