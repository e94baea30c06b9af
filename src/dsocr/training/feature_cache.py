"""The features of frozen vision towers, computed once per image before the first step, on disk until the run ends."""

import logging
import shutil
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import load, save

from dsocr.config import RunConfig
from dsocr.console import current_reporter
from dsocr.data.augment import changes
from dsocr.errors import ConfigError
from dsocr.job import steps_per_epoch, total_steps
from dsocr.models.adapters import vision_parameters
from dsocr.models.token_family import Features, TokenProcessor
from dsocr.training.distributed import ALONE, Distributed
from dsocr.training.samples import EncodedSamples, Place, Setup, measure_lengths

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_WORTH_CACHING = 256
"""Training samples below which `feature_cache: auto` does not cache."""
_HEADER_BYTES = 512

_LOG = logging.getLogger(__name__)


class FeatureCache:
    """The features of samples, in a file for each view of each, computed by the network's vision towers.

    `autocast` is the number format in which training computes, None if the towers compute in their own.
    """

    def __init__(
        self, files: Path, samples: EncodedSamples, views: int, model: Any, *, autocast: torch.dtype | None
    ) -> None:
        self.samples, self.views = samples, views
        self.places: Sequence[Place] = [(index, view) for index in range(len(samples)) for view in range(views)]
        self._files = files
        self._network: PreTrainedModel = model.get_base_model() if hasattr(model, "get_base_model") else model
        self._autocast = autocast

    @property
    def nbytes(self) -> int:
        """The bytes that all entries take on disk."""
        processor: Any = self.samples.processor  # of a family that caches features
        width: int = processor.feature_width(self._network) * (self._autocast or self._network.dtype).itemsize
        lengths = measure_lengths(self.samples.samples, processor)
        return self.views * sum(length.vision * width + _HEADER_BYTES for length in lengths)

    def load(self, index: int, view: int) -> Features:
        """Return the features of a view of a sample."""
        # Not mapped into memory: all of it is needed.
        entry = load(self._path(index, view).read_bytes())
        columns, rows = entry["grid"].tolist()
        return Features(entry["tokens"], (columns, rows))

    def fill(self, places: Sequence[Place]) -> None:
        """Compute the features of views of samples in one batch, and store them."""
        processor: Any = self.samples.processor
        encoded = [self.samples.encode_view(*place) for place in places]
        computed = vision_features(self._network, processor, encoded, self._autocast)
        for place, features in zip(places, computed, strict=True):
            entry = {"tokens": features.tokens.contiguous(), "grid": torch.tensor(features.grid)}
            self._path(*place).write_bytes(save(entry))

    def _path(self, index: int, view: int) -> Path:
        return self._files / f"{index:07d}-{view}.safetensors"


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


def cache_features(
    config: RunConfig,
    setup: Setup,
    validation: EncodedSamples | None,
    folder: Path,
    *,
    log: logging.Logger = _LOG,
    dist: Distributed = ALONE,
) -> bool:
    """Compute the image features of frozen vision towers and keep them in `folder`; False if they are not cached.

    Both sets of samples then take features from there; the caller removes the folder. Of several ranks each computes a
    share. Raises ConfigError if the cache is required and cannot be used.
    """
    if not _wants_cache(config, setup):
        return False
    autocast = None if setup.dtype is torch.float32 else setup.dtype
    views = config.training.feature_cache_views if changes(config.training.augmentation) else 1
    caches = [FeatureCache(folder / "train", setup.samples, views, setup.model, autocast=autocast)]
    if validation is not None:
        # Validation computes in the number format of the weights, as transcription does.
        caches.append(FeatureCache(folder / "validation", validation, 1, setup.model, autocast=None))
    size = sum(cache.nbytes for cache in caches)
    # Decided once, before anything is written: the free space changes.
    problem = dist.broadcast(partial(_prepare_folder, folder, size, int(config.training.feature_cache_gb * 1e9)))
    if problem and config.training.feature_cache == "auto":
        log.info("no feature cache: %s", problem)
        return False
    if problem:
        hint = "raise training.feature_cache_gb, lower training.feature_cache_views, or write the run to another disk"
        raise ConfigError(f"training.feature_cache: {problem}", code="feature-cache-too-large", hint=hint)
    total, done = sum(len(cache.places) for cache in caches), 0
    log.info("feature cache: %d views, %.0f MB", total, size / 1e6)
    images_per_batch = max(8, config.training.micro_batch_size)
    with current_reporter().progress("computing image features", "images") as show:
        for cache in caches:
            ours = dist.shard(cache.places)
            for start in range(0, len(ours), images_per_batch):
                batch = ours[start : start + images_per_batch]
                cache.fill(batch)
                done += len(batch) * dist.world_size
                show(min(done, total), total)
            cache.samples.use_features(cache.load, cache.views)
    dist.barrier()
    return True


def _wants_cache(config: RunConfig, setup: Setup) -> bool:
    choice = config.training.feature_cache
    family, (adapted, _) = setup.processor.family, vision_parameters(setup.model)
    if choice is True and not family.caches_features:
        message = f"training.feature_cache: models of the family {family.name} have no features to cache"
        raise ConfigError(message, code="feature-cache-unsupported", hint="leave it at auto")
    if choice is True and adapted:
        message = "training.feature_cache: the adapter trains vision layers, so features cannot be cached"
        hint = "set adapter.target_modules to decoder, or leave this at auto"
        raise ConfigError(message, code="feature-cache-not-frozen", hint=hint)
    if choice != "auto":
        return choice
    # A few views instead of ever new ones change what is trained on, so that must be asked for.
    augmented = changes(config.training.augmentation)
    count = len(setup.samples)
    epochs = total_steps(config, count) / steps_per_epoch(config, count)
    return family.caches_features and not adapted and not augmented and epochs > 1 and count >= _WORTH_CACHING


def _prepare_folder(folder: Path, size: int, limit: int) -> str:
    """Make the folders of the cache; return why features of this size cannot be cached, empty if they can."""
    allowed, free = f"{size / 1e9:.2f} GB are needed", shutil.disk_usage(folder.parent).free
    if size > limit:
        return f"{allowed} and {limit / 1e9:.2f} GB allowed"
    if size > free:
        return f"{allowed} and {free / 1e9:.2f} GB free in {folder.parent}"
    for name in ("train", "validation"):
        (folder / name).mkdir(parents=True)
    return ""
